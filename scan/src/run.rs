//! What does a scan do next?

use crate::{ScanError, ScanLimits};
use arrow::array::RecordBatch;
use rackscan_format::{
    ids::{ColumnId, PageNumber},
    program::VerifiedProgram,
    segment::{Extent, SegmentDirectory},
};
use std::sync::Arc;

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
    /// The block behind the last they come from: a scan that begins here yields exactly what is missing.
    pub end_block: u32,
}

/// What a scan does next.
#[derive(Clone, Debug)]
pub enum Step {
    /// It needs these pages, in this order if they come one by one: supply each with [`SegmentScan::supply`].
    Read(Vec<PageWanted>),
    /// Rows.
    Batch(ScanBatch),
    /// Nothing: the segment is scanned to its end.
    Done,
}

/// What a scan has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanStats {
    /// Pages asked for.
    pub pages_read: u64,
    /// Their stored bytes.
    pub bytes_read: u64,
    /// Pages of the program's columns that zone maps made unnecessary.
    pub pages_skipped_by_zone: u64,
    /// Payload pages in which no row was selected.
    pub pages_skipped_by_selection: u64,
    /// Blocks that zone maps ruled out.
    pub blocks_pruned: u64,
    /// Rows that reached the filter.
    pub rows_scanned: u64,
    /// Rows that passed it.
    pub rows_selected: u64,
}

/// The scan of one segment by one program. `P` owns the bytes of a page and is dropped as soon as they are consumed.
pub struct SegmentScan<P> {
    directory: Arc<SegmentDirectory>,
    stats: ScanStats,
    pages: Vec<P>,
}

impl<P: AsRef<[u8]>> SegmentScan<P> {
    /// A scan of the segment's blocks from `first_block` on.
    ///
    /// # Errors
    /// When program and segment do not belong together, or there is no such block.
    pub fn new(
        program: Arc<VerifiedProgram>,
        directory: Arc<SegmentDirectory>,
        _first_block: u32,
        _limits: ScanLimits,
    ) -> Result<Self, ScanError> {
        drop(program);
        Ok(Self { directory, stats: ScanStats::default(), pages: Vec::new() })
    }

    /// Goes on until pages are missing, rows are there, or all is done. Asks again for pages not yet supplied.
    ///
    /// # Errors
    /// When the computation fails.
    pub fn step(&mut self) -> Result<Step, ScanError> {
        Ok(Step::Done)
    }

    /// Takes a page that was asked for, and checks its identity and checksum.
    ///
    /// # Errors
    /// When the page is wrong or was not asked for.
    pub fn supply(&mut self, column: ColumnId, page: PageNumber, bytes: P) -> Result<(), ScanError> {
        self.pages.push(bytes);
        let SegmentDirectory { table, segment, .. } = *self.directory;
        Err(ScanError::NotWanted { table, segment, column, page })
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> ScanStats {
        self.stats
    }
}
