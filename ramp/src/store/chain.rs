//! The versions of one key, and the slot of the newest committed one.
//!
//! Invariants
//! - Versions are ordered by timestamp, and each timestamp occurs once.
//! - The newest committed version is never removed, except under an emptied prefix. All other
//!   committed versions are superseded.
//! - The slot, if there is one, contains the version whose timestamp is `published`.

use crate::{
    item::{Key, Metadata, Value, Version},
    limits::{KEY_OVERHEAD_BYTES, VERSION_OVERHEAD_BYTES},
    slot::{Place, Slot, SlotArea, SlotMemory},
    timestamp::Timestamp,
};

#[derive(Debug)]
struct StoredVersion {
    version: Version,
    committed: bool,
}

/// The versions of one key.
#[derive(Debug, Default)]
pub(super) struct Chain {
    versions: Vec<StoredVersion>,
    slot: Option<Slot>,
    published: Timestamp,
}

/// Bytes that a version takes in the budget.
pub(super) fn version_bytes(metadata: &Metadata, value: &Value) -> usize {
    VERSION_OVERHEAD_BYTES + metadata.len() + value.len()
}

impl Chain {
    /// Bytes that a chain takes in the budget beside its versions.
    pub(super) fn empty_bytes(key: &Key) -> usize {
        KEY_OVERHEAD_BYTES + key.bytes().len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }

    fn position(&self, timestamp: Timestamp) -> Result<usize, usize> {
        self.versions.binary_search_by_key(&timestamp, |held| held.version.timestamp)
    }

    fn latest_position(&self) -> Option<usize> {
        self.versions.iter().rposition(|held| held.committed)
    }

    pub(super) fn has(&self, timestamp: Timestamp) -> bool {
        self.position(timestamp).is_ok()
    }

    pub(super) fn at(&self, timestamp: Timestamp) -> Option<&Version> {
        self.position(timestamp).ok().map(|position| &self.versions[position].version)
    }

    /// The newest committed version.
    pub(super) fn latest(&self) -> Option<&Version> {
        self.latest_position().map(|position| &self.versions[position].version)
    }

    /// The timestamp of the newest version, prepared or committed, and whether it is committed.
    pub(super) fn newest(&self) -> Option<(Timestamp, bool)> {
        self.versions.last().map(|held| (held.version.timestamp, held.committed))
    }

    /// The versions after a timestamp, ascending.
    pub(super) fn newer(&self, timestamp: Timestamp) -> impl DoubleEndedIterator<Item = &Version> {
        let from = self.versions.partition_point(|held| held.version.timestamp <= timestamp);
        self.versions[from..].iter().map(|held| &held.version)
    }

    /// The location of its slot.
    pub(super) fn place(&self) -> Option<Place> {
        self.slot.as_ref().map(Slot::place)
    }

    /// Adds a prepared version, whose timestamp no other one has.
    pub(super) fn prepare(&mut self, version: Version) {
        let position = self.position(version.timestamp).expect_err("a key has one version of a transaction");
        self.versions.insert(position, StoredVersion { version, committed: false });
    }

    /// Commits a version, which is prepared. Returns the timestamp and the bytes of the version
    /// that is superseded by that: the one that was the latest, or the committed one itself if it
    /// is older.
    pub(super) fn commit(&mut self, timestamp: Timestamp) -> Option<(Timestamp, usize)> {
        let position = self.position(timestamp).expect("a prepared version stays until it is committed");
        assert!(!self.versions[position].committed, "the version {timestamp} is committed twice");
        let before = self.latest_position();
        self.versions[position].committed = true;
        let superseded = &self.versions[before?.min(position)].version;
        Some((superseded.timestamp, version_bytes(&superseded.metadata, &superseded.value)))
    }

    pub(super) fn remove(&mut self, timestamp: Timestamp) -> Option<Version> {
        self.position(timestamp).ok().map(|position| self.versions.remove(position).version)
    }

    /// Frees its slot for other keys.
    pub(super) fn give_up<M: SlotMemory>(&mut self, area: &mut SlotArea<M>) {
        if let Some(slot) = self.slot.take() {
            area.give_up(slot);
        }
    }

    /// Updates the slot: it is valid if and only if the newest version is committed, and then holds
    /// that version.
    pub(super) fn refresh<M: SlotMemory>(&mut self, key: &Key, area: &mut SlotArea<M>) {
        let Some(latest) = self.latest_position() else { return };
        let newest = latest + 1 == self.versions.len();
        let latest = &self.versions[latest].version;
        match &mut self.slot {
            Some(slot) if !newest => area.invalidate(slot),
            Some(slot) if self.published == latest.timestamp => area.revalidate(slot),
            _ if !newest => {}
            _ => {
                self.slot = area.publish(self.slot.take(), key, latest);
                self.published = latest.timestamp;
            }
        }
    }
}
