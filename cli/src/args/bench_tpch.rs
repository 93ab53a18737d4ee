//! Defines the arguments of `rackscan lab tpch`.

use super::{
    bytes, scale,
    values::{Named, PLACEMENTS, one_of},
};
use clap::Args;
use rackscan_bench::PeerEngine;
use rackscan_planner::Policy;
use std::path::PathBuf;

/// `rackscan lab tpch`
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchTpch {
    /// Scale factor; data of another scale in the data folder is replaced
    #[arg(long, default_value_t = 1.0, value_parser = scale)]
    pub(crate) scale: f64,
    /// Repetitions of each query; the median is reported
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    /// Warm-up repetitions that do not count [default: 1, or 0 with --cold]
    #[arg(long, value_name = "N", conflicts_with = "cold", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(crate) warm_up: Option<u32>,
    /// Queries, comma-separated [default: all]
    #[arg(long, value_delimiter = ',', value_name = "QUERY")]
    pub(crate) queries: Vec<String>,
    /// Placements, comma-separated; with auto, also prints its time relative to the best forced
    /// placement
    #[arg(long, value_parser = one_of(&PLACEMENTS), value_delimiter = ',',
          default_value = "local,remote-fetch,remote-process,auto")]
    pub(crate) placements: Vec<Policy>,
    /// Other engines to compare with, over the same data as Parquet or as their own tables; needs
    /// python3 with the packages `tpchgen-cli` and the engine's own
    #[arg(long, value_parser = one_of(&PEERS), value_delimiter = ',')]
    pub(crate) peers: Vec<PeerEngine>,
    /// Before each run, drop the kernel's caches and let peers reopen their files; nodes have no
    /// page cache. Needs root
    #[arg(long)]
    pub(crate) cold: bool,
    /// Page cache of each node, in addition to its other memory [default: as configured, or none
    /// with --cold]
    #[arg(long, value_name = "SIZE", conflicts_with = "cold", value_parser = bytes)]
    pub(crate) cache: Option<u64>,
    /// Draw bars of each query as an HTML page into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// Append JSON lines to this file, and print the table to standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// Engines to compare with.
const PEERS: [Named<PeerEngine>; 3] = [
    ("datafusion", PeerEngine::DataFusion, "DataFusion on Parquet"),
    ("duckdb", PeerEngine::DuckDb, "DuckDB on Parquet"),
    ("duckdb-native", PeerEngine::DuckDbNative, "DuckDB on its own tables"),
];
