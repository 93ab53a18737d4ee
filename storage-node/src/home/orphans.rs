//! The queue of transactions that wait to be ended.
//!
//! Invariants
//! - Each transaction is in the queue once; there are never more than may be unsettled.
//! - They are taken in turn, so one that cannot be ended does not block the others.

use std::{collections::BTreeMap, ops::Bound};

use rackscan_ramp::{message::HomeId, timestamp::Timestamp};

use crate::limits::ORPHANS_MAX;

/// Transactions with all of their participants.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    waiting: BTreeMap<Timestamp, Vec<HomeId>>,
    /// The last one that was taken.
    taken: Option<Timestamp>,
}

impl Orphans {
    /// Adds a transaction. `is_open` tells whether one is still open: if the queue is full, those
    /// that have ended meanwhile are removed.
    pub(crate) fn add(
        &mut self,
        timestamp: Timestamp,
        homes: Vec<HomeId>,
        is_open: impl Fn(Timestamp) -> bool,
    ) {
        if self.waiting.len() >= ORPHANS_MAX {
            self.waiting.retain(|timestamp, _| is_open(*timestamp));
        }
        if self.waiting.len() < ORPHANS_MAX {
            self.waiting.insert(timestamp, homes);
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes the next one: the oldest after the last one that was taken, or the oldest.
    pub(crate) fn take(&mut self) -> Option<(Timestamp, Vec<HomeId>)> {
        let behind = self.taken.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.waiting.range((behind, Bound::Unbounded)).next().map(|(timestamp, _)| *timestamp);
        let next = next.or_else(|| self.waiting.first_key_value().map(|(timestamp, _)| *timestamp))?;
        self.taken = Some(next);
        self.waiting.remove(&next).map(|homes| (next, homes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackscan_ramp::timestamp::ClientId;

    fn at(time: u64) -> Timestamp {
        Timestamp { time, client: ClientId(1) }
    }

    #[test]
    fn they_are_taken_in_turn_and_each_once() {
        let mut orphans = Orphans::default();
        for time in [5, 3, 4, 3] {
            orphans.add(at(time), vec![HomeId(1)], |_| true);
        }
        assert_eq!(orphans.take(), Some((at(3), vec![HomeId(1)])));
        orphans.add(at(3), vec![HomeId(1)], |_| true);
        let taken: Vec<u64> =
            std::iter::from_fn(|| orphans.take()).map(|(timestamp, _)| timestamp.time).collect();
        assert_eq!(taken, [4, 5, 3], "who comes again is last");
    }

    #[test]
    fn those_that_have_ended_make_room() {
        let mut orphans = Orphans::default();
        (0..ORPHANS_MAX as u64 + 1)
            .for_each(|time| orphans.add(at(time), vec![], |timestamp| timestamp.time > 9));
        assert_eq!(orphans.len(), ORPHANS_MAX + 1 - 10);
        assert_eq!(orphans.take(), Some((at(10), vec![])));
    }
}
