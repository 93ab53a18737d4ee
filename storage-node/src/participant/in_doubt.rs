//! Queues the transactions that wait to be ended, because their coordinator is silent (`endings`).
//!
//! Invariants
//! - Each transaction is in the queue once. The queue is bounded by the maximum number of unsettled
//!   transactions.
//! - Transactions are taken in turn, so one that cannot be ended does not block the others.

use std::{collections::BTreeMap, ops::Bound};

use rackscan_ramp::{message::ParticipantId, timestamp::Timestamp};

use crate::limits::IN_DOUBT_MAX;

/// Transactions with all of their participants.
#[derive(Debug, Default)]
pub(crate) struct InDoubt {
    waiting: BTreeMap<Timestamp, Vec<ParticipantId>>,
    /// The last one that was taken.
    taken: Option<Timestamp>,
}

impl InDoubt {
    /// Adds a transaction. `is_open` tells whether one is still open: if the queue is full, those
    /// that have ended meanwhile are removed.
    pub(crate) fn add(
        &mut self,
        timestamp: Timestamp,
        participants: Vec<ParticipantId>,
        is_open: impl Fn(Timestamp) -> bool,
    ) {
        if self.waiting.len() >= IN_DOUBT_MAX {
            self.waiting.retain(|timestamp, _| is_open(*timestamp));
        }
        if self.waiting.len() < IN_DOUBT_MAX {
            self.waiting.insert(timestamp, participants);
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes the next one: the oldest after the last one that was taken, or the oldest.
    pub(crate) fn take(&mut self) -> Option<(Timestamp, Vec<ParticipantId>)> {
        let behind = self.taken.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.waiting.range((behind, Bound::Unbounded)).next().map(|(timestamp, _)| *timestamp);
        let next = next.or_else(|| self.waiting.first_key_value().map(|(timestamp, _)| *timestamp))?;
        self.taken = Some(next);
        self.waiting.remove(&next).map(|participants| (next, participants))
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
        let mut in_doubt = InDoubt::default();
        for time in [5, 3, 4, 3] {
            in_doubt.add(at(time), vec![ParticipantId(1)], |_| true);
        }
        assert_eq!(in_doubt.take(), Some((at(3), vec![ParticipantId(1)])));
        in_doubt.add(at(3), vec![ParticipantId(1)], |_| true);
        let taken: Vec<u64> =
            std::iter::from_fn(|| in_doubt.take()).map(|(timestamp, _)| timestamp.time).collect();
        assert_eq!(taken, [4, 5, 3], "who comes again is last");
    }

    #[test]
    fn those_that_have_ended_make_room() {
        let mut in_doubt = InDoubt::default();
        (0..IN_DOUBT_MAX as u64 + 1)
            .for_each(|time| in_doubt.add(at(time), vec![], |timestamp| timestamp.time > 9));
        assert_eq!(in_doubt.len(), IN_DOUBT_MAX + 1 - 10);
        assert_eq!(in_doubt.take(), Some((at(10), vec![])));
    }
}
