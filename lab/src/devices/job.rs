//! Reads job files of fio, as far as this laboratory can do the same.
//!
//! Each section is a job; options of `[global]` hold for all jobs after it. fio runs the jobs of a
//! file at once unless they say `stonewall`; here they run one after the other, so a file with
//! several jobs must say it.
//!
//! Invariants
//! - An option that is not known here, or a value that means something else here, is refused with
//!   its line. So the numbers are of the job that the file describes.
//! - Options that change only fio's report or its memory of used offsets have no effect:
//!   `group_reporting`, `norandommap`, `randrepeat`, `thread`, and the lists of percentiles.

use std::path::PathBuf;
use std::time::Duration;

use super::grid::IoEngine;
use crate::drive::{Distribution, IoMix};
use crate::target::IoOperation;

/// One job of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Name of its section.
    pub name: String,
    /// `filename`, which separates names by colons.
    pub files: Vec<PathBuf>,
    /// `directory` for a file of its own.
    pub directory: Option<PathBuf>,
    /// `size`: bytes of each file that are used.
    pub size_bytes: Option<u64>,
    /// `rw` and `rwmixread`.
    pub mix: IoMix,
    /// `rw` and `random_distribution`.
    pub distribution: Distribution,
    /// `bs`.
    pub block_bytes: u32,
    /// `iodepth`.
    pub depth: u32,
    /// `numjobs`.
    pub threads: u32,
    /// `ioengine`, `hipri` and `sqthread_poll`.
    pub engine: IoEngine,
    /// `fdatasync`.
    pub fsync_every: Option<u32>,
    /// `verify`.
    pub verify: bool,
    /// `runtime`.
    pub runtime: Option<Duration>,
    /// `time_based`: the whole runtime, even if all of the size was used before.
    pub is_time_based: bool,
    /// `ramp_time`.
    pub warm_up: Duration,
}

/// Why a job file is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobError {
    /// A line that is no section and no option.
    #[error("line {line}: expected [a section] or an option, found {found:?}")]
    Syntax {
        /// Number of the line, from 1.
        line: usize,
        /// Its text.
        found: String,
    },
    /// An option that is not known here.
    #[error("line {line}: the option {option} of fio is not known here; remove it, or run the file with fio")]
    Unknown {
        /// Number of the line, from 1.
        line: usize,
        /// The option.
        option: String,
    },
    /// A value that cannot be used.
    #[error("line {line}: {option}={value}: expected {expected}")]
    Value {
        /// Number of the line, from 1.
        line: usize,
        /// The option.
        option: String,
        /// Its value.
        value: String,
        /// What can be used.
        expected: &'static str,
    },
    /// Options that mean something else together than here.
    #[error("the job [{name}]: {why}")]
    Combination {
        /// Its name.
        name: String,
        /// What is different.
        why: &'static str,
    },
    /// Jobs that fio would run at once.
    #[error(
        "line {line}: the job [{name}] would run beside the one before it; add `stonewall`, because jobs run one after the other here"
    )]
    AtOnce {
        /// Number of the line of its section.
        line: usize,
        /// Its name.
        name: String,
    },
    /// A file without a job.
    #[error("it has no job: expected a section such as [job] with rw=randread")]
    Empty,
    /// A job without direct IO.
    #[error("the job [{name}] needs direct=1: devices are used without the page cache here")]
    Buffered {
        /// Its name.
        name: String,
    },
}

