//! Defines the bounds of all tables and loops of this crate. Relations between bounds are asserted
//! at compile time.

use rackscan_format::limits::{PAGE_BYTES_MAX, SECTOR_BYTES};

/// Pages lie in whole frames of this many bytes: a device writes straight into them, so they are
/// aligned as devices want.
pub const FRAME_BYTES: usize = SECTOR_BYTES as usize;
/// Bytes of a slot's header.
pub const HEADER_BYTES: usize = 64;
/// Approximate memory outside of the registered region for each frame: its share of the index, the
/// queues and the ghosts. It counts against the budget.
pub const BOOKKEEPING_BYTES: usize = 384;
/// The smallest cache, in bytes; a smaller one would hold nothing of use.
pub const CACHE_BYTES_MIN: u64 = 64 << 10;
/// The largest cache, in bytes.
pub const CACHE_BYTES_MAX: u64 = 1 << 36;
/// The largest extent that is cached.
pub const EXTENT_BYTES_MAX: u32 = PAGE_BYTES_MAX;
/// The share of a cache for new pages that have not proved to be used again (the *small* queue), in
/// percent.
pub const SMALL_PERCENT: u64 = 10;
/// Keys that the doorkeeper notes for each unit of the budget: it recognizes a second use over so
/// many times the size of the cache.
pub const DOORKEEPER_FACTOR: u64 = 4;
/// The maximum of a page's use count.
pub const USES_MAX: u8 = 3;
/// Queue entries that are looked at for one eviction; if all are in use, nothing is evicted.
pub const EVICTION_STEPS_MAX: usize = 256;
/// The maximum number of pages that are evicted for one; if they leave no contiguous room, the page
/// is not cached.
pub const EVICTIONS_PER_PAGE_MAX: usize = 64;
/// The maximum number of shards, each with a lock of its own.
pub const SHARDS_MAX: usize = 16;
/// The minimum memory of a shard: several of the largest pages.
pub const SHARD_BYTES_MIN: u64 = 16 << 20;
/// Pages in a reader's book, for each node.
pub const BOOK_PAGES_MAX: usize = 65_536;

const _: () = assert!(CACHE_BYTES_MIN >= 8 * (FRAME_BYTES + HEADER_BYTES + BOOKKEEPING_BYTES) as u64);
// Frames are numbered in 32 bits.
const _: () = assert!(CACHE_BYTES_MAX / (FRAME_BYTES as u64) < u32::MAX as u64);
const _: () = assert!(SHARD_BYTES_MIN >= 4 * EXTENT_BYTES_MAX as u64);
