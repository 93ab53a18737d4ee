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
//!
//! An example: the columns of a generated table, and the orders that a stream of refreshes deletes.
//!
//! ```
//! use rackscan_datasets::{refresh, tpch};
//!
//! let sort: tpch::SortBy = "lineitem.l_shipdate".parse()?;
//! let columns = tpch::columns(&sort.table)?;
//! assert_eq!(columns.len(), 16);
//! assert!(columns.iter().any(|column| column.name == sort.column && !column.nullable));
//! assert!(tpch::columns("lineitems").is_err());
//!
//! assert_eq!(refresh::orders_per_stream(0.01, 1)?, 15);
//! let deleted: Vec<i64> = refresh::old_sales(0.01, 1)?.collect();
//! assert_eq!(deleted, [1, 2, 3, 4, 5, 6, 7, 32, 33, 34, 35, 36, 37, 38, 39]);
//! assert!(refresh::old_sales(0.01, 2)?.all(|key| !deleted.contains(&key)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
