//! Allocates the numbers of inserted keys, and computes below which number all keys exist.
//!
//! The method is that of YCSB's `AcknowledgedCounterGenerator` without its window: each session
//! publishes a number at or below which its own insert in flight begins.
//!
//! Invariants
//! - Every insert of a number below [`Inserts::visible`] has ended, whatever sessions do at the
//!   same time.
//! - There are no locks. A session inserts one range of numbers at a time.

use crate::limits::KEYS_MAX;
use std::sync::atomic::{AtomicU32, Ordering};

const NONE: u32 = u32::MAX;

/// Numbers of inserted keys, shared by the sessions of a run.
#[derive(Debug)]
pub struct Inserts {
    next: AtomicU32,
    /// For each session, a number at or below its first insert in flight; [`NONE`] if it has none.
    pending: Vec<AtomicU32>,
}

impl Inserts {
    /// Numbers from `loaded` on, for `sessions` sessions.
    #[must_use]
    pub fn after(loaded: u32, sessions: u32) -> Self {
        let pending = (0..sessions).map(|_| AtomicU32::new(NONE)).collect();
        Self { next: AtomicU32::new(loaded), pending }
    }

    /// Takes `count` numbers and returns the first of them; `None` if there are no more.
    pub fn begin(&self, session: u32, count: u32) -> Option<u32> {
        let pending = self.pending.get(usize::try_from(session).ok()?)?;
        // Published before the numbers are taken, so that nobody sees them taken but not pending.
        pending.store(self.next.load(Ordering::SeqCst), Ordering::SeqCst);
        let room = |next: u32| next.checked_add(count).filter(|end| *end <= KEYS_MAX);
        let first = self.next.fetch_update(Ordering::SeqCst, Ordering::SeqCst, room).ok();
        if first.is_none() {
            pending.store(NONE, Ordering::SeqCst);
        }
        first
    }

    /// Marks the insert of this session as ended.
    pub fn end(&self, session: u32) {
        if let Some(pending) = usize::try_from(session).ok().and_then(|at| self.pending.get(at)) {
            pending.store(NONE, Ordering::SeqCst);
        }
    }

    /// A number below which all inserts have ended.
    #[must_use]
    pub fn visible(&self) -> u32 {
        // Read before the pending numbers: numbers that are taken later do not count.
        let next = self.next.load(Ordering::SeqCst);
        self.pending.iter().map(|pending| pending.load(Ordering::SeqCst)).fold(next, u32::min)
    }

    /// Number of keys, including the loaded ones.
    #[must_use]
    pub fn taken(&self) -> u32 {
        self.next.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_inserted_is_not_visible_before_it_ends() {
        let inserts = Inserts::after(100, 2);
        assert_eq!(inserts.begin(0, 4), Some(100));
        assert_eq!(inserts.begin(1, 4), Some(104));
        assert_eq!(inserts.visible(), 100);
        inserts.end(1);
        assert_eq!(inserts.visible(), 100, "an older one is still on its way");
        inserts.end(0);
        assert_eq!((inserts.visible(), inserts.taken()), (108, 108));
    }

    #[test]
    fn numbers_end_at_the_limit_and_hide_nothing_then() {
        let inserts = Inserts::after(KEYS_MAX - 3, 1);
        assert_eq!(inserts.begin(0, 4), None);
        assert_eq!(inserts.visible(), KEYS_MAX - 3);
        assert_eq!(inserts.begin(0, 3), Some(KEYS_MAX - 3));
    }
}
