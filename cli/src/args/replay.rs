//! Defines the arguments of `rackscan lab replay`.

use super::{
    bench_io::file_size,
    bytes,
    unused::{Given, Unused},
    values::{BRIDGES, IO_KINDS, one_of},
};
use clap::Args;
use rackscan_format::message::{BridgeKind, IoKind};
use rackscan_lab::replay::{Offsets, limits::SPEED_MAX};
use rackscan_trace::{ColumnNames, Format, OffsetUnit, TimeUnit};
use std::{path::PathBuf, time::Duration};

/// `rackscan lab replay`
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  rackscan query q03 --placement remote-fetch --trace q03.csv\n  \
                        rackscan lab replay q03.csv --no-stall --json remote.json\n  \
                        rackscan lab replay q03.csv --no-stall --local --compare remote.json\n  \
                        rackscan lab replay web.blktrace.0 --folder /mnt/nvme --file-size 64GiB --offsets scale --speed 2x\n  \
                        rackscan lab replay log.csv --columns time=ts,offset=lba,length=len,op=rw --folder /mnt/nvme\n  \
                        rackscan lab replay --compare local.json remote.json\n\n\
                        Without --folder, the trace runs on the devices of the cluster of --data, which must have the node and\n\
                        device numbers of the trace. With --folder, it runs on one file created there and removed afterwards.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(crate) struct Replay {
    /// Trace file; for blktrace's per-processor files, one of them or their common prefix
    #[arg(required_unless_present = "compare")]
    pub(crate) file: Option<PathBuf>,
    /// Format of the trace
    #[arg(long, value_name = "FORMAT", default_value = "auto", value_parser = format)]
    pub(crate) format: FormatChoice,
    /// Columns of a CSV file, as ROLE=NAME,...
    #[arg(long, value_name = "ROLE=NAME,...", value_parser = parsed::<ColumnNames>)]
    pub(crate) columns: Option<ColumnNames>,
    /// Unit of times: ns, filetime, us, ms, s [default: detected from the trace]
    #[arg(long, value_name = "UNIT", value_parser = parsed::<TimeUnit>)]
    pub(crate) time_unit: Option<TimeUnit>,
    /// Unit of offsets and lengths: bytes, sectors [default: detected from the trace]
    #[arg(long, value_name = "UNIT", value_parser = parsed::<OffsetUnit>)]
    pub(crate) offset_unit: Option<OffsetUnit>,
    /// Stop at the first line that is not a record, record that cannot run as recorded, or failed
    /// request
    #[arg(long)]
    pub(crate) strict: bool,
    /// Replay only the first N records
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) records: Option<u64>,
    /// Speed relative to the trace
    #[arg(long, value_name = "FACTOR", default_value = "1x", value_parser = speed, conflicts_with = "no_stall")]
    pub(crate) speed: f64,
    /// Run as fast as possible and ignore the trace's times
    #[arg(long)]
    pub(crate) no_stall: bool,
    /// Delay after its intended time from which a request counts as late
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = time)]
    pub(crate) late_after: Duration,
    /// What to do with offsets beyond the target's size: refuse, wrap, scale, scale:FACTOR,
    /// align:BYTES
    #[arg(long, value_name = "HOW", default_value = "refuse", value_parser = str::parse::<Offsets>)]
    pub(crate) offsets: Offsets,
    /// Read the devices in this process, without nodes
    #[arg(long, conflicts_with_all = ["remote", "bridge"])]
    pub(crate) local: bool,
    /// Read the devices through storage nodes; the default
    #[arg(long)]
    pub(crate) remote: bool,
    /// Bridge of the nodes: who serves connections and waits for devices [default: as configured]
    #[arg(long, value_parser = one_of(&BRIDGES))]
    pub(crate) bridge: Option<BridgeKind>,
    /// How --local and nodes with reactors read the devices [default: uring, or as the nodes are
    /// configured]
    #[arg(long, value_parser = one_of(&IO_KINDS))]
    pub(crate) io: Option<IoKind>,
    /// Size of the pool of blocking reader threads (--bridge static, --io pread)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) io_threads: Option<u16>,
    /// Connections to each node; each has a requesting thread of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) connections: u32,
    /// Requests in flight per connection
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) depth: u32,
    /// Page cache of each node, read one-sidedly where possible; 0 for none [default: as
    /// configured; none with --folder]
    #[arg(long, value_name = "SIZE", value_parser = bytes, conflicts_with = "local")]
    pub(crate) cache: Option<u64>,
    /// Uncounted warm-up runs of the whole trace on the same connections, as fast as possible
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) warm_up: u32,
    /// Run on a file that is created in this folder and removed afterwards
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Size of that file; all of it is written first
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = file_size)]
    pub(crate) file_size: u64,
    /// Keep the file in the folder, and reuse an existing one
    #[arg(long, requires = "folder")]
    pub(crate) keep: bool,
    /// Write the report as JSON to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write a page with histograms into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// Compare this replay with an earlier one (its --json), or two earlier ones with each other
    #[arg(long, value_name = "JSON", num_args = 1..=2)]
    pub(crate) compare: Vec<PathBuf>,
}

