//! What does a scan say to its caller?

use arrow::array::RecordBatch;
use rackscan_format::{
    ids::{ColumnId, PageNumber},
    segment::Extent,
};

/// A page the scan cannot go on without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageWanted {
    /// Its column.
    pub column: ColumnId,
    /// Its number in the column's chunk.
    pub page: PageNumber,
    /// Where it is stored.
    pub extent: Extent,
}

/// Rows (or groups) of some consecutive blocks.
#[derive(Clone, Debug)]
pub struct ScanBatch {
    /// The rows, of the schema of [`output_schema`](crate::output_schema).
    pub batch: RecordBatch,
    /// The first block they come from.
    pub first_block: u32,
    /// The block behind the last they come from: a scan that begins here yields exactly what is
    /// missing.
    pub end_block: u32,
}

/// What a scan does next.
#[derive(Clone, Debug)]
pub enum Step {
    /// It needs these pages, in this order if they come one by one: supply each with
    /// [`SegmentScan::supply`](crate::SegmentScan::supply).
    Read(Vec<PageWanted>),
    /// Rows, or groups.
    Batch(ScanBatch),
    /// Nothing: the segment is scanned to its end, or as many rows as the program wants are out.
    Done,
}

/// What a scan has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanStats {
    /// Pages supplied.
    pub pages_read: u64,
    /// Their stored bytes.
    pub bytes_read: u64,
    /// Pages of the program's columns that zone maps made unnecessary, or that all rows of their
    /// blocks are withheld.
    pub pages_skipped_by_zone: u64,
    /// Payload pages in which no row was selected.
    pub pages_skipped_by_selection: u64,
    /// Blocks that zone maps ruled out.
    pub blocks_pruned: u64,
    /// Blocks of packed numbers that were unpacked, once for each use; bounds decided about the
    /// others.
    pub blocks_unpacked: u64,
    /// Rows that reached the filter; those that are withheld do not.
    pub rows_scanned: u64,
    /// Rows that passed it.
    pub rows_selected: u64,
    /// Rows that key filters were asked about.
    pub keys_tested: u64,
    /// Rows that they kept.
    pub keys_kept: u64,
}
