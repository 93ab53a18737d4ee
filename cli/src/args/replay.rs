//! Defines the arguments of `rackscan lab replay`.

use super::{
    bench_io::{file_size, io_size},
    bytes,
    unused::{Given, Unused},
    values::{BRIDGES, IO_KINDS, WIRES, one_of},
};
use clap::Args;
use rackscan_fabric::Wire;
use rackscan_format::message::{BridgeKind, IoKind};
use rackscan_lab::{
    Mode,
    replay::{Offsets, ReplayAxes, limits::SPEED_MAX},
};
use rackscan_trace::{ColumnNames, Format, OffsetUnit, TimeUnit};
use std::{path::PathBuf, time::Duration};

/// `rackscan lab replay`
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  rackscan query q03 --placement remote-fetch --trace q03.csv\n  \
                        rackscan lab replay q03.csv --no-stall --json remote.json\n  \
                        rackscan lab replay q03.csv --no-stall --local --compare remote.json\n  \
                        rackscan lab replay web.blktrace.0 --folder /mnt/nvme --file-size 64GiB --offsets scale --speed 2x\n  \
                        rackscan lab replay log.csv --columns time=ts,offset=lba,length=len,op=rw --folder /mnt/nvme\n  \
                        rackscan lab replay --compare local.json remote.json\n  \
                        rackscan lab replay q03.csv --no-stall --local --remote --bridges static --io-threads 1,16 --connections 1,4 \\\n    \
                        --sizes 512,16KiB --repeat 3 --folder /mnt/nvme --offsets scale --report replays\n\n\
                        With several values of an option, all combinations run by turns, and --json appends a line for each.\n\
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
    /// Read the devices in this process, without nodes; with --remote, too, both run by turns
    #[arg(long)]
    pub(crate) local: bool,
    /// Read the devices through storage nodes; the default
    #[arg(long)]
    pub(crate) remote: bool,
    /// Wires to the nodes, comma-separated [default: as --wire]
    #[arg(long, value_parser = one_of(&WIRES), value_delimiter = ',', conflicts_with = "wire")]
    pub(crate) wires: Vec<Wire>,
    /// Bridges of the nodes, comma-separated: who serves connections and waits for devices
    /// [default: as configured]
    #[arg(long, alias = "bridge", value_parser = one_of(&BRIDGES), value_delimiter = ',')]
    pub(crate) bridges: Vec<BridgeKind>,
    /// How --local and nodes with reactors read the devices [default: uring, or as the nodes are
    /// configured]
    #[arg(long, value_parser = one_of(&IO_KINDS))]
    pub(crate) io: Option<IoKind>,
    /// Sizes of the pool of blocking reader threads (--bridges static, --io pread), comma-separated
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) io_threads: Vec<u16>,
    /// Numbers of connections to each node, comma-separated; each has a requesting thread
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) connections: Vec<u32>,
    /// Requests in flight per connection, comma-separated
    #[arg(long, alias = "depth", value_name = "N", value_delimiter = ',', default_value = "32", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) depths: Vec<u32>,
    /// Sizes of each request, comma-separated; it begins at the multiple of this size that the
    /// record begins in [default: as recorded]
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = io_size)]
    pub(crate) sizes: Vec<u32>,
    /// Maximum number of requests per message to a node [default: derived from the depth]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) batch: Option<u32>,
    /// Rounds; each replays every combination once, and the round with the median time is reported
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    /// Page cache of each node, read one-sidedly where possible; 0 for none [default: as
    /// configured; none with --folder]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
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
    /// Write the report as JSON to this file; of several replays, append a line for each
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write a page with histograms, or with the figures of several replays, into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// Compare this replay with an earlier one (its --json), or two earlier ones with each other
    #[arg(long, value_name = "JSON", num_args = 1..=2)]
    pub(crate) compare: Vec<PathBuf>,
}

impl Replay {
    /// What to replay on: nodes, unless only this process is asked for.
    fn modes(&self) -> Vec<Mode> {
        match (self.local, self.remote) {
            (true, false) => vec![Mode::Local],
            (true, true) => vec![Mode::Local, Mode::Remote],
            (false, _) => vec![Mode::Remote],
        }
    }

    /// The values of the options that may have several.
    pub(crate) fn axes(&self, wire: Option<Wire>) -> ReplayAxes {
        ReplayAxes {
            modes: self.modes(),
            wires: if self.wires.is_empty() { wire.into_iter().collect() } else { self.wires.clone() },
            bridges: self.bridges.clone(),
            // A node over --folder reads by io_uring unless it is asked not to.
            io: self.io.or(self.folder.as_ref().map(|_| IoKind::Uring)),
            io_threads: self.io_threads.clone(),
            connections: self.connections.clone(),
            depths: self.depths.clone(),
            sizes: self.sizes.clone(),
        }
    }

    pub(super) fn unused(&self, given: Given<'_>) -> Vec<Unused> {
        let rule = |option, is_unused, why| Unused { option, is_unused, why };
        if self.file.is_none() {
            let why = "--compare without a trace replays nothing";
            return OF_A_REPLAY.iter().map(|option| rule(option, true, why)).collect();
        }
        let has_node = self.modes().contains(&Mode::Remote);
        let is_reactor = self.bridges.contains(&BridgeKind::Reactor);
        // A cluster has what its file says.
        let is_configured = has_node && self.folder.is_none() && (is_reactor || self.bridges.is_empty());
        let reads_by_pool = self.io == Some(IoKind::Pread)
            && (is_reactor || self.bridges.is_empty() || self.modes().contains(&Mode::Local));
        let has_pool = is_configured || reads_by_pool || self.bridges.contains(&BridgeKind::Static);
        let no_node = "--local has no nodes";
        let of_its_own = "with --folder the replay has a file and a node of its own";
        vec![
            rule("file_size", self.folder.is_none(), "only a file in --folder has this size"),
            rule("data", self.folder.is_some(), of_its_own),
            rule("cluster", self.folder.is_some(), of_its_own),
            rule("wire", !has_node, no_node),
            rule("wires", !has_node, no_node),
            rule("bridges", !has_node, no_node),
            rule("cache", !has_node, no_node),
            rule("batch", !has_node, no_node),
            rule("late_after", self.no_stall, "--no-stall ignores times"),
            rule("io_threads", !has_pool, "neither --bridges static nor --io pread is replayed on"),
            rule(
                "io",
                given.is("bridges") && !is_reactor && !self.modes().contains(&Mode::Local),
                "only --bridges reactor has a choice, and --local",
            ),
        ]
    }
}

/// The options that say what to replay and how.
const OF_A_REPLAY: [&str; 31] = [
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
    "wires",
    "bridges",
    "io",
    "io_threads",
    "connections",
    "depths",
    "sizes",
    "batch",
    "repeat",
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
