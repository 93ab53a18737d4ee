//! Defines what a step of a scan returns to the caller: pages that it needs, or a batch; and
//! counters.

use arrow::array::RecordBatch;
use rackscan_format::{
    ids::{ColumnId, PageNumber},
    segment::Extent,
};

/// A page that the scan needs to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageWanted {
    /// Its column.
    pub column: ColumnId,
    /// Its number in the column's chunk.
    pub page: PageNumber,
    /// Where it is stored.
    pub extent: Extent,
}

/// Rows or groups of consecutive blocks.
#[derive(Clone, Debug)]
pub struct ScanBatch {
    /// The rows, with the schema of [`output_schema`](crate::output_schema).
    pub batch: RecordBatch,
    /// The first block that they come from.
    pub first_block: u32,
    /// The block after the last that they come from: a scan that begins here yields exactly the
    /// remainder.
    pub end_block: u32,
}

/// The result of a step of a scan.
#[derive(Clone, Debug)]
pub enum Step {
    /// The scan needs these pages, preferably in this order: supply each with
    /// [`SegmentScan::supply`](crate::SegmentScan::supply).
    Read(Vec<PageWanted>),
    /// Rows, or groups.
    Batch(ScanBatch),
    /// The segment was scanned to its end, or the program's row limit was reached.
    Done,
}

/// Counters of a scan so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanStats {
    /// Pages supplied.
    pub pages_read: u64,
    /// Their stored bytes.
    pub bytes_read: u64,
    /// Pages of the program's columns that were not read because zone maps decided their blocks or
    /// because all rows of their blocks are withheld.
    pub pages_skipped_by_zone: u64,
    /// Payload pages that were not read because no row of them was selected.
    pub pages_skipped_by_selection: u64,
    /// Blocks that zone maps ruled out.
    pub blocks_pruned: u64,
    /// Blocks of packed numbers that were unpacked, counted once for each use; bounds decided the
    /// other blocks.
    pub blocks_unpacked: u64,
    /// Rows that reached the filter, without withheld rows.
    pub rows_scanned: u64,
    /// Rows that passed the filter.
    pub rows_selected: u64,
    /// Rows that key filters were applied to.
    pub keys_tested: u64,
    /// Rows that key filters kept.
    pub keys_kept: u64,
}
