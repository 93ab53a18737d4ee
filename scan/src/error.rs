//! Why can a scan not go on?

use crate::quota::Bounced;
use arrow::error::ArrowError;
use rackscan_format::{
    ids::{ColumnId, DeviceId, PageNumber, SegmentId, TableId},
    segment::{Extent, SegmentDirectory},
};
use std::fmt;

/// Why a scan cannot go on. Everything but [`ScanError::Page`], [`ScanError::Computation`] and
/// [`ScanError::Bounced`] is a mistake of the caller or a directory that does not fit the program.
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
    /// The program needs more than its quota: nothing is wrong, the segment is to be scanned
    /// elsewhere.
    #[error("scan of segment {segment} of table {table}: {bounced}")]
    Bounced {
        /// The segment's table.
        table: TableId,
        /// The segment.
        segment: SegmentId,
        /// What there was too little of, and where to go on.
        bounced: Bounced,
    },
}

/// A page of an input, by its position among the program's inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageWhere {
    pub(crate) input: usize,
    pub(crate) page: usize,
}

impl PageWhere {
    pub(crate) fn fault(self, reason: impl fmt::Display) -> Fault {
        Fault::Page { place: self, reason: reason.to_string() }
    }
}

/// What goes wrong below the scan, before the segment's name is put to it.
#[derive(Debug)]
pub(crate) enum Fault {
    Page { place: PageWhere, reason: String },
    Computation(ArrowError),
    Bounced(Bounced),
}

impl From<ArrowError> for Fault {
    fn from(error: ArrowError) -> Self {
        Self::Computation(error)
    }
}

impl ScanError {
    /// Whether a value of the computation is beyond its type.
    #[must_use]
    pub fn is_overflow(&self) -> bool {
        matches!(self, Self::Computation { source: ArrowError::ArithmeticOverflow(_), .. })
    }

    /// The error with the segment's name; `column` is that of the page at fault.
    pub(crate) fn of(fault: Fault, directory: &SegmentDirectory, column: impl Fn(usize) -> ColumnId) -> Self {
        let SegmentDirectory { table, segment, .. } = *directory;
        match fault {
            Fault::Computation(source) => Self::Computation { table, segment, source },
            Fault::Bounced(bounced) => Self::Bounced { table, segment, bounced },
            Fault::Page { place, reason } => {
                let column = column(place.input);
                // Pages are counted in 16 bits (`CHUNK_PAGES_MAX`).
                let page = PageNumber(u16::try_from(place.page).unwrap_or(u16::MAX));
                let nowhere = Extent { device: DeviceId(0), offset_bytes: 0, length_bytes: 0 };
                let extent = directory.page(column, page).map_or(nowhere, |entry| entry.extent);
                Self::Page { table, segment, column, page, extent, reason }
            }
        }
    }
}
