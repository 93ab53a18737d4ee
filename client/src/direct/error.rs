//! Why does a direct line not do what it is asked?
//!
//! Invariants
//! - Mistakes of the caller leave the line as it was; an error of the node ends it.

use rackscan_fabric::RegionError;

use crate::ClientError;

/// Why a direct line does not do what it is asked.
#[derive(Debug, thiserror::Error)]
pub enum DirectError {
    /// The node, or the way to it.
    #[error(transparent)]
    Node(#[from] ClientError),
    /// Its memory could not be made.
    #[error("could not take {bytes} bytes of registered memory: {source}")]
    Memory {
        /// Bytes asked for.
        bytes: usize,
        /// Why.
        source: RegionError,
    },
    /// As many requests as there may be are outstanding.
    #[error("{outstanding} requests are outstanding, at most {depth_max} may be; reap some first")]
    QueueFull {
        /// How many are.
        outstanding: usize,
        /// How many may be.
        depth_max: usize,
    },
    /// The number names a request that is outstanding, or is kept for the line's own use.
    #[error("request {id} is outstanding already; name each by another number below {}", u64::MAX)]
    InUse {
        /// The number.
        id: u64,
    },
    /// A request of no part or of too many.
    #[error("a request of {parts} parts, expected 1 to {parts_max}")]
    Parts {
        /// How many it has.
        parts: usize,
        /// How many it may have.
        parts_max: usize,
    },
    /// A part whose memory is not in the line's.
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
