//! The version store of a participant: which versions of each key it stores, and which of them
//! readers see.
//!
//! ```text
//! key -> chain of versions, by timestamp:   superseded .. | newest committed | prepared ..
//! key -> slot: a copy of the newest committed version, which readers may read one-sidedly
//! ```
//!
//! - `admission`: whether the part of a transaction that lies here can be prepared, given the
//!   stored versions of its keys. `chain`: the versions of one key.
//! - `outcomes`: votes and outcomes of transactions. `readers`: leases, which protect superseded
//!   versions.
//! - `snapshot`: the store as records for the beginning of a new log.
//!
//! Invariants
//! - The newest committed version of a key only gets newer: a commit with an older timestamp adds a
//!   superseded version.
//! - A slot is valid if and only if it contains the newest committed version and no newer version
//!   is prepared.
//! - Preparing is all or nothing: a refusal leaves the store unchanged.
//! - A key prefix can be closed: it takes no more writes, and then all its keys are dropped
//!   ([`crate::closing`]). No other newest committed version is ever dropped.
//! - Versions take no more bytes than the budget, except those of keys that close a
//!   prefix. A superseded version is kept while a lease protects it, and dropped soon after.
//! - The store is deterministic: the same calls build the same store, so a log can be replayed.

mod admission;
mod chain;
mod outcomes;
mod readers;
mod snapshot;

pub use outcomes::Transaction;
pub use snapshot::Snapshot;

use crate::{
    closing::{Closing, Closings, prefix_of},
    item::{Key, Value, Version},
    limits::{BESIDE_BYTES_MAX, BESIDE_VERSIONS_MAX, CLOSING_BYTES_MAX},
    message::{Epoch, Found, LeaseId, Part, Refusal, Vote},
    slot::{SlotArea, SlotMemory},
    timestamp::Timestamp,
};
use chain::{Chain, version_bytes};
use foldhash::fast::RandomState;
use outcomes::Outcomes;
use readers::Readers;
use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    ops::Bound,
};

/// The maximum number of superseded versions that a commit drops, so that garbage is collected
/// while others write.
const COLLECTED_PER_COMMIT: usize = 8;

/// The size of a store, and the life of its participant.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Bytes that versions may take, not counting slots.
    pub budget_bytes: usize,
    /// The life of the participant: each start has another number.
    pub life: u64,
}

/// Counters of what a store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStatus {
    /// Keys.
    pub keys: usize,
    /// Versions of them.
    pub versions: usize,
    /// Bytes of values.
    pub value_bytes: usize,
    /// Bytes of timestamps, write sets and filters.
    pub metadata_bytes: usize,
    /// All bytes that count against the budget.
    pub used_bytes: usize,
    /// Bytes of superseded versions.
    pub superseded_bytes: usize,
    /// Leases that protect versions.
    pub leases: usize,
    /// Transactions that are prepared and not known to have ended.
    pub in_doubt: usize,
}

/// The result of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// It is visible from now on.
    Now,
    /// It was committed before, or is so old that it was forgotten.
    Before,
}

/// A version that was superseded, and when.
#[derive(Debug)]
struct Superseded {
    epoch: Epoch,
    key: Key,
    timestamp: Timestamp,
}

/// The versions of one participant.
#[derive(Debug)]
pub struct Store<M> {
    chains: HashMap<Key, Chain, RandomState>,
    /// The keys of the chains, in order, for scans.
    keys: BTreeSet<Key>,
    area: SlotArea<M>,
    outcomes: Outcomes,
    readers: Readers,
    superseded: VecDeque<Superseded>,
    closings: Closings,
    newest: Timestamp,
    budget_bytes: usize,
    status: StoreStatus,
}

impl<M: SlotMemory> Store<M> {
    /// An empty store with slots in `memory`, which is zeroed.
    pub fn new(options: StoreOptions, memory: M) -> Self {
        Self {
            chains: HashMap::default(),
            keys: BTreeSet::new(),
            area: SlotArea::new(memory, options.life),
            outcomes: Outcomes::default(),
            readers: Readers::new(options.life),
            superseded: VecDeque::new(),
            closings: Closings::default(),
            newest: Timestamp::FIRST,
            budget_bytes: options.budget_bytes,
            status: StoreStatus::default(),
        }
    }

    /// The area of the slots.
    pub fn area(&self) -> &SlotArea<M> {
        &self.area
    }

    /// The highest timestamp that anything was written with.
    #[must_use]
    pub fn newest(&self) -> Timestamp {
        self.newest
    }

