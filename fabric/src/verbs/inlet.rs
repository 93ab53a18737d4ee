//! Receives the peer's messages: through a ring of this connection, or through a shared receive
//! queue.
//!
//! Invariants
//! - The inbox hands out messages that arrive in a shared receive queue; this side only grants the
//!   sender credit for them.

use std::{io, sync::Arc};

use super::{
    account::SenderAccount,
    packet::Sent,
    receive::Receiver,
    shared_receive::Seats,
    sys::{PairState, QueuePair},
};
use crate::{completion::Event, doorbell::Doorbell, inbox};

/// A connection's place at a shared receive queue, given up on drop.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    account: Arc<SenderAccount>,
    pair: Arc<QueuePair>,
    /// None when it has left.
    member: Option<inbox::Membership>,
}

impl Seat {
    pub(super) fn new(
        seats: Arc<Seats>,
        account: Arc<SenderAccount>,
        pair: Arc<QueuePair>,
        member: inbox::Membership,
    ) -> Self {
        Self { seats, account, pair, member: Some(member) }
    }

    /// Ends receiving. Everything that was received is still handed out.
    fn leave(&mut self) {
        if let Some(member) = self.member.take() {
            // It fails only if the queue pair is in its error state already.
            let _ = self.pair.advance(PairState::Failed);
            self.seats.leave(Arc::clone(&self.pair), member);
        }
    }

    /// The violation of the peer that the inbox has found, if any.
    fn inbox_violation(&self) -> Option<String> {
        self.member.as_ref()?.fault().map(str::to_owned)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Whether messages that the peer has sent have not arrived yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    Nothing,
    /// The owner of the shared receive queue has not polled them yet. It rings the bell when it
    /// has.
    Untaken,
    /// They were not written yet.
    Unwritten,
}

/// The receiving half of a connection.
#[derive(Debug)]
pub(super) enum Inlet {
    Ring(Receiver),
    Shared(Seat),
}

impl Inlet {
    /// Takes a record that was written and announced.
    pub(super) fn arrived(&mut self, immediate: u32, written: u32) -> Result<(), String> {
        match self {
            Self::Ring(receiver) => receiver.arrived(immediate, written).map_err(|fault| fault.to_string()),
            Self::Shared(_) => Err("it announced a write into a ring where there is none".to_owned()),
        }
    }

    /// Takes a packet that was sent to the queue pair itself. It must be a credit; returns its
    /// units.
    pub(super) fn credit_arrived(&mut self, immediate: u32) -> Result<u32, String> {
        match (self, Sent::from_immediate(immediate)) {
            (Self::Ring(receiver), Sent::Credit(units)) => {
                receiver.credit_arrived();
                Ok(units)
            }
            (_, sent) => Err(format!("it sent {sent:?} to a queue pair with a ring")),
        }
    }

    /// Takes the units that the peer has given back through the shared queue.
    pub(super) fn take_returned(&self) -> u32 {
        match self {
            Self::Ring(_) => 0,
            Self::Shared(seat) => seat.account.take_returned(),
        }
    }

    /// Takes the violation of the peer in the shared queue, if any.
    pub(super) fn take_fault(&self) -> Option<String> {
        match self {
            Self::Ring(_) => None,
            Self::Shared(seat) => seat.account.take_fault().or_else(|| seat.inbox_violation()),
        }
    }

    /// Ends receiving, because the connection has ended.
    pub(super) fn leave(&mut self) {
        if let Self::Shared(seat) = self {
            seat.leave();
        }
    }

    /// Announces whether the owner is about to sleep. The caller must check for due credit
    /// afterwards.
    pub(super) fn announce_sleep(&self, sleeps: bool) {
        if let Self::Shared(seat) = self {
            seat.account.announce_sleep(sleeps);
        }
    }

    /// The bell that is rung for due credit, returned units and violations in the shared queue.
    pub(super) fn bell(&self) -> Option<&Doorbell> {
        match self {
            Self::Ring(_) => None,
            Self::Shared(seat) => Some(seat.account.bell()),
        }
    }

    pub(super) fn has_arrivals(&self) -> bool {
        matches!(self, Self::Ring(receiver) if receiver.has_arrivals())
    }

    /// How much has arrived, in the unit in which the peer counts what it sends.
    pub(super) fn tail(&self) -> u64 {
        match self {
            Self::Ring(receiver) => receiver.tail(),
            Self::Shared(seat) => seat.account.arrived(),
        }
    }

    /// Whether some of the messages that the peer had sent when it left have not arrived.
    pub(super) fn missing_until(&self, sent: u64) -> Missing {
        match self {
            Self::Ring(receiver) if receiver.tail() >= sent => Missing::Nothing,
            Self::Ring(_) => Missing::Unwritten,
            Self::Shared(seat) if seat.account.has_arrived(sent) => Missing::Nothing,
            Self::Shared(_) => Missing::Untaken,
        }
    }

    /// Drops everything that has arrived.
    pub(super) fn clear(&mut self) {
        if let Self::Ring(receiver) = self {
            receiver.clear();
        }
    }

    /// The next complete message or immediate.
    pub(super) fn next(&mut self) -> Result<Option<Event>, String> {
        match self {
            Self::Ring(receiver) => receiver.next().map_err(|fault| fault.to_string()),
            Self::Shared(_) => Ok(None),
        }
    }

    /// Posts used receive requests again, if there are many or if `all` is set.
    pub(super) fn repost(&mut self, all: bool) -> io::Result<()> {
        match self {
            Self::Ring(receiver) => receiver.repost(all),
            Self::Shared(_) => Ok(()),
        }
    }

    /// The credit to give to the peer now, if it is due.
    pub(super) fn credit_due(&self) -> Option<u32> {
        match self {
            Self::Ring(receiver) => receiver.credit_due(),
            Self::Shared(seat) => seat.account.credit_due(),
        }
    }

    /// Notes that the credit was given.
    pub(super) fn credited(&mut self, units: u32) {
        match self {
            Self::Ring(receiver) => receiver.credited(units),
            Self::Shared(seat) => seat.account.credited(units),
        }
    }
}
