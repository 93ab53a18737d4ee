//! Contains the state of the node's participant that all reactors see.
//!
//! Invariants
//! - The memory of requests and answers in progress never exceeds its part of the budget
//!   (`transit`). When memory is returned, the requests that wait for it are woken on all reactors.
//! - Every request to the participant occupies some of that memory until it ends, so the first
//!   reactor can observe that none is left before it ends itself.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
};

use az::SaturatingAs;
use rackscan_fabric::Region;
use rackscan_format::message::{ParticipantStatus, Refusal, RefusalCode};

use crate::lifecycle::Lifecycle;

/// The part of the participant's state that all reactors may read at any time.
#[derive(Debug)]
pub(crate) struct ParticipantShared {
    /// The slots.
    pub(crate) slots: Region,
    /// The feed.
    pub(crate) feed: Region,
    /// The number of the participant's life.
    pub(crate) life: u64,
    pub(crate) gauges: Gauges,
    /// Bytes that requests in progress may hold.
    transit_bytes: u64,
    held_bytes: AtomicU64,
    /// Whether a request waits for some of them.
    waiting: AtomicBool,
    lifecycle: Arc<Lifecycle>,
    /// Whether the participant wants to be told when some time has passed.
    pub(crate) awaits_tick: AtomicBool,
    /// Why the participant is not there yet; `None` once it is.
    absence: Mutex<Option<String>>,
    /// Whether the participant is there.
    present: AtomicBool,
    /// Whether the participant comes only if a person acts.
    decided_by_persons: AtomicBool,
    /// Why the participant refuses writes; `None` if it does not.
    shortage: Mutex<Option<String>>,
    /// Whether it waits for a person to accept that records may be missing, and whether a person
    /// has.
    awaits_decision: AtomicBool,
    accepts_loss: AtomicBool,
}

impl ParticipantShared {
    /// The state of a participant whose slots and feed lie in these regions, which peers may be
    /// granted.
    pub(crate) fn new(
        (slots, feed): (Region, Region),
        life: u64,
        transit_bytes: u64,
        lifecycle: Arc<Lifecycle>,
    ) -> Self {
        let gauges = Gauges::default();
        let (held_bytes, waiting) = (AtomicU64::new(0), AtomicBool::new(false));
        let awaits_tick = AtomicBool::new(false);
        let (absence, present) = (Mutex::default(), AtomicBool::new(false));
        let (awaits_decision, accepts_loss) = (AtomicBool::new(false), AtomicBool::new(false));
        Self {
            slots,
            feed,
            life,
            gauges,
            transit_bytes,
            held_bytes,
            waiting,
            lifecycle,
            awaits_tick,
            absence,
            present,
            decided_by_persons: AtomicBool::new(false),
            shortage: Mutex::default(),
            awaits_decision,
            accepts_loss,
        }
    }

    /// Records that the participant is there.
    pub(super) fn set_present(&self) {
        self.present.store(true, SeqCst);
    }

    /// Records why the participant is not there yet; it may come without any action.
    pub(super) fn set_awaited(&self, reason: String) {
        self.decided_by_persons.store(false, SeqCst);
        *self.absence.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
    }

    /// Records why the participant is not there until a person decides or starts other nodes.
    pub(super) fn set_refused(&self, reason: String) {
        self.decided_by_persons.store(true, SeqCst);
        *self.absence.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
    }