    /// What it holds.
    #[must_use]
    pub fn status(&self) -> StoreStatus {
        let (keys, leases) = (self.chains.len(), self.readers.count());
        StoreStatus { keys, leases, in_doubt: self.outcomes.in_doubt(), ..self.status }
    }

    /// Votes on a transaction: adds its versions, and invalidates the slots of its keys. `false` if
    /// this was done before.
    ///
    /// # Errors
    /// The reason of the refusal; nothing was changed.
    pub fn prepare(&mut self, part: &Part) -> Result<bool, Refusal> {
        part.check()?;
        let timestamp = part.timestamp;
        if let Some(known) = self.outcomes.get(timestamp) {
            let same = known.committed || known.keys.iter().eq(part.items.iter().map(|(key, _)| key));
            return if same { Ok(false) } else { Err(Refusal::Collision { timestamp }) };
        }
        self.outcomes.may_prepare(timestamp)?;
        let taken = |(key, _): &(Key, Value)| self.chains.get(key).is_some_and(|chain| chain.has(timestamp));
        if timestamp == Timestamp::FIRST || part.items.iter().any(taken) {
            return Err(Refusal::Collision { timestamp });
        }
        self.make_room(part)?;
        self.insert(part);
        Ok(true)
    }

    /// Makes room for the versions of a part by dropping unprotected superseded versions.
    fn make_room(&mut self, part: &Part) -> Result<(), Refusal> {
        let bytes = |(key, value): &(Key, Value)| {
            let known = self.chains.contains_key(key);
            version_bytes(&part.metadata, value) + if known { 0 } else { Chain::empty_bytes(key) }
        };
        let wanted: usize = part.items.iter().map(bytes).sum();
        // Closing keys may exceed the budget: a full store can only be emptied by closing prefixes.
        let closes = part.items.iter().all(|(key, _)| prefix_of(key).is_some());
        let budget_bytes = self.budget_bytes + if closes { CLOSING_BYTES_MAX } else { 0 };
        if self.status.used_bytes + wanted > budget_bytes {
            self.collect(usize::MAX);
        }
        if self.status.used_bytes + wanted > budget_bytes {
            return Err(Refusal::Full {
                wanted: wanted as u64,
                used: self.status.used_bytes as u64,
                budget: self.budget_bytes as u64,
                held: self.status.superseded_bytes as u64,
            });
        }
        Ok(())
    }

    fn add(&mut self, key: &Key, version: Version) {
        let status = &mut self.status;
        status.versions += 1;
        status.value_bytes += version.value.len();
        status.metadata_bytes += version.metadata_bytes();
        status.used_bytes += version_bytes(&version.metadata, &version.value);
        let chain = self.chains.entry(key.clone()).or_insert_with(|| {
            status.used_bytes += Chain::empty_bytes(key);
            self.keys.insert(key.clone());
            Chain::default()
        });
        self.closings.added(key);
        chain.prepare(version);
        chain.refresh(key, &mut self.area);
    }

    /// Makes a transaction visible, which all of its participants have prepared.
    pub fn commit(&mut self, timestamp: Timestamp) -> Commit {
        let Some(keys) = self.outcomes.commit(timestamp) else { return Commit::Before };
        for key in keys {
            let chain = self.chains.get_mut(&key).expect("a prepared key has a chain");
            if let Some((timestamp, bytes)) = chain.commit(timestamp) {
                let epoch = self.readers.supersede();
                self.status.superseded_bytes += bytes;
                self.superseded.push_back(Superseded { epoch, key: key.clone(), timestamp });
            }
            chain.refresh(&key, &mut self.area);
            if let Some(prefix) = prefix_of(&key) {
                let latest = chain.latest().map(|version| Closing::of(&version.value));
                if latest == Some(Closing::Emptied) && self.closings.empty(prefix) {
                    self.empty(prefix);
                }
            }
        }
        self.collect(COLLECTED_PER_COMMIT);
        Commit::Now
    }

    /// Whether a key lies under a closed prefix, and takes no new versions.
    #[must_use]
    pub fn is_closed(&self, key: &Key) -> bool {
        self.closings.covers(key)
    }

    /// Drops all committed versions under a prefix, as soon as no lease protects them.
    fn empty(&mut self, prefix: &[u8]) {
        let Ok(first) = Key::new(prefix) else { return };
        let keys = self.keys.range(first..).take_while(|key| key.bytes().starts_with(prefix));
        for key in keys {
            let Some(latest) = self.chains.get(key).and_then(Chain::latest) else { continue };
            let epoch = self.readers.supersede();
            self.status.superseded_bytes += version_bytes(&latest.metadata, &latest.value);
            self.superseded.push_back(Superseded { epoch, key: key.clone(), timestamp: latest.timestamp });
        }
    }

