//! Defines the constants of a segment scan, and the limits that its caller chooses: the rows of a
//! batch and the bytes of memory, within the bounds here.

use rackscan_format::limits::BLOCK_ROWS;

/// Rows of a batch unless the caller asks for another number; DataFusion's default.
pub const BATCH_ROWS_DEFAULT: usize = 8192;
/// The smallest bound on the rows of a batch, because batches hold whole blocks.
pub const BATCH_ROWS_MIN: usize = BLOCK_ROWS;
/// Memory of a segment scan unless the caller asks for another bound.
pub const MEMORY_BYTES_DEFAULT: usize = 64 << 20;

/// The maximum number of leaves that a filter is unfolded into (each value of a set counts as one).
/// The rest of the filter is evaluated node by node.
pub(crate) const PREDICATE_WEIGHT_MAX: usize = 16_384;

/// The maximum number of evaluations of nodes on parts of a batch's rows: without it, nodes shared
/// by many branches could unfold exponentially.
pub(crate) const PARTIAL_EVALUATIONS_MAX: u32 = 1024;

/// The maximum of rows times columns of a batch on the wire: 1 GiB of decimals.
pub(crate) const WIRE_CELLS_MAX: usize = 1 << 26;
/// The maximum number of entries of a text dictionary on the wire.
pub(crate) const WIRE_DICTIONARY_ENTRIES_MAX: usize = 1 << 16;
/// The minimum number of rows per dictionary entry for a dictionary to be used on the wire.
pub(crate) const WIRE_DICTIONARY_ROWS_PER_ENTRY: usize = 4;

/// The table of groups may take one part in this many of the memory bound.
pub(crate) const GROUPS_SHARE: usize = 4;
/// Blocks of the first window of a scan with a row limit; each further window is twice as large.
pub(crate) const LIMITED_WINDOW_BLOCKS: usize = 8;

/// The maximum number of key combinations that are addressed directly: with eight sums and two
/// tables, half a MiB.
pub(crate) const DIRECT_SLOTS_MAX: usize = 4096;
/// Up to this many slots are summed with one vectorised pass over the block per slot; more are
/// summed row by row.
pub(crate) const MASKED_SLOTS_MAX: usize = 16;
/// A block is computed row by row if fewer than one row in this many is selected, otherwise as a
/// whole.
pub(crate) const SPARSE_SHARE: usize = 4;

/// Rows that a key filter is applied to before the scan may give it up.
pub(crate) const KEY_FILTER_TRIAL_ROWS: u64 = 8 * BLOCK_ROWS as u64;
/// Up to this many values between a page's bounds are looked up in a key filter one by one.
pub(crate) const RANGE_LOOKED_UP_MAX: u64 = 64;

/// Bounds of one segment scan, chosen by its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanLimits {
    /// Bytes of stored pages that the scan holds at a time; the table of groups may take another
    /// quarter of it. A window of rows is as large as these bytes allow; a single block is always
    /// scanned, even if its pages alone are larger. The batch being built and, for each text
    /// column, the dictionary of the page it came from come on top.
    pub memory_bytes: usize,
    /// The maximum rows of a batch, raised to [`BATCH_ROWS_MIN`]. Batches of groups may have more.
    pub batch_rows: usize,
}

impl Default for ScanLimits {
    fn default() -> Self {
        Self { memory_bytes: MEMORY_BYTES_DEFAULT, batch_rows: BATCH_ROWS_DEFAULT }
    }
}

const _: () = assert!(BATCH_ROWS_DEFAULT >= BATCH_ROWS_MIN && BATCH_ROWS_DEFAULT.is_multiple_of(BLOCK_ROWS));
// Slots, and the one slot of discarded rows, are counted in 16 bits.
const _: () = assert!(DIRECT_SLOTS_MAX < u16::MAX as usize);
