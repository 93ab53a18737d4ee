//! Defines the arguments of `rackscan refresh`, `rackscan lab refresh` and `rackscan lab degraded`.

use super::{
    Format,
    values::{Named, PLACEMENTS, one_of},
};
use clap::Args;
use rackscan_bench::refresh::{Function, STREAM_NICE, StreamsIn};
use rackscan_planner::Policy;
use std::path::PathBuf;

/// `rackscan refresh`
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "A stream inserts (rf1) or deletes (rf2) a thousandth of the loaded orders. Each stream can run once: continue with --first.\n\n\
                  Examples:\n  rackscan refresh rf1\n  rackscan refresh rf2\n  rackscan refresh rf1 --streams 4 --first 2"
)]
pub(crate) struct Refresh {
    /// Refresh function: rf1 inserts new orders, rf2 deletes old ones
    #[arg(value_parser = one_of(&FUNCTIONS))]
    pub(crate) function: Function,
    /// Number of streams; each is a thread that runs one transaction at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) streams: u32,
    /// Number of the first stream; earlier ones have been run already
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) first: u32,
    /// Niceness of this process, as for nice(1): 0 competes with queries for the processors, higher
    /// values yield to them
    #[arg(long, value_name = "N", default_value_t = STREAM_NICE, value_parser = clap::value_parser!(u8).range(0..=19))]
    pub(crate) nice: u8,
    /// Output format
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

/// Refresh functions.
const FUNCTIONS: [Named<Function>; 2] =
    [("rf1", Function::NewSales, "New sales"), ("rf2", Function::OldSales, "Old sales")];

/// `rackscan lab refresh`
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchRefresh {
    /// Scale factor; data of another scale in the data folder is replaced
    #[arg(long, default_value_t = 1.0, value_parser = super::scale)]
    pub(crate) scale: f64,
    /// Queries, comma-separated
    #[arg(long, value_delimiter = ',', value_name = "QUERY", default_value = "q01,q06")]
    pub(crate) queries: Vec<String>,
    /// Repetitions without and with refreshes; the median is reported
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    /// Concurrent refresh streams
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) streams: u32,
    /// Number of the first stream; earlier ones have been run already
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) first: u32,
    /// Where the streams run
    #[arg(long, value_parser = one_of(&STREAMS_IN), value_name = "WHERE", default_value = "process")]
    pub(crate) streams_in: StreamsIn,
    /// Niceness of the streams, as for nice(1): 0 competes with queries for the processors, higher
    /// values yield to them
    #[arg(long, value_name = "N", default_value_t = STREAM_NICE, value_parser = clap::value_parser!(u8).range(0..=19))]
    pub(crate) nice: u8,
    /// Where scans run
    #[arg(long, value_parser = one_of(&PLACEMENTS), default_value = "auto")]
    pub(crate) placement: Policy,
    /// Append JSON lines to this file, and print the table to standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// Where the streams run while queries are measured.
const STREAMS_IN: [Named<StreamsIn>; 2] = [
    ("process", StreamsIn::Process, "In a process of their own, with that niceness"),
    ("thread", StreamsIn::Thread, "In nice threads of the querying process, over its engine"),
];

/// `rackscan lab refresh-streams`
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchRefreshStreams {
    /// Scale factor of the loaded tables
    #[arg(long)]
    pub(crate) scale: f64,
    /// Concurrent refresh streams
    #[arg(long)]
    pub(crate) streams: u32,
    /// Number of the first stream
    #[arg(long)]
    pub(crate) first: u32,
    /// Niceness of this process
    #[arg(long)]
    pub(crate) nice: u8,
    /// Where scans run
    #[arg(long, value_parser = one_of(&PLACEMENTS))]
    pub(crate) placement: Policy,
}

/// `rackscan lab degraded`
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchDegraded {
    /// Scale factor; data of another scale in the data folder is replaced
    #[arg(long, default_value_t = 1.0, value_parser = super::scale)]
    pub(crate) scale: f64,
    /// Queries, comma-separated [default: all]
    #[arg(long, value_delimiter = ',', value_name = "QUERY")]
    pub(crate) queries: Vec<String>,
    /// Runs of each query with all nodes, and after each kill; the median is reported
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    /// Nodes to kill, one after the other, comma-separated; at most two
    #[arg(long, value_delimiter = ',', value_name = "NODE", default_value = "1,2")]
    pub(crate) lose: Vec<u16>,
    /// Where scans run, if possible
    #[arg(long, value_parser = one_of(&PLACEMENTS), default_value = "auto")]
    pub(crate) placement: Policy,
    /// Append JSON lines to this file, and print the table to standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}
