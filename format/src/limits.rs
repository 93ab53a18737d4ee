//! Defines the sizes and counts that are part of the format. Everything read from a device or a
//! peer is checked against them.

/// Rows of a block, the unit of bit-packing and of evaluation. FastLanes packs 1,024 values at a
/// time.
pub const BLOCK_ROWS: usize = 1024;
/// Rows of a segment unless the load asks for another number.
pub const SEGMENT_ROWS_DEFAULT: u32 = 131_072;
/// The maximum number of rows of a segment: row numbers within a segment fit 32 bits with room to
/// add.
pub const SEGMENT_ROWS_MAX: u32 = 1 << 22;
/// Devices are read in multiples of this; pages begin on it and are padded to it.
pub const SECTOR_BYTES: u32 = 4096;
/// The smallest page size a load may ask for.
pub const PAGE_SIZE_MIN: u32 = SECTOR_BYTES;
/// The page size unless the load asks for another one.
pub const PAGE_SIZE_DEFAULT: u32 = 128 * 1024;
/// The largest page size a load may ask for.
pub const PAGE_SIZE_MAX: u32 = 1024 * 1024;
/// The maximum number of bytes of one stored page: a page of a single block may exceed the page
/// size, up to this limit.
pub const PAGE_BYTES_MAX: u32 = 4 * 1024 * 1024;
/// The maximum number of pages of one chunk.
pub const CHUNK_PAGES_MAX: usize = 4096;
/// The maximum number of columns of a table.
pub const COLUMNS_MAX: usize = 1024;
/// The maximum number of bytes of a table's or column's name.
pub const NAME_BYTES_MAX: usize = 128;
/// The maximum number of derivations (indexes, foreign keys, sums) of a table: each change of a row
/// writes an entry for each of them, two for a sum.
pub const DERIVED_MAX: usize = 16;
/// The maximum number of factors of the product that a sum adds up.
pub const FACTORS_MAX: usize = 4;
/// The maximum number of digits of a stored decimal: its unscaled value fits 64 bits.
pub const DECIMAL_DIGITS_MAX: u8 = 18;
/// The maximum number of bytes of a text bound in a zone map; longer bounds are cut.
pub const ZONE_TEXT_BYTES_MAX: usize = 32;
/// The maximum number of devices of a storage node.
pub const NODE_DEVICES_MAX: usize = 64;
/// The maximum number of relays of a storage node: one for each wire.
pub const NODE_RELAYS_MAX: usize = 4;
/// The maximum number of nodes of a cluster.
pub const CLUSTER_NODES_MAX: usize = 256;
/// The maximum number of tables of one hold, so that the request fits in a message.
pub const HELD_TABLES_MAX: usize = 512;

/// The maximum number of nodes of a protected table: as many as a stripe may have.
pub const PROTECTED_NODES_MAX: usize = 64;
/// The minimum number of bytes of a cell of a stripe.
pub const CELL_BYTES_MIN: u32 = SECTOR_BYTES;
/// The maximum number of bytes of a cell of a stripe.
pub const CELL_BYTES_MAX: u32 = 1 << 20;
/// The maximum number of parity cells that one request appends.
pub const PARITY_CELLS_MAX: usize = 64;
/// The maximum number of stripe sets in which the segments of one table lie.
pub const STRIPE_SETS_MAX: usize = 4096;
/// The maximum number of bytes of the map of a table.
pub const MAP_BYTES_MAX: u64 = 1 << 30;
/// The maximum number of bytes of a map that one request carries.
pub const MAP_PIECE_BYTES_MAX: u64 = 1 << 20;

/// The maximum number of places of a stripe set that one request repairs.
pub const REPAIR_PLACES_MAX: usize = 256;
/// The maximum number of places of a stripe set that one request verifies.
pub const VERIFY_PLACES_MAX: usize = 2048;
/// The maximum number of bytes of these places, unless a single one has more.
pub const VERIFY_BYTES_MAX: u64 = 64 << 20;

/// The maximum number of expression nodes of a scan program: all columns of a table, and as many
/// for filters.
pub const PROGRAM_NODES_MAX: usize = 2 * COLUMNS_MAX;
/// The maximum number of columns a scan program may read.
pub const PROGRAM_INPUTS_MAX: usize = COLUMNS_MAX;
/// The maximum number of columns a scan program may put out.
pub const PROGRAM_OUTPUTS_MAX: usize = COLUMNS_MAX;
/// The maximum number of values of one IN set.
pub const PROGRAM_SET_MAX: usize = 4096;
/// The maximum number of bytes of one literal or pattern.
pub const PROGRAM_LITERAL_BYTES_MAX: usize = 4096;
/// The maximum number of bytes of an encoded scan program.
pub const PROGRAM_BYTES_MAX: usize = 48 * 1024;

/// The maximum number of key filters of one scan program.
pub const KEY_FILTERS_MAX: usize = 8;
/// The maximum number of bytes of one key filter: ten bits for each of 800,000 keys.
pub const KEY_FILTER_BYTES_MAX: usize = 1 << 20;

