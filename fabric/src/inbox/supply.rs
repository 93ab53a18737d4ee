//! How do packets that an adapter has placed become arrivals of an inbox?
//!
//! On `verbs` no processor writes into the rings: the adapter puts each packet into the next free
//! slot of a shared receive queue, of which an inbox has one per adapter, made when the first
//! listener needs it.
//!
//! Invariants
//! - Rings and adapters take turns while both have something, and an inbox without adapters asks
//!   none.
//! - A sender's leaving follows its last packet through the same queue.

use std::{
    any::Any,
    fmt,
    os::fd::BorrowedFd,
    sync::{Arc, atomic::Ordering},
};

use rustix::event::epoll;

use super::{
    Arrival, ArrivalKind, Inbox, InboxHandle, JoinError, SenderId, WhenFull,
    arrive::Bytes,
    layout::{Control, Kind, Line, Packet, Shape},
    seats::Membership,
};
use crate::{
    error::{OutOfBounds, RegionError},
    limits::{INBOX_LOOKS_PER_CALL_MAX, VERBS_SLOT_BYTES_MAX},
    operation::Report,
};

/// How large a shared receive queue is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SupplySize {
    /// Bytes of a slot, and so of the longest packet.
    pub(crate) packet_bytes: u32,
    /// How many there are.
    pub(crate) slots: u32,
    /// Packets that one sender may have there whose slots were not offered again.
    pub(crate) allotment: u32,
    /// Whether a sender that has no more refuses its next message itself.
    pub(crate) refuses: bool,
}

