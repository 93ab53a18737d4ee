//! Defines the configuration of an inbox, and the reasons for which an inbox cannot be created.

use crate::{error::RegionError, limits::MESSAGE_BYTES_MAX};

/// What a sender meets when there is no room for its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// The operation stays in flight until there is room.
    Stall,
    /// The operation fails with [`crate::OperationError::InboxFull`], unless a part of the message
    /// has already arrived.
    Refuse,
}

/// The size of an inbox, fixed when it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InboxConfig {
    /// Bytes of each ring, a power of two.
    pub ring_bytes: usize,
    /// Rings that are assigned to one sender each.
    pub private_rings: u16,
    /// Rings that all other senders share. New senders start in a shared ring; if there is none,
    /// they need a free private ring.
    pub shared_rings: u16,
    /// Length of a packet in bytes. Longer messages are cut.
    pub packet_bytes: usize,
    /// The longest message that the inbox assembles. A longer one ends its sender's connection with
    /// a violation. From [`crate::limits::SEND_BYTES_MAX`] to [`MESSAGE_BYTES_MAX`].
    pub message_bytes_max: usize,
    /// The maximum number of connections at a time.
    pub senders_max: u16,
    /// What happens when a ring is full.
    pub when_full: WhenFull,
}

impl Default for InboxConfig {
    fn default() -> Self {
        Self {
            ring_bytes: 256 * 1024,
            private_rings: 4,
            shared_rings: 1,
            packet_bytes: 32 * 1024,
            message_bytes_max: MESSAGE_BYTES_MAX,
            senders_max: 256,
            when_full: WhenFull::Stall,
        }
    }
}

/// Why an inbox could not be made.
#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    /// The sizes contradict each other or a limit.
    #[error("cannot create an inbox with {problem}")]
    Config {
        /// What was asked for.
        config: InboxConfig,
        /// What is wrong with it.
        problem: String,
    },
    /// Its memory could not be allocated.
    #[error("could not allocate the memory of an inbox: {0}")]
    Memory(#[from] RegionError),
    /// The kernel refused another call.
    #[error("could not {action} for an inbox: {source}")]
    Os {
        /// What was attempted.
        action: &'static str,
        /// The kernel's answer.
        source: std::io::Error,
    },
}
