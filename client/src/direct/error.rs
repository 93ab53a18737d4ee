//! Errors of a direct line.
//!
//! Invariants
//! - A mistake of the caller leaves the line as it was; an error of the node ends it.

use rackscan_fabric::RegionError;

use crate::ClientError;

/// An error of a direct line.
#[derive(Debug, thiserror::Error)]
pub enum DirectError {
    /// An error of the node or of the connection to it.
    #[error(transparent)]
    Node(#[from] ClientError),
    /// The registered memory could not be allocated.
    #[error("could not take {bytes} bytes of registered memory: {source}")]
    Memory {
        /// Bytes asked for.
        bytes: usize,
        /// Why.
        source: RegionError,
    },
    /// The maximum number of requests is outstanding.
    #[error("{outstanding} requests are outstanding, at most {depth_max} may be; reap some first")]
    QueueFull {
        /// How many are outstanding.
        outstanding: usize,
        /// How many may be.
        depth_max: usize,
    },
    /// The id is that of an outstanding request, or reserved for the line's own use.
    #[error("request {id} is outstanding already; name each by another number below {}", u64::MAX)]
    InUse {
        /// The id.
        id: u64,
    },
    /// A request with no part or with too many.
    #[error("a request has {parts} parts, expected 1 to {parts_max}")]
    Parts {
        /// How many it has.
        parts: usize,
        /// How many it may have.
        parts_max: usize,
    },
    /// A part that lies outside of the line's memory.
    #[error("{length_bytes} bytes at byte {offset_bytes} of registered memory of {memory_bytes} bytes")]
    Outside {
        /// Where it begins.
        offset_bytes: u64,
        /// How long it is.
        length_bytes: u32,
        /// How much memory the line has.
        memory_bytes: u64,
    },
    /// The node is asked for its status while it owes replies.
    #[error("{outstanding} requests are outstanding; reap them before asking for the status")]
    Unfinished {
        /// How many are.
        outstanding: usize,
    },
}
