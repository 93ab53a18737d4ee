//! The delta store: the changed rows of a table that are in no segment yet.
//!
//! Segments never change. Rows that are inserted, updated or deleted are items of read-atomic
//! transactions (`rackscan_ramp`), each under a key that identifies its row. A reader that scans a
//! table follows the writes of all participants, and so has, for each point in time, a consistent
//! set of rows. This crate contains only computations: it opens no connections and no files, reads
//! no clocks, and does not scan rows.
//!
//! ```text
//! statement -> rows with their identities -> items of one transaction -> participants     [identity], [row]
//! participants -> their feeds -> [replica]: a copy of all changed rows -> the delta store of a table
//! delta store -> [layer]: rows withheld from segments, and [run]s: segments in memory -> scans
//! delta store -> [flushed]: segments of a new table version, and rows withheld from the segments that it takes over
//! changed rows -> entries of indexes, foreign keys and sums, in the same transaction, visible with them or not at all     [derived]
//! ```
//!
//! `table_rows` contains the changed rows of one table; [`limits`] has the bounds of this crate.

#![forbid(unsafe_code)]

pub mod derived;
pub mod flushed;
pub mod identity;
pub mod layer;
pub mod limits;
pub mod replica;
pub mod row;
pub mod run;
mod table_rows;