    /// Checks that the participant takes requests.
    ///
    /// # Errors
    /// The refusal for requests that need it, with the reason.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        if self.present.load(SeqCst) {
            return Ok(());
        }
        let reason = self.absence.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let reason = reason.unwrap_or_default();
        if self.decided_by_persons.load(SeqCst) {
            return Err(Refusal::new(
                RefusalCode::Storage,
                format!("the node's keys are not there: it {reason}"),
            ));
        }
        let text = format!("the node's keys are not there yet: it {reason}; ask again");
        Err(Refusal::new(RefusalCode::Busy, text))
    }

    /// Sets why the participant refuses writes; `None` if it does not.
    pub(super) fn set_write_refusal(&self, why: Option<String>) {
        *self.shortage.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Why the participant refuses requests, or writes, as a text for people.
    pub(crate) fn refusal(&self) -> Option<String> {
        if self.present.load(SeqCst) {
            return self.shortage.lock().unwrap_or_else(PoisonError::into_inner).clone();
        }
        let absence = self.absence.lock().unwrap_or_else(PoisonError::into_inner);
        absence.as_ref().map(|absence| format!("it {absence}"))
    }

    /// Sets whether a person may decide now that the log goes on without records that may be
    /// missing.
    pub(super) fn set_awaits_decision(&self, awaits: bool) {
        self.awaits_decision.store(awaits, SeqCst);
    }

    /// Records that a person accepts the loss.
    ///
    /// # Errors
    /// The refusal if the node does not wait for that decision.
    pub(crate) fn accept_loss(&self) -> Result<(), Refusal> {
        if self.present.load(SeqCst) || !self.awaits_decision.load(SeqCst) {
            let text = "the log of transactions is complete, or its replicas are being asked: expected a node that refuses because records may be missing; \
                        see `rackscan cluster status`";
            return Err(Refusal::new(RefusalCode::NotFound, text));
        }
        self.accepts_loss.store(true, SeqCst);
        Ok(())
    }

    /// Whether a person has accepted the loss.
    pub(super) fn has_accepted_loss(&self) -> bool {
        self.accepts_loss.load(SeqCst)
    }

    /// The maximum that requests in progress may hold together, in bytes.
    pub(crate) fn transit_bytes(&self) -> u64 {
        self.transit_bytes
    }

    /// Whether no request is being served, on any reactor.
    pub(crate) fn is_idle(&self) -> bool {
        self.held_bytes.load(SeqCst) == 0
    }

    fn try_hold(&self, bytes: u64) -> bool {
        let fits = |held: u64| held.checked_add(bytes).filter(|all| *all <= self.transit_bytes);
        self.held_bytes.fetch_update(SeqCst, SeqCst, fits).is_ok()
    }
}

/// Memory that a request in progress holds; dropping it returns the memory.
#[derive(Debug)]
pub(crate) struct Charge {
    participant: Arc<ParticipantShared>,
    bytes: u64,
}

impl Charge {
    /// Takes memory for a request. `None` if other requests hold it; all reactors are woken when
    /// some is free.
    pub(crate) fn take(participant: &Arc<ParticipantShared>, bytes: u64) -> Option<Self> {
        if !participant.try_hold(bytes) {
            participant.waiting.store(true, SeqCst);
            // Memory that was returned before `waiting` was set woke nobody.
            if !participant.try_hold(bytes) {
                return None;
            }
        }
        Some(Self { participant: Arc::clone(participant), bytes })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let was_last = self.participant.held_bytes.fetch_sub(self.bytes, SeqCst) == self.bytes;
        let is_awaited = was_last && self.participant.lifecycle.is_stopping();
        if self.participant.waiting.swap(false, SeqCst) || is_awaited {
            self.participant.lifecycle.wake();
        }
    }
}

macro_rules! gauges {
    ($($name:ident),* $(,)?) => {
        /// See [`ParticipantStatus`], whose fields these become.
        #[derive(Debug, Default)]
        pub(crate) struct Gauges {
            $(pub(crate) $name: AtomicU64,)*
            pub(crate) log_full: AtomicBool,
            pub(crate) log_copies: AtomicU64,
            pub(crate) log_replicas: AtomicU64,
            pub(crate) log_replicas_min: AtomicU64,
            pub(crate) log_generation_unaware: AtomicU64,
        }

        impl Gauges {
            /// The present values, each as of the participant's last turn.
            pub(crate) fn status(&self) -> ParticipantStatus {
                ParticipantStatus {
                    $($name: self.$name.load(Relaxed),)*
                    log_full: self.log_full.load(Relaxed),
                    log_copies: few(&self.log_copies),
                    log_replicas: few(&self.log_replicas),
                    log_replicas_min: few(&self.log_replicas_min),
                    log_generation_unaware: few(&self.log_generation_unaware),
                }
            }
        }
    };
}

gauges!(
    budget_bytes,
    used_bytes,
    held_bytes,
    keys,
    in_doubt,
    log_bytes,
    requests,
    prepared,
    committed,
    refused,
    ended_by_asking,
    log_batches,
    log_cut_bytes,
    log_generation,
);

fn few(gauge: &AtomicU64) -> u16 {
    gauge.load(Relaxed).saturating_as::<u16>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_requests_hold_is_bounded_and_comes_back() {
        let memory = || Region::allocate(4096).unwrap();
        let participant = Arc::new(ParticipantShared::new((memory(), memory()), 1, 100, Arc::default()));
        let first = Charge::take(&participant, 60).unwrap();
        assert!(Charge::take(&participant, 41).is_none() && Charge::take(&participant, u64::MAX).is_none());
        assert!(participant.waiting.load(SeqCst));
        drop(first);
        assert!(!participant.waiting.load(SeqCst), "whoever waited is woken");
        assert!(Charge::take(&participant, 100).is_some());
    }
}
