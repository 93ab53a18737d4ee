//! Which words do `rackscan refresh`, `rackscan lab refresh` and `rackscan lab degraded`
//! understand?

use super::{Format, PlacementArgument};
use clap::{Args, ValueEnum};
use rackscan_bench::refresh::STREAM_NICE;
use std::path::PathBuf;

/// `rackscan refresh`
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "A stream inserts (rf1) or deletes (rf2) a thousandth of the orders that were loaded. Each is done once: go on with --first.\n\n\
                  Examples:\n  rackscan refresh rf1\n  rackscan refresh rf2\n  rackscan refresh rf1 --streams 4 --first 2"
)]
pub(crate) struct Refresh {
    /// rf1 inserts new orders, rf2 deletes old ones
    #[arg(value_enum)]
    pub(crate) function: RefreshFunction,
    /// Streams, each a thread that waits for its transactions
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) streams: u32,
    /// The first stream: those before it were done already
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) first: u32,
    /// How nice this process is, as for nice(1): queries of others get the processors first, it all
    /// that is left; 0 takes from queries what it can
    #[arg(long, value_name = "N", default_value_t = STREAM_NICE, value_parser = clap::value_parser!(u8).range(0..=19))]
    pub(crate) nice: u8,
    /// How to print what was done
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

/// A refresh function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RefreshFunction {
    /// New sales
    Rf1,
    /// Old sales
    Rf2,
}

/// `rackscan lab refresh`
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchRefresh {
    /// The scale factor; other data in the data folder is replaced
    #[arg(long, default_value_t = 1.0, value_parser = super::scale)]
    pub(crate) scale: f64,
    /// Which queries, by comma
    #[arg(long, value_delimiter = ',', value_name = "QUERY", default_value = "q01,q06")]
    pub(crate) queries: Vec<String>,
    /// Turns without and with refreshes; medians count
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    /// Streams that refresh at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) streams: u32,
    /// The first stream: those before it were done already
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) first: u32,
    /// Where streams are
    #[arg(long, value_enum, value_name = "WHERE", default_value = "process")]
    pub(crate) streams_in: StreamsInArgument,
    /// How nice they are, as for nice(1): queries get the processors first, streams all that is
    /// left; 0 takes from queries what it can
    #[arg(long, value_name = "N", default_value_t = STREAM_NICE, value_parser = clap::value_parser!(u8).range(0..=19))]
    pub(crate) nice: u8,
    /// Where scans run
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) placement: PlacementArgument,
    /// Append the JSON lines to this file; the table is standard output then
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// Where streams are while queries are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StreamsInArgument {
    /// In a process of their own, all of which is nice
    Process,
    /// In nice threads of the process that queries, over its engine
    Thread,
}

/// `rackscan lab refresh-streams`
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchRefreshStreams {
    /// The scale factor of the loaded tables
    #[arg(long)]
    pub(crate) scale: f64,
    /// Streams that refresh at a time
    #[arg(long)]
    pub(crate) streams: u32,
    /// The first of them
    #[arg(long)]
    pub(crate) first: u32,
    /// How nice this process is
    #[arg(long)]
    pub(crate) nice: u8,
    /// Where scans run
    #[arg(long, value_enum)]
    pub(crate) placement: PlacementArgument,
}

/// `rackscan lab degraded`
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchDegraded {
    /// The scale factor; other data in the data folder is replaced
    #[arg(long, default_value_t = 1.0, value_parser = super::scale)]
    pub(crate) scale: f64,
    /// Which queries, by comma [default: all]
    #[arg(long, value_delimiter = ',', value_name = "QUERY")]
    pub(crate) queries: Vec<String>,
    /// Runs of each query, with all nodes and without each further one; medians count
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    /// Nodes to kill, one after the other, by comma; at most two
    #[arg(long, value_delimiter = ',', value_name = "NODE", default_value = "1,2")]
    pub(crate) lose: Vec<u16>,
    /// Where scans run, where they can
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) placement: PlacementArgument,
    /// Append the JSON lines to this file; the table is standard output then
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}
