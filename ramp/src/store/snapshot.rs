//! Turns a store into the parts and timestamps from which it can be rebuilt.

use super::{Store, chain::Chain};
use crate::{
    item::{Key, Metadata, Version},
    message::{Guard, Part},
    slot::SlotMemory,
    timestamp::Timestamp,
};

/// The contents of a store, as the calls that make it anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// All unknown transactions up to this timestamp are refused.
    pub floor: Timestamp,
    /// Further refused transactions.
    pub refused: Vec<Timestamp>,
    /// Transactions that are committed at all of their participants.
    pub ended: Vec<Timestamp>,
    /// Committed versions, and, as parts that name their participants, committed transactions that
    /// may not have ended elsewhere.
    pub committed: Vec<Part>,
    /// Transactions in doubt.
    pub prepared: Vec<Part>,
}

impl<M: SlotMemory> Store<M> {
    /// The newest committed version of every key, and all transactions in doubt. A new log begins
    /// with them. Superseded versions are left out, because leases on them end with this life of
    /// the participant.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut committed = Vec::with_capacity(self.keys.len());
        for key in &self.keys {
            let latest = self.chains.get(key).and_then(Chain::latest);
            committed.extend(latest.map(|version| settled(key, version)));
        }
        let mut prepared = Vec::new();
        for (timestamp, transaction) in self.outcomes.all() {
            let versions =
                transaction.keys.iter().filter_map(|key| Some((key, self.chains.get(key)?.at(timestamp)?)));
            let versions: Vec<(&Key, &Version)> = versions.collect();
            let metadata =
                versions.first().map_or(Metadata::Timestamp, |(_, version)| version.metadata.clone());
            let items = versions.into_iter().map(|(key, version)| (key.clone(), version.value.clone()));
            let (participants, guard) = (transaction.participants.clone(), transaction.guard);
            let part = Part { timestamp, participants, guard, metadata, items: items.collect() };
            if transaction.committed { committed.push(part) } else { prepared.push(part) }
        }
        let (refused, ended) = (self.outcomes.refused().collect(), self.outcomes.ended().collect());
        Snapshot { floor: self.outcomes.floor(), refused, ended, committed, prepared }
    }
}

/// A version as the part of a transaction that has ended.
fn settled(key: &Key, version: &Version) -> Part {
    let items = vec![(key.clone(), version.value.clone())];
    let (timestamp, metadata) = (version.timestamp, version.metadata.clone());
    Part { timestamp, participants: Vec::new(), guard: Guard::Open, metadata, items }
}