/// What the options of a section say.
#[derive(Debug, Clone)]
struct Options {
    job: Job,
    order: Order,
    read_percent: u8,
    zipf: Option<f64>,
    is_direct: bool,
    is_polled: bool,
    has_submission_thread: bool,
    stonewall: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Order {
    is_random: bool,
    reads: bool,
    writes: bool,
    trims: bool,
}

impl Default for Options {
    /// fio's defaults.
    fn default() -> Self {
        Self {
            job: Job {
                name: String::new(),
                files: Vec::new(),
                directory: None,
                size_bytes: None,
                mix: IoMix::Only(IoOperation::Read),
                distribution: Distribution::Sequential,
                block_bytes: 4096,
                depth: 1,
                threads: 1,
                engine: IoEngine::Pread,
                fsync_every: None,
                verify: false,
                runtime: None,
                is_time_based: false,
                warm_up: Duration::ZERO,
            },
            order: Order { is_random: false, reads: true, writes: false, trims: false },
            read_percent: 50,
            zipf: None,
            is_direct: false,
            is_polled: false,
            has_submission_thread: false,
            stonewall: false,
        }
    }
}

impl Job {
    /// Parses a job file.
    ///
    /// # Errors
    /// [`JobError`] for anything that this laboratory would do differently from fio.
    pub fn parse(text: &str) -> Result<Vec<Self>, JobError> {
        let mut global = Options::default();
        let mut jobs: Vec<Options> = Vec::new();
        let mut is_global = true;
        let mut heads = Vec::new();
        // Editors of Windows begin a file with a byte order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (line, raw) in (1..).zip(text.lines()) {
            let words = raw.split([';', '#']).next().unwrap_or_default().trim();
            if words.is_empty() {
                continue;
            }
            if let Some(name) = words.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                is_global = name == "global";
                if !is_global {
                    let mut options = global.clone();
                    name.clone_into(&mut options.job.name);
                    jobs.push(options);
                    heads.push(line);
                }
                continue;
            }
            let options = if is_global { &mut global } else { jobs.last_mut().expect("in a section") };
            let (option, value) = match words.split_once('=') {
                Some((option, value)) => (option.trim(), value.trim()),
                None if words.contains(char::is_whitespace) || words.starts_with('[') => {
                    return Err(JobError::Syntax { line, found: words.to_owned() });
                }
                None => (words, "1"),
            };
            options.set(line, option, value)?;
        }
        let second = jobs.iter().zip(&heads).skip(1).find(|(options, _)| !options.stonewall);
        if let Some((options, line)) = second {
            return Err(JobError::AtOnce { line: *line, name: options.job.name.clone() });
        }
        if jobs.is_empty() {
            return Err(JobError::Empty);
        }
        jobs.into_iter().map(Options::finished).collect()
    }
}

