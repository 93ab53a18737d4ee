//! What must be done to make a store anew?

use super::{Store, chain::Chain};
use crate::{
    item::{Key, Metadata, Version},
    message::{Guard, Part},
    slot::SlotMemory,
    timestamp::Timestamp,
};

/// A store as a list of what must be done to make it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// All unknown transactions up to here are refused.
    pub floor: Timestamp,
    /// These are refused, too.
    pub refused: Vec<Timestamp>,
    /// These are committed in all of their homes.
    pub ended: Vec<Timestamp>,
    /// Committed versions, and without items the transactions that may not have ended elsewhere.
    pub committed: Vec<Part>,
    /// Transactions in doubt.
    pub prepared: Vec<Part>,
}

impl<M: SlotMemory> Store<M> {
    /// Parts from which this store can be made anew, with whether each is committed: of every key
    /// the newest committed version, and all that is in doubt. To be put before a log's later
    /// records. Superseded versions are left out: their readers' leases end with the life.
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
            let (homes, guard) = (transaction.homes.clone(), transaction.guard);
            let part = Part { timestamp, homes, guard, metadata, items: items.collect() };
            if transaction.committed { committed.push(part) } else { prepared.push(part) }
        }
        let (refused, ended) = (self.outcomes.refused().collect(), self.outcomes.ended().collect());
        Snapshot { floor: self.outcomes.floor(), refused, ended, committed, prepared }
    }
}

/// A version of which nobody will ask whether it is committed.
fn settled(key: &Key, version: &Version) -> Part {
    let items = vec![(key.clone(), version.value.clone())];
    let (timestamp, metadata) = (version.timestamp, version.metadata.clone());
    Part { timestamp, homes: Vec::new(), guard: Guard::Open, metadata, items }
}
