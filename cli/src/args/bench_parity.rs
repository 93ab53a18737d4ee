//! Which words does `rackscan lab parity` understand?

use super::{LabWire, ParityArgument, bench_io::bytes};
use clap::Args;
use rackscan_lab::parity::Protection;
use std::path::PathBuf;

/// `rackscan lab parity`
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchParity {
    /// How stripes are written, by comma: none (data alone), naive (the client computes parities),
    /// relay (nodes compute them on the way)
    #[arg(long, value_delimiter = ',', value_name = "WAY", default_value = "none,naive,relay")]
    pub(crate) ways: Vec<Protection>,
    /// Bytes that are sent at once, by comma: multiples of 4KiB
    #[arg(long, value_delimiter = ',', value_name = "SIZE", default_value = "4KiB,16KiB,64KiB,256KiB,1MiB", value_parser = bytes)]
    pub(crate) blocks: Vec<u64>,
    /// Nodes that share a stripe, by comma
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "5", value_parser = clap::value_parser!(u16).range(2..=17))]
    pub(crate) nodes: Vec<u16>,
    /// What protects a stripe: rows and diagonals (any two nodes may be lost), or rows alone (any
    /// one)
    #[arg(long, value_enum, default_value = "2d-xor")]
    pub(crate) parity: ParityArgument,
    /// Wires, by comma
    #[arg(long, value_enum, value_delimiter = ',', default_value = "shm,tcp")]
    pub(crate) wires: Vec<LabWire>,
    /// Where cells end, by comma: memory (as the paper measures), disk (written and flushed)
    #[arg(long, value_enum, value_delimiter = ',', default_value = "memory,disk")]
    pub(crate) to: Vec<CellsTo>,
    /// Bytes of a cell
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = bytes)]
    pub(crate) cell: u64,
    /// Stripes under way at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) lanes: u8,
    /// Bytes of a ring, of which each transfer has one
    #[arg(long, value_name = "SIZE", default_value = "512KiB", value_parser = bytes)]
    pub(crate) ring: u64,
    /// Turns of each way, one way after the other; medians count
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    /// Seconds of each turn
    #[arg(long, default_value_t = 1.0, value_parser = super::bench::effort)]
    pub(crate) seconds: f64,
    /// Where the nodes and their devices go; removed again
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) folder: PathBuf,
    /// Bytes of each node's device that cells go round in, for each wire
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = bytes)]
    pub(crate) file_size: u64,
    /// Where the nodes listen for the wire verbs; RACKSCAN_VERBS_DEVICE names the adapter of this
    /// side
    #[arg(long, value_name = "DEVICE@ADDRESS")]
    pub(crate) verbs: Option<String>,
    /// Megabytes (10^6) a second of the client's link, each way; nodes reach each other without a
    /// limit. For the wire tcp, in networks of this command alone (as root)
    #[arg(long, value_name = "MB/S", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) client_link: Option<u32>,
    /// Append the JSON lines to this file; the table is standard output then
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write a page with figures into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
}

/// Where cells end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CellsTo {
    /// In memory
    Memory,
    /// On disk
    Disk,
}
