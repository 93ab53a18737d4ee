//! Defines the counters of an inbox, and measures the memory that it uses.

use super::arrival::{Ring, SenderId};

/// The traffic of one sender since it joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderTraffic {
    /// The sender.
    pub sender: SenderId,
    /// Its ring.
    pub ring: Ring,
    /// Messages that have arrived whole.
    pub messages: u64,
    /// Bytes that have arrived.
    pub bytes: u64,
    /// Packets that have arrived. A message that was not cut counts as one packet.
    pub packets: u64,
    /// Whether it can be given another ring; a sender that shares the receive queue of an adapter
    /// cannot.
    pub can_move: bool,
}

/// Totals of an inbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InboxCounters {
    /// Messages that have arrived whole.
    pub messages: u64,
    /// Packets that have arrived.
    pub packets: u64,
    /// Bytes that have arrived.
    pub bytes: u64,
    /// Messages that had to wait for room, as reported by their senders.
    pub stalls: u64,
    /// Messages that were refused, as reported by their senders.
    pub refusals: u64,
    /// Times that a sender was given another ring.
    pub moves: u64,
    /// Times that `wait` went to sleep in the kernel.
    pub sleeps: u64,
}

/// The memory of an inbox, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InboxMemory {
    /// Its rings.
    pub ring_bytes: usize,
    /// Of those, what holds packets that were not taken yet, as far as the receiver has seen.
    pub ring_bytes_in_use: usize,
    /// The slots of its shared receive queues (`verbs`), one queue for each adapter of its
    /// listeners.
    pub adapter_bytes: usize,
    /// Of those, what holds packets that were not taken yet, as far as the receiver has seen.
    pub adapter_bytes_in_use: usize,
    /// The status ring.
    pub status_bytes: usize,
    /// The address management table, and the positions and claims of the rings.
    pub table_bytes: usize,
    /// Buffers in which cut messages are being assembled.
    pub assembly_bytes: usize,
    /// The maximum of `assembly_bytes`: a longest message per sender, and a few spare buffers.
    pub assembly_bytes_max: usize,
}
