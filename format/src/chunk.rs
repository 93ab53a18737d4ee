//! How is a column of a segment cut into pages?

use crate::{
    encoding::text::TextValues,
    ids::{ColumnId, SegmentId, TableId},
    schema::ColumnType,
    zone::Zone,
};

/// The values of a chunk; those of null rows are ignored.
#[derive(Clone, Copy, Debug)]
pub enum Values<'v> {
    /// Of every type that is stored as an integer.
    Integers(&'v [i64]),
    /// Of `Float64`.
    Floats(&'v [f64]),
    /// Of `Text`.
    Text(TextValues<'v>),
}

/// One column of a segment, to be encoded.
#[derive(Clone, Copy, Debug)]
pub struct ChunkInput<'v> {
    /// Its table.
    pub table: TableId,
    /// Its segment.
    pub segment: SegmentId,
    /// Its column.
    pub column: ColumnId,
    /// The column's type, which must agree with `values`.
    pub column_type: ColumnType,
    /// All rows of the segment.
    pub values: Values<'v>,
    /// One bit per row, least significant first, set where there is a value; `None` when no row is null.
    pub validity: Option<&'v [u8]>,
    /// Target bytes of a stored page.
    pub page_bytes: u32,
}

/// A page ready to be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct EncodedPage {
    /// What is stored: header, payload, zeros up to whole sectors.
    pub bytes: Vec<u8>,
    /// Its first row, counted within the segment.
    pub first_row: u32,
    /// Its rows.
    pub rows: u32,
    /// Bounds of its values, for the directory.
    pub zone: Zone,
}
