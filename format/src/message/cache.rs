//! Defines messages about a node's page cache: its memory, the positions of pages in it, and its
//! counters.
//!
//! `rackscan-cache` defines the layout of the cache's memory.
//!
//! Invariants
//! - A position is a hint: bytes read there are used only after they were verified.

use serde::{Deserialize, Serialize};

use super::Target;

/// The memory of a node's page cache, registered for reading on the connection on which this is
/// sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheRegion {
    /// The region, as the fabric identifies it.
    pub memory: Target,
    /// The number of frames, from which the layout of the region follows.
    pub frames: u32,
    /// Drawn at random when the node started: places with another epoch are not valid.
    pub epoch: u64,
}

/// The position of a page in its node's cache, with the version of its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CachePlace {
    /// The first frame.
    pub frame: u32,
    /// The version of the slot that begins at this frame.
    pub version: u64,
}

/// Metrics of a node's page cache. The first three are gauges; the others are counters since the
/// node started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CacheStatus {
    /// Bytes that the cache may take; 0 if the node has no cache.
    pub budget_bytes: u64,
    /// Bytes of the pages in it, in whole frames.
    pub used_bytes: u64,
    /// Pages in it.
    pub pages: u64,
    /// Requests for a page that found it.
    pub hits: u64,
    /// Pages that readers read one-sidedly, as far as they have reported them.
    pub one_sided_hits: u64,
    /// Requests for a page that did not find it.
    pub misses: u64,
    /// Pages evicted to make room for others.
    pub evictions: u64,
    /// Pages removed because their extents changed or were freed.
    pub withdrawals: u64,
}
