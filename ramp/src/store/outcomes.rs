//! Remembers the votes and outcomes of transactions, as far as this participant knows them.
//!
//! ```text
//! state      call           next state
//! unknown    prepare        prepared
//! unknown    refuse         refused
//! prepared   commit         committed
//! prepared   refuse         refused
//! committed  settle         unknown: no participant or coordinator will ask for it any more
//! committed  end            ended: committed at all participants; the coordinator may not know
//! ended      settle         unknown
//! refused or ended, if too many are remembered: the oldest are forgotten, and the floor is raised to their timestamps.
//!            Unknown transactions up to the floor are never prepared: their vote is `Forgotten`.
//! ```
//!
//! Invariants
//! - A vote never changes: a refused transaction is never prepared, a committed one never refused.
//! - A committed transaction is remembered until all of its participants have committed it, because
//!   until then one of them may ask for its outcome. If they came to that outcome without the
//!   coordinator, it is remembered until the coordinator confirms that it knows it, because the
//!   coordinator may ask, too.
//! - The number of remembered transactions is bounded, by the floor.
//! - A participant in doubt may take `Forgotten` for a refusal, because a transaction that has
//!   ended everywhere leaves no participant in doubt. A coordinator may not.

use crate::{
    item::Key,
    limits::{ENDED_MAX, REFUSALS_MAX, UNSETTLED_MAX},
    message::{Guard, ParticipantId, Refusal, Vote},
    timestamp::Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};

/// What a participant knows of a transaction that it has prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// All of its participants.
    pub participants: Vec<ParticipantId>,
    /// The keys that it wrote here.
    pub keys: Vec<Key>,
    /// What the participant relies on.
    pub guard: Guard,
    /// Whether it is known to be committed.
    pub committed: bool,
}

/// The votes and outcomes that a participant knows.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    known: BTreeMap<Timestamp, Transaction>,
    /// The number of known transactions that are not committed.
    in_doubt: usize,
    refused: BTreeSet<Timestamp>,
    ended: BTreeSet<Timestamp>,
    floor: Timestamp,
}

impl Outcomes {
    pub(crate) fn get(&self, timestamp: Timestamp) -> Option<&Transaction> {
        self.known.get(&timestamp)
    }

