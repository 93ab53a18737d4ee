//! Runs the program fio on the file or device that an experiment uses, for comparison.
//!
//! Invariants
//! - fio uses the same part of the file as the experiment, with the same operations, size and
//!   depth, and bypasses the kernel's page cache. Where the experiment only reads, fio must not
//!   write (`--readonly`).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;

use crate::drive::{Distribution, IoMix, Region};
use crate::latency::LatencySummary;
use crate::target::IoOperation;

/// How often it is checked whether fio has ended.
const POLL: Duration = Duration::from_millis(10);

/// Parameters of a fio run.
#[derive(Debug, Clone, Copy)]
pub struct FioLoad<'a> {
    /// The file.
    pub path: &'a Path,
    /// The part of it to use.
    pub region: Region,
    /// What its IOs do.
    pub mix: IoMix,
    /// Distribution of the offsets.
    pub distribution: Distribution,
    /// Writes of a process after which it flushes the file.
    pub fsync_every: Option<u32>,
    /// Bytes of each IO.
    pub size_bytes: u32,
    /// Number of processes (`numjobs`).
    pub jobs: u32,
    /// IOs in flight per process.
    pub depth: u32,
    /// Warm-up time.
    pub warm_up: Duration,
    /// Measured time.
    pub duration: Duration,
    /// Cores of its processes; all if it is empty.
    pub cores: &'a [usize],
}

/// Result of fio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FioResult {
    /// IOs per second, of all jobs.
    pub iops: f64,
    /// Number of IOs.
    pub ios: u64,
    /// Processor time of fio, summed over jobs; fio reports it as a share of the run time.
    pub cpu: Duration,
    /// Latency of an IO, from its creation to its completion; of a mix, of the reads.
    pub latency: LatencySummary,
    /// Latency of the writes of a mix.
    pub writes: Option<LatencySummary>,
}

/// Why fio gave no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FioError {
    /// fio could not be started.
    #[error(
        "fio cannot be started: {source}; install it (for example: apt install fio) or measure without it"
    )]
    Missing {
        /// The system's error.
        source: std::io::Error,
    },
    /// The caller stopped it.
    #[error("fio was ended, because the measurement was asked to stop")]
    Stopped,
    /// fio failed.
    #[error("fio failed ({status}): {text}")]
    Failed {
        /// Its exit status.
        status: std::process::ExitStatus,
        /// The last line of its standard error.
        text: String,
    },
    /// fio's output is not the expected JSON.
    #[error("fio's report cannot be read: {reason}")]
    Report {
        /// What is wrong.
        reason: String,
    },
}

