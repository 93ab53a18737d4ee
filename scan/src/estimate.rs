//! What would a scan of this segment read, and how many rows would come out?

use rackscan_format::{program::VerifiedProgram, segment::SegmentDirectory};

/// What zone maps say about a scan before any page is read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScanEstimate {
    /// Pages of the program's columns, whether needed or not.
    pub pages_total: u64,
    /// Their stored bytes.
    pub bytes_total: u64,
    /// Pages that the filter must look into.
    pub pages_filter: u64,
    /// Their stored bytes.
    pub bytes_filter: u64,
    /// Further pages the output needs, if every one still has a selected row.
    pub pages_payload: u64,
    /// Their stored bytes.
    pub bytes_payload: u64,
    /// Rows of the segment.
    pub rows_total: u64,
    /// Rows in blocks that zone maps cannot rule out: no more can come out.
    pub rows_max: u64,
    /// Rows that pass the filter, guessed from zone maps as if values were spread evenly between the bounds.
    pub rows_selected: f64,
    /// Bytes of one row of output, guessed from types and stored sizes.
    pub row_bytes: f64,
}

/// Prunes by zone maps alone.
#[must_use]
pub fn estimate(_program: &VerifiedProgram, directory: &SegmentDirectory) -> ScanEstimate {
    ScanEstimate { rows_total: u64::from(directory.rows), ..ScanEstimate::default() }
}
