//! Moves senders between the rings of an inbox, and reports its statistics.
//!
//! Invariants
//! - A move takes effect with the sender's next message. A message that has begun ends in the ring
//!   where it began, and the status ring keeps the two in order (section 3.1 of the paper).

use std::sync::atomic::Ordering;

use az::SaturatingAs;

use super::{
    arrival::{Ring, SenderId},
    layout::SenderWord,
    seats::{SPARES_MAX, Table},
    space::SpaceReader,
    state::Inbox,
    statistics::{InboxCounters, InboxMemory, SenderTraffic},
};
use crate::limits::INBOX_GRANULE_BYTES;

/// Why a sender could not be moved to another ring.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssignError {
    /// It is not (or no longer) a sender of this inbox.
    #[error("sender {0} does not belong to this inbox, or has left it")]
    NoSuchSender(SenderId),
    /// All private rings are assigned.
    #[error(
        "all {private_rings} private rings are assigned; move one of their senders to a shared ring first"
    )]
    NoneFree {
        /// How many there are.
        private_rings: u16,
    },
    /// The inbox has no shared ring.
    #[error("the inbox has no shared ring to which the sender could be moved")]
    NoneShared,
    /// The sender's packets come through an adapter (`verbs`), which chooses the slot of each
    /// packet. All senders of an adapter share one queue, and the table shows one ring for them.
    #[error(
        "sender {0} cannot get a ring of its own, because it uses the shared receive queue of an RDMA device; leave it there"
    )]
    SharesAdapter(SenderId),
}

impl Inbox {
    /// The ring to which a sender's next message goes; `None` if it has left.
    #[must_use]
    pub fn ring_of(&self, sender: SenderId) -> Option<Ring> {
        let table = self.shared.table.lock();
        self.ring_in(&table, sender).map(|ring| self.shared.ring_name(ring))
    }

    fn ring_in(&self, table: &Table, sender: SenderId) -> Option<usize> {
        let slot = table.slots.get(usize::from(sender.index))?;
        let state = self.senders.get(usize::from(sender.index))?;
        let has_left = state.generation == sender.generation && !state.present;
        let is_it = slot.seat.is_some() && slot.generation == sender.generation && !has_left;
        is_it.then_some(slot.ring)
    }

    /// Gives a sender a ring of its own. A sender that has one keeps it.
    ///
    /// # Errors
    /// When all private rings are assigned, the sender shares the receive queue of an adapter, or
    /// it has left.
    pub fn make_private(&mut self, sender: SenderId) -> Result<Ring, AssignError> {
        let mut table = self.shared.table.lock();
        let now = self.ring_in(&table, sender).ok_or(AssignError::NoSuchSender(sender))?;
        if now < self.shared.private_rings {
            return Ok(self.shared.ring_name(now));
        }
        if now >= self.shared.rings() {
            return Err(AssignError::SharesAdapter(sender));
        }
        let Some(free) = self.shared.free_private(&table) else {
            let private_rings = u16::try_from(self.shared.private_rings);
            let private_rings = private_rings.expect("a configuration counts private rings in a u16");
            return Err(AssignError::NoneFree { private_rings });
        };
        self.shared.assign(&mut table, sender.index, free);
        self.counters.moves += 1;
        Ok(self.shared.ring_name(free))
    }

    /// Sends a sender back to the shared rings.
    ///
    /// # Errors
    /// When there is no shared ring, or the sender has left.
    pub fn make_shared(&mut self, sender: SenderId) -> Result<Ring, AssignError> {
        let mut table = self.shared.table.lock();
        let now = self.ring_in(&table, sender).ok_or(AssignError::NoSuchSender(sender))?;
        if now >= self.shared.private_rings {
            return Ok(self.shared.ring_name(now));
        }
        let ring = self.shared.shared_ring(usize::from(sender.index)).ok_or(AssignError::NoneShared)?;
        self.shared.assign(&mut table, sender.index, ring);
        self.counters.moves += 1;
        Ok(self.shared.ring_name(ring))
    }

    /// The traffic of each present sender since it joined.
    #[must_use]
    pub fn traffic(&self) -> Vec<SenderTraffic> {
        let table = self.shared.table.lock();
        let slots = (0_u16..).zip(&table.slots);
        let senders = slots.filter(|(_, slot)| slot.seat.is_some()).filter_map(|(index, slot)| {
            let sender = SenderId { index, generation: slot.generation };
            let ring = self.shared.ring_name(self.ring_in(&table, sender)?);
            let state = &self.senders[usize::from(index)];
            // The counters may still be those of an earlier holder of the index.
            let (messages, bytes, packets) = if state.generation == slot.generation {
                (state.messages, state.bytes, state.packets)
            } else {
                (0, 0, 0)
            };
            let can_move = slot.ring < self.shared.rings();
            Some(SenderTraffic { sender, ring, messages, bytes, packets, can_move })
        });
        senders.collect()
    }

    /// Totals so far.
    #[must_use]
    pub fn counters(&self) -> InboxCounters {
        let mut counters = self.counters;
        let table = self.shared.table.lock();
        for (index, _) in (0_u16..).zip(&table.slots).filter(|(_, slot)| slot.seat.is_some()) {
            let said = |word| self.map.line(index, word).map_or(0, |word| word.load(Ordering::Relaxed));
            counters.stalls = counters.stalls.wrapping_add(said(SenderWord::Stalls));
            counters.refusals = counters.refusals.wrapping_add(said(SenderWord::Refusals));
        }
        counters
    }

    /// The memory that the inbox uses now and at most.
    #[must_use]
    pub fn memory(&self) -> InboxMemory {
        let layout = &self.map.layout;
        let ring_bytes = layout.shape.rings * layout.shape.ring_bytes;
        let table = self.shared.table.lock();
        let seats = table.slots.iter().filter_map(|slot| slot.seat.as_ref());
        let handed: usize = seats
            .map(|seat| {
                let handover = seat.handover.lock();
                handover.filling_bytes + handover.ready.as_ref().map_or(0, Vec::capacity)
            })
            .sum();
        let spares: usize = self.shared.spares.lock().iter().map(Vec::capacity).sum();
        let granules: u64 = self.spaces.iter().map(SpaceReader::granules_in_use).sum();
        InboxMemory {
            ring_bytes,
            ring_bytes_in_use: granules.saturating_as::<usize>().saturating_mul(INBOX_GRANULE_BYTES),
            adapter_bytes: self.shared.entrances.lock().bytes(),
            adapter_bytes_in_use: self.supplied_bytes_in_use(),
            status_bytes: layout.status_bytes(),
            table_bytes: layout.bytes - ring_bytes - layout.status_bytes(),
            assembly_bytes: self.assembly_bytes + self.spare_bytes() + handed + spares,
            assembly_bytes_max: (layout.shape.senders + SPARES_MAX + 1) * self.shared.message_bytes_max,
        }
    }
}