impl SupplySize {
    fn of(shape: &Shape) -> Self {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        // A packet takes a whole slot, however short it is, so slots are no longer than makes them
        // many.
        let packet_bytes = shape.packet_bytes.min(VERBS_SLOT_BYTES_MAX);
        let per_ring = shape.ring_bytes / packet_bytes;
        let (slots, allotment) = match shape.when_full {
            // One sender alone may fill all slots. All senders together may have more than there
            // are slots: then the adapter makes them wait.
            WhenFull::Stall => (per_ring, per_ring),
            // A sender must know by itself that there is no room, so each has slots that no other
            // takes.
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

/// What came through an adapter.
#[derive(Debug)]
pub(crate) enum Supplied {
    Packet(SuppliedPacket),
    /// Its sender sends no more, and everything of it was handed out.
    Left(Membership),
}

/// A packet in its slot.
#[derive(Debug)]
pub(crate) struct SuppliedPacket {
    pub(crate) sender: SenderId,
    pub(crate) content: Content,
    /// Length of the packet.
    pub(crate) bytes: u32,
    pub(crate) slot: u32,
    /// The sender says that this message had to wait for room.
    pub(crate) waited: bool,
    /// The sender says that so many messages were refused before it.
    pub(crate) refused: u8,
}

/// What a packet is a part of.
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
    /// What came next. Never waits.
    fn next(&mut self) -> Option<Supplied>;
    /// Appends the bytes of a packet.
    fn append_to(&self, packet: &SuppliedPacket, bytes: &mut Vec<u8>) -> Result<(), OutOfBounds>;
    /// The packet was taken: its slot may be offered again.
    fn release(&mut self, packet: SuppliedPacket);
    /// Asks the adapter for a wake-up, then looks; false if there is something already.
    fn arm(&mut self) -> bool;
    /// Takes the wake-ups that came.
    fn disarm(&mut self);
    /// Readable after a wake-up.
    fn descriptor(&self) -> BorrowedFd<'_>;
    /// Slots with packets that were not released.
    fn slots_in_use(&self) -> usize;
    fn size(&self) -> SupplySize;
}

/// Where callers of one adapter enter.
struct Entrance {
    adapter: String,
    gate: Arc<dyn Any + Send + Sync>,
    bytes: usize,
}

/// The adapters of an inbox, as listeners know them.
#[derive(Default)]
pub(super) struct Entrances {
    known: Vec<Entrance>,
    /// Made, and not yet taken by the thread that owns the inbox.
    new: Vec<Box<dyn Supply>>,
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

/// Both sides of a shared receive queue that was just made.
pub(crate) type Made<G> = (Box<dyn Supply>, Arc<G>);

impl InboxHandle {
    /// The gate of an adapter, and its number for [`InboxHandle::join_through`]; both halves are
    /// made if it is the first time.
    pub(crate) fn entrance<G: Any + Send + Sync>(
        &self,
        adapter: &str,
        make: impl FnOnce(SupplySize) -> Result<Made<G>, RegionError>,
    ) -> Result<(u16, Arc<G>), JoinError> {
        let mut entrances = self.shared.entrances.lock();
        if self.shared.closed.load(Ordering::SeqCst) {
            return Err(JoinError::Closed);
        }
        let count = entrances.known.len();
        let at = entrances.known.iter().position(|entrance| entrance.adapter == adapter).unwrap_or(count);
        if at == count {
            let size = SupplySize::of(&self.shared.map.layout.shape);
            let no_queue = |source: RegionError| JoinError::NoQueue { reason: source.to_string() };
            let (supply, gate) = make(size).map_err(no_queue)?;
            let gate: Arc<dyn Any + Send + Sync> = gate;
            let (adapter, bytes) = (adapter.to_owned(), size.bytes());
            entrances.known.push(Entrance { adapter, gate, bytes });
            entrances.new.push(supply);
            self.shared.news.store(true, Ordering::SeqCst);
            self.shared.bell.ring();
        }
        let gate = Arc::clone(&entrances.known[at].gate).downcast::<G>();
        let reason = "the adapter is used by another wire".to_owned();
        let gate = gate.map_err(|_| JoinError::NoQueue { reason })?;
        Ok((u16::try_from(at).unwrap_or(u16::MAX), gate))
    }
}

/// A supply that the inbox has taken.
#[derive(Debug)]
pub(super) struct Adopted {
    supply: Box<dyn Supply>,
    /// Its wake-ups reach the inbox.
    watched: bool,
}

impl Inbox {
    /// Takes the supplies that listeners have made.
    pub(super) fn adopt_supplies(&mut self) {
        for supply in std::mem::take(&mut self.shared.entrances.lock().new) {
            let data = epoll::EventData::new_u64(2);
            let added = epoll::add(&self.watch, supply.descriptor(), data, epoll::EventFlags::IN);
            if let Err(error) = &added {
                tracing::warn!(%error, "an inbox cannot watch an adapter, so it will not sleep");
            }
            self.supplies.push(Adopted { supply, watched: added.is_ok() });
        }
    }

    /// The next arrival through an adapter.
    pub(super) fn next_supplied(&mut self, bytes: &mut Vec<u8>) -> Option<Arrival> {
        self.supplies_turn = false;
        // Lent, because what it hands out goes into the rest of the inbox.
        let mut supplies = std::mem::take(&mut self.supplies);
        let arrival = supplies.iter_mut().find_map(|adopted| self.take_from(&mut *adopted.supply, bytes));
        if arrival.is_some() && supplies.len() > 1 {
            supplies.rotate_left(1);
        }
        self.supplies = supplies;
        arrival
    }

    fn take_from(&mut self, supply: &mut dyn Supply, bytes: &mut Vec<u8>) -> Option<Arrival> {
        for _ in 0..INBOX_LOOKS_PER_CALL_MAX {
            match supply.next()? {
                // Its leaving is news, which is looked at next.
                Supplied::Left(member) => drop(member),
                Supplied::Packet(packet) => {
                    let arrival = self.take_supplied(supply, &packet, bytes);
                    supply.release(packet);
                    if arrival.is_some() {
                        return arrival;
                    }
                }
            }
        }
        None
    }

    fn take_supplied(
        &mut self,
        supply: &dyn Supply,
        packet: &SuppliedPacket,
        bytes: &mut Vec<u8>,
    ) -> Option<Arrival> {
        let SenderId { index, generation } = packet.sender;
        let known = self.senders.get(usize::from(index)).is_some_and(|state| state.present);
        if !known && !self.learn(index) {
            return None;
        }
        let state = self.senders.get(usize::from(index)).filter(|state| state.generation == generation)?;
        let count = |word, messages: u8| {
            if messages > 0
                && let Ok(word) = self.map.line(index, word)
            {
                word.fetch_add(u64::from(messages), Ordering::Relaxed);
            }
        };
        count(Line::Stalls, u8::from(packet.waited));
        count(Line::Refusals, packet.refused);
        match packet.content {
            Content::Immediate { immediate, bytes } => {
                let kind = ArrivalKind::Immediate { immediate, bytes: u64::from(bytes) };
                Some(Arrival { sender: packet.sender, message: state.messages, kind })
            }
            Content::Message { report, offset, message_bytes } => {
                let per_packet = report == Report::PerPacket;
                let control = Control { lap: 0, sender: index, per_packet, kind: Kind::Packet };
                let part = Packet { ring: 0, position: 0, length: packet.bytes, offset, message_bytes };
                self.copy_packet(control, part, Bytes::Supplied(supply, packet), bytes)
            }
        }
    }

    /// Asks all adapters for wake-ups; false if there is something already.
    pub(super) fn arm_supplies(&mut self) -> bool {
        self.supplies.iter_mut().all(|adopted| adopted.watched && adopted.supply.arm())
    }

    pub(super) fn disarm_supplies(&mut self) {
        for adopted in &mut self.supplies {
            adopted.supply.disarm();
        }
    }

    /// Memory of the slots whose packets were not taken yet.
    pub(super) fn supplied_bytes_in_use(&self) -> usize {
        let in_use =
            |adopted: &Adopted| adopted.supply.slots_in_use() * adopted.supply.size().packet_bytes as usize;
        self.supplies.iter().map(in_use).sum()
    }
}