impl Options {
    fn set(&mut self, line: usize, option: &str, value: &str) -> Result<(), JobError> {
        let wrong = |expected: &'static str| JobError::Value {
            line,
            option: option.to_owned(),
            value: value.to_owned(),
            expected,
        };
        let number = |least: u32| {
            let parsed = value.parse::<u32>().ok().filter(|number| *number >= least);
            parsed.ok_or_else(|| wrong("a whole number that is large enough"))
        };
        let flag = || match value {
            "0" => Ok(false),
            "1" => Ok(true),
            _ => Err(wrong("0 or 1")),
        };
        let job = &mut self.job;
        match option {
            "rw" | "readwrite" => self.order = order(value).ok_or_else(|| wrong(ORDERS))?,
            "rwmixread" => self.read_percent = percent(value).ok_or_else(|| wrong(PERCENT))?,
            "rwmixwrite" => self.read_percent = 100 - percent(value).ok_or_else(|| wrong(PERCENT))?,
            "bs" | "blocksize" => {
                let bytes = bytes(value).and_then(|bytes| u32::try_from(bytes).ok());
                job.block_bytes = bytes.ok_or_else(|| wrong("a size such as 4k"))?;
            }
            "size" => job.size_bytes = Some(bytes(value).ok_or_else(|| wrong("a size such as 1g"))?),
            "filename" => job.files = files(value),
            "directory" => job.directory = Some(PathBuf::from(value)),
            "iodepth" => job.depth = number(1)?,
            "numjobs" => job.threads = number(1)?,
            "ioengine" => {
                job.engine = match value {
                    "io_uring" => IoEngine::Uring,
                    "psync" | "pvsync" | "sync" => IoEngine::Pread,
                    _ => return Err(wrong("io_uring, psync, pvsync or sync")),
                }
            }
            "hipri" => self.is_polled = flag()?,
            "sqthread_poll" => self.has_submission_thread = flag()?,
            "fdatasync" => job.fsync_every = Some(number(0)?).filter(|every| *every > 0),
            "verify" => job.verify = value != "0",
            "runtime" => {
                let runtime = time(value).filter(|time| !time.is_zero());
                job.runtime = Some(runtime.ok_or_else(|| wrong(TIME))?);
            }
            "ramp_time" => job.warm_up = time(value).ok_or_else(|| wrong(TIME))?,
            "time_based" => job.is_time_based = flag()?,
            "random_distribution" => {
                self.zipf = match value.split_once(':') {
                    None if value == "random" => None,
                    Some(("zipf", skew)) => match skew.parse() {
                        Ok(skew) if skew > 0.0 && skew < 1.0 => Some(skew),
                        _ => return Err(wrong("zipf with a skew above 0 and below 1")),
                    },
                    _ => return Err(wrong("random or zipf:SKEW")),
                }
            }
            "direct" => self.is_direct = flag()?,
            "stonewall" => self.stonewall = flag()?,
            "name" | "group_reporting" | "norandommap" | "randrepeat" | "thread" | "lat_percentiles"
            | "clat_percentiles" | "slat_percentiles" | "percentile_list" => {}
            _ => return Err(JobError::Unknown { line, option: option.to_owned() }),
        }
        Ok(())
    }

    fn finished(self) -> Result<Job, JobError> {
        let Self { mut job, order, read_percent, zipf, .. } = self;
        if !self.is_direct {
            return Err(JobError::Buffered { name: job.name });
        }
        let is_trim = order.trims;
        let combinations = [
            (
                self.is_polled && self.has_submission_thread,
                "hipri and sqthread_poll are not measured together here",
            ),
            (
                job.size_bytes.is_some() && job.files.len() > 1,
                "fio divides size among the files; give a file to each job",
            ),
            (
                !order.is_random && job.threads > 1,
                "all threads of fio begin at the same offset, those here at equal distances; set numjobs=1",
            ),
            (job.verify && !order.writes, "verify is of what the job wrote, and it does not write"),
            (is_trim && job.depth > 1, "trims are not queued here; set iodepth=1"),
        ];
        if let Some((_, why)) = combinations.into_iter().find(|(is_so, _)| *is_so) {
            return Err(JobError::Combination { name: job.name, why });
        }
        job.mix = match order {
            Order { reads: true, writes: true, .. } => IoMix::Mixed { read_percent },
            Order { writes: true, .. } => IoMix::Only(IoOperation::Write),
            Order { trims: true, .. } => IoMix::Only(IoOperation::Trim),
            _ => IoMix::Only(IoOperation::Read),
        };
        job.distribution = match (order.is_random, zipf) {
            (false, _) => Distribution::Sequential,
            (true, None) => Distribution::Uniform,
            (true, Some(skew)) => Distribution::Zipfian { skew },
        };
        job.engine = match job.engine {
            IoEngine::Uring if self.is_polled => IoEngine::UringIopoll,
            IoEngine::Uring if self.has_submission_thread => IoEngine::UringSqpoll,
            engine => engine,
        };
        Ok(job)
    }
}

const ORDERS: &str = "read, write, trim, rw, randread, randwrite, randtrim or randrw";
const PERCENT: &str = "a percentage from 1 to 99";
const TIME: &str = "a time such as 30, 500ms or 2m, at most a day";

fn order(value: &str) -> Option<Order> {
    let (is_random, kind) = match value.strip_prefix("rand") {
        Some(kind) => (true, kind),
        None => (false, value),
    };
    let none = Order { is_random, reads: false, writes: false, trims: false };
    Some(match kind {
        "read" => Order { reads: true, ..none },
        "write" => Order { writes: true, ..none },
        "trim" => Order { trims: true, ..none },
        "rw" | "readwrite" => Order { reads: true, writes: true, ..none },
        _ => return None,
    })
}

fn percent(value: &str) -> Option<u8> {
    value.parse().ok().filter(|percent| (1..=99).contains(percent))
}

/// Names that are separated by colons; `\:` is a colon of a name.
fn files(value: &str) -> Vec<PathBuf> {
    let (mut names, mut name, mut characters) = (Vec::new(), String::new(), value.chars().peekable());
    while let Some(character) = characters.next() {
        match character {
            '\\' if characters.next_if_eq(&':').is_some() => name.push(':'),
            ':' => names.push(PathBuf::from(std::mem::take(&mut name))),
            other => name.push(other),
        }
    }
    names.push(PathBuf::from(name));
    names
}

