//! Reserves places for connecting peers in the inboxes of a listener, before their queue pairs
//! exist.
//!
//! [`reserve`] joins a peer to one inbox, by way of the inbox's shared receive queue on the
//! adapter. [`make_queues`] creates these queues beforehand.
//!
//! Invariants
//! - An inbox has one shared receive queue for each adapter, created for the first listener that
//!   needs it.

use std::sync::Arc;

use super::{
    device::Device,
    shared_receive::{Seats, SharedReceive},
};
use crate::{
    doorbell::Doorbell,
    error::ConnectError,
    inbox::{InboxHandle, Inboxes, JoinError, Membership, Supply},
};

/// A caller's place in an inbox, for a queue pair that is not made yet.
pub(super) struct Reservation {
    /// Index of the inbox among those of the listener.
    pub(super) which: usize,
    pub(super) seats: Arc<Seats>,
    pub(super) member: Membership,
    /// Wakes the connection's owner.
    pub(super) bell: Arc<Doorbell>,
}

fn queue_of(inbox: &InboxHandle, device: &Arc<Device>) -> Result<(u16, Arc<Seats>), JoinError> {
    inbox.entrance(device.name(), |size| {
        let receive = SharedReceive::new(Arc::clone(device), size)?;
        let seats = Arc::clone(receive.seats());
        let supply: Box<dyn Supply> = Box::new(receive);
        Ok((supply, seats))
    })
}

/// Makes the shared receive queues of inboxes that have none on this adapter.
pub(super) fn make_queues(inboxes: &[InboxHandle], device: &Arc<Device>) -> Result<(), JoinError> {
    inboxes.iter().try_for_each(|inbox| queue_of(inbox, device).map(drop))
}

/// Reserves a place for a caller in one of the inboxes; `None` if there are none.
pub(super) fn reserve(
    inboxes: &Inboxes,
    device: &Arc<Device>,
    peer: &str,
) -> Result<Option<Reservation>, ConnectError> {
    let bell = Doorbell::new();
    let os = |source| ConnectError::Os { action: "make a doorbell", peer: peer.to_owned(), source };
    let bell = Arc::new(bell.map_err(os)?);
    let mut queue = None;
    let found = inboxes.seat(|inbox| {
        let (number, seats) = queue_of(inbox, device)?;
        let member = inbox.join_through(number, Arc::clone(&bell))?;
        queue = Some(seats);
        Ok(member)
    });
    match (found, queue) {
        (Some(Ok((which, member))), Some(seats)) => Ok(Some(Reservation { which, seats, member, bell })),
        (Some(Err(refusal)), _) => {
            Err(ConnectError::NoSeat { peer: peer.to_owned(), reason: refusal.to_string() })
        }
        _ => Ok(None),
    }
}
