//! Defines the arguments of `rackscan lab io`.

use super::{
    bytes, effort,
    unused::Unused,
    values::{BRIDGES, IO_KINDS, Named, WIRES, WITHOUT_VERBS, one_of},
};
use clap::Args;
use rackscan_fabric::Wire;
use rackscan_format::message::{BridgeKind, IoKind};
use rackscan_lab::Mode;
use std::path::PathBuf;

/// `rackscan lab io`
#[derive(Clone, Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(crate) struct BenchIo {
    /// Sizes of a read, comma-separated: multiples of 512 bytes up to 1MiB
    #[arg(long, value_delimiter = ',', value_name = "SIZE", default_value = "512,4KiB,16KiB,64KiB,128KiB",
          value_parser = io_size)]
    pub(crate) sizes: Vec<u32>,
    /// What to measure, comma-separated
    #[arg(long, value_parser = one_of(&MODES), value_delimiter = ',', default_value = "local,wire,remote")]
    pub(crate) modes: Vec<Mode>,
    /// Numbers of connections, comma-separated; each has a requesting thread of its own
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "1")]
    pub(crate) connections: Vec<u32>,
    /// Sizes of the pool of blocking reader threads (--bridges static, --io pread), comma-separated
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "16")]
    pub(crate) io_threads: Vec<u16>,
    /// Reads in flight per connection, comma-separated
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "32")]
    pub(crate) depths: Vec<u32>,
    /// Bridges of the node, comma-separated: who serves connections and who waits for the device
    #[arg(long, value_parser = one_of(&BRIDGES), value_delimiter = ',', default_value = "reactor")]
    pub(crate) bridges: Vec<BridgeKind>,
    /// How reactors and, beside them, the mode local read, comma-separated; with pread and --depths
    /// 1, each thread of the mode local reads by itself, as in the paper
    #[arg(long, value_parser = one_of(&IO_KINDS), value_delimiter = ',', default_value = "uring")]
    pub(crate) io: Vec<IoKind>,
    /// Wires to the node, comma-separated: tcp is over loopback, verbs needs --verbs [default: shm,
    /// or with --cluster that of the node's first address]
    #[arg(long, value_parser = one_of(&WIRES), value_delimiter = ',')]
    pub(crate) wires: Vec<Wire>,
    /// Measure this node of --cluster, as it is configured [default: the first one]
    #[arg(long, value_name = "N")]
    pub(crate) node: Option<u16>,
    /// Listening address for --wires verbs; RACKSCAN_VERBS_DEVICE names the adapter of this side
    #[arg(long, value_name = "DEVICE@ADDRESS")]
    pub(crate) verbs: Option<String>,
    /// Page cache of the node; read one-sidedly where possible [default: none]
    #[arg(long, value_name = "SIZE", default_value = "0", hide_default_value = true, value_parser = bytes)]
    pub(crate) cache: u64,
    /// Reactors of the node [default: one per connection, at most half of the cores]
    #[arg(long, value_name = "N")]
    pub(crate) reactors: Option<u16>,
    /// Maximum numbers of reads per message, comma-separated [default: derived from the depth; 1
    /// with --sweep, as in the paper]
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) batch: Vec<u32>,
    /// Pin threads to cores, in this process and in the node
    #[arg(long)]
    pub(crate) pin: bool,
    /// Intended reads per second, sent regardless of completions; latencies count from the intended
    /// times
    #[arg(long, value_name = "RATE")]
    pub(crate) open_loop: Option<f64>,
    /// Space intended times evenly, instead of at random (Poisson)
    #[arg(long, requires = "open_loop")]
    pub(crate) even: bool,
    /// Zipf exponent of read offsets; 0.99 is usual for caches [default: uniform]
    #[arg(long, value_name = "SKEW")]
    pub(crate) zipf: Option<f64>,
    /// Seconds of each repetition
    #[arg(long, value_name = "N", default_value_t = 3.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Seconds of warm-up before each repetition
    #[arg(long, value_name = "N", default_value_t = 0.5, value_parser = warm_up)]
    pub(crate) warm_up: f64,
    /// End a repetition after this many reads per connection, if that comes first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Repetitions of each measurement; the median is reported [default: 3, or 1 with --effort
    /// below 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: Option<u32>,
    /// Seed of the random offsets
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Size of the file to read; all of it is written first
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = file_size)]
    pub(crate) file_size: u64,
    /// Folder on the disk to measure; the file is created there and removed afterwards
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) folder: PathBuf,
    /// Keep the file in the folder, and reuse an existing one
    #[arg(long)]
    pub(crate) keep: bool,
    /// Run fio for comparison, if it is installed
    #[arg(long)]
    pub(crate) fio: bool,
    /// Measure the grid of the paper's figures 4.2 to 4.18 over one wire, and draw them
    #[arg(long, conflicts_with_all = ["sizes", "modes", "connections", "io_threads", "depths", "bridges", "io",
          "reactors", "batch", "pin", "seconds", "warm_up", "fio"])]
    pub(crate) sweep: bool,
    /// Fraction of --sweep's grid and time: 1 is usual, 0.01 is a smoke test
    #[arg(long, default_value_t = 1.0, value_parser = effort, requires = "sweep")]
    pub(crate) effort: f64,
    /// Folder for the page and figures of --sweep
    #[arg(long, value_name = "DIR", default_value = "lab-report", requires = "sweep")]
    pub(crate) report: PathBuf,
    /// Append JSON lines to this file, and print the table to standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

