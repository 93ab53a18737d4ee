//! Defines the errors of a scan.

use crate::quota::Bounced;
use arrow::error::ArrowError;
use az::SaturatingAs;
use rackscan_format::{
    ids::{ColumnId, DeviceId, PageNumber, SegmentId, TableId},
    segment::{Extent, SegmentDirectory},
};
use std::fmt;

/// Why a scan cannot continue. Everything but [`ScanError::Page`], [`ScanError::Computation`] and
/// [`ScanError::Bounced`] is a mistake of the caller or a directory that does not fit the program.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// Program and segment do not belong together.
    #[error("cannot scan segment {segment} of table {table}: {what} is {found}, expected {expected}")]
    Mismatch {
        /// The segment's table.
        table: TableId,
        /// The segment.
        segment: SegmentId,
        /// The part at fault.
        what: &'static str,
        /// What is there.
        found: String,
        /// What was expected.
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
    /// A page was supplied that the scan did not request, or was supplied twice.
    #[error(
        "page {page} of column {column} of segment {segment} of table {table} was supplied to a scan that did not \
         request it, or twice: please report this"
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
    #[error("the scan of segment {segment} of table {table} failed: {source}")]
    Computation {
        /// The table.
        table: TableId,
        /// The segment.
        segment: SegmentId,
        /// The error of arrow's kernel.
        source: ArrowError,
    },
    /// The program needs more than its quota. Nothing is wrong: the segment is to be scanned
    /// elsewhere.
    #[error("the scan of segment {segment} of table {table} was stopped: {bounced}")]
    Bounced {
        /// The segment's table.
        table: TableId,
        /// The segment.
        segment: SegmentId,
        /// Which quota was exceeded, and the block where another scan continues.
        bounced: Bounced,
    },
}

/// A page of an input, by its position among the program's inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PagePosition {
    pub(crate) input: usize,
    pub(crate) page: usize,
}

impl PagePosition {
    pub(crate) fn fault(self, reason: impl fmt::Display) -> Fault {
        Fault::Page { place: self, reason: reason.to_string() }
    }
}

/// A fault below the scan, which does not know the segment's name.
#[derive(Debug)]
pub(crate) enum Fault {
    Page { place: PagePosition, reason: String },
    Computation(ArrowError),
    Bounced(Bounced),
}

impl From<ArrowError> for Fault {
    fn from(error: ArrowError) -> Self {
        Self::Computation(error)
    }
}

impl ScanError {
    /// Whether a value of the computation exceeds its type.
    #[must_use]
    pub fn is_overflow(&self) -> bool {
        matches!(self, Self::Computation { source: ArrowError::ArithmeticOverflow(_), .. })
    }

    /// The fault with the segment's name; `column` maps an input to its column.
    pub(crate) fn of(fault: Fault, directory: &SegmentDirectory, column: impl Fn(usize) -> ColumnId) -> Self {
        let SegmentDirectory { table, segment, .. } = *directory;
        match fault {
            Fault::Computation(source) => Self::Computation { table, segment, source },
            Fault::Bounced(bounced) => Self::Bounced { table, segment, bounced },
            Fault::Page { place, reason } => {
                let column = column(place.input);
                // Pages are numbered in 16 bits (`InputPages::page_of`), so this never saturates; a
                // panic would hide the fault.
                let page = PageNumber(place.page.saturating_as::<u16>());
                let nowhere = Extent { device: DeviceId(0), offset_bytes: 0, length_bytes: 0 };
                let extent = directory.page(column, page).map_or(nowhere, |entry| entry.extent);
                Self::Page { table, segment, column, page, extent, reason }
            }
        }
    }
}
