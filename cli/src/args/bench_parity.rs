//! Defines the arguments of `rackscan lab parity`.

use super::{
    bytes, effort,
    unused::Unused,
    values::{Named, PARITIES, WIRES, WITHOUT_VERBS, one_of},
};
use clap::Args;
use rackscan_fabric::Wire;
use rackscan_lab::parity::Protection;
use rackscan_stripe::Parity;
use std::path::PathBuf;

/// `rackscan lab parity`
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchParity {
    /// How to write stripes, comma-separated: none (data only), naive (the client computes parity),
    /// relay (nodes compute it on the way)
    #[arg(long, value_delimiter = ',', value_name = "WAY", default_value = "none,naive,relay")]
    pub(crate) ways: Vec<Protection>,
    /// Sizes of a transfer, comma-separated: multiples of 4KiB
    #[arg(long, value_delimiter = ',', value_name = "SIZE", default_value = "4KiB,16KiB,64KiB,256KiB,1MiB", value_parser = bytes)]
    pub(crate) blocks: Vec<u64>,
    /// Numbers of nodes that share a stripe, comma-separated
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "5", value_parser = clap::value_parser!(u16).range(2..=17))]
    pub(crate) nodes: Vec<u16>,
    /// Protection of a stripe: rows and diagonals (any two nodes may be lost), or rows only (any
    /// one)
    #[arg(long, value_parser = one_of(&PARITIES), default_value = "2d-xor")]
    pub(crate) parity: Parity,
    /// Wires, comma-separated
    #[arg(long, value_parser = one_of(&WIRES), value_delimiter = ',', default_value = "shm,tcp")]
    pub(crate) wires: Vec<Wire>,
    /// Where cells end up, comma-separated: memory (as the paper measures), disk (written and
    /// flushed)
    #[arg(long, value_parser = one_of(&PLACES), value_delimiter = ',', default_value = "memory,disk")]
    pub(crate) to: Vec<bool>,
    /// Size of a cell
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = bytes)]
    pub(crate) cell: u64,
    /// Stripes in flight at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) lanes: u8,
    /// Size of a ring; each transfer has its own
    #[arg(long, value_name = "SIZE", default_value = "512KiB", value_parser = bytes)]
    pub(crate) ring: u64,
    /// Repetitions per way of writing, alternating between the ways; the median is reported
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    /// Seconds of each repetition
    #[arg(long, default_value_t = 1.0, value_parser = effort)]
    pub(crate) seconds: f64,
    /// Folder for the nodes and their devices; removed afterwards
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) folder: PathBuf,
    /// Bytes of each node's device that cells are written to in a circle, per wire
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = bytes)]
    pub(crate) file_size: u64,
    /// Listening address of the nodes for the wire verbs; RACKSCAN_VERBS_DEVICE names the adapter
    /// of this side
    #[arg(long, value_name = "DEVICE@ADDRESS")]
    pub(crate) verbs: Option<String>,
    /// Bandwidth of the client's link in each direction, in MB (10^6 bytes) per second; nodes reach
    /// each other without a limit. Needs the wire tcp and root: the networks are this command's own
    #[arg(long, value_name = "MB/S", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) client_link: Option<u32>,
    /// Append JSON lines to this file, and print the table to standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write a page with figures into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
}

impl BenchParity {
    pub(super) fn unused(&self) -> Vec<Unused> {
        let rule = |option, is_unused, why| Unused { option, is_unused, why };
        vec![
            rule("verbs", !self.wires.contains(&Wire::Verbs), WITHOUT_VERBS),
            rule("file_size", !self.to.contains(&true), "nothing is written to disk (--to disk)"),
        ]
    }
}

/// Where cells end up, and whether that is on disk.
const PLACES: [Named<bool>; 2] = [("memory", false, "In memory"), ("disk", true, "On disk")];