impl FioLoad<'_> {
    /// Runs fio to its end, or until `stop` is set.
    ///
    /// # Errors
    /// [`FioError`] if fio is missing, fails, is stopped, or prints something else than its JSON.
    pub fn run(&self, stop: &AtomicBool) -> Result<FioResult, FioError> {
        let mut command = Command::new("fio");
        command.args(self.arguments()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let missing = |source| FioError::Missing { source };
        let child = command.spawn().map_err(missing)?;
        let fio = i32::try_from(child.id()).expect("a process id");
        // Another thread reads what it prints, so that a full pipe does not hold it up.
        let waiting = std::thread::spawn(move || child.wait_with_output());
        while !waiting.is_finished() {
            if stop.load(Ordering::Relaxed) {
                // It may have ended by itself meanwhile.
                let _sent = kill(Pid::from_raw(fio), Signal::SIGTERM);
                let _output = waiting.join();
                return Err(FioError::Stopped);
            }
            std::thread::sleep(POLL);
        }
        let output = waiting.join().expect("waiting does not panic").map_err(missing)?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let text = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
            return Err(FioError::Failed { status: output.status, text: text.to_owned() });
        }
        read_report(&output.stdout)
    }

    fn arguments(&self) -> Vec<String> {
        let Self { path, region, size_bytes, jobs, depth, warm_up, duration, .. } = self;
        let Region { offset_bytes, length_bytes, .. } = region;
        // fio separates file names by ':'.
        let path = path.display().to_string().replace(':', "\\:");
        let mut arguments = vec![
            "--name=rackscan".to_owned(),
            format!("--filename={path}"),
            format!("--offset={offset_bytes}"),
            format!("--size={length_bytes}"),
            format!("--blockalign={size_bytes}"),
            format!("--bs={size_bytes}"),
            format!("--numjobs={jobs}"),
            format!("--iodepth={depth}"),
            format!("--ramp_time={}ms", warm_up.as_millis()),
            format!("--runtime={}ms", duration.as_millis()),
            "--randrepeat=0".to_owned(),
            "--ioengine=io_uring".to_owned(),
            "--direct=1".to_owned(),
            "--time_based".to_owned(),
            "--group_reporting".to_owned(),
            "--lat_percentiles=1".to_owned(),
            "--output-format=json".to_owned(),
        ];
        arguments.extend(self.operations());
        arguments
    }

    /// The options that say what the IOs do, and where.
    fn operations(&self) -> Vec<String> {
        let order = if self.distribution == Distribution::Sequential { "" } else { "rand" };
        let mut arguments = match self.mix {
            IoMix::Only(IoOperation::Read) => vec![format!("--rw={order}read"), "--readonly".to_owned()],
            IoMix::Only(IoOperation::Trim) => vec![format!("--rw={order}trim")],
            IoMix::Only(IoOperation::Write | IoOperation::Fsync) => vec![format!("--rw={order}write")],
            IoMix::Mixed { read_percent } => {
                vec![format!("--rw={order}rw"), format!("--rwmixread={read_percent}")]
            }
        };
        if self.distribution != Distribution::Sequential {
            arguments.push("--norandommap".to_owned());
        }
        if let Distribution::Zipfian { skew } = self.distribution {
            arguments.push(format!("--random_distribution=zipf:{skew}"));
        }
        arguments.extend(self.fsync_every.map(|every| format!("--fdatasync={every}")));
        if !self.cores.is_empty() {
            let cores: Vec<String> = self.cores.iter().map(ToString::to_string).collect();
            arguments.push(format!("--cpus_allowed={}", cores.join(",")));
        }
        arguments
    }
}

/// Parses fio's JSON. Skips notes before it, which fio may print.
fn read_report(stdout: &[u8]) -> Result<FioResult, FioError> {
    let bad = |reason: String| FioError::Report { reason };
    let text = String::from_utf8_lossy(stdout);
    let begin = text.find('{').ok_or_else(|| bad("it holds no JSON".to_owned()))?;
    let report: Report = serde_json::from_str(&text[begin..]).map_err(|error| bad(error.to_string()))?;
    let Some(job) = report.jobs.first() else { return Err(bad("it lists no job".to_owned())) };
    let share = (job.usr_cpu + job.sys_cpu) / 100.0;
    let seconds = job.job_runtime / 1000.0 * share;
    let cpu = Duration::try_from_secs_f64(seconds).map_err(|error| bad(error.to_string()))?;
    let parts = [&job.read, &job.write, &job.trim];
    let mut used = parts.into_iter().filter(|part| part.total_ios > 0);
    let latency = used.next().map_or(Ok(LatencySummary::default()), summary)?;
    let writes = used.next().map(summary).transpose()?;
    let iops = parts.iter().map(|part| part.iops).sum();
    Ok(FioResult { iops, ios: parts.iter().map(|part| part.total_ios).sum(), cpu, latency, writes })
}

fn summary(read: &IoPart) -> Result<LatencySummary, FioError> {
    let Times { n, min, max, mean, percentile } = &read.lat_ns;
    if *n == 0 {
        return Ok(LatencySummary::default());
    }
    let at = |wanted: &str| {
        let value = percentile.get(wanted).map(|ns| ns / 1e3);
        value.ok_or_else(|| FioError::Report { reason: format!("it lacks the percentile {wanted}") })
    };
    Ok(LatencySummary {
        count: *n,
        min_us: min / 1e3,
        mean_us: mean / 1e3,
        p50_us: at("50.000000")?,
        p90_us: at("90.000000")?,
        p99_us: at("99.000000")?,
        p999_us: at("99.900000")?,
        max_us: max / 1e3,
    })
}

