//! Keeps the table of an inbox's senders, and the state that each of their connections shares with
//! the inbox.
//!
//! Invariants
//! - A [`SenderId`] is never assigned twice: an index is assigned again only with the next
//!   generation.
//! - An index becomes free only when its last sender can no longer access the memory: its
//!   connection said goodbye, its process has ended, or it was a thread of this process that has
//!   ended.
//! - A private ring is assigned to at most one sender.

use std::{
    collections::VecDeque,
    os::fd::OwnedFd,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering, fence},
    },
};

use super::{
    arrival::{Ring, SenderId},
    layout::{InboxMap, SenderWord},
    sender::InboxSender,
    supply::Entrances,
};
use crate::{doorbell::Doorbell, guarded::Guarded, limits::MESSAGE_BYTES_MAX, region::Region};

/// A long message on its way from a responder thread to the inbox. It needs no ring: the responder
/// fills the buffer into which the receiver would otherwise copy packet by packet. There is one at
/// a time, so it counts as the sender's assembly buffer.
#[derive(Debug, Default)]
pub(super) struct Handover {
    /// Bytes of the buffer that the responder fills.
    pub(super) filling_bytes: usize,
    /// A whole message that the receiver has not taken.
    pub(super) ready: Option<Vec<u8>>,
}

/// The state shared by the inbox and the receiving side of one connection.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) handover: Guarded<Handover>,
    /// Rung when a sender that has stalled may continue.
    pub(super) room_bell: Arc<Doorbell>,
    /// Rung when `fault` is set.
    owner_bell: Arc<Doorbell>,
    /// Why the inbox demands that the connection ends.
    fault: OnceLock<String>,
}

impl Seat {
    pub(super) fn new(room_bell: Arc<Doorbell>, owner_bell: Arc<Doorbell>) -> Self {
        Self { handover: Guarded::default(), room_bell, owner_bell, fault: OnceLock::new() }
    }

    pub(super) fn report_violation(&self, reason: String) {
        if self.fault.set(reason).is_ok() {
            self.owner_bell.ring();
        }
    }
}

/// An index of the table.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) generation: u32,
    pub(super) ring: usize,
    /// None while the index is free.
    pub(super) seat: Option<Arc<Seat>>,
    /// Its sender has left but may still be writing, so the index is not free yet.
    pub(super) has_left: bool,
}

/// The departure of a sender that sends nothing more.
#[derive(Debug)]
pub(super) struct Departure {
    pub(super) index: u16,
    /// The socket of a peer that may still be writing, until it hangs up.
    pub(super) socket: Option<OwnedFd>,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) slots: Vec<Slot>,
    pub(super) departures: VecDeque<Departure>,
    /// The memory is damaged. Nobody may join until all senders have left and it was cleared.
    pub(super) damaged: bool,
    pub(super) next: usize,
}

/// The state shared by an inbox, its handles and its connections.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) map: InboxMap,
    pub(super) region: Region,
    pub(super) private_rings: usize,
    pub(super) message_bytes_max: usize,
    pub(super) bell: Arc<Doorbell>,
    pub(super) table: Guarded<Table>,
    /// Buffers for messages that will be handed over, at most `SPARES_MAX`.
    pub(super) spares: Guarded<Vec<Vec<u8>>>,
    /// There are departures or new shared receive queues.
    pub(super) has_news: AtomicBool,
    pub(super) closed: AtomicBool,
    pub(super) entrances: Guarded<Entrances>,
}

/// Maximum number of buffers that are kept for later messages.
pub(super) const SPARES_MAX: usize = 2;

impl Shared {
    /// Keeps a buffer for a later message.
    pub(super) fn keep_spare(&self, buffer: Vec<u8>) {
        let mut spares = self.spares.lock();
        if spares.len() < SPARES_MAX && (1..=2 * MESSAGE_BYTES_MAX).contains(&buffer.capacity()) {
            spares.push(buffer);
        }
    }

    /// Number of rings in the memory. Ring numbers from here on stand for adapters, which choose
    /// the slot of a packet themselves.
    pub(super) fn rings(&self) -> usize {
        self.map.layout.shape.rings
    }

    pub(super) fn ring_name(&self, ring: usize) -> Ring {
        let number = |ring: usize| {
            u16::try_from(ring).expect("an inbox has at most INBOX_RINGS_MAX rings and few adapters")
        };
        match ring.checked_sub(self.private_rings) {
            Some(shared) => Ring::Shared(number(shared)),
            None => Ring::Private(number(ring)),
        }
    }

    /// A private ring that is not assigned.
    pub(super) fn free_private(&self, table: &Table) -> Option<usize> {
        let taken = |ring: usize| table.slots.iter().any(|slot| slot.seat.is_some() && slot.ring == ring);
        (0..self.private_rings).find(|ring| !taken(*ring))
    }

