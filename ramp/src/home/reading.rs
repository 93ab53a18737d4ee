//! Who sees what the home has?
//!
//! Invariants
//! - Who has no lease of this life of the home reads nothing.
//! - Nobody gets a lease, or a value with a lock, before all that was recovered is durable; who
//!   would wait for that in vain is told why.

use super::{Held, Home, Peer, parts::in_parts};
use crate::{
    item::{Key, Version},
    limits::{REPLY_BYTES_MAX, SCAN_KEYS_MAX},
    message::{KeyRange, LeaseId, Refusal, Reply},
    slot::SlotMemory,
    timestamp::{ClientId, Timestamp},
};

impl<M: SlotMemory> Home<M> {
    pub(super) fn lease(&mut self, from: Peer, client: ClientId) {
        let epoch = self.store.epoch();
        let newest = self.store.newest();
        if let Some(why) = self.hides() {
            return self.replies.push((from, Reply::Refused { why }));
        }
        let lease = self.store.open_lease();
        if let Some(lease) = lease {
            self.leases.insert(lease, client);
        }
        let reply = lease.map_or(Reply::Unleased, |lease| Reply::Leased { lease, epoch, newest });
        self.show(from, reply);
    }

    pub(super) fn close(&mut self, lease: LeaseId) {
        self.leases.remove(&lease);
        self.store.close_lease(lease);
    }

    pub(super) fn get(&mut self, from: Peer, lease: LeaseId, keys: Vec<Key>) {
        let items = keys.into_iter().map(|key| (self.store.get(&key), key));
        let items = items.map(|(found, key)| (key.bytes().len() + found.bytes(), (key, found)));
        let parts = in_parts(items, REPLY_BYTES_MAX);
        let epoch = self.store.epoch();
        self.read(from, lease, parts, |items| Reply::Found { items, epoch });
    }

    pub(super) fn timestamps(&mut self, from: Peer, lease: LeaseId, keys: Vec<Key>) {
        let timestamp =
            |key: Key| (key.bytes().len() + Timestamp::ENCODED_BYTES, (key.clone(), self.store.latest(&key)));
        let parts = in_parts(keys.into_iter().map(timestamp), REPLY_BYTES_MAX);
        self.read(from, lease, parts, |timestamps| Reply::Latest { timestamps });
    }

    pub(super) fn among(&mut self, from: Peer, lease: LeaseId, keys: Vec<Key>, timestamps: &[Timestamp]) {
        let items = keys.into_iter().map(|key| (self.store.among(&key, timestamps), key));
        let bytes = |version: &Option<Version>| version.as_ref().map_or(0, Version::bytes);
        let items = items.map(|(version, key)| (key.bytes().len() + bytes(&version), (key, version)));
        let parts = in_parts(items, REPLY_BYTES_MAX);
        self.read(from, lease, parts, |items| Reply::Named { items });
    }

    pub(super) fn scan(&mut self, from: Peer, lease: LeaseId, range: &KeyRange) {
        if !self.store.has_lease(lease) {
            return self.replies.push((from, Reply::Unleased));
        }
        let most = usize::try_from(range.most).unwrap_or(usize::MAX).clamp(1, SCAN_KEYS_MAX);
        let (mut items, mut bytes, mut more) = (Vec::new(), 0, false);
        for (key, mut found) in self.store.scan(&range.prefix, range.after.as_ref()) {
            if !range.values {
                found.beside.iter_mut().chain([&mut found.version]).for_each(Version::empty);
            }
            bytes += key.bytes().len() + found.bytes();
            more = items.len() == most || (bytes > REPLY_BYTES_MAX && !items.is_empty());
            if more {
                break;
            }
            items.push((key, found));
        }
        self.replies.push((from, Reply::Scanned { items, more }));
    }

    fn read<T>(&mut self, from: Peer, lease: LeaseId, parts: Vec<Vec<T>>, reply: impl Fn(Vec<T>) -> Reply) {
        if self.store.has_lease(lease) {
            self.replies.extend(parts.into_iter().map(|items| (from, reply(items))));
        } else {
            self.replies.push((from, Reply::Unleased));
        }
    }

    pub(super) fn locked(&mut self, to: Peer, owner: Timestamp) {
        let keys = self.locks.shared(owner).into_iter();
        let items = keys.map(|key| (key.clone(), self.store.get(&key))).collect();
        self.show(to, Reply::Locked { items });
    }

    /// Why nobody may see what was recovered, where waiting does not help: it cannot become durable
    /// now.
    fn hides(&self) -> Option<Refusal> {
        let why = self
            .refuses_new
            .as_ref()
            .filter(|why| matches!(why, Refusal::Unrecorded { .. } | Refusal::DiskFull { .. }));
        why.filter(|_| self.durable < self.recovered).cloned()
    }

    /// Tells those who wait for a lease that they would wait in vain, if so.
    pub(super) fn refuse_readers(&mut self) {
        let Some(why) = self.hides() else { return };
        for (sequence, to, held) in std::mem::take(&mut self.held) {
            match held {
                Held::Reply(Reply::Leased { lease, .. }) => {
                    self.close(lease);
                    self.replies.push((to, Reply::Refused { why: why.clone() }));
                }
                held => self.held.push_back((sequence, to, held)),
            }
        }
    }

    /// A reply that lets somebody see what was recovered: it waits until that is durable.
    fn show(&mut self, to: Peer, reply: Reply) {
        if self.durable < self.recovered {
            self.hold(to, reply);
        } else {
            self.replies.push((to, reply));
        }
    }
}
