//! Keeps the account of one sender at a shared receive queue: the credit (packets that it may send
//! further), its arrived packets and its violation. The thread that owns the queue and the owner of
//! the sender's connection share it.
//!
//! Invariants
//! - A side stores its news before it rings the bell, and checks for news after it has announced
//!   that it sleeps.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

use crate::{doorbell::Doorbell, guarded::Guarded, inbox::SenderId};

/// Packets that are credited to a sender together, because each credit is a message of its own. The
/// sender keeps a quarter of its allotment, which it can send until the credit arrives.
pub(super) fn worth_giving(allotment: u32) -> u32 {
    (allotment - allotment / 4).max(1)
}

/// Number of slots that are offered again together. If fewer wait, they hold back so little of a
/// sender's allotment that credit for the others is still worth giving.
pub(super) fn worth_offering(allotment: u32) -> u32 {
    allotment - worth_giving(allotment) + 1
}

/// Credit that is due to a sender, packets that have arrived from it, and its violation, if any.
#[derive(Debug)]
pub(super) struct SenderAccount {
    sender: SenderId,
    /// Packets whose slots were offered again and that were not credited to the sender yet.
    released: AtomicU32,
    /// Units of the peer's ring, into which we write, that the peer has given back.
    returned: AtomicU32,
    /// Packets that have arrived so far.
    arrived: AtomicU64,
    /// Number of packets that the connection waits for: all that the sender had sent when it left.
    awaited: AtomicU64,
    /// Whether the connection's owner sleeps or is about to.
    sleeps: AtomicBool,
    /// Why the connection must end.
    fault: Guarded<Option<String>>,
    has_fault: AtomicBool,
    allotment: u32,
    bell: Arc<Doorbell>,
}

impl SenderAccount {
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

    /// Maximum number of packets that the sender may have here at a time.
    pub(super) fn allotment(&self) -> u32 {
        self.allotment
    }

    /// Readable when the receiving thread has news for the connection.
    pub(super) fn bell(&self) -> &Doorbell {
        &self.bell
    }

    /// Announces whether the connection's owner sleeps. It must check for due credit after
    /// announcing that it does.
    pub(super) fn announce_sleep(&self, sleeps: bool) {
        self.sleeps.store(sleeps, Ordering::SeqCst);
    }

    pub(super) fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::SeqCst)
    }

    /// Whether so many packets have arrived. If not, the bell is rung when they have.
    pub(super) fn has_arrived(&self, packets: u64) -> bool {
        // Announced first, checked afterwards; `note_arrival` does the two in the other order.
        self.awaited.store(packets, Ordering::SeqCst);
        self.arrived() >= packets
    }

    pub(super) fn note_arrival(&self) {
        let arrived = self.arrived.fetch_add(1, Ordering::SeqCst) + 1;
        if arrived >= self.awaited.load(Ordering::SeqCst) {
            self.bell.ring();
        }
    }

    /// Notes that the peer has given units back.
    pub(super) fn note_returned(&self, units: u32) {
        self.returned.fetch_add(units, Ordering::AcqRel);
        self.bell.ring();
    }

    /// Takes the units that the peer has given back.
    pub(super) fn take_returned(&self) -> u32 {
        // Most polls find nothing, and a load does not take the cache line from the other thread.
        if self.returned.load(Ordering::Relaxed) == 0 { 0 } else { self.returned.swap(0, Ordering::AcqRel) }
    }

    fn credits_worth_giving(&self) -> u32 {
        worth_giving(self.allotment)
    }

    /// Number of packets to credit to the peer now, if credit is due.
    pub(super) fn credit_due(&self) -> Option<u32> {
        let released = self.released.load(Ordering::SeqCst);
        (released >= self.credits_worth_giving()).then_some(released)
    }

    /// Notes that packets were credited.
    pub(super) fn credited(&self, packets: u32) {
        self.released.fetch_sub(packets, Ordering::SeqCst);
    }

    /// Notes that a slot with a packet of this sender was offered again.
    pub(super) fn note_release(&self) {
        let released = self.released.fetch_add(1, Ordering::SeqCst) + 1;
        if released >= self.credits_worth_giving() && self.sleeps.swap(false, Ordering::SeqCst) {
            self.bell.ring();
        }
    }

    /// Whether the connection must end.
    pub(super) fn has_violation(&self) -> bool {
        self.has_fault.load(Ordering::Acquire)
    }

    /// Takes the violation of the peer, if any.
    pub(super) fn take_fault(&self) -> Option<String> {
        if self.has_violation() { self.fault.lock().take() } else { None }
    }

    pub(super) fn report_violation(&self, fault: impl ToString) {
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
