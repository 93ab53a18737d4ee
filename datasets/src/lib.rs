//! Loads tables into a cluster: those of TPC-H from its generator, CSV files and Parquet files.
//!
//! The crate reads a source, distributes its rows to nodes, encodes segments and passes them to the
//! client, which stores and publishes them. It does not run queries, and it does not change tables
//! after a load; [`refresh`] only computes the rows that TPC-H's refresh functions insert and
//! delete.
//!
//! ```text
//! tpch, parquet, csv      pieces of rows, as arrow batches
//!   |  stored             each column in its stored form: 64-bit integers, doubles, text
//!   |  distribute         rows to nodes, by the hash of the partition key
//!   |  sort               only if requested: sorted runs, in memory or in files, merged per node
//!   v  segment, encode    rows of one node until a segment is full, then its pages
//! cut                     the threads that do all this
//! load                    segments to the nodes, a bounded number in flight; published at the end
//!
//! refresh                 the rows of TPC-H's refresh functions
//! panics                  turns panics of third-party decoders into errors
//! error, limits, options  the crate's errors, bounds and settings
//! ```
//!
//! Invariants
//! - A table is published only after every row of its source was stored. A load that fails or is
//!   dropped leaves nothing behind.
//! - All rows with the same partition key are on one node, whatever table they are in: an order and
//!   its lines are on the same node.
//! - Memory is bounded whatever the size of the source: see [`LoadOptions`].

#![forbid(unsafe_code)]

pub mod csv;
mod cut;
mod distribute;
mod encode;
mod error;
pub mod limits;
mod load;
mod options;
mod panics;
pub mod parquet;
pub mod refresh;
mod segment;
mod sort;
mod stored;
pub mod tpch;

pub use error::{CsvFault, LoadError};
pub use load::{LoadSummary, LoadedTable, OnProgress, Progress};
pub use options::{LoadOptions, TableSpec};
