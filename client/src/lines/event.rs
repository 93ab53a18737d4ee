//! Defines the events that [`Lines`](crate::Lines) report, and the description of a one-sided read.

use rackscan_fabric::RemoteRegion;
use rackscan_format::message::{Answer, Refusal};

/// An event on the lines.
#[derive(Debug, Clone, PartialEq)]
pub enum LineEvent {
    /// A node has answered, or refused.
    Reply {
        /// Its number.
        node: usize,
        /// The tag of the request.
        tag: u64,
        /// The answer or the refusal.
        outcome: Result<Answer, Box<Refusal>>,
    },
    /// A one-sided read has ended.
    Read {
        /// The node's number.
        node: usize,
        /// The tag of the read.
        tag: u64,
        /// Whether the read succeeded.
        is_done: bool,
    },
    /// A node is unavailable. Its outstanding requests may or may not have been carried out. It is
    /// being connected to again.
    Lost {
        /// Its number.
        node: usize,
        /// Why.
        reason: String,
    },
    /// A node is connected again.
    Back {
        /// Its number.
        node: usize,
    },
}

/// A one-sided read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OneRead {
    /// The node's memory.
    pub source: RemoteRegion,
    /// Offset of the first byte in it.
    pub source_offset_bytes: u64,
    /// Where the bytes go in the connection's memory.
    pub target_offset_bytes: usize,
    /// How many bytes.
    pub length_bytes: usize,
}