impl BenchIo {
    pub(super) fn unused(&self, has_cluster: bool) -> Vec<Unused> {
        let reads_here = self.modes.contains(&Mode::Local) || self.sweep;
        let has_node = self.modes.iter().any(|mode| *mode != Mode::Local) || self.sweep;
        let reads_there = self.modes.contains(&Mode::Remote) || self.sweep;
        let is_reactor = self.bridges.contains(&BridgeKind::Reactor);
        let has_reactors = has_node && is_reactor;
        let is_static = has_node && self.bridges.contains(&BridgeKind::Static);
        // With one read in flight, threads of the mode local read by themselves.
        let reads_by_pool = reads_here && self.depths.iter().any(|depth| *depth > 1);
        let has_pool =
            is_static || is_reactor && self.io.contains(&IoKind::Pread) && (has_node || reads_by_pool);
        let rule = |option, is_unused, why| Unused { option, is_unused, why };
        let no_node = "the mode local has no node";
        let of_cluster = "a node of --cluster is measured as it is configured";
        let mut rules = vec![
            rule("node", !has_cluster, "only --cluster has several nodes"),
            rule("bridges", !has_node, no_node),
            rule("wires", !has_node, no_node),
            rule("cache", !reads_there, "only the mode remote reads through the cache of a node"),
            rule("batch", !has_node, no_node),
            rule("reactors", !has_reactors, "no node with --bridges reactor is measured"),
            rule("io", !is_reactor, "only --bridges reactor has a choice, and the mode local beside it"),
            rule("io_threads", !has_pool, "neither --bridges static nor --io pread is measured"),
            rule("fio", !reads_here, "fio is compared with the mode local"),
            rule("verbs", !self.wires.contains(&Wire::Verbs), WITHOUT_VERBS),
        ];
        rules.extend(OF_OWN_NODE.map(|option| rule(option, has_cluster, of_cluster)));
        rules
    }
}

/// The options that describe a node of the command's own.
const OF_OWN_NODE: [&str; 11] = [
    "bridges",
    "io",
    "io_threads",
    "reactors",
    "cache",
    "pin",
    "file_size",
    "folder",
    "keep",
    "verbs",
    "sweep",
];

/// What to measure.
const MODES: [Named<Mode>; 3] = [
    ("local", Mode::Local, "The device, read by this process"),
    ("wire", Mode::Wire, "The wire alone: the node answers without reading"),
    ("remote", Mode::Remote, "The device, read by the node over the wire"),
];

pub(super) fn io_size(text: &str) -> Result<u32, String> {
    use rackscan_lab::limits::{IO_BYTES_LARGEST, IO_BYTES_LEAST};
    let bytes = bytes(text)?;
    match u32::try_from(bytes) {
        Ok(size)
            if (IO_BYTES_LEAST..=IO_BYTES_LARGEST).contains(&size) && size.is_multiple_of(IO_BYTES_LEAST) =>
        {
            Ok(size)
        }
        _ => Err(format!("{bytes} bytes; expected a multiple of 512 from 512 to 1MiB")),
    }
}

pub(super) fn file_size(text: &str) -> Result<u64, String> {
    let bytes = bytes(text)?;
    match bytes {
        0x40_0000..=0x100_0000_0000 if bytes.is_multiple_of(0x10_0000) => Ok(bytes),
        _ => Err(format!("{bytes} bytes; expected whole MiB, from 4MiB to 1TiB")),
    }
}

pub(super) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds from 0.001 to 3600".to_owned()),
    }
}

pub(super) fn warm_up(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds from 0 to 3600".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_no_device_reads_are_refused() {
        assert_eq!(io_size("512"), Ok(512));
        assert_eq!(io_size("1MiB"), Ok(1 << 20));
        for wrong in ["0", "100", "513", "1.5KB", "2MiB", "4EiB", "-1", "x"] {
            assert!(io_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn files_too_small_or_absurd_are_refused() {
        assert_eq!(file_size("4GiB"), Ok(4 << 30));
        for wrong in ["0", "1MiB", "4194305", "2TiB"] {
            assert!(file_size(wrong).is_err(), "{wrong}");
        }
        assert!(seconds("0").is_err() && seconds("nan").is_err() && warm_up("-1").is_err());
    }
}