    /// The shared ring of a sender, if there are any.
    pub(super) fn shared_ring(&self, index: usize) -> Option<usize> {
        let shared = self.rings() - self.private_rings;
        (shared > 0).then(|| self.private_rings + index % shared)
    }

    /// Assigns `ring` to a sender, from its next message on.
    pub(super) fn assign(&self, table: &mut Table, index: u16, ring: usize) {
        let Some(slot) = table.slots.get_mut(usize::from(index)) else { return };
        slot.ring = ring;
        if let Ok(word) = self.map.line(index, SenderWord::Ring) {
            word.store(ring as u64, Ordering::Release);
        }
        // A message that waits for room in the old ring may find room in the new one.
        fence(Ordering::SeqCst);
        if let Some(seat) = &slot.seat {
            self.wake_if_stalled(index, seat);
        }
    }

    /// Wakes a sender that sleeps until there is room. Call it after giving room and a fence.
    pub(super) fn wake_if_stalled(&self, index: u16, seat: &Seat) {
        let sleeps =
            |word: &AtomicU64| word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::SeqCst) != 0;
        if self.map.line(index, SenderWord::Stalled).is_ok_and(sleeps) {
            seat.room_bell.ring();
        }
    }

    fn report_departure(&self, departure: Departure) {
        let mut table = self.table.lock();
        if let Some(slot) = table.slots.get_mut(usize::from(departure.index)) {
            slot.has_left = true;
        }
        table.departures.push_back(departure);
        drop(table);
        self.has_news.store(true, Ordering::SeqCst);
        self.bell.ring();
    }
}

/// A connection's right to send to an inbox, held by the receiving side. Dropping it gives the
/// right up.
#[derive(Debug)]
pub(crate) struct Membership {
    shared: Arc<Shared>,
    id: SenderId,
    seat: Arc<Seat>,
    present: bool,
}

impl Membership {
    pub(super) fn new(shared: Arc<Shared>, id: SenderId, seat: Arc<Seat>) -> Self {
        Self { shared, id, seat, present: true }
    }

    pub(crate) fn id(&self) -> SenderId {
        self.id
    }

    pub(crate) fn memory(&self) -> &Region {
        &self.shared.region
    }

    pub(crate) fn bell(&self) -> &Doorbell {
        &self.shared.bell
    }

    /// What wakes the inbox's owner.
    #[cfg_attr(not(feature = "verbs"), expect(dead_code, reason = "for those who give the membership away"))]
    pub(crate) fn shared_bell(&self) -> Arc<Doorbell> {
        Arc::clone(&self.shared.bell)
    }

    /// A word of the sender's line in the table.
    pub(crate) fn line(&self, word: SenderWord) -> Option<&AtomicU64> {
        self.shared.map.line(self.id.index, word).ok()
    }

    /// Why the inbox demands that the connection ends, if it does.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.seat.fault.get().map(String::as_str)
    }

    /// A sender in this process.
    pub(crate) fn sender(&self) -> InboxSender {
        InboxSender::new(self.shared.map.clone(), self.id.index, Arc::clone(&self.shared.bell))
    }

    /// Whether a message of `bytes` may be assembled here. If not, the sender's connection must
    /// end.
    pub(crate) fn admits(&self, bytes: usize) -> bool {
        let bytes_max = self.shared.message_bytes_max;
        if bytes > bytes_max {
            self.seat.report_violation(format!(
                "it sent a message of {bytes} bytes, expected at most {bytes_max}"
            ));
        }
        bytes <= bytes_max
    }

    /// Begins a message of `bytes` that will be handed over. Returns `None` while the previous one
    /// was not taken.
    pub(crate) fn begin_handover(&self, bytes: usize) -> Option<Vec<u8>> {
        let mut handover = self.seat.handover.lock();
        if handover.ready.is_some() {
            return None;
        }
        handover.filling_bytes = bytes;
        drop(handover);
        let mut buffer = self.shared.spares.lock().pop().unwrap_or_default();
        // Bytes of an earlier message need not be zeroed: all of them will be overwritten.
        buffer.resize(bytes, 0);
        Some(buffer)
    }

    /// Hands over a message that was begun. Its entry must be published afterwards.
    pub(crate) fn hand_over(&self, message: Vec<u8>) {
        *self.seat.handover.lock() = Handover { filling_bytes: 0, ready: Some(message) };
    }

    /// Whether the previous message was taken.
    pub(crate) fn can_hand_over(&self) -> bool {
        self.seat.handover.lock().ready.is_none()
    }

    /// Reports that the sender sends nothing more. `socket` is that of a peer that may not know
    /// this yet: until it hangs up, its claims stay.
    pub(crate) fn leave(&mut self, socket: Option<OwnedFd>) {
        if std::mem::take(&mut self.present) {
            self.shared.report_departure(Departure { index: self.id.index, socket });
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.leave(None);
    }
}
