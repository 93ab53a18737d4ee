//! Defines the arguments of `rackscan lab device`.

use super::{
    bench_io::{file_size, io_size, seconds, warm_up},
    bytes,
    unused::Unused,
    values::{Named, one_of},
};
use clap::Args;
use rackscan_lab::{
    Distribution, IoMix, IoOperation,
    devices::{IoEngine, WINDOW},
};
use std::{path::PathBuf, time::Duration};

/// `rackscan lab device`
#[derive(Clone, Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(crate) struct BenchDevice {
    /// Files or block devices, comma-separated [default: a file in --folder, removed afterwards]
    #[arg(long, value_delimiter = ',', value_name = "PATH")]
    pub(crate) devices: Vec<PathBuf>,
    /// How threads use several devices
    #[arg(long, value_parser = one_of(&LAYOUTS), default_value = "striped")]
    pub(crate) layout: Layout,
    /// Name of the job that these options are of.
    #[arg(skip)]
    pub(crate) job_name: Option<String>,
    /// Allow to overwrite --devices. Mounted devices and those that hold a filesystem, a partition
    /// table, a node's data or anything else that blkid knows are refused nevertheless
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Take the options from a job file of fio; its sections are measured one after the other
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "devices", "workloads", "patterns", "sizes", "jobs", "depths", "engines", "fsync_every", "verify", "seconds",
        "warm_up", "open_loop", "count", "region", "file_size"])]
    pub(crate) job: Option<PathBuf>,
    /// What to do, comma-separated: read, write, trim, or mix:70 for 70 % reads
    #[arg(long, value_delimiter = ',', value_name = "WORKLOAD", default_value = "read", value_parser = workload)]
    pub(crate) workloads: Vec<IoMix>,
    /// Offsets, comma-separated: random, sequential, or zipf:0.99
    #[arg(long, value_delimiter = ',', value_name = "PATTERN", default_value = "random", value_parser = pattern)]
    pub(crate) patterns: Vec<Distribution>,
    /// Sizes of an IO, comma-separated: multiples of 512 bytes up to 1MiB
    #[arg(long, value_delimiter = ',', value_name = "SIZE", default_value = "4KiB", value_parser = io_size)]
    pub(crate) sizes: Vec<u32>,
    /// Numbers of threads that do IO, comma-separated
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "1")]
    pub(crate) jobs: Vec<u32>,
    /// IOs in flight of each thread, comma-separated
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "1,8,32")]
    pub(crate) depths: Vec<u32>,
    /// How threads do IO, comma-separated
    #[arg(long, value_parser = one_of(&ENGINES), value_delimiter = ',', default_value = "uring")]
    pub(crate) engines: Vec<IoEngine>,
    /// Flush the device that was written last (fdatasync) after this many writes of a thread
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) fsync_every: Option<u32>,
    /// After each turn, read what it wrote and compare it
    #[arg(long)]
    pub(crate) verify: bool,
    /// Write the devices this many times before the first turn, as SNIA's tests do with 2
    #[arg(long, value_name = "TIMES", default_value_t = 0, hide_default_value = true,
          value_parser = clap::value_parser!(u32).range(0..=10))]
    pub(crate) precondition: u32,
    /// Intended IOs per second, sent regardless of completions; latencies count from the intended
    /// times
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) open_loop: Option<f64>,
    /// Pin threads to these cores, comma-separated
    #[arg(long, value_delimiter = ',', value_name = "N", conflicts_with = "numa_node")]
    pub(crate) cores: Vec<usize>,
    /// Pin threads to the cores of this NUMA node
    #[arg(long, value_name = "N")]
    pub(crate) numa_node: Option<u32>,
    /// Seconds of each turn
    #[arg(long, value_name = "N", default_value_t = 3.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Seconds of warm-up before each turn
    #[arg(long, value_name = "N", default_value_t = 0.5, value_parser = warm_up)]
    pub(crate) warm_up: f64,
    /// End a turn after this many IOs of each thread, if that comes first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Turns of each measurement; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    /// Take further turns until the last five are steady by SNIA's rule
    #[arg(long, conflicts_with = "confidence")]
    pub(crate) steady: bool,
    /// Take further turns until the 95 % confidence interval of the mean reaches at most this share
    /// of it to either side, such as 0.02
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) confidence: Option<f64>,
    /// Turns at most, with --steady or --confidence
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat_max: u32,
    /// Tell which threads and depth give the most IOs per second with a 99th percentile below this,
    /// such as 500us
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) p99_below: Option<Duration>,
    /// Also report each interval of this length, such as 100ms
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) intervals: Option<Duration>,
    /// Count cycles, instructions, context switches and system calls, as far as this machine allows
    #[arg(long)]
    pub(crate) events: bool,
    /// Write the latencies of each measurement into this folder, as percentile distributions that
    /// tools of HdrHistogram read (.hgrm)
    #[arg(long, value_name = "DIR")]
    pub(crate) percentiles: Option<PathBuf>,
    /// Seed of the random offsets
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Bytes of each device to use, from its begin [default: all]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) region: Option<u64>,
    /// Size of the file that is created without --devices
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = file_size)]
    pub(crate) file_size: u64,
    /// Folder on the disk to measure, without --devices
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) folder: PathBuf,
    /// Draw the figures as an HTML page into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// Append JSON lines to this file, and print the table to standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

