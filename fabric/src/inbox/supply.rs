//! Defines the interface between an inbox and the shared receive queues of RDMA adapters.
//!
//! On `verbs` no processor writes into the rings: the adapter puts each packet into the next free
//! slot (a buffer for one packet) of a shared receive queue. An inbox has one such queue for each
//! adapter, which is created when the first listener needs it.
//!
//! Invariants
//! - The departure of a sender is reported after its last packet, through the same queue.

use std::{any::Any, fmt, os::fd::BorrowedFd, sync::Arc};

use super::{arrival::SenderId, config::WhenFull, layout::Shape};
use crate::{error::OutOfBounds, limits::VERBS_SLOT_BYTES_MAX, operation::Report};

/// The size of a shared receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SupplySize {
    /// Bytes of a slot, which is also the length of the longest packet.
    pub(crate) packet_bytes: u32,
    /// Number of slots.
    pub(crate) slots: u32,
    /// Maximum number of packets of one sender whose slots were not offered again.
    pub(crate) allotment: u32,
    /// Whether a sender that has used its allotment refuses its next message itself.
    pub(crate) refuses: bool,
}

impl SupplySize {
    pub(super) fn of(shape: &Shape) -> Self {
        let count = |number: usize| u32::try_from(number).expect("the limits of a shape fit a u32");
        // A packet occupies a whole slot, however short it is. So the length of slots is limited,
        // which makes them many.
        let packet_bytes = shape.packet_bytes.min(VERBS_SLOT_BYTES_MAX);
        let per_ring = shape.ring_bytes / packet_bytes;
        let (slots, allotment) = match shape.when_full {
            // One sender alone may fill all slots. The allotments of all senders together may
            // exceed the slots; then the adapter makes senders wait.
            WhenFull::Stall => (per_ring, per_ring),
            // A sender must know by itself that there is no room, so each sender has slots of its
            // own.
            WhenFull::Refuse => (per_ring.max(shape.senders), per_ring.max(shape.senders) / shape.senders),
        };
        Self {
            packet_bytes: count(packet_bytes),
            slots: count(slots),
            allotment: count(allotment),
            refuses: shape.when_full == WhenFull::Refuse,
        }
    }

    /// Memory of its slots.
    pub(crate) fn bytes(&self) -> usize {
        self.packet_bytes as usize * self.slots as usize
    }
}

/// What [`Supply::next`] returns.
#[derive(Debug)]
pub(crate) enum SupplyEvent {
    Packet(SuppliedPacket),
    /// A sender has left, after its last packet was handed out. The supply has given up its
    /// membership, which tells the inbox.
    Left,
}

/// A packet in its slot.
#[derive(Debug)]
pub(crate) struct SuppliedPacket {
    pub(crate) sender: SenderId,
    pub(crate) content: Content,
    /// Length of the packet.
    pub(crate) bytes: u32,
    pub(crate) slot: u32,
    /// The sender reports that this message had to wait for room.
    pub(crate) waited: bool,
    /// The sender reports that so many messages were refused before this packet.
    pub(crate) refused: u8,
}

/// What a packet contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Message {
        report: Report,
        /// The packet's first byte, in the message.
        offset: u32,
        message_bytes: u32,
    },
    Immediate {
        immediate: u32,
        bytes: u32,
    },
}

/// The receiving side of a shared receive queue.
pub(crate) trait Supply: fmt::Debug + Send {
    /// Returns what came next. Never waits.
    fn next(&mut self) -> Option<SupplyEvent>;
    /// Appends the bytes of a packet.
    fn append_to(&self, packet: &SuppliedPacket, bytes: &mut Vec<u8>) -> Result<(), OutOfBounds>;
    /// Takes a packet back that was read: its slot may be offered again.
    fn release(&mut self, packet: SuppliedPacket);
    /// Asks the adapter for a wake-up, then polls. Returns false if there is something already.
    fn arm(&mut self) -> bool;
    /// Takes the pending wake-ups.
    fn disarm(&mut self);
    /// Readable after a wake-up.
    fn descriptor(&self) -> BorrowedFd<'_>;
    /// Number of slots whose packets were not released.
    fn slots_in_use(&self) -> usize;
    fn size(&self) -> SupplySize;
}

/// The shared receive queue of one adapter, as callers see it.
pub(super) struct Entrance {
    pub(super) adapter: String,
    pub(super) gate: Arc<dyn Any + Send + Sync>,
    pub(super) bytes: usize,
}

/// The adapters of an inbox, as listeners know them.
#[derive(Default)]
pub(super) struct Entrances {
    pub(super) known: Vec<Entrance>,
    /// Queues that were made and not yet taken over by the inbox's owner.
    pub(super) new: Vec<Box<dyn Supply>>,
}

impl fmt::Debug for Entrances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.known.iter().map(|entrance| &entrance.adapter)).finish()
    }
}

impl Entrances {
    /// Memory of all slots.
    pub(super) fn bytes(&self) -> usize {
        self.known.iter().map(|entrance| entrance.bytes).sum()
    }
}
