//! Who may send to an inbox, and which ring does each use?
//!
//! Invariants
//! - A name is never given twice: an index is given again only with the next generation.
//! - An index is free again only when its last holder can touch the memory no more: its connection
//!   said goodbye, its process is gone, or it was a thread of ours that has ended.
//! - A private ring is assigned to at most one sender.

use std::{
    collections::VecDeque,
    fmt,
    os::fd::OwnedFd,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering, fence},
    },
};

use super::{
    InboxHandle, Ring,
    layout::{InboxMap, Line},
    sender::InboxSender,
    supply::Entrances,
};
use crate::{doorbell::Doorbell, guarded::Guarded, limits::MESSAGE_BYTES_MAX, region::Region};

/// The name of a sender: unlike its index, it is never given to another.
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

/// A long message on its way from a responder thread to the inbox. It needs no ring: the responder
/// puts it together where the receiver would otherwise copy it, packet by packet. One at a time, so
/// it counts as the sender's assembly buffer.
#[derive(Debug, Default)]
pub(super) struct Handover {
    /// Bytes of the buffer that the responder fills.
    pub(super) filling_bytes: usize,
    /// A whole message that the receiver has not taken.
    pub(super) ready: Option<Vec<u8>>,
}

/// What the inbox and the receiving side of one connection share.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) handover: Guarded<Handover>,
    /// Rung when a sender that has stalled may go on.
    pub(super) room_bell: Arc<Doorbell>,
    /// Rung when `fault` is set.
    owner_bell: Arc<Doorbell>,
    /// Why the connection must end, as the inbox sees it.
    fault: OnceLock<String>,
}

impl Seat {
    pub(super) fn accuse(&self, reason: String) {
        if self.fault.set(reason).is_ok() {
            self.owner_bell.ring();
        }
    }
}

/// A sender's place in the table.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) generation: u32,
    pub(super) ring: usize,
    /// None while the index is free.
    pub(super) seat: Option<Arc<Seat>>,
    /// Its sender has left, and may still be writing: the index is not free yet.
    has_left: bool,
}

/// Somebody who sends no more.
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
    /// The memory is damaged; nobody may join until all have left and it was cleared.
    pub(super) damaged: bool,
    pub(super) next: usize,
}

/// What an inbox, its handles and its connections share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) map: InboxMap,
    pub(super) region: Region,
    pub(super) private_rings: usize,
    pub(super) message_bytes_max: usize,
    pub(super) bell: Arc<Doorbell>,
    pub(super) table: Guarded<Table>,
    /// Buffers for the next messages that are handed over, at most `SPARES_MAX`.
    pub(super) spares: Guarded<Vec<Vec<u8>>>,
    /// There are departures.
    pub(super) news: AtomicBool,
    pub(super) closed: AtomicBool,
    pub(super) entrances: Guarded<Entrances>,
}

/// Why nobody can join an inbox now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JoinError {
    #[error("the inbox has {senders_max} senders, which is its limit")]
    Full { senders_max: usize },
    #[error("the inbox's memory is damaged; it is usable again when all of its senders have left")]
    Damaged,
    #[error("the inbox was dropped")]
    Closed,
    #[error("it has no shared receive queue: {reason}")]
    NoQueue { reason: String },
}

/// Buffers that are kept for the next messages.
pub(super) const SPARES_MAX: usize = 2;

impl Shared {
    /// Keeps a buffer that may serve the next message.
    pub(super) fn keep_spare(&self, buffer: Vec<u8>) {
        let mut spares = self.spares.lock();
        if spares.len() < SPARES_MAX && (1..=2 * MESSAGE_BYTES_MAX).contains(&buffer.capacity()) {
            spares.push(buffer);
        }
    }

    /// Rings of the memory. Numbers from here on stand for adapters, which choose the place of a
    /// packet themselves.
    pub(super) fn rings(&self) -> usize {
        self.map.layout.shape.rings
    }

    pub(super) fn ring_name(&self, ring: usize) -> Ring {
        // There are at most `INBOX_RINGS_MAX` rings.
        let number = |ring: usize| u16::try_from(ring).unwrap_or(u16::MAX);
        match ring.checked_sub(self.private_rings) {
            Some(shared) => Ring::Shared(number(shared)),
            None => Ring::Private(number(ring)),
        }
    }

    /// A private ring that is nobody's.
    pub(super) fn free_private(&self, table: &Table) -> Option<usize> {
        let taken = |ring: usize| table.slots.iter().any(|slot| slot.seat.is_some() && slot.ring == ring);
        (0..self.private_rings).find(|ring| !taken(*ring))
    }

    /// The shared ring of a sender, if there are any.
    pub(super) fn shared_ring(&self, index: usize) -> Option<usize> {
        let shared = self.rings() - self.private_rings;
        (shared > 0).then(|| self.private_rings + index % shared)
    }

    /// Sends a sender's messages to `ring` from its next message on.
    pub(super) fn assign(&self, table: &mut Table, index: u16, ring: usize) {
        let Some(slot) = table.slots.get_mut(usize::from(index)) else { return };
        slot.ring = ring;
        if let Ok(word) = self.map.line(index, Line::Ring) {
            word.store(ring as u64, Ordering::Release);
        }
        // A message that waits for room in the old ring may have some in the new one.
        fence(Ordering::SeqCst);
        if let Some(seat) = &slot.seat {
            self.wake_if_stalled(index, seat);
        }
    }

