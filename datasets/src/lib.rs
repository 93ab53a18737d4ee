//! How do tables get in?
//!
//! ```text
//! tpch, parquet, csv      pieces of rows, as arrow batches
//!   |  stored             each column in its stored form: 64-bit integers, doubles, text
//!   |  deal               rows to nodes, by the hash of the partition key
//!   |  sort               only where asked: runs in memory or spilled, merged per node
//!   v  segment            rows of one node until a segment is full, then encoded
//! load                    segments to the nodes, a bounded number in flight; published at the end
//!
//! refresh                 rows that come and go afterwards, as transactions
//! ```
//!
//! Invariants
//! - A table is published only when every row of its source has been stored; a load that fails or
//!   is dropped leaves nothing.
//! - All rows of one partition key are at one node, whatever table they are in: an order and its
//!   lines share their home.
//! - Memory is bounded whatever the size of the source: see [`LoadOptions`].

#![forbid(unsafe_code)]

mod contained;
pub mod csv;
mod cut;
mod distribute;
mod encode;
mod error;
pub mod limits;
mod load;
mod options;
pub mod parquet;
pub mod refresh;
mod segment;
mod sort;
mod stored;
pub mod tpch;

pub use error::{CsvFault, LoadError};
pub use load::{LoadSummary, LoadedTable, OnProgress, Progress};
pub use options::{LoadOptions, TableSpec};