    /// Empties all emptied prefixes again, after recovery: a snapshot may contain versions that had
    /// not been collected. Only for stores without readers.
    pub(crate) fn empty_again(&mut self) {
        self.collect(usize::MAX);
        let prefixes: Vec<Vec<u8>> = self.closings.emptied().map(<[u8]>::to_vec).collect();
        prefixes.iter().for_each(|prefix| self.empty(prefix));
        self.collect(usize::MAX);
    }

    /// Writes a committed part at once, without a vote: for writes without concurrency control, and
    /// for the committed versions of a snapshot. If the part names participants, the transaction
    /// may not have ended at the others, and is remembered.
    ///
    /// # Errors
    /// The reason of the refusal; nothing was changed.
    pub fn put(&mut self, part: &Part) -> Result<(), Refusal> {
        part.check()?;
        let timestamp = part.timestamp;
        let taken = |(key, _): &(Key, Value)| self.chains.get(key).is_some_and(|chain| chain.has(timestamp));
        if self.outcomes.get(timestamp).is_some() || part.items.iter().any(taken) {
            return Err(Refusal::Collision { timestamp });
        }
        self.make_room(part)?;
        self.insert(part);
        self.commit(timestamp);
        if part.participants.is_empty() {
            self.outcomes.settle(timestamp);
        }
        Ok(())
    }

    fn insert(&mut self, part: &Part) {
        let timestamp = part.timestamp;
        self.newest = self.newest.max(timestamp);
        for (key, value) in &part.items {
            let version = Version { timestamp, metadata: part.metadata.clone(), value: value.clone() };
            self.add(key, version);
        }
        let keys = part.items.iter().map(|(key, _)| key.clone()).collect();
        let transaction = Transaction {
            participants: part.participants.clone(),
            keys,
            guard: part.guard,
            committed: false,
        };
        self.outcomes.insert(timestamp, transaction);
    }

    /// Promises never to prepare a transaction, and discards what was prepared of it. `None` if it
    /// is committed, which a correct caller never refuses.
    pub fn refuse(&mut self, timestamp: Timestamp) -> Option<Vote> {
        if self.outcomes.vote(timestamp) == Some(Vote::Committed) {
            return None;
        }
        let keys = self.outcomes.refuse(timestamp).map(|transaction| transaction.keys).unwrap_or_default();
        for key in keys {
            self.remove(&key, timestamp);
        }
        Some(Vote::Refused)
    }

    /// The vote on a transaction; `None` if there was none yet.
    #[must_use]
    pub fn vote(&self, timestamp: Timestamp) -> Option<Vote> {
        self.outcomes.vote(timestamp)
    }

    /// A transaction that was prepared or committed here and may not have ended at other
    /// participants.
    #[must_use]
    pub fn transaction(&self, timestamp: Timestamp) -> Option<&Transaction> {
        self.outcomes.get(timestamp)
    }

    /// Refuses all unknown transactions up to `floor`, from now on.
    pub fn raise_floor(&mut self, floor: Timestamp) {
        self.outcomes.raise(floor);
    }

    /// Forgets the outcome of a transaction, because all of its participants and its coordinator
    /// know it. Returns whether it was known as committed here.
    pub fn settle(&mut self, timestamp: Timestamp) -> bool {
        self.outcomes.settle(timestamp)
    }

    /// All transactions that were prepared or committed here and may not have ended at all
    /// participants, by timestamp.
    pub fn unsettled(&self) -> impl Iterator<Item = (Timestamp, &Transaction)> {
        self.outcomes.all()
    }

    /// Reduces what is remembered of a committed transaction to its timestamp, because all of its
    /// participants know the outcome. Returns whether more was remembered.
    pub fn end(&mut self, timestamp: Timestamp) -> bool {
        self.outcomes.end(timestamp)
    }

    /// Records that a transaction is committed at all of its participants.
    pub fn remember_ended(&mut self, timestamp: Timestamp) {
        self.outcomes.remember_ended(timestamp);
    }