impl Replay {
    pub(super) fn unused(&self, given: Given<'_>) -> Vec<Unused> {
        let rule = |option, is_unused, why| Unused { option, is_unused, why };
        if self.file.is_none() {
            let why = "--compare without a trace replays nothing";
            return OF_A_REPLAY.iter().map(|option| rule(option, true, why)).collect();
        }
        let has_pool = match self.bridge {
            Some(BridgeKind::Static) => true,
            Some(BridgeKind::Dynamic) => false,
            // A cluster has what its file says.
            None | Some(BridgeKind::Reactor) if self.folder.is_none() && !self.local => true,
            None | Some(BridgeKind::Reactor) => self.io == Some(IoKind::Pread),
        };
        let of_its_own = "with --folder the replay has a file and a node of its own";
        vec![
            rule("file_size", self.folder.is_none(), "only a file in --folder has this size"),
            rule("data", self.folder.is_some(), of_its_own),
            rule("cluster", self.folder.is_some(), of_its_own),
            rule("wire", self.local, "--local has no nodes"),
            rule("late_after", self.no_stall, "--no-stall ignores times"),
            rule("io_threads", !has_pool, "neither --bridge static nor --io pread is replayed on"),
            rule(
                "io",
                given.is("bridge") && self.bridge != Some(BridgeKind::Reactor),
                "only --bridge reactor has a choice",
            ),
        ]
    }
}

/// The options that say what to replay and how.
const OF_A_REPLAY: [&str; 27] = [
    "data",
    "cluster",
    "wire",
    "format",
    "columns",
    "time_unit",
    "offset_unit",
    "strict",
    "records",
    "speed",
    "no_stall",
    "late_after",
    "offsets",
    "local",
    "remote",
    "bridge",
    "io",
    "io_threads",
    "connections",
    "depth",
    "cache",
    "warm_up",
    "folder",
    "file_size",
    "keep",
    "json",
    "report",
];

/// A trace's format; `None` if it is detected from the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FormatChoice(pub(crate) Option<Format>);

fn format(text: &str) -> Result<FormatChoice, String> {
    if text == "auto" {
        return Ok(FormatChoice(None));
    }
    let format = text.parse().map_err(|_| format!("expected auto, {}", Format::NAMES))?;
    Ok(FormatChoice(Some(format)))
}

fn parsed<T: std::str::FromStr<Err = rackscan_trace::TraceError>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: rackscan_trace::TraceError| error.to_string())
}

fn speed(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('x').unwrap_or(text);
    match number.parse::<f64>() {
        Ok(speed) if (1.0 / SPEED_MAX..=SPEED_MAX).contains(&speed) => Ok(speed),
        _ => Err(format!("expected a factor as 2x or 0.5x, from {} to {SPEED_MAX}", 1.0 / SPEED_MAX)),
    }
}

fn time(text: &str) -> Result<Duration, String> {
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let parts = units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)));
    let seconds = parts.and_then(|(number, seconds)| Some(number.trim().parse::<f64>().ok()? * seconds));
    match seconds {
        Some(seconds) if (0.0..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected a time as 500us, 1ms or 2s, at most an hour".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_and_times_have_units_and_bounds() {
        assert_eq!((speed("2x"), speed("0.5")), (Ok(2.0), Ok(0.5)));
        for wrong in ["0x", "-1x", "nan", "inf", "x", "2y", "1001x"] {
            assert!(speed(wrong).is_err(), "{wrong}");
        }
        assert_eq!(time("500us"), Ok(Duration::from_micros(500)));
        assert_eq!(time("1.5ms"), Ok(Duration::from_micros(1500)));
        for wrong in ["", "1", "ms", "-1s", "2h", "9999s"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn formats_are_known_by_name() {
        assert_eq!(format("auto"), Ok(FormatChoice(None)));
        assert_eq!(format("blktrace"), Ok(FormatChoice(Some(Format::Blktrace))));
        assert!(format("xml").unwrap_err().contains("blkparse"));
    }
}
