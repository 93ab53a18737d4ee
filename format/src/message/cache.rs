//! How do a node and its readers speak of the node's page cache?
//!
//! What lies in the cache's memory, byte by byte, is not a message: see `rackscan-cache`.
//!
//! Invariants
//! - A place is a hint: what is read there counts only after it was verified.

use serde::{Deserialize, Serialize};

use super::Target;

/// The memory of a node's page cache, registered for reading on the connection over which this
/// travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheRegion {
    /// The region, as the fabric names it.
    pub memory: Target,
    /// Frames in it; everything else of its layout follows from their number.
    pub frames: u32,
    /// Drawn at random when the node started: places of an earlier life are not this one's.
    pub epoch: u64,
}

/// Where a page lies in its node's cache, and as of when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CachePlace {
    /// The first frame.
    pub frame: u32,
    /// The version of the slot that begins there.
    pub version: u64,
}

/// How a node's page cache does. Counts since it started, but for the gauges at the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CacheStatus {
    /// Bytes that it may take; 0 if there is none.
    pub budget_bytes: u64,
    /// Bytes of the pages in it, in whole frames.
    pub used_bytes: u64,
    /// Pages in it.
    pub pages: u64,
    /// Requests for a page that found it.
    pub hits: u64,
    /// Pages that readers took one-sidedly, as far as they have said so.
    pub one_sided_hits: u64,
    /// Requests for a page that did not find it.
    pub misses: u64,
    /// Pages that made room for others.
    pub evictions: u64,
    /// Pages whose extents changed or were freed.
    pub withdrawals: u64,
}
