//! Which words does `rackscan lab query-io` understand?

use super::{page_size, scale, segment_rows};
use clap::{Args, ValueEnum};
use rackscan_lab::query_simulation::{Placement, SimulatedQuery};
use std::path::PathBuf;

/// `rackscan lab query-io`
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchQuery {
    /// Which queries, by comma: q01, q06 and the subquery of q15
    #[arg(long, value_delimiter = ',', value_name = "QUERY", default_value = "q01,q06,q15")]
    pub(crate) queries: Vec<SimulatedQuery>,
    /// Bytes of the pages that lineitem is loaded with, by comma: 4KiB to 1MiB
    #[arg(long, value_delimiter = ',', value_name = "SIZE", value_parser = page_size,
          default_value = "4KiB,8KiB,16KiB,32KiB,64KiB,128KiB,1MiB")]
    pub(crate) page_sizes: Vec<u32>,
    /// Where the queries are answered, by comma
    #[arg(long, value_enum, value_delimiter = ',', default_value = "local,remote-fetch,remote-process")]
    pub(crate) placements: Vec<QueryPlacement>,
    /// Connections to the node, by comma
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "1,4")]
    pub(crate) connections: Vec<u32>,
    /// Threads that work over each connection, by comma; `local` has as many as all connections
    /// together
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "1,4")]
    pub(crate) io_threads: Vec<u32>,
    /// The scale factor of the data
    #[arg(long, default_value_t = 1.0, value_parser = scale)]
    pub(crate) scale: f64,
    /// Rows of a segment, a multiple of 1024: threads take one segment at a time
    #[arg(long, value_name = "N", default_value_t = rackscan_format::limits::SEGMENT_ROWS_DEFAULT,
          value_parser = segment_rows)]
    pub(crate) segment_rows: u32,
    /// Turns of each figure; medians count, and one more turn before them does not
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    /// Where the data are made and removed again; on the disk to be measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) folder: PathBuf,
    /// Draw the paper's figures 4.32 to 4.40 into this folder, with a page that opens from disk
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// Append the JSON lines to this file; the table is standard output then
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// Where a query is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum QueryPlacement {
    /// This process reads the device and filters
    Local,
    /// Pages come over the wire and are filtered here
    RemoteFetch,
    /// The node filters and sends the rows that pass
    RemoteProcess,
}

impl From<QueryPlacement> for Placement {
    fn from(placement: QueryPlacement) -> Self {
        match placement {
            QueryPlacement::Local => Self::Local,
            QueryPlacement::RemoteFetch => Self::RemoteFetch,
            QueryPlacement::RemoteProcess => Self::RemoteProcess,
        }
    }
}
