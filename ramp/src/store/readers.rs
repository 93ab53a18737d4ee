//! Leases: record which superseded versions a reader may still ask for, so that they are not
//! dropped.
//!
//! A reader asks for a version by its timestamp after it has found a sibling version, which the
//! same transaction wrote at another key. Before that it has read the key and found an older
//! version: so the version was superseded after the reader began. No reader ever asks for a version
//! that was superseded before every present reader began.
//!
//! "Before" is measured by a counter of the participant, not by timestamps: the clock of a reader
//! may be ahead of the clock of a slow writer whose transaction supersedes another one only now. A
//! participant counts the versions that it supersedes ([`Epoch`]). A lease stores such a count. Its
//! holder moves it forward to a count that the participant reported before the holder's oldest
//! unfinished read began.
//!
//! Invariants
//! - A version that was superseded after the count of any lease is not dropped, however long the
//!   lease lasts. Leases do not expire by time.
//! - A lease never moves back. It ends when its holder closes it or is lost.

use crate::{
    limits::LEASES_MAX,
    message::{Epoch, LeaseId},
};
use std::collections::{BTreeSet, HashMap};

/// The leases of one life of a participant.
#[derive(Debug)]
pub(crate) struct Readers {
    life: u64,
    next: u64,
    now: Epoch,
    pins: HashMap<u64, Epoch>,
    by_epoch: BTreeSet<(Epoch, u64)>,
}

impl Readers {
    pub(crate) fn new(life: u64) -> Self {
        Self { life, next: 0, now: Epoch(0), pins: HashMap::new(), by_epoch: BTreeSet::new() }
    }

    pub(crate) fn now(&self) -> Epoch {
        self.now
    }

    pub(crate) fn count(&self) -> usize {
        self.pins.len()
    }

    /// Counts a superseded version. Returns its epoch.
    pub(crate) fn supersede(&mut self) -> Epoch {
        self.now.0 += 1;
        self.now
    }

    /// Versions that were superseded up to this epoch are never asked for.
    pub(crate) fn oldest(&self) -> Epoch {
        self.by_epoch.first().map_or(self.now, |(epoch, _)| *epoch)
    }

    /// Grants a lease from now on; `None` if there are too many.
    pub(crate) fn open(&mut self) -> Option<LeaseId> {
        if self.pins.len() >= LEASES_MAX {
            return None;
        }
        self.next += 1;
        self.pins.insert(self.next, self.now);
        self.by_epoch.insert((self.now, self.next));
        Some(LeaseId { life: self.life, number: self.next })
    }

    pub(crate) fn has(&self, lease: LeaseId) -> bool {
        lease.life == self.life && self.pins.contains_key(&lease.number)
    }

    /// Moves a lease on. An epoch in the future counts as the current one.
    pub(crate) fn advance(&mut self, lease: LeaseId, epoch: Epoch) {
        let Some(pin) = self.pins.get_mut(&lease.number).filter(|_| lease.life == self.life) else { return };
        let epoch = epoch.min(self.now);
        if epoch > *pin {
            self.by_epoch.remove(&(*pin, lease.number));
            self.by_epoch.insert((epoch, lease.number));
            *pin = epoch;
        }
    }

    pub(crate) fn close(&mut self, lease: LeaseId) {
        if lease.life == self.life
            && let Some(pin) = self.pins.remove(&lease.number)
        {
            self.by_epoch.remove(&(pin, lease.number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_lease_decides_and_only_its_holder_moves_it() {
        let mut readers = Readers::new(7);
        assert_eq!((readers.supersede(), readers.oldest()), (Epoch(1), Epoch(1)), "nobody reads");
        let (slow, quick) = (readers.open().unwrap(), readers.open().unwrap());
        readers.supersede();
        readers.supersede();
        readers.advance(quick, Epoch(3));
        assert_eq!(readers.oldest(), Epoch(1));
        readers.advance(slow, Epoch(0));
        assert_eq!(readers.oldest(), Epoch(1), "never back");
        readers.advance(slow, Epoch(u64::MAX));
        assert_eq!(readers.oldest(), Epoch(3), "never ahead of the present");
        readers.close(slow);
        readers.close(quick);
        assert_eq!((readers.has(slow), readers.oldest()), (false, Epoch(3)));
    }

    #[test]
    fn a_lease_of_another_life_is_none() {
        let mut readers = Readers::new(7);
        let lease = readers.open().unwrap();
        readers.supersede();
        let other = LeaseId { life: 6, ..lease };
        readers.advance(other, Epoch(1));
        readers.close(other);
        assert_eq!((readers.has(other), readers.has(lease), readers.oldest()), (false, true, Epoch(0)));
    }

    #[test]
    fn leases_are_bounded() {
        let mut readers = Readers::new(1);
        assert!((0..LEASES_MAX).all(|_| readers.open().is_some()));
        assert_eq!(readers.open(), None);
    }
}
