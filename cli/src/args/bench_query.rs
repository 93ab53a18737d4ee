//! Defines the arguments of `rackscan lab query-io`.

use super::{
    page_size, scale, segment_rows,
    values::{Named, one_of},
};
use clap::Args;
use rackscan_lab::query_simulation::{Placement, SimulatedQuery};
use std::path::PathBuf;

/// `rackscan lab query-io`
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchQuery {
    /// Queries, comma-separated: q01, q06 and the subquery of q15
    #[arg(long, value_delimiter = ',', value_name = "QUERY", default_value = "q01,q06,q15")]
    pub(crate) queries: Vec<SimulatedQuery>,
    /// Page sizes of lineitem, comma-separated: 4KiB to 1MiB
    #[arg(long, value_delimiter = ',', value_name = "SIZE", value_parser = page_size,
          default_value = "4KiB,8KiB,16KiB,32KiB,64KiB,128KiB,1MiB")]
    pub(crate) page_sizes: Vec<u32>,
    /// Where the queries are answered, comma-separated
    #[arg(long, value_parser = one_of(&PLACEMENTS), value_delimiter = ',',
          default_value = "local,remote-fetch,remote-process")]
    pub(crate) placements: Vec<Placement>,
    /// Numbers of connections to the node, comma-separated
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "1,4")]
    pub(crate) connections: Vec<u32>,
    /// Worker threads per connection, comma-separated; `local` has as many as all connections
    /// together
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "1,4")]
    pub(crate) io_threads: Vec<u32>,
    /// Scale factor of the data
    #[arg(long, default_value_t = 1.0, value_parser = scale)]
    pub(crate) scale: f64,
    /// Rows of a segment, a multiple of 1024; threads take one segment at a time
    #[arg(long, value_name = "N", default_value_t = rackscan_format::limits::SEGMENT_ROWS_DEFAULT,
          value_parser = segment_rows)]
    pub(crate) segment_rows: u32,
    /// Repetitions of each measurement, after one warm-up; the median is reported
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repeat: u32,
    /// Folder on the disk to measure; the data are created there and removed afterwards
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) folder: PathBuf,
    /// Draw the paper's figures 4.32 to 4.40 as an HTML page into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// Append JSON lines to this file, and print the table to standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// Where a query is answered.
const PLACEMENTS: [Named<Placement>; 3] = [
    ("local", Placement::Local, "This process reads the device and filters"),
    ("remote-fetch", Placement::RemoteFetch, "The node sends pages, and this process filters"),
    ("remote-process", Placement::RemoteProcess, "The node filters, and sends the rows that pass"),
];
