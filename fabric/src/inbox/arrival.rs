//! Defines what an inbox hands to its owner: senders, rings and arrivals (messages, immediates, and
//! senders that leave).

use std::fmt;

/// The name of a sender. Unlike its index, it is never given to another sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SenderId {
    pub(super) index: u16,
    pub(super) generation: u32,
}

impl SenderId {
    pub(crate) fn index(self) -> u16 {
        self.index
    }
}

impl fmt::Display for SenderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// A ring of an inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ring {
    /// The ring of one sender.
    Private(u16),
    /// A ring of several senders. The numbers after those of the shared rings are shared receive
    /// queues, one per adapter (`verbs`).
    Shared(u16),
}

/// Something that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Who sent it.
    pub sender: SenderId,
    /// The number of the message among this sender's messages, from 0. For other kinds: the number
    /// of its next message.
    pub message: u64,
    /// What has arrived.
    pub kind: ArrivalKind,
}

/// What has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrivalKind {
    /// A whole message.
    Message,
    /// A packet of a message that its sender wants reported packet by packet.
    Packet {
        /// First byte, in the message.
        offset: u64,
        /// Length of the message.
        message_bytes: u64,
        /// Whether this is the message's last packet.
        last: bool,
    },
    /// The sender wrote into our memory and announced it with this word.
    Immediate {
        /// The word of the announcement.
        immediate: u32,
        /// Number of bytes written.
        bytes: u64,
    },
    /// The sender's connection has ended; nothing follows from it.
    Left,
}
