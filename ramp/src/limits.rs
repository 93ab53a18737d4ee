//! Defines the bounds of transactions, version stores, logs and feeds.
//!
//! Invariant: every table and queue of this crate has its bound here, and relations between bounds
//! are asserted at compile time.

/// The longest key.
pub const KEY_BYTES_MAX: usize = 1 << 10;
/// The longest value.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Keys that a transaction may write.
pub const WRITE_KEYS_MAX: usize = 4096;
/// Keys that a transaction may read.
pub const READ_KEYS_MAX: usize = 4096;
/// Participants that a transaction may write to: the nodes of the largest cluster.
pub const PARTICIPANTS_MAX: usize = 256;
/// Bytes of keys and values that a transaction may write at one participant: they are one record of
/// its log.
pub const PART_BYTES_MAX: usize = 4 << 20;

/// Bytes that a write set takes for each key.
pub const FINGERPRINT_BYTES: usize = 8;
/// Bits that a Bloom filter takes for each key: with six probes, one lookup in two hundred is a
/// false positive.
pub const BLOOM_BITS_PER_KEY: usize = 12;
/// Bits that are set and tested for each key.
pub const BLOOM_PROBES: u32 = 6;
/// The maximum bytes of a version's metadata.
pub const METADATA_BYTES_MAX: usize = WRITE_KEYS_MAX * FINGERPRINT_BYTES;

/// Bytes of a slot before the key.
pub const SLOT_HEADER_BYTES: usize = 64;
/// Slots begin at multiples of this: a cache line, which is also the unit that adapters read.
pub const SLOT_ALIGNMENT_BYTES: usize = 64;
/// The largest slot. Values that do not fit can only be read by messages.
pub const SLOT_BYTES_MAX: usize = 64 << 10;
/// Size classes of slots for each power of two: at most an eighth of a slot is unused.
pub const SLOT_CLASSES_PER_DOUBLING: usize = 8;

/// The approximate memory of a version beside its key, value and metadata. It counts against the
/// budget.
pub const VERSION_OVERHEAD_BYTES: usize = 96;
/// The approximate memory of a key beside its versions, including its entry in the ordered set of
/// keys.
pub const KEY_OVERHEAD_BYTES: usize = 176;
/// Prepared versions that an answer includes, so that a second round needs no further message.
pub const BESIDE_VERSIONS_MAX: usize = 4;
/// The maximum bytes of values of these prepared versions.
pub const BESIDE_BYTES_MAX: usize = 16 << 10;
/// Bytes of keys and versions after which a participant begins another answer to the same request.
/// An answer with one key may be longer.
pub const REPLY_BYTES_MAX: usize = 32 << 10;
/// Keys of one answer to a scan.
pub const SCAN_KEYS_MAX: usize = 4096;
/// Bytes of closing keys that a participant accepts beyond its budget: about 14,000 prefixes, each
/// emptied once.
pub const CLOSING_BYTES_MAX: usize = 8 << 20;
/// Readers for which a participant protects old versions.
pub const LEASES_MAX: usize = 4096;
/// Transactions that a participant has prepared or committed and that may not have ended at all of
/// their participants.
pub const UNSETTLED_MAX: usize = 1 << 16;
/// Transactions that a participant has individually promised never to prepare. For older ones it
/// promises this in bulk.
pub const REFUSALS_MAX: usize = 4096;
/// Transactions that ended without their coordinators and that a participant remembers
/// individually.
pub const ENDED_MAX: usize = 4096;
/// Ended transactions that one PREPARE reports.
pub const SETTLED_PER_PART_MAX: usize = 256;

/// The maximum by which the wall clock of a client may be ahead of a participant's, in
/// milliseconds.
pub const CLOCK_SKEW_MS_MAX: u64 = 60_000;
/// Bits of a timestamp's time that count events within a millisecond.
pub const LOGICAL_BITS: u32 = 16;
/// Timestamps beyond this time (the year 6429) are refused, unless newer ones already exist: no
/// client may use up the last timestamps, after which nothing could be written.
pub const TIME_MAX: u64 = u64::MAX >> 1;
/// The maximum by which such a timestamp may be ahead of the newest existing one.
pub const TIME_STEP_MAX: u64 = CLOCK_SKEW_MS_MAX << LOGICAL_BITS;

/// Keys that are locked at one time at a participant.
pub const LOCKED_KEYS_MAX: usize = 1 << 16;
/// Requests for locks that wait at a participant.
pub const LOCK_WAITERS_MAX: usize = 1024;

/// Bytes of a log before its first record.
pub const LOG_HEADER_BYTES: usize = 24;
/// Bytes of a record of the log before its body.
pub const RECORD_HEADER_BYTES: usize = 17;
/// The longest record.
pub const RECORD_BYTES_MAX: usize = 8 << 20;

/// Bytes of a feed before its ring: a cache line.
pub const FEED_HEADER_BYTES: usize = 64;
/// Bytes of a feed that a reader copies at once. A longer record forces readers to scan the
/// participant again.
pub const FEED_READ_BYTES_MAX: usize = 1 << 20;
/// The maximum bytes of keys and values in a record of a feed, unless a single value is longer. A
/// longer transaction of one participant is divided over several records.
pub const FEED_PIECE_BYTES: usize = 256 << 10;

// The largest part, with its metadata, participants and lengths, fits a record.
const _: () = assert!(
    PART_BYTES_MAX
        + METADATA_BYTES_MAX
        + PARTICIPANTS_MAX * 2
        + WRITE_KEYS_MAX * 8
        + SETTLED_PER_PART_MAX * 12
        + 256
        <= RECORD_BYTES_MAX - RECORD_HEADER_BYTES
);
// A piece of a transaction of small values, with lengths and participants, is read at once.
const _: () = assert!(2 * FEED_PIECE_BYTES + WRITE_KEYS_MAX * 8 + PARTICIPANTS_MAX * 2 < FEED_READ_BYTES_MAX);
// The largest value can be written at all.
const _: () = assert!(KEY_BYTES_MAX + VALUE_BYTES_MAX <= PART_BYTES_MAX);
// The prepared versions beside a small version fit the same answer.
const _: () = assert!(BESIDE_BYTES_MAX <= REPLY_BYTES_MAX / 2);
// Lengths of keys and metadata are written in 16 and 32 bits.
const _: () = assert!(KEY_BYTES_MAX <= u16::MAX as usize && METADATA_BYTES_MAX <= u32::MAX as usize);
// A filter is never larger than the write set that it stands for.
const _: () = assert!(BLOOM_BITS_PER_KEY <= 8 * FINGERPRINT_BYTES);
const _: () =
    assert!(SLOT_HEADER_BYTES.is_multiple_of(8) && SLOT_BYTES_MAX.is_multiple_of(SLOT_ALIGNMENT_BYTES));
const _: () = assert!(KEY_BYTES_MAX + METADATA_BYTES_MAX + SLOT_HEADER_BYTES + 8 < SLOT_BYTES_MAX);
// Steps of the largest size do not use up the timestamps beyond the horizon: a malicious client
// would need two thousand million writes.
const _: () = assert!((u64::MAX - TIME_MAX) / TIME_STEP_MAX > 1 << 31);
