//! Serves reads, and grants leases.
//!
//! Invariants
//! - A read without a lease from this life of the participant is refused.
//! - Before all recovered records are durable, no lease is granted and no value is returned with a
//!   lock. If they cannot become durable now, the reader is refused with the reason.

use super::{Participant, Peer, Waiting, parts::in_parts};
use crate::{
    item::{Key, Version},
    limits::{REPLY_BYTES_MAX, SCAN_KEYS_MAX},
    message::{KeyRange, LeaseId, Refusal, Reply},
    slot::SlotMemory,
    timestamp::{ClientId, Timestamp},
};

impl<M: SlotMemory> Participant<M> {
    pub(super) fn lease(&mut self, from: Peer, client: ClientId) {
        let epoch = self.store.epoch();
        let newest = self.store.newest();
        if let Some(why) = self.hidden_reason() {
            return self.replies.push((from, Reply::Refused { why }));
        }
        let lease = self.store.open_lease();
        if let Some(lease) = lease {
            self.leases.insert(lease, client);
        }
        let reply = lease.map_or(Reply::Unleased, |lease| Reply::Leased { lease, epoch, newest });
        self.reply_when_recovered(from, reply);
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
        let most = usize::try_from(range.most).expect("usize has at least 32 bits").clamp(1, SCAN_KEYS_MAX);
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
        self.reply_when_recovered(to, Reply::Locked { items });
    }

    /// The reason why recovered versions stay hidden although waiting does not help: their records
    /// cannot become durable now.
    fn hidden_reason(&self) -> Option<Refusal> {
        let why = self
            .refuses_new
            .as_ref()
            .filter(|why| matches!(why, Refusal::Unrecorded { .. } | Refusal::DiskFull { .. }));
        why.filter(|_| self.durable < self.recovered).cloned()
    }

    /// Refuses the clients that wait for a lease if they would wait in vain.
    pub(super) fn refuse_readers(&mut self) {
        let Some(why) = self.hidden_reason() else { return };
        for (sequence, to, waiting) in std::mem::take(&mut self.waiting) {
            match waiting {
                Waiting::Reply(Reply::Leased { lease, .. }) => {
                    self.close(lease);
                    self.replies.push((to, Reply::Refused { why: why.clone() }));
                }
                waiting => self.waiting.push_back((sequence, to, waiting)),
            }
        }
    }

    /// Sends a reply that shows recovered versions as soon as all recovered records are durable.
    fn reply_when_recovered(&mut self, to: Peer, reply: Reply) {
        if self.durable < self.recovered {
            self.reply_when_durable(to, reply);
        } else {
            self.replies.push((to, reply));
        }
    }
}