/// A size in fio's way: 4096, 4k, 4ki, 4KiB, 1g are powers of 1024.
fn bytes(value: &str) -> Option<u64> {
    let value = value.to_ascii_lowercase();
    let digits = value.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let factor: u64 = match &value[digits.len()..] {
        "" | "b" => 1,
        "k" | "ki" | "kib" | "kb" => 1 << 10,
        "m" | "mi" | "mib" | "mb" => 1 << 20,
        "g" | "gi" | "gib" | "gb" => 1 << 30,
        "t" | "ti" | "tib" | "tb" => 1 << 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor).filter(|bytes| *bytes > 0)
}

/// A time in fio's way: seconds without a unit; at most a day.
fn time(value: &str) -> Option<Duration> {
    let digits = value.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number = digits.parse::<u64>().ok()?;
    let time = match &value[digits.len()..] {
        "us" | "usec" => Duration::from_micros(number),
        "ms" | "msec" => Duration::from_millis(number),
        "" | "s" | "sec" => Duration::from_secs(number),
        "m" | "min" => Duration::from_secs(number.checked_mul(60)?),
        "h" => Duration::from_secs(number.checked_mul(3600)?),
        _ => return None,
    };
    (time <= Duration::from_secs(24 * 3600)).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usual_job_file_means_what_fio_means() {
        let jobs = Job::parse(
            "; a comment\n[global]\ndirect=1\nioengine=io_uring\nfilename=/dev/loop0:/dev/loop1\nbs=8k\nruntime=2m\n\
             time_based\ngroup_reporting\n\n[reads]\nrw=randread\niodepth=32 # deep\nnumjobs=2\n\
             [mixed]\nstonewall\nrw=randrw\nrwmixwrite=30\nrandom_distribution=zipf:0.8\nfdatasync=16\nsqthread_poll=1\n",
        )
        .unwrap();
        let [reads, mixed] = jobs.as_slice() else { panic!("{jobs:?}") };
        assert_eq!((reads.mix, reads.distribution), (IoMix::Only(IoOperation::Read), Distribution::Uniform));
        assert_eq!((reads.depth, reads.threads, reads.block_bytes), (32, 2, 8192));
        assert_eq!((reads.runtime, reads.is_time_based), (Some(Duration::from_secs(120)), true));
        assert_eq!((reads.files.len(), reads.engine), (2, IoEngine::Uring));
        assert_eq!(mixed.mix, IoMix::Mixed { read_percent: 70 });
        assert_eq!((mixed.fsync_every, mixed.engine), (Some(16), IoEngine::UringSqpoll));
        assert_eq!(mixed.distribution, Distribution::Zipfian { skew: 0.8 });
        assert_eq!((mixed.depth, mixed.threads), (1, 1), "each job has its own");
    }

    #[test]
    fn names_may_contain_escaped_colons_and_a_file_may_begin_with_a_byte_order_mark() {
        let jobs = Job::parse("\u{feff}[a]\ndirect=1\nfilename=d/a\\:b:c\n").unwrap();
        assert_eq!(jobs[0].files, [PathBuf::from("d/a:b"), PathBuf::from("c")]);
    }

    #[test]
    fn what_would_be_measured_differently_is_refused_with_its_line() {
        let told = |text: &str| Job::parse(text).unwrap_err().to_string();
        for (text, words) in [
            ("[a]\ndirect=1\nthinktime=5\n", "line 3: the option thinktime"),
            ("[a]\ndirect=1\nioengine=libaio\n", "line 3: ioengine=libaio: expected io_uring"),
            ("[a]\ndirect=1\nbs=0\n", "expected a size"),
            ("[a]\ndirect=1\nruntime=18446744073709551615\n", "at most a day"),
            ("[a]\ndirect=1\nrw=read\nnumjobs=2\n", "begin at the same offset"),
            ("[a]\ndirect=1\nrw=write\nfsync=8\n", "the option fsync"),
            ("[a]\ndirect=1\nrw=randreads\n", "expected read, write"),
            ("[a]\nrw=read\n", "needs direct=1"),
            ("[a]\ndirect=1\n[b]\ndirect=1\n", "line 3: the job [b] would run beside"),
            ("[a]\nhello world\n", "line 2: expected [a section]"),
            ("[global]\ndirect=1\n", "it has no job"),
            ("", "it has no job"),
        ] {
            assert!(told(text).contains(words), "{text}: {}", told(text));
        }
    }
}