/// The maximum number of bytes of the encoded withheld rows of one segment: a checksum, and for
/// each block 4 bytes of header and a bitmap. [`withheld`](crate::withheld) asserts that this is
/// what its encoding takes.
pub const WITHHELD_BYTES_MAX: usize = 4 + SEGMENT_ROWS_MAX as usize / BLOCK_ROWS * (4 + BLOCK_ROWS / 8);
/// The maximum number of bytes of withheld rows that travel inside a request; the node reads longer
/// ones from the requester's memory.
pub const WITHHELD_HERE_BYTES_MAX: usize = 8 * 1024;

/// The maximum number of bytes of an encoded request or reply, which is one message of the fabric.
pub const MESSAGE_BYTES_MAX: usize = 60 * 1024;
/// The maximum number of pages of one fetch.
pub const FETCH_PAGES_MAX: usize = 512;
/// The maximum number of places of a node's cache that one message reports as used.
pub const CACHE_USED_MAX: usize = 1024;
/// The maximum number of parts of one raw read or write.
pub const RAW_TRANSFERS_MAX: usize = 64;
/// The maximum number of bytes of one part.
pub const RAW_BYTES_MAX: u32 = PAGE_BYTES_MAX;
/// The maximum number of page reads that the answer to one scan reports.
pub const PAGE_READS_MAX: usize = 5200;
/// The maximum number of bytes of a transaction's messages that travel inside one message of the
/// fabric; longer ones travel beside it.
pub const TRANSACT_BYTES_MAX: usize = 48 * 1024;
/// The maximum number of bytes of a transaction log that one request stores in a replica, or reads
/// back from it.
pub const KEPT_BYTES_MAX: usize = 1 << 20;
/// The maximum number of bytes of a refusal's text; the sender cuts it.
pub const REFUSAL_BYTES_MAX: usize = 2048;

const _: () = assert!((SEGMENT_ROWS_DEFAULT as usize).is_multiple_of(BLOCK_ROWS));
const _: () = assert!((SEGMENT_ROWS_MAX as usize).is_multiple_of(BLOCK_ROWS));
const _: () =
    assert!(PAGE_SIZE_DEFAULT.is_multiple_of(SECTOR_BYTES) && PAGE_SIZE_MAX.is_multiple_of(SECTOR_BYTES));
const _: () = assert!(PAGE_SIZE_MAX <= PAGE_BYTES_MAX && PAGE_BYTES_MAX.is_multiple_of(SECTOR_BYTES));
// At worst every block has its own page; even then the pages of a segment fit in its chunks.
const _: () = assert!(SEGMENT_ROWS_MAX as usize / BLOCK_ROWS <= CHUNK_PAGES_MAX);
const _: () = assert!(CHUNK_PAGES_MAX <= u16::MAX as usize + 1);
// A parity cell is written and read like a page. Its extent and checksum travel in messages.
const _: () = assert!(CELL_BYTES_MAX <= PAGE_BYTES_MAX && CELL_BYTES_MIN.is_multiple_of(SECTOR_BYTES));
const _: () = assert!(PARITY_CELLS_MAX * 32 <= MESSAGE_BYTES_MAX / 8);
// Place numbers travel in messages, at most ten bytes each.
const _: () = assert!(REPAIR_PLACES_MAX * 10 + 4096 <= MESSAGE_BYTES_MAX);
const _: () = assert!(VERIFY_PLACES_MAX * 10 + 4096 <= MESSAGE_BYTES_MAX);
// Derivations are numbered in 16 bits. They travel in messages with the definitions of their
// tables: each has two names, and less than 64 bytes besides.
const _: () = assert!(DERIVED_MAX <= u16::MAX as usize);
const _: () = assert!(DERIVED_MAX * (2 * NAME_BYTES_MAX + 64) <= MESSAGE_BYTES_MAX / 8);
// A part of a raw request is encoded in one byte and varints of 64, 32 and 64 bits, which take at
// most 10, 5 and 10 bytes.
const _: () = assert!(RAW_TRANSFERS_MAX * (1 + 10 + 5 + 10) + 64 <= MESSAGE_BYTES_MAX);
// Messages of a transaction travel inside a request or a reply.
const _: () = assert!(TRANSACT_BYTES_MAX + 4096 <= MESSAGE_BYTES_MAX);
// A program travels inside a request, and so do short withheld rows.
const _: () = assert!(PROGRAM_BYTES_MAX + WITHHELD_HERE_BYTES_MAX + 4096 <= MESSAGE_BYTES_MAX);
// Offsets in withheld rows are counted in 32 bits, blocks in 16.
const _: () = assert!(
    WITHHELD_BYTES_MAX <= u32::MAX as usize && SEGMENT_ROWS_MAX as usize / BLOCK_ROWS <= u16::MAX as usize
);