    /// The newest committed version of a key, and newer prepared ones.
    #[must_use]
    pub fn get(&self, key: &Key) -> Found {
        let Some(chain) = self.chains.get(key) else {
            return Found { version: Version::first(), beside: Vec::new(), place: None };
        };
        let version = chain.latest().cloned().unwrap_or_else(Version::first);
        let mut bytes = 0;
        let newest = chain.newer(version.timestamp).rev().take(BESIDE_VERSIONS_MAX);
        let mut beside: Vec<Version> = newest
            .take_while(|version| {
                bytes += version.value.len();
                bytes <= BESIDE_BYTES_MAX
            })
            .cloned()
            .collect();
        beside.reverse();
        Found { version, beside, place: chain.place() }
    }

    /// The timestamp of the newest committed version of a key.
    #[must_use]
    pub fn latest(&self, key: &Key) -> Timestamp {
        let latest = self.chains.get(key).and_then(Chain::latest);
        latest.map_or(Timestamp::FIRST, |version| version.timestamp)
    }

    /// The newest version of a key, prepared or committed, that one of these transactions wrote.
    #[must_use]
    pub fn among(&self, key: &Key, timestamps: &[Timestamp]) -> Option<Version> {
        self.chains
            .get(key)?
            .newer(Timestamp::FIRST)
            .rev()
            .find(|version| timestamps.contains(&version.timestamp))
            .cloned()
    }

    /// The keys that begin with `prefix` and come after `after`, in order, each with its newest
    /// committed version and all newer prepared ones.
    pub fn scan<'s>(
        &'s self,
        prefix: &'s [u8],
        after: Option<&Key>,
    ) -> impl Iterator<Item = (Key, Found)> + use<'s, M> {
        // An empty or too long prefix is not a key. The scan then begins at the first key of the
        // store, and finds nothing for a prefix that is too long.
        let first = Key::new(prefix).ok();
        let from = match (after, &first) {
            (Some(after), Some(first)) if after < first => Bound::Included(first),
            (Some(after), _) => Bound::Excluded(after),
            (None, Some(first)) => Bound::Included(first),
            (None, None) => Bound::Unbounded,
        };
        let keys = self.keys.range::<Key, _>((from, Bound::Unbounded));
        keys.take_while(move |key| key.bytes().starts_with(prefix)).filter_map(|key| {
            let chain = self.chains.get(key)?;
            let version = chain.latest().cloned().unwrap_or_else(Version::first);
            let beside = chain.newer(version.timestamp).cloned().collect();
            Some((key.clone(), Found { version, beside, place: chain.place() }))
        })
    }

    /// Grants a lease: versions that are superseded from now on stay until it is advanced or
    /// closed. `None` if there are too many leases.
    pub fn open_lease(&mut self) -> Option<LeaseId> {
        self.readers.open()
    }

    /// Whether there is such a lease.
    #[must_use]
    pub fn has_lease(&self, lease: LeaseId) -> bool {
        self.readers.has(lease)
    }

    /// Moves a lease on: the reader has finished all reads that began before it was told `epoch`.
    pub fn advance_lease(&mut self, lease: LeaseId, epoch: Epoch) {
        self.readers.advance(lease, epoch);
    }

    /// Ends a lease, because the reader has closed it or is lost.
    pub fn close_lease(&mut self, lease: LeaseId) {
        self.readers.close(lease);
    }

    /// The current epoch, to be told to readers.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.readers.now()
    }

    /// Drops up to `versions_max` superseded versions that no lease protects. Returns how many.
    pub fn collect(&mut self, versions_max: usize) -> usize {
        let oldest = self.readers.oldest();
        let mut dropped = 0;
        while dropped < versions_max
            && let Some(next) = self.superseded.pop_front_if(|next| next.epoch <= oldest)
        {
            self.status.superseded_bytes -= self.remove(&next.key, next.timestamp);
            dropped += 1;
        }
        dropped
    }

    /// Removes a version. Returns the bytes that it took: none if it was removed before, as some
    /// are when a prefix is emptied again after recovery.
    fn remove(&mut self, key: &Key, timestamp: Timestamp) -> usize {
        let Some(chain) = self.chains.get_mut(key) else { return 0 };
        let Some(version) = chain.remove(timestamp) else { return 0 };
        let bytes = version_bytes(&version.metadata, &version.value);
        self.status.versions -= 1;
        self.status.value_bytes -= version.value.len();
        self.status.metadata_bytes -= version.metadata_bytes();
        self.status.used_bytes -= bytes;
        chain.refresh(key, &mut self.area);
        self.closings.removed(key);
        if chain.is_empty() {
            chain.give_up(&mut self.area);
            self.status.used_bytes -= Chain::empty_bytes(key);
            self.chains.remove(key);
            self.keys.remove(key);
        }
        bytes
    }
}

#[cfg(test)]
mod tests;
