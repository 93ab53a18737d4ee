//! Where do the peer's messages arrive: in a ring of this connection, or in a queue that it shares
//! with others?
//!
//! Invariants
//! - Messages that arrive in a shared receive queue are handed out there; this side only settles
//!   what is owed for them.

use std::{io, sync::Arc};

use super::{
    membership::Membership,
    packet::Sent,
    receive::Receiver,
    shared_receive::Seats,
    sys::{QueuePair, Step},
};
use crate::{completion::Event, doorbell::Doorbell, inbox};

/// A connection's place at a shared receive queue, given up on drop.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    membership: Arc<Membership>,
    pair: Arc<QueuePair>,
    /// None when it has left.
    member: Option<inbox::Membership>,
}

impl Seat {
    pub(super) fn new(
        seats: Arc<Seats>,
        membership: Arc<Membership>,
        pair: Arc<QueuePair>,
        member: inbox::Membership,
    ) -> Self {
        Self { seats, membership, pair, member: Some(member) }
    }

    /// Nothing is received from here on; what was is handed out.
    fn leave(&mut self) {
        if let Some(member) = self.member.take() {
            // It fails only if it is so already.
            let _ = self.pair.advance(Step::Failed);
            self.seats.leave(Arc::clone(&self.pair), member);
        }
    }

    /// What the inbox says that the peer did wrong.
    fn accusation(&self) -> Option<String> {
        self.member.as_ref()?.fault().map(str::to_owned)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Whether messages that were sent are still to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    Nothing,
    /// The owner of the shared receive queue has not looked yet; it rings the bell when it has.
    Untaken,
    /// They have not been written.
    Unwritten,
}

/// The receiving half of a connection.
#[derive(Debug)]
pub(super) enum Inlet {
    Ring(Receiver),
    Shared(Seat),
}

impl Inlet {
    /// A record was written and announced.
    pub(super) fn arrived(&mut self, immediate: u32, written: u32) -> Result<(), String> {
        match self {
            Self::Ring(receiver) => receiver.arrived(immediate, written).map_err(|fault| fault.to_string()),
            Self::Shared(_) => Err("it announced a write into a ring where there is none".to_owned()),
        }
    }

    /// A packet was sent to the queue pair itself. The units that it gives back, for it can be
    /// nothing but a credit.
    pub(super) fn credit_arrived(&mut self, immediate: u32) -> Result<u32, String> {
        match (self, Sent::from_immediate(immediate)) {
            (Self::Ring(receiver), Sent::Credit(units)) => {
                receiver.credit_arrived();
                Ok(units)
            }
            (_, sent) => Err(format!("it sent {sent:?} to a queue pair with a ring")),
        }
    }

    /// Units that the peer has given back by way of the shared queue.
    pub(super) fn take_returned(&self) -> u32 {
        match self {
            Self::Ring(_) => 0,
            Self::Shared(seat) => seat.membership.take_returned(),
        }
    }

    /// What the peer did wrong in the shared queue.
    pub(super) fn take_fault(&self) -> Option<String> {
        match self {
            Self::Ring(_) => None,
            Self::Shared(seat) => seat.membership.take_fault().or_else(|| seat.accusation()),
        }
    }

    /// The connection has ended.
    pub(super) fn leave(&mut self) {
        if let Self::Shared(seat) = self {
            seat.leave();
        }
    }

    /// Whether the owner is about to sleep; afterwards it looks at what is due.
    pub(super) fn say_sleeping(&self, sleeps: bool) {
        if let Self::Shared(seat) = self {
            seat.membership.say_sleeping(sleeps);
        }
    }

    /// Rung when one of the two before has news.
    pub(super) fn bell(&self) -> Option<&Doorbell> {
        match self {
            Self::Ring(_) => None,
            Self::Shared(seat) => Some(seat.membership.bell()),
        }
    }

    pub(super) fn has_arrivals(&self) -> bool {
        matches!(self, Self::Ring(receiver) if receiver.has_arrivals())
    }

    /// How much has arrived, as the peer counts what it sends.
    pub(super) fn tail(&self) -> u64 {
        match self {
            Self::Ring(receiver) => receiver.tail(),
            Self::Shared(seat) => seat.membership.arrived(),
        }
    }

    /// Whether something is missing of what the peer had sent when it left.
    pub(super) fn missing_until(&self, sent: u64) -> Missing {
        match self {
            Self::Ring(receiver) if receiver.tail() >= sent => Missing::Nothing,
            Self::Ring(_) => Missing::Unwritten,
            Self::Shared(seat) if seat.membership.has_arrived(sent) => Missing::Nothing,
            Self::Shared(_) => Missing::Untaken,
        }
    }

    /// Drops what has arrived: nobody wants it any more.
    pub(super) fn clear(&mut self) {
        if let Self::Ring(receiver) = self {
            receiver.clear();
        }
    }

    /// The next message or immediate of which all is there.
    pub(super) fn next(&mut self) -> Result<Option<Event>, String> {
        match self {
            Self::Ring(receiver) => receiver.next().map_err(|fault| fault.to_string()),
            Self::Shared(_) => Ok(None),
        }
    }

    /// Posts used receive requests anew, if there are many or `all` is wanted.
    pub(super) fn repost(&mut self, all: bool) -> io::Result<()> {
        match self {
            Self::Ring(receiver) => receiver.repost(all),
            Self::Shared(_) => Ok(()),
        }
    }

    /// What to give back to the peer now, if it is time.
    pub(super) fn credit_due(&self) -> Option<u32> {
        match self {
            Self::Ring(receiver) => receiver.credit_due(),
            Self::Shared(seat) => seat.membership.credit_due(),
        }
    }

    /// It was given back.
    pub(super) fn credited(&mut self, units: u32) {
        match self {
            Self::Ring(receiver) => receiver.credited(units),
            Self::Shared(seat) => seat.membership.credited(units),
        }
    }
}
