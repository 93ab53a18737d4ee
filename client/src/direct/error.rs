//! Defines the errors of a direct line.
//!
//! Invariants
//! - After a mistake of the caller the line can be used as before; an error of the node ends the
//!   line.

use rackscan_fabric::RegionError;

use crate::ClientError;

/// An error of a direct line.
#[derive(Debug, thiserror::Error)]
pub enum DirectError {
    /// An error of the node or of the connection to it.
    #[error(transparent)]
    Node(#[from] ClientError),
    /// The registered memory could not be allocated.
    #[error("could not allocate {bytes} bytes of registered memory: {source}")]
    Memory {
        /// Bytes asked for.
        bytes: usize,
        /// Why.
        source: RegionError,
    },
    /// The maximum number of requests is outstanding.
    #[error("{outstanding} requests are outstanding, expected fewer than {depth_max}: reap replies first")]
    QueueFull {
        /// How many are outstanding.
        outstanding: usize,
        /// How many may be.
        depth_max: usize,
    },
    /// The id is that of an outstanding request, or reserved for the line's own use.
    #[error(
        "request {id} is outstanding already; choose another number below {} for a new request",
        u64::MAX
    )]
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
    #[error(
        "a request names {length_bytes} bytes at offset {offset_bytes} of the registered memory, which has only {memory_bytes} bytes"
    )]
    Outside {
        /// Where it begins.
        offset_bytes: u64,
        /// How long it is.
        length_bytes: u32,
        /// How much memory the line has.
        memory_bytes: u64,
    },
    /// The node is asked for its status while it owes replies.
    #[error("{outstanding} requests are outstanding; reap their replies before you ask for the status")]
    Unfinished {
        /// How many are.
        outstanding: usize,
    },
}
