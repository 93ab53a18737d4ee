//! Which words does `rackscan lab tpch` understand?

use super::{PlacementArgument, bytes, scale};
use clap::{Args, ValueEnum};
use rackscan_bench::PeerEngine;
use std::path::PathBuf;

/// `rackscan lab tpch`
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchTpch {
    /// The scale factor; other data in the data folder is replaced
    #[arg(long, default_value_t = 1.0, value_parser = scale)]
    pub(crate) scale: f64,
    /// Turns of each query; medians count
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    /// Turns before them that do not count [default: 1, or 0 with --cold]
    #[arg(long, value_name = "N", conflicts_with = "cold", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(crate) warm_up: Option<u32>,
    /// Which queries, by comma [default: all]
    #[arg(long, value_delimiter = ',', value_name = "QUERY")]
    pub(crate) queries: Vec<String>,
    /// Which placements, by comma; with auto, its times over the best forced placement's are
    /// printed
    #[arg(long, value_enum, value_delimiter = ',', default_value = "local,remote-fetch,remote-process,auto")]
    pub(crate) placements: Vec<PlacementArgument>,
    /// Other engines to run beside, over the same data as Parquet or as tables of their own; needs
    /// python3 with the packages `tpchgen-cli` and the engine's own
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) peers: Vec<Peer>,
    /// Before each run, let peers open their files anew and drop the kernel's caches; nodes keep no
    /// pages. Needs root
    #[arg(long)]
    pub(crate) cold: bool,
    /// Memory of each node that keeps pages, beside what it has for all else [default: as
    /// configured, or none with --cold]
    #[arg(long, value_name = "SIZE", conflicts_with = "cold", value_parser = bytes)]
    pub(crate) cache: Option<u64>,
    /// Draw bars of each query into this folder, with a page that opens from disk
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// Append the JSON lines to this file; the table is standard output then
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// An engine to measure beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peer {
    /// DataFusion on Parquet
    Datafusion,
    /// DuckDB on Parquet
    Duckdb,
    /// DuckDB on its own tables
    DuckdbNative,
}

impl From<Peer> for PeerEngine {
    fn from(peer: Peer) -> Self {
        match peer {
            Peer::Datafusion => Self::DataFusion,
            Peer::Duckdb => Self::DuckDb,
            Peer::DuckdbNative => Self::DuckDbNative,
        }
    }
}