#[derive(Deserialize)]
struct Report {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    read: IoPart,
    #[serde(default)]
    write: IoPart,
    #[serde(default)]
    trim: IoPart,
    usr_cpu: f64,
    sys_cpu: f64,
    /// In milliseconds.
    job_runtime: f64,
}

#[derive(Deserialize, Default)]
struct IoPart {
    #[serde(default)]
    iops: f64,
    #[serde(default)]
    total_ios: u64,
    /// From the creation of an IO to its completion, as the laboratory measures its own.
    #[serde(default)]
    lat_ns: Times,
}

/// In nanoseconds.
#[derive(Deserialize, Default)]
struct Times {
    #[serde(rename = "N", default)]
    n: u64,
    min: f64,
    max: f64,
    mean: f64,
    #[serde(default)]
    percentile: BTreeMap<String, f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"fio: a note that is no JSON
        {"fio version": "fio-3.36", "jobs": [{"jobname": "rackscan", "job_runtime": 2000, "usr_cpu": 10.5,
         "sys_cpu": 39.5, "read": {"iops": 123456.5, "total_ios": 246913, "bw": 493826,
         "lat_ns": {"min": 20000, "max": 900000, "mean": 64000.5, "stddev": 1.0, "N": 246913, "percentile":
         {"50.000000": 62000, "90.000000": 80000, "99.000000": 120000, "99.900000": 300000}}}, "write": {"iops": 0}}]}"#;

    #[test]
    fn a_report_gives_reads_and_processor_time() {
        let read = read_report(REPORT.as_bytes()).unwrap();
        let latency = LatencySummary {
            count: 246_913,
            min_us: 20.0,
            mean_us: 64.0005,
            p50_us: 62.0,
            p90_us: 80.0,
            p99_us: 120.0,
            p999_us: 300.0,
            max_us: 900.0,
        };
        let cpu = Duration::from_secs(1);
        assert_eq!(read, FioResult { iops: 123_456.5, ios: 246_913, cpu, latency, writes: None });
    }

    #[test]
    fn anything_else_is_an_error_that_says_what_is_missing() {
        for (text, reason) in [
            ("", "no JSON"),
            ("{\"jobs\": []}", "no job"),
            ("{\"jobs\": [{}]}", "missing field"),
            ("{", "EOF"),
        ] {
            let error = read_report(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn fio_is_told_to_read_only_the_region_past_the_page_cache() {
        let load = FioLoad {
            path: Path::new("/a:b/device0"),
            region: Region { device: 0, offset_bytes: 4096, length_bytes: 1 << 20 },
            mix: IoMix::Only(IoOperation::Read),
            distribution: Distribution::Uniform,
            fsync_every: None,
            size_bytes: 512,
            jobs: 2,
            depth: 8,
            warm_up: Duration::from_millis(100),
            duration: Duration::from_secs(1),
            cores: &[],
        };
        let arguments = load.arguments().join(" ");
        for word in
            ["--filename=/a\\:b/device0", "--offset=4096", "--size=1048576", "--direct=1", "--readonly"]
        {
            assert!(arguments.contains(word), "{arguments}");
        }
        let mix = IoMix::Mixed { read_percent: 70 };
        let distribution = Distribution::Zipfian { skew: 0.9 };
        let arguments = FioLoad { mix, distribution, fsync_every: Some(8), ..load }.arguments().join(" ");
        for word in ["--rw=randrw", "--rwmixread=70", "--random_distribution=zipf:0.9", "--fdatasync=8"] {
            assert!(arguments.contains(word) && !arguments.contains("--readonly"), "{arguments}");
        }
    }
}
