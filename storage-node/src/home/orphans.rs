//! Which transactions are in doubt here and have no coordinator any more?
//!
//! Whoever ends them asks their other homes.
//!
//! Invariants
//! - Each is named once; there are never more than may be in doubt.

use std::collections::BTreeMap;

use rackscan_ramp::{message::HomeId, stamp::Stamp};

use crate::limits::ORPHANS_MAX;

/// Transactions with all of their homes.
#[derive(Debug, Default)]
pub(crate) struct Orphans(BTreeMap<Stamp, Vec<HomeId>>);

impl Orphans {
    /// Adds one. `in_doubt` tells whether one still is: where there are too many, those that have ended meanwhile go.
    pub(crate) fn add(&mut self, stamp: Stamp, homes: Vec<HomeId>, in_doubt: impl Fn(Stamp) -> bool) {
        if self.0.len() >= ORPHANS_MAX {
            self.0.retain(|stamp, _| in_doubt(*stamp));
        }
        if self.0.len() < ORPHANS_MAX {
            self.0.insert(stamp, homes);
        }
    }

    /// How many there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes at most so many, the oldest first.
    pub(crate) fn take(&mut self, most: usize) -> Vec<(Stamp, Vec<HomeId>)> {
        (0..most).map_while(|_| self.0.pop_first()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackscan_ramp::stamp::ClientId;

    fn at(time: u64) -> Stamp {
        Stamp { time, client: ClientId(1) }
    }

    #[test]
    fn the_oldest_are_taken_first_and_each_once() {
        let mut orphans = Orphans::default();
        for time in [5, 3, 4, 3] {
            orphans.add(at(time), vec![HomeId(1)], |_| true);
        }
        assert_eq!(orphans.take(2), [(at(3), vec![HomeId(1)]), (at(4), vec![HomeId(1)])]);
        assert_eq!(orphans.take(9).len(), 1);
    }

    #[test]
    fn those_that_have_ended_make_room() {
        let mut orphans = Orphans::default();
        (0..ORPHANS_MAX as u64 + 1).for_each(|time| orphans.add(at(time), vec![], |stamp| stamp.time > 9));
        assert_eq!(orphans.len(), ORPHANS_MAX + 1 - 10);
        assert_eq!(orphans.take(1), [(at(10), vec![])]);
    }
}
