//! Defines the handle of an inbox, through which a listener lets callers join the inbox as senders.
//!
//! Invariants
//! - A [`SenderId`] is never assigned twice: an index is assigned again only with the next
//!   generation.
//! - Callers join the inbox with the fewest members; inboxes with equally many take turns.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{
    arrival::SenderId,
    seats::{Membership, Seat, Shared},
};
use crate::doorbell::Doorbell;

/// Why a caller could not join an inbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JoinError {
    #[error("the inbox has {senders_max} senders, which is its maximum")]
    Full { senders_max: usize },
    #[error("the inbox's memory is damaged; it is usable again when all of its senders have left")]
    Damaged,
    #[error("the owner of the inbox has closed it, so nobody can join it any more")]
    Closed,
    #[error("the inbox has no shared receive queue for the RDMA device: {reason}")]
    NoQueue { reason: String },
}

/// A handle of an inbox, by which a listener lets callers join it.
#[derive(Clone)]
pub struct InboxHandle {
    pub(super) shared: Arc<Shared>,
}

impl fmt::Debug for InboxHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxHandle").field("layout", &self.shared.map.layout).finish()
    }
}

impl InboxHandle {
    /// Number of senders that have joined and not left.
    pub(crate) fn members(&self) -> usize {
        let table = self.shared.table.lock();
        table.slots.iter().filter(|slot| slot.seat.is_some() && !slot.has_left).count()
    }

    /// Makes the peer of a connection a sender of the inbox. `room_bell` wakes the sender,
    /// `owner_bell` the connection's owner.
    pub(crate) fn join(
        &self,
        room_bell: Arc<Doorbell>,
        owner_bell: Arc<Doorbell>,
    ) -> Result<Membership, JoinError> {
        self.join_at(None, room_bell, owner_bell)
    }

    /// As `join`, for a sender whose packets come through the adapter with the number `entrance`.
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
        // Indices are given in turn, so that people who read logs do not confuse senders of the
        // recent past.
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
        let seat = Arc::new(Seat::new(room_bell, owner_bell));
        let slot = &mut table.slots[index];
        slot.generation += 1;
        slot.seat = Some(Arc::clone(&seat));
        slot.has_left = false;
        let generation = slot.generation;
        let index = u16::try_from(index).expect("an inbox has at most INBOX_SENDERS_MAX senders");
        // The words in the line belong to this sender; those of an earlier holder of the index mean
        // nothing.
        let _ = shared.map.clear_line(index);
        shared.assign(&mut table, index, ring);
        drop(table);
        let id = SenderId { index, generation };
        Ok(Membership::new(Arc::clone(shared), id, seat))
    }
}

/// The inboxes of a listener, among which its callers are distributed.
#[derive(Debug, Default)]
pub(crate) struct Inboxes {
    handles: Vec<InboxHandle>,
    next: AtomicUsize,
}

impl Inboxes {
    pub(crate) fn new(handles: Vec<InboxHandle>) -> Self {
        Self { handles, next: AtomicUsize::new(0) }
    }

    /// Lets a caller join the inbox with the fewest members, in turn among those with equally many.
    /// Returns `None` if there are no inboxes, and an error if none has room.
    pub(crate) fn seat(
        &self,
        mut join: impl FnMut(&InboxHandle) -> Result<Membership, JoinError>,
    ) -> Option<Result<(usize, Membership), JoinError>> {
        let count = self.handles.len();
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let mut refusal = None;
        let mut order: Vec<usize> = (0..count).map(|step| (first + step) % count).collect();
        // The sort is stable, so inboxes with equally many members stay in turn.
        order.sort_by_key(|which| self.handles[*which].members());
        for which in order {
            match join(&self.handles[which]) {
                Ok(membership) => return Some(Ok((which, membership))),
                Err(error) => refusal = Some(Err(error)),
            }
        }
        refusal
    }
}
