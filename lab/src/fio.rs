//! Runs the program fio on the file that an experiment reads, for comparison.
//!
//! Invariants
//! - fio only reads (`--readonly`). It reads the same part of the file as the experiment, with the
//!   same size and depth, and bypasses the kernel's page cache.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Deserialize;

use crate::drive::Region;
use crate::latency::LatencySummary;

/// Parameters of a fio run.
#[derive(Debug, Clone, Copy)]
pub struct FioLoad<'a> {
    /// The file.
    pub path: &'a Path,
    /// The part of it to read.
    pub region: Region,
    /// Bytes of each read.
    pub size_bytes: u32,
    /// Number of processes (`numjobs`).
    pub jobs: u32,
    /// Reads in flight per process.
    pub depth: u32,
    /// Warm-up time.
    pub warm_up: Duration,
    /// Measured time.
    pub duration: Duration,
}

/// Result of fio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FioRead {
    /// Reads per second, of all jobs.
    pub iops: f64,
    /// Number of reads.
    pub ios: u64,
    /// Processor time of fio, summed over jobs; fio reports it as a share of the run time.
    pub cpu: Duration,
    /// Latency of a read, from its creation to its completion.
    pub latency: LatencySummary,
}

/// Why fio gave no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FioError {
    /// fio could not be started.
    #[error("fio cannot be started: {source}; install it (for example: apt install fio) or leave out --fio")]
    Missing {
        /// The system's error.
        source: std::io::Error,
    },
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
    /// Runs fio to its end.
    ///
    /// # Errors
    /// [`FioError`] if fio is missing, fails, or prints something else than its JSON.
    pub fn run(&self) -> Result<FioRead, FioError> {
        let mut command = Command::new("fio");
        command.args(self.arguments()).stdin(Stdio::null());
        let output = command.output().map_err(|source| FioError::Missing { source })?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let text = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
            return Err(FioError::Failed { status: output.status, text: text.to_owned() });
        }
        read_report(&output.stdout)
    }

    fn arguments(&self) -> Vec<String> {
        let Self { path, region, size_bytes, jobs, depth, warm_up, duration } = self;
        let Region { offset_bytes, length_bytes, .. } = region;
        // fio separates file names by ':'.
        let path = path.display().to_string().replace(':', "\\:");
        vec![
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
            "--rw=randread".to_owned(),
            "--norandommap".to_owned(),
            "--randrepeat=0".to_owned(),
            "--ioengine=io_uring".to_owned(),
            "--direct=1".to_owned(),
            "--time_based".to_owned(),
            "--readonly".to_owned(),
            "--group_reporting".to_owned(),
            "--lat_percentiles=1".to_owned(),
            "--output-format=json".to_owned(),
        ]
    }
}

/// Parses fio's JSON. Skips notes before it, which fio may print.
fn read_report(stdout: &[u8]) -> Result<FioRead, FioError> {
    let bad = |reason: String| FioError::Report { reason };
    let text = String::from_utf8_lossy(stdout);
    let begin = text.find('{').ok_or_else(|| bad("it holds no JSON".to_owned()))?;
    let report: Report = serde_json::from_str(&text[begin..]).map_err(|error| bad(error.to_string()))?;
    let Some(job) = report.jobs.first() else { return Err(bad("it lists no job".to_owned())) };
    let share = (job.usr_cpu + job.sys_cpu) / 100.0;
    let seconds = job.job_runtime / 1000.0 * share;
    let cpu = Duration::try_from_secs_f64(seconds).map_err(|error| bad(error.to_string()))?;
    Ok(FioRead { iops: job.read.iops, ios: job.read.total_ios, cpu, latency: summary(&job.read)? })
}

fn summary(read: &ReadPart) -> Result<LatencySummary, FioError> {
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
    read: ReadPart,
    usr_cpu: f64,
    sys_cpu: f64,
    /// In milliseconds.
    job_runtime: f64,
}

#[derive(Deserialize)]
struct ReadPart {
    iops: f64,
    total_ios: u64,
    /// From the creation of a read to its completion, as the laboratory measures its own.
    lat_ns: Times,
}

/// In nanoseconds.
#[derive(Deserialize)]
struct Times {
    #[serde(rename = "N")]
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
        assert_eq!(read, FioRead { iops: 123_456.5, ios: 246_913, cpu, latency });
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
            size_bytes: 512,
            jobs: 2,
            depth: 8,
            warm_up: Duration::from_millis(100),
            duration: Duration::from_secs(1),
        };
        let arguments = load.arguments().join(" ");
        for word in
            ["--filename=/a\\:b/device0", "--offset=4096", "--size=1048576", "--direct=1", "--readonly"]
        {
            assert!(arguments.contains(word), "{arguments}");
        }
    }
}