    pub(crate) fn in_doubt(&self) -> usize {
        self.in_doubt
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (Timestamp, &Transaction)> {
        self.known.iter().map(|(timestamp, transaction)| (*timestamp, transaction))
    }

    pub(crate) fn refused(&self) -> impl Iterator<Item = Timestamp> {
        self.refused.iter().copied()
    }

    pub(crate) fn ended(&self) -> impl Iterator<Item = Timestamp> {
        self.ended.iter().copied()
    }

    pub(crate) fn floor(&self) -> Timestamp {
        self.floor
    }

    /// Whether an unknown transaction may be prepared.
    pub(crate) fn may_prepare(&self, timestamp: Timestamp) -> Result<(), Refusal> {
        if self.refused.contains(&timestamp) {
            return Err(Refusal::Promised { timestamp });
        }
        if self.ended.contains(&timestamp) {
            return Err(Refusal::Collision { timestamp });
        }
        if timestamp <= self.floor {
            return Err(Refusal::Behind { timestamp, floor: self.floor });
        }
        if self.known.len() >= UNSETTLED_MAX {
            return Err(Refusal::Unsettled { found: self.known.len() as u64 });
        }
        Ok(())
    }

    pub(crate) fn insert(&mut self, timestamp: Timestamp, transaction: Transaction) {
        self.in_doubt += usize::from(!transaction.committed);
        let replaced = self.known.insert(timestamp, transaction);
        self.in_doubt -= usize::from(replaced.is_some_and(|replaced| !replaced.committed));
    }

    /// Marks a prepared transaction as committed. Returns its keys, or `None` if it was not
    /// prepared.
    pub(crate) fn commit(&mut self, timestamp: Timestamp) -> Option<Vec<Key>> {
        let transaction = self.known.get_mut(&timestamp).filter(|transaction| !transaction.committed)?;
        transaction.committed = true;
        self.in_doubt -= 1;
        Some(std::mem::take(&mut transaction.keys))
    }

    /// Promises never to prepare a transaction. Returns what was prepared of it, which no longer
    /// counts.
    pub(crate) fn refuse(&mut self, timestamp: Timestamp) -> Option<Transaction> {
        let prepared = self.known.remove(&timestamp);
        self.in_doubt -= usize::from(prepared.as_ref().is_some_and(|prepared| !prepared.committed));
        if timestamp > self.floor {
            self.refused.insert(timestamp);
        }
        while self.refused.len() > REFUSALS_MAX {
            self.raise(self.refused.first().copied().unwrap_or_default());
        }
        prepared
    }

    /// Raises the floor: unknown transactions up to it are never prepared, and promises and ended
    /// transactions are individually remembered only above it.
    pub(crate) fn raise(&mut self, floor: Timestamp) {
        self.floor = self.floor.max(floor);
        for timestamps in [&mut self.refused, &mut self.ended] {
            while timestamps.first().is_some_and(|first| *first <= self.floor) {
                timestamps.pop_first();
            }
        }
    }

    /// Forgets a committed transaction. Returns whether there was one.
    pub(crate) fn settle(&mut self, timestamp: Timestamp) -> bool {
        let committed = self.known.get(&timestamp).is_some_and(|transaction| transaction.committed);
        committed && self.known.remove(&timestamp).is_some() || self.ended.remove(&timestamp)
    }

    /// Reduces what is remembered of a committed transaction to its timestamp. Returns whether more
    /// was remembered.
    pub(crate) fn end(&mut self, timestamp: Timestamp) -> bool {
        let committed = self.known.get(&timestamp).is_some_and(|transaction| transaction.committed);
        if committed {
            self.known.remove(&timestamp);
            self.remember_ended(timestamp);
        }
        committed
    }

    /// Records that a transaction is committed at all of its participants.
    pub(crate) fn remember_ended(&mut self, timestamp: Timestamp) {
        if timestamp > self.floor {
            self.ended.insert(timestamp);
        }
        while self.ended.len() > ENDED_MAX {
            self.raise(self.ended.first().copied().unwrap_or_default());
        }
    }

    /// The vote on a transaction; `None` if there was none.
    pub(crate) fn vote(&self, timestamp: Timestamp) -> Option<Vote> {
        match self.known.get(&timestamp) {
            Some(transaction) if transaction.committed => Some(Vote::Committed),
            Some(_) => Some(Vote::Prepared),
            None if self.ended.contains(&timestamp) => Some(Vote::Committed),
            None if self.refused.contains(&timestamp) => Some(Vote::Refused),
            None => (timestamp <= self.floor).then_some(Vote::Forgotten),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timestamp::ClientId;

    fn at(time: u64) -> Timestamp {
        Timestamp { time, client: ClientId(1) }
    }

    #[test]
    fn promises_beyond_the_bound_are_kept_in_bulk() {
        let mut outcomes = Outcomes::default();
        (1..=REFUSALS_MAX as u64 + 2).for_each(|time| drop(outcomes.refuse(at(10 * time))));
        assert_eq!((outcomes.refused().count(), outcomes.floor()), (REFUSALS_MAX, at(20)));
        for time in [5, 10, 20] {
            assert_eq!(
                outcomes.may_prepare(at(time)),
                Err(Refusal::Behind { timestamp: at(time), floor: at(20) })
            );
            assert_eq!(outcomes.vote(at(time)), Some(Vote::Forgotten));
        }
        assert_eq!(outcomes.may_prepare(at(30)), Err(Refusal::Promised { timestamp: at(30) }));
        assert_eq!((outcomes.may_prepare(at(31)), outcomes.vote(at(31))), (Ok(()), None));
    }

    #[test]
    fn what_ended_without_its_coordinator_is_remembered_until_that_knows() {
        let mut outcomes = Outcomes::default();
        let transaction = Transaction {
            participants: vec![ParticipantId(0)],
            keys: Vec::new(),
            guard: Guard::Open,
            committed: false,
        };
        for time in 1..=ENDED_MAX as u64 + 1 {
            outcomes.insert(at(time), transaction.clone());
            assert!(!outcomes.end(at(time)), "it is in doubt");
            outcomes.commit(at(time));
            assert!(outcomes.end(at(time)));
        }
        let votes = [1, 2, 3].map(|time| outcomes.vote(at(time)));
        assert_eq!(votes, [Some(Vote::Forgotten), Some(Vote::Committed), Some(Vote::Committed)]);
        assert_eq!(outcomes.may_prepare(at(2)), Err(Refusal::Collision { timestamp: at(2) }));
        assert!(outcomes.settle(at(2)));
        assert_eq!(outcomes.vote(at(2)), None);
    }

    #[test]
    fn what_did_not_end_everywhere_is_bounded_and_known() {
        let mut outcomes = Outcomes::default();
        let transaction = Transaction {
            participants: vec![ParticipantId(0)],
            keys: Vec::new(),
            guard: Guard::Open,
            committed: false,
        };
        (1..=UNSETTLED_MAX as u64).for_each(|time| outcomes.insert(at(time), transaction.clone()));
        let full = Err(Refusal::Unsettled { found: UNSETTLED_MAX as u64 });
        assert_eq!(outcomes.may_prepare(at(1 << 40)), full);
        assert!(!outcomes.settle(at(1)), "it is in doubt");
        assert_eq!(outcomes.commit(at(1)), Some(Vec::new()));
        assert_eq!(outcomes.commit(at(1)), None, "once");
        assert!(outcomes.settle(at(1)));
        assert_eq!(outcomes.may_prepare(at(1 << 40)), Ok(()));
    }
}