    /// Wakes a sender if it sleeps until there is room. To be called after what it waits for, and a
    /// fence.
    pub(super) fn wake_if_stalled(&self, index: u16, seat: &Seat) {
        let sleeps =
            |word: &AtomicU64| word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::SeqCst) != 0;
        if self.map.line(index, Line::Stalled).is_ok_and(sleeps) {
            seat.room_bell.ring();
        }
    }

    fn depart(&self, departure: Departure) {
        let mut table = self.table.lock();
        if let Some(slot) = table.slots.get_mut(usize::from(departure.index)) {
            slot.has_left = true;
        }
        table.departures.push_back(departure);
        drop(table);
        self.news.store(true, Ordering::SeqCst);
        self.bell.ring();
    }
}

impl InboxHandle {
    /// Senders that have a place and have not left it.
    pub(crate) fn members(&self) -> usize {
        let table = self.shared.table.lock();
        table.slots.iter().filter(|slot| slot.seat.is_some() && !slot.has_left).count()
    }

    /// Gives a connection the name of a sender. `room_bell` wakes the sender, `owner_bell` the
    /// connection's owner.
    pub(crate) fn join(
        &self,
        room_bell: Arc<Doorbell>,
        owner_bell: Arc<Doorbell>,
    ) -> Result<Membership, JoinError> {
        self.join_at(None, room_bell, owner_bell)
    }

    /// The same for one whose packets come through an adapter, the one with that number.
    #[cfg_attr(not(feature = "verbs"), expect(dead_code, reason = "only adapters bring packets themselves"))]
    pub(crate) fn join_through(&self, entrance: u16, bell: Arc<Doorbell>) -> Result<Membership, JoinError> {
        self.join_at(Some(entrance), Arc::clone(&bell), bell)
    }

    fn join_at(
        &self,
        entrance: Option<u16>,
        room_bell: Arc<Doorbell>,
        owner_bell: Arc<Doorbell>,
    ) -> Result<Membership, JoinError> {
        let shared = &self.shared;
        if shared.closed.load(Ordering::SeqCst) {
            return Err(JoinError::Closed);
        }
        let mut table = shared.table.lock();
        if table.damaged {
            return Err(JoinError::Damaged);
        }
        let senders_max = table.slots.len();
        let full = JoinError::Full { senders_max };
        // The index that was free for longest, so that names of the recent past are not confused by
        // people.
        let start = table.next;
        let order = (0..senders_max).map(|step| (start + step) % senders_max);
        let found = order.into_iter().find(|index| table.slots[*index].seat.is_none());
        let index = found.ok_or_else(|| full.clone())?;
        let ring = match (entrance, shared.shared_ring(index)) {
            (Some(entrance), _) => shared.rings() + usize::from(entrance),
            (None, Some(ring)) => ring,
            (None, None) => shared.free_private(&table).ok_or(full)?,
        };
        table.next = (index + 1) % senders_max;
        let (handover, fault) = (Guarded::default(), OnceLock::new());
        let seat = Arc::new(Seat { handover, room_bell, owner_bell, fault });
        let slot = &mut table.slots[index];
        slot.generation += 1;
        slot.seat = Some(Arc::clone(&seat));
        slot.has_left = false;
        let generation = slot.generation;
        // There are at most `INBOX_SENDERS_MAX` senders.
        let index = u16::try_from(index).unwrap_or(u16::MAX);
        // The line is the sender's own, so nothing of an earlier holder is of use.
        let _ = shared.map.clear_line(index);
        shared.assign(&mut table, index, ring);
        drop(table);
        let id = SenderId { index, generation };
        Ok(Membership { shared: Arc::clone(shared), id, seat, present: true })
    }
}

/// A connection's right to send to an inbox, held by the receiving side; dropping it gives it up.
#[derive(Debug)]
pub(crate) struct Membership {
    shared: Arc<Shared>,
    id: SenderId,
    seat: Arc<Seat>,
    present: bool,
}

impl Membership {
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

    /// A word of the sender's line.
    pub(crate) fn line(&self, word: Line) -> Option<&AtomicU64> {
        self.shared.map.line(self.id.index, word).ok()
    }

    /// Why the connection must end, if the inbox says so.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.seat.fault.get().map(String::as_str)
    }

    /// A sending end in this process.
    pub(crate) fn sender(&self) -> InboxSender {
        InboxSender::new(self.shared.map.clone(), self.id.index, Arc::clone(&self.shared.bell))
    }

    /// Whether a message of `bytes` may be put together here. If not, the sender's connection must
    /// end.
    pub(crate) fn admits(&self, bytes: usize) -> bool {
        let bytes_max = self.shared.message_bytes_max;
        if bytes > bytes_max {
            self.seat
                .accuse(format!("a message of {bytes} bytes; at most {bytes_max} are put together here"));
        }
        bytes <= bytes_max
    }

    /// Begins a message of `bytes` that will be handed over; `None` while the one before was not
    /// taken.
    pub(crate) fn begin_handover(&self, bytes: usize) -> Option<Vec<u8>> {
        let mut handover = self.seat.handover.lock();
        if handover.ready.is_some() {
            return None;
        }
        handover.filling_bytes = bytes;
        drop(handover);
        let mut buffer = self.shared.spares.lock().pop().unwrap_or_default();
        // What it held last is as good as zeroes.
        buffer.resize(bytes, 0);
        Some(buffer)
    }

    /// Hands a message over that was begun; its entry must follow.
    pub(crate) fn hand_over(&self, message: Vec<u8>) {
        *self.seat.handover.lock() = Handover { filling_bytes: 0, ready: Some(message) };
    }

    /// Whether the message before was taken.
    pub(crate) fn can_hand_over(&self) -> bool {
        self.seat.handover.lock().ready.is_none()
    }

    /// The sender sends no more. `socket` is that of a peer that may not know yet: until it hangs
    /// up, what it has claimed stays claimed.
    pub(crate) fn leave(&mut self, socket: Option<OwnedFd>) {
        if std::mem::take(&mut self.present) {
            self.shared.depart(Departure { index: self.id.index, socket });
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.leave(None);
    }
}
