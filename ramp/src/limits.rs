//! How much may a transaction, a version store and a log hold?
//!
//! Invariants
//! - Every table and queue of this crate has its bound here; relations are asserted at compile
//!   time.

/// The longest key.
pub const KEY_BYTES_MAX: usize = 1 << 10;
/// The longest value.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Keys that a transaction may write.
pub const WRITE_KEYS_MAX: usize = 4096;
/// Keys that a transaction may read.
pub const READ_KEYS_MAX: usize = 4096;
/// Homes that a transaction may write to: the nodes of a cluster.
pub const HOMES_MAX: usize = 64;
/// Bytes of keys and values that a transaction may write in one home: they are one record of its
/// log.
pub const PART_BYTES_MAX: usize = 4 << 20;

/// Bytes that a write set takes for each key.
pub const FINGERPRINT_BYTES: usize = 8;
/// Bits that a Bloom filter takes for each key: with six probes, one look in two hundred finds what
/// is not there.
pub const BLOOM_BITS_PER_KEY: usize = 12;
/// Bits that are set and looked at for each key.
pub const BLOOM_PROBES: u32 = 6;
/// The most bytes of what is kept about a version's siblings.
pub const METADATA_BYTES_MAX: usize = WRITE_KEYS_MAX * FINGERPRINT_BYTES;

/// Bytes of a slot before the key.
pub const SLOT_HEADER_BYTES: usize = 64;
/// Slots begin at multiples of this: a cache line, and what adapters read at once.
pub const SLOT_ALIGNMENT_BYTES: usize = 64;
/// The largest slot: values that do not fit are read by messages only.
pub const SLOT_BYTES_MAX: usize = 64 << 10;
/// Size classes of slots for each power of two: at most an eighth of a slot lies idle.
pub const SLOT_CLASSES_PER_DOUBLING: usize = 8;

/// What a version takes in memory beside its key, value and metadata, about: it is counted against
/// the budget.
pub const VERSION_OVERHEAD_BYTES: usize = 96;
/// What a key takes beside its versions, its place in the order of keys included, about.
pub const KEY_OVERHEAD_BYTES: usize = 176;
/// Prepared versions that an answer brings along, so that a second round needs no second trip.
pub const BESIDE_VERSIONS_MAX: usize = 4;
/// Bytes of values that it brings along at most.
pub const BESIDE_BYTES_MAX: usize = 16 << 10;
/// Bytes of keys and versions after which a home begins another answer to the same question. An
/// answer with one key may be longer.
pub const REPLY_BYTES_MAX: usize = 32 << 10;
/// Keys of one answer to a scan.
pub const SCAN_KEYS_MAX: usize = 4096;
/// Bytes of closing keys that a home takes beside its budget: some 14,000 prefixes, each emptied
/// once.
pub const CLOSING_BYTES_MAX: usize = 8 << 20;
/// Readers that a home protects old versions for.
pub const LEASES_MAX: usize = 4096;
/// Transactions of which a home knows that they are prepared or committed, and not that all of
/// their homes have ended them.
pub const UNSETTLED_MAX: usize = 1 << 16;
/// Transactions that a home has promised never to prepare, one by one; of older ones it promises it
/// in bulk.
pub const REFUSALS_MAX: usize = 4096;
/// Transactions that ended without their coordinators, of which a home remembers it one by one.
pub const ENDED_MAX: usize = 4096;
/// Ended transactions that a PREPARE tells of.
pub const SETTLED_PER_PART_MAX: usize = 256;

/// How far the wall clock of a client may be ahead of a participant's.
pub const CLOCK_SKEW_MS_MAX: u64 = 60_000;
/// Bits of a timestamp's time that count events within a millisecond.
pub const LOGICAL_BITS: u32 = 16;
/// Times of timestamps beyond this (the year 6429) are refused, unless newer ones than that are
/// there already: no client may take the last timestamps that there are, after which nothing can be
/// written.
pub const TIME_MAX: u64 = u64::MAX >> 1;
/// By how much a timestamp may then be ahead of the newest one that is there.
pub const TIME_STEP_MAX: u64 = CLOCK_SKEW_MS_MAX << LOGICAL_BITS;

/// Keys that are locked at one time in a home.
pub const LOCKED_KEYS_MAX: usize = 1 << 16;
/// Requests for locks that wait in a home.
pub const LOCK_WAITERS_MAX: usize = 1024;

/// Bytes of a log before its first record.
pub const LOG_HEADER_BYTES: usize = 24;
/// Bytes of a record of the log before its body.
pub const RECORD_HEADER_BYTES: usize = 17;
/// The longest record.
pub const RECORD_BYTES_MAX: usize = 8 << 20;

/// Bytes of a feed before its ring: a cache line.
pub const FEED_HEADER_BYTES: usize = 64;
/// Bytes of a feed that a reader copies at once. A longer record sends readers back to the home.
pub const FEED_READ_BYTES_MAX: usize = 1 << 20;
/// Bytes of keys and values in a record of a feed, but of the largest values: a transaction of one
/// home that is longer is told of in several.
pub const FEED_PIECE_BYTES: usize = 256 << 10;

// The largest part, with its metadata, homes and lengths, fits a record.
const _: () = assert!(
    PART_BYTES_MAX
        + METADATA_BYTES_MAX
        + HOMES_MAX * 2
        + WRITE_KEYS_MAX * 8
        + SETTLED_PER_PART_MAX * 12
        + 256
        <= RECORD_BYTES_MAX - RECORD_HEADER_BYTES
);
// A piece of a transaction of small values, with lengths and homes, is read at once.
const _: () = assert!(2 * FEED_PIECE_BYTES + WRITE_KEYS_MAX * 8 + HOMES_MAX * 2 < FEED_READ_BYTES_MAX);
// The largest value can be written at all.
const _: () = assert!(KEY_BYTES_MAX + VALUE_BYTES_MAX <= PART_BYTES_MAX);
// What lies beside a small version fits the answer that it came for.
const _: () = assert!(BESIDE_BYTES_MAX <= REPLY_BYTES_MAX / 2);
// Lengths of keys and metadata are written in 16 and 32 bits.
const _: () = assert!(KEY_BYTES_MAX <= u16::MAX as usize && METADATA_BYTES_MAX <= u32::MAX as usize);
// A filter is never larger than the write set that it stands for.
const _: () = assert!(BLOOM_BITS_PER_KEY <= 8 * FINGERPRINT_BYTES);
const _: () =
    assert!(SLOT_HEADER_BYTES.is_multiple_of(8) && SLOT_BYTES_MAX.is_multiple_of(SLOT_ALIGNMENT_BYTES));
const _: () = assert!(KEY_BYTES_MAX + METADATA_BYTES_MAX + SLOT_HEADER_BYTES + 8 < SLOT_BYTES_MAX);
// Steps of the largest size do not use up the timestamps beyond the horizon: two thousand million
// writes of a client that wants to.
const _: () = assert!((u64::MAX - TIME_MAX) / TIME_STEP_MAX > 1 << 31);
