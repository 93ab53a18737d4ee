//! What do all reactors know of the node's home?
//!
//! Invariants
//! - What requests and answers in progress hold of the home's memory never exceeds its part
//!   (`transit`); who waits for some is woken when some is given back, on whatever reactor.
//! - Every request that the home is asked for holds some, so the first reactor knows when it may
//!   end.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
};

use rackscan_fabric::Region;
use rackscan_format::message::{HomeStatus, Refusal, RefusalCode};

use crate::lifecycle::Lifecycle;

/// The home, as far as reactors may look at it at any time.
#[derive(Debug)]
pub(crate) struct HomeShared {
    /// The slots.
    pub(crate) slots: Region,
    /// The feed.
    pub(crate) feed: Region,
    /// Which life of the home.
    pub(crate) life: u64,
    pub(crate) gauges: Gauges,
    /// Bytes that requests in progress may hold.
    transit_bytes: u64,
    held_bytes: AtomicU64,
    /// Whether somebody waits for some of them.
    waiting: AtomicBool,
    lifecycle: Arc<Lifecycle>,
    /// Whether the home wants to be told when some time has gone by.
    pub(crate) awaits_tick: AtomicBool,
    /// Why the home is not there yet; `None` once it is.
    absence: Mutex<Option<String>>,
    /// Whether it is there.
    present: AtomicBool,
    /// Whether it comes only if persons do something about it.
    decided_by_persons: AtomicBool,
    /// Why it takes no writes, if it does not.
    shortage: Mutex<Option<String>>,
    /// Whether it waits for a person to accept that records may be missing, and whether one has.
    awaits_decision: AtomicBool,
    accepts_loss: AtomicBool,
}

impl HomeShared {
    /// The memory that peers may be granted is that of slots and of the feed.
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

    /// The home is there.
    pub(super) fn came(&self) {
        self.present.store(true, SeqCst);
    }

    /// The home is not there yet, because of this; it may come by itself.
    pub(super) fn is_awaited(&self, reason: String) {
        self.decided_by_persons.store(false, SeqCst);
        *self.absence.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
    }

    /// The home is not there, because of this, until a person decides or starts other nodes.
    pub(super) fn is_refused(&self, reason: String) {
        self.decided_by_persons.store(true, SeqCst);
        *self.absence.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
    }

    /// Whether the home takes requests; if not, why not.
    ///
    /// # Errors
    /// The refusal of a request that needs it.
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

    /// Why it takes no writes now, or that it does.
    pub(super) fn refuses_writes(&self, why: Option<String>) {
        *self.shortage.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Why it takes no requests, or no writes, for people.
    pub(crate) fn refusal(&self) -> Option<String> {
        if self.present.load(SeqCst) {
            return self.shortage.lock().unwrap_or_else(PoisonError::into_inner).clone();
        }
        let absence = self.absence.lock().unwrap_or_else(PoisonError::into_inner);
        absence.as_ref().map(|absence| format!("it {absence}"))
    }

    /// Whether a person may decide now that the log goes on without what may be missing.
    pub(super) fn awaits_decision(&self, awaits: bool) {
        self.awaits_decision.store(awaits, SeqCst);
    }

    /// A person has decided.
    ///
    /// # Errors
    /// The refusal if nobody waits for that.
    pub(crate) fn accept_loss(&self) -> Result<(), Refusal> {
        if self.present.load(SeqCst) || !self.awaits_decision.load(SeqCst) {
            let text = "the log of transactions is complete, or its replicas are being asked: expected a node that refuses because records may be missing; \
                        see `rackscan cluster status`";
            return Err(Refusal::new(RefusalCode::NotFound, text));
        }
        self.accepts_loss.store(true, SeqCst);
        Ok(())
    }

    /// Whether a person has.
    pub(super) fn has_accepted_loss(&self) -> bool {
        self.accepts_loss.load(SeqCst)
    }

    /// What requests in progress may hold together, in bytes.
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

/// Memory that a request in progress holds; it goes back when this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    home: Arc<HomeShared>,
    bytes: u64,
}

impl Charge {
    /// Takes memory for a request; `None` if others hold it: all reactors are woken when some is
    /// free.
    pub(crate) fn take(home: &Arc<HomeShared>, bytes: u64) -> Option<Self> {
        if !home.try_hold(bytes) {
            home.waiting.store(true, SeqCst);
            // What was given back before that was seen woke nobody.
            if !home.try_hold(bytes) {
                return None;
            }
        }
        Some(Self { home: Arc::clone(home), bytes })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let was_last = self.home.held_bytes.fetch_sub(self.bytes, SeqCst) == self.bytes;
        let is_awaited = was_last && self.home.lifecycle.is_stopping();
        if self.home.waiting.swap(false, SeqCst) || is_awaited {
            self.home.lifecycle.wake();
        }
    }
}

macro_rules! gauges {
    ($($name:ident),* $(,)?) => {
        /// See [`HomeStatus`], whose fields these become.
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
            /// What they are now. Each is exact as of the home's last turn.
            pub(crate) fn status(&self) -> HomeStatus {
                HomeStatus {
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
    u16::try_from(gauge.load(Relaxed)).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_requests_hold_is_bounded_and_comes_back() {
        let memory = || Region::allocate(4096).unwrap();
        let home = Arc::new(HomeShared::new((memory(), memory()), 1, 100, Arc::default()));
        let first = Charge::take(&home, 60).unwrap();
        assert!(Charge::take(&home, 41).is_none() && Charge::take(&home, u64::MAX).is_none());
        assert!(home.waiting.load(SeqCst));
        drop(first);
        assert!(!home.waiting.load(SeqCst), "whoever waited is woken");
        assert!(Charge::take(&home, 100).is_some());
    }
}
