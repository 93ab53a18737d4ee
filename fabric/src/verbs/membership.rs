//! What do the thread that owns a shared receive queue and the owner of one connection into it tell
//! each other?
//!
//! Invariants
//! - What is said is said before the bell is rung, and looked for after saying that one sleeps.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

use crate::{doorbell::Doorbell, guarded::Guarded, inbox::SenderId};

/// Packets that are credited to a sender together: each credit is a message of its own. The quarter
/// that the sender keeps meanwhile is what it sends until the credit is there.
pub(super) fn worth_giving(allotment: u32) -> u32 {
    (allotment - allotment / 4).max(1)
}

/// Slots that may wait to be offered again together: of a sender that has used its allotment, one
/// fewer is not yet released, and credit for the others is worth giving.
pub(super) fn worth_offering(allotment: u32) -> u32 {
    allotment - worth_giving(allotment) + 1
}

/// What the receiving thread and a sender's connection tell each other.
#[derive(Debug)]
pub(super) struct Membership {
    sender: SenderId,
    /// Packets whose slots were offered again and that are not yet credited to the sender.
    released: AtomicU32,
    /// Units of the sender's own ring that it has given back.
    returned: AtomicU32,
    /// Packets that have arrived since the start.
    arrived: AtomicU64,
    /// How many the connection waits for: all that the sender had sent when it left.
    awaited: AtomicU64,
    /// The connection's owner sleeps, or is about to.
    sleeps: AtomicBool,
    /// Why the connection must end.
    fault: Guarded<Option<String>>,
    has_fault: AtomicBool,
    allotment: u32,
    bell: Arc<Doorbell>,
}

impl Membership {
    pub(super) fn new(sender: SenderId, allotment: u32, bell: Arc<Doorbell>) -> Self {
        Self {
            sender,
            released: AtomicU32::new(0),
            returned: AtomicU32::new(0),
            arrived: AtomicU64::new(0),
            awaited: AtomicU64::new(u64::MAX),
            sleeps: AtomicBool::new(false),
            fault: Guarded::default(),
            has_fault: AtomicBool::new(false),
            allotment,
            bell,
        }
    }

    pub(super) fn sender(&self) -> SenderId {
        self.sender
    }

    /// Packets that the sender may have here at a time.
    pub(super) fn allotment(&self) -> u32 {
        self.allotment
    }

    /// Readable when the connection has something to do for the receiving thread.
    pub(super) fn bell(&self) -> &Doorbell {
        &self.bell
    }

    /// The connection must look for credits that are due after it has said that it sleeps.
    pub(super) fn say_sleeping(&self, sleeps: bool) {
        self.sleeps.store(sleeps, Ordering::SeqCst);
    }

    pub(super) fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::SeqCst)
    }

    /// Whether so many packets have arrived; if not, the bell is rung when they have.
    pub(super) fn has_arrived(&self, packets: u64) -> bool {
        // Said first, looked after: `note_arrival` does it the other way round.
        self.awaited.store(packets, Ordering::SeqCst);
        self.arrived() >= packets
    }

    pub(super) fn note_arrival(&self) {
        let arrived = self.arrived.fetch_add(1, Ordering::SeqCst) + 1;
        if arrived >= self.awaited.load(Ordering::SeqCst) {
            self.bell.ring();
        }
    }

    /// The peer has given units of its ring back.
    pub(super) fn note_returned(&self, units: u32) {
        self.returned.fetch_add(units, Ordering::AcqRel);
        self.bell.ring();
    }

    /// Units that the peer has given back of the ring that we write into.
    pub(super) fn take_returned(&self) -> u32 {
        // Most polls find nothing, and a load leaves the line where it is.
        if self.returned.load(Ordering::Relaxed) == 0 { 0 } else { self.returned.swap(0, Ordering::AcqRel) }
    }

    fn credits_worth_giving(&self) -> u32 {
        worth_giving(self.allotment)
    }

    /// Packets to credit to the peer now, if it is time.
    pub(super) fn credit_due(&self) -> Option<u32> {
        let released = self.released.load(Ordering::SeqCst);
        (released >= self.credits_worth_giving()).then_some(released)
    }

    /// They were credited.
    pub(super) fn credited(&self, packets: u32) {
        self.released.fetch_sub(packets, Ordering::SeqCst);
    }

    /// A slot with a packet of this sender was offered again.
    pub(super) fn note_release(&self) {
        let released = self.released.fetch_add(1, Ordering::SeqCst) + 1;
        if released >= self.credits_worth_giving() && self.sleeps.swap(false, Ordering::SeqCst) {
            self.bell.ring();
        }
    }

    /// Whether the connection must end.
    pub(super) fn is_blamed(&self) -> bool {
        self.has_fault.load(Ordering::Acquire)
    }

    /// What the peer did wrong, if anything.
    pub(super) fn take_fault(&self) -> Option<String> {
        if self.is_blamed() { self.fault.lock().take() } else { None }
    }

    pub(super) fn blame(&self, fault: impl ToString) {
        self.fault.lock().get_or_insert(fault.to_string());
        self.has_fault.store(true, Ordering::Release);
        self.bell.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_that_has_used_its_allotment_is_owed_credit_that_is_worth_giving() {
        for allotment in 1..=4096 {
            let not_yet_offered = worth_offering(allotment) - 1;
            assert!(allotment - not_yet_offered >= worth_giving(allotment), "allotment {allotment}");
            assert!(worth_giving(allotment) >= 1 && worth_offering(allotment) >= 1, "allotment {allotment}");
        }
    }
}