impl BenchDevice {
    pub(super) fn unused(&self) -> Vec<Unused> {
        let rule = |option, is_unused, why| Unused { option, is_unused, why };
        let writes = self.workloads.iter().any(|mix| mix.has_writes()) || self.job.is_some();
        let changes = self.workloads.iter().any(|mix| mix.changes_data())
            || self.precondition > 0
            || self.job.is_some();
        let only_fio = self.engines.iter().all(|engine| *engine == IoEngine::Fio);
        let of_fio = "only fio is measured, which does not tell it";
        let open_ended = self.steady || self.confidence.is_some();
        let no_devices = self.devices.is_empty() && self.job.is_none();
        vec![
            rule("layout", self.devices.len() < 2 && self.job.is_none(), "--devices names fewer than two"),
            rule(
                "overwrite",
                no_devices || !changes,
                "only workloads that write need it, and only for --devices",
            ),
            rule("fsync_every", !writes, "no workload writes"),
            rule("verify", !writes, "no workload writes"),
            rule("intervals", only_fio, of_fio),
            rule("percentiles", only_fio, of_fio),
            rule("events", only_fio, of_fio),
            rule(
                "intervals",
                self.json.is_none() && self.report.is_none(),
                "neither --json nor --report shows them",
            ),
            rule("repeat_max", !open_ended, "neither --steady nor --confidence asks for further turns"),
            rule("file_size", !no_devices, "--devices are measured"),
            rule("folder", !self.devices.is_empty(), "--devices are measured"),
            rule("region", no_devices, "--file-size is the size of the file"),
        ]
    }

    /// Turns at least: those of --repeat, and as many as the rule looks at.
    pub(crate) fn rounds_min(&self) -> u32 {
        let window = u32::try_from(WINDOW).expect("a few");
        if self.steady { self.repeat.max(window) } else { self.repeat }
    }
}

/// How threads use several devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    Striped,
    PerThread,
}

const LAYOUTS: [Named<Layout>; 2] = [
    ("striped", Layout::Striped, "Neighbouring offsets lie on different devices; each thread uses all"),
    ("per-thread", Layout::PerThread, "Each thread uses one device, in turn"),
];

const ENGINES: [Named<IoEngine>; 6] = [
    ("uring", IoEngine::Uring, "io_uring; each IO is handed to the kernel at once"),
    ("uring-batch", IoEngine::UringBatch, "io_uring; IOs are handed over together"),
    ("uring-sqpoll", IoEngine::UringSqpoll, "io_uring with a thread of the kernel that takes IOs"),
    ("uring-iopoll", IoEngine::UringIopoll, "io_uring without interrupts; the device needs polled queues"),
    ("pread", IoEngine::Pread, "The thread waits for each IO"),
    ("fio", IoEngine::Fio, "The program fio with io_uring, if it is installed; one device"),
];

pub(super) fn workload(text: &str) -> Result<IoMix, String> {
    let expected = || "expected read, write, trim, or mix:N for N percent of reads (1 to 99)".to_owned();
    match text.split_once(':') {
        None => match text {
            "read" => Ok(IoMix::Only(IoOperation::Read)),
            "write" => Ok(IoMix::Only(IoOperation::Write)),
            "trim" => Ok(IoMix::Only(IoOperation::Trim)),
            _ => Err(expected()),
        },
        Some(("mix", share)) => match share.parse() {
            Ok(read_percent @ 1..=99) => Ok(IoMix::Mixed { read_percent }),
            _ => Err(expected()),
        },
        Some(_) => Err(expected()),
    }
}

fn pattern(text: &str) -> Result<Distribution, String> {
    match (text, text.split_once(':')) {
        ("random", _) => Ok(Distribution::Uniform),
        ("sequential", _) => Ok(Distribution::Sequential),
        (_, Some(("zipf", skew))) => match skew.parse() {
            Ok(skew) if skew > 0.0 && skew < 1.0 => Ok(Distribution::Zipfian { skew }),
            _ => Err("expected zipf:S with S above 0, below 1".to_owned()),
        },
        _ => Err("expected random, sequential, or zipf:S".to_owned()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    use rackscan_lab::limits::{RATE_MAX, RATE_MIN};
    match text.parse::<f64>() {
        Ok(rate) if (RATE_MIN..=RATE_MAX).contains(&rate) => Ok(rate),
        _ => Err(format!("expected a number from {RATE_MIN} to {RATE_MAX}")),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share < 1.0 => Ok(share),
        _ => Err("expected a number above 0, below 1".to_owned()),
    }
}

/// A time with its unit: 500us, 100ms, 2s.
fn time(text: &str) -> Result<Duration, String> {
    let expected = || "expected a number with us, ms or s, from 1us to 3600s".to_owned();
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let split = |(unit, seconds): &(&str, f64)| Some((text.strip_suffix(unit)?, *seconds));
    let (number, seconds) = units.iter().find_map(split).ok_or_else(expected)?;
    match number.trim().parse::<f64>().map(|number| number * seconds) {
        Ok(seconds) if (1e-6..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(expected()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_need_a_unit() {
        assert_eq!(time("500us"), Ok(Duration::from_micros(500)));
        assert_eq!(time("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(time("2s"), Ok(Duration::from_secs(2)));
        for wrong in ["", "5", "ms", "-1ms", "nans", "1h", "0us", "4000s"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn workloads_and_patterns_that_nobody_can_measure_are_refused() {
        assert_eq!(workload("mix:70"), Ok(IoMix::Mixed { read_percent: 70 }));
        for wrong in ["", "mix", "mix:0", "mix:100", "mix:-1", "fsync", "read:1"] {
            assert!(workload(wrong).is_err(), "{wrong}");
        }
        assert_eq!(pattern("zipf:0.5"), Ok(Distribution::Zipfian { skew: 0.5 }));
        for wrong in ["zipf", "zipf:1", "zipf:nan", "uniform"] {
            assert!(pattern(wrong).is_err(), "{wrong}");
        }
    }
}
