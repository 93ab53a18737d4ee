//! Defines the events that a connection reports.
//!
//! Invariants
//! - Every accepted operation is reported exactly once, in the order of posting.
//! - [`Event::Closed`] is reported exactly once, after everything else, and nothing follows it.

use crate::error::{Ending, OperationError};

/// What a successful operation did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// Bytes moved by a write, read or send.
    Moved {
        /// Number of bytes.
        bytes: u64,
    },
    /// The value that an atomic operation found.
    Found {
        /// The value before the operation.
        value: u64,
    },
}

/// Something that happened on a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// One of our operations is finished.
    Completed {
        /// The id that the caller gave it at `post`.
        id: u64,
        /// Whether it succeeded.
        outcome: Result<Done, OperationError>,
    },
    /// A message of the peer.
    Message {
        /// Its bytes, a private copy.
        bytes: Vec<u8>,
    },
    /// The peer wrote into our memory and announced it with this word.
    Immediate {
        /// The word of the announcement.
        immediate: u32,
        /// Number of bytes written.
        bytes: u64,
    },
    /// The connection has ended.
    Closed(Ending),
}
