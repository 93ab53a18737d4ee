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

/// Leaves (a set counts its values) a filter is unfolded into; the rest of it is evaluated node by
/// node.
pub(crate) const PREDICATE_WEIGHT_MAX: usize = 16_384;

/// Evaluations of a node on part of a batch's rows: shared nodes behind many branches could unfold
/// without end.
pub(crate) const PARTIAL_EVALUATIONS_MAX: u32 = 1024;

/// Rows times columns of a batch on the wire: 1 GiB of decimals.
pub(crate) const WIRE_CELLS_MAX: usize = 1 << 26;
/// Entries of a text dictionary on the wire.
pub(crate) const WIRE_DICTIONARY_ENTRIES_MAX: usize = 1 << 16;
/// A dictionary must save at least so many texts per entry.
pub(crate) const WIRE_DICTIONARY_ROWS_PER_ENTRY: usize = 4;

/// The part of the memory bound that the table of groups may take: one in so many.
pub(crate) const GROUPS_SHARE: usize = 4;
/// Blocks of the first window of a scan that wants few rows; each further window is twice as large.
pub(crate) const LIMITED_WINDOW_BLOCKS: usize = 8;

/// Combinations of key values that are addressed directly: with eight sums and two tables, half a
/// MiB.
pub(crate) const DIRECT_SLOTS_MAX: usize = 4096;
/// Slots that are summed in a pass each over a block, by vectors; more are summed row by row.
pub(crate) const MASKED_SLOTS_MAX: usize = 16;
/// Blocks with fewer than one selected row in so many are computed row by row, others whole.
pub(crate) const SPARSE_SHARE: usize = 4;

/// Rows that a key filter is asked about before it may be given up.
pub(crate) const KEYS_TRIED: u64 = 8 * BLOCK_ROWS as u64;
/// Values between a page's bounds that are looked up in a key filter one by one.
pub(crate) const RANGE_LOOKED_UP_MAX: u64 = 64;

/// Bounds of one segment scan, chosen by its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanLimits {
    /// Bytes of stored pages held at a time, and a quarter of it again for the table of groups. A
    /// window of rows is scanned at a time, as large as these bytes allow; a single block is always
    /// scanned, even if its pages alone are larger. The batch being built, and the dictionary of
    /// the page it came from for each text column, come on top.
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
// Slots, and the one of discarded rows, are counted in 16 bits.
const _: () = assert!(DIRECT_SLOTS_MAX < u16::MAX as usize);
