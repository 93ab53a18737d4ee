//! How much may one segment scan hold?
//!
//! Rows of a batch and bytes of memory are the caller's choice within the bounds here.

use rackscan_format::limits::BLOCK_ROWS;

/// Rows of a batch unless the caller asks for another number; DataFusion's default.
pub const BATCH_ROWS_DEFAULT: usize = 8192;
/// The fewest rows a caller may bound batches to: batches hold whole blocks.
pub const BATCH_ROWS_MIN: usize = BLOCK_ROWS;
/// Memory of a segment scan unless the caller asks for another bound.
pub const MEMORY_BYTES_DEFAULT: usize = 64 << 20;

/// Bounds of one segment scan, chosen by its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanLimits {
    /// Bytes of stored pages held at a time, and a quarter of it again for the table of groups. A window of rows is
    /// scanned at a time, as large as these bytes allow; a single block is always scanned, even if its pages alone
    /// are larger. The batch being built comes on top.
    pub memory_bytes: usize,
    /// Rows of a batch at most, [`BATCH_ROWS_MIN`] if less. Batches of groups may have more.
    pub batch_rows: usize,
}

impl Default for ScanLimits {
    fn default() -> Self {
        Self { memory_bytes: MEMORY_BYTES_DEFAULT, batch_rows: BATCH_ROWS_DEFAULT }
    }
}

const _: () = assert!(BATCH_ROWS_DEFAULT >= BATCH_ROWS_MIN && BATCH_ROWS_DEFAULT.is_multiple_of(BLOCK_ROWS));
