//! Why can a scan not go on?

use arrow::error::ArrowError;
use rackscan_format::{
    ids::{ColumnId, PageNumber, SegmentId, TableId},
    segment::Extent,
};

/// Why a scan cannot go on. Everything but [`ScanError::Page`] and [`ScanError::Computation`] is a mistake of the
/// caller or a directory that does not fit the program.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// Program and segment do not belong together.
    #[error("scan of segment {segment} of table {table}: {what} is {found}, expected {expected}")]
    Mismatch {
        /// The segment's table.
        table: TableId,
        /// The segment.
        segment: SegmentId,
        /// The part at fault.
        what: &'static str,
        /// What is there.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// A page is not what the directory says, or its bytes have changed.
    #[error(
        "page {page} of column {column} of segment {segment} of table {table} \
         (device {}, bytes {} to {}): {reason}; reload the table, or restore the device",
        extent.device, extent.offset_bytes, extent.offset_bytes.saturating_add(u64::from(extent.length_bytes))
    )]
    Page {
        /// The table.
        table: TableId,
        /// The segment.
        segment: SegmentId,
        /// The column.
        column: ColumnId,
        /// The page.
        page: PageNumber,
        /// Where the page was read.
        extent: Extent,
        /// What is wrong with it.
        reason: String,
    },
    /// A page was supplied that was not asked for, or twice.
    #[error(
        "page {page} of column {column} of segment {segment} of table {table} was supplied but not asked for; \
         supply each page of Step::Read once"
    )]
    NotWanted {
        /// The table.
        table: TableId,
        /// The segment.
        segment: SegmentId,
        /// The column.
        column: ColumnId,
        /// The page.
        page: PageNumber,
    },
    /// The computation itself failed: an overflow of an exact decimal, a cast that does not fit.
    #[error("scan of segment {segment} of table {table}: {source}")]
    Computation {
        /// The table.
        table: TableId,
        /// The segment.
        segment: SegmentId,
        /// What arrow's kernel says.
        source: ArrowError,
    },
}
