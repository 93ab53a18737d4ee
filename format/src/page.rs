//! What does a page say about itself, and is it the page that was asked for?

use crate::ids::{ColumnId, PageNumber, SegmentId, TableId};

/// Which page this is; written into its header, so that a misdirected read is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageIdentity {
    /// Its table.
    pub table: TableId,
    /// Its segment.
    pub segment: SegmentId,
    /// Its column.
    pub column: ColumnId,
    /// Its number in the chunk.
    pub page: PageNumber,
}
