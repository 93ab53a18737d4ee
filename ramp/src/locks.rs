//! The lock table of a participant. Only strict two-phase locking uses it, the algorithm with which
//! RAMP is compared.
//!
//! A transaction locks its keys one after the other, in the order of participants and then of keys,
//! and holds all locks until it ends.
//!
//! Invariants
//! - A key has one exclusive holder, or any number of shared ones. Requests for a key are served in
//!   the order of arrival.
//! - A transaction that waits for a key holds no lock on a later key. So waiting transactions never
//!   form a cycle, at one participant or over several.
//! - Locked keys and waiting requests are bounded. Requests beyond the bound are refused, not
//!   queued.

use crate::{
    item::Key,
    limits::{LOCK_WAITERS_MAX, LOCKED_KEYS_MAX},
    message::Mode,
    timestamp::{ClientId, Timestamp},
};
use foldhash::fast::RandomState;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// The result of a request for locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// All locks are held.
    Now,
    /// The request waits.
    Later,
}

/// There are too many requests or keys. Nothing was locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the lock table would contain {found} waiting requests or locked keys, the maximum is {most}: try again later"
)]
pub struct LocksBusy {
    /// The number with this request.
    pub found: usize,
    /// The maximum.
    pub most: usize,
}

#[derive(Debug, Default)]
struct Lock {
    holders: Vec<(Timestamp, Mode)>,
    waiting: VecDeque<(Timestamp, Mode)>,
}

impl Lock {
    /// Whether a new request, or the first one in the queue, may have it.
    fn allows(&self, mode: Mode) -> bool {
        self.holders.is_empty()
            || (mode == Mode::Shared && self.holders.iter().all(|(_, held)| *held == Mode::Shared))
    }
}

#[derive(Debug, Default)]
struct Owner {
    held: Vec<(Key, Mode)>,
    /// The keys still to be locked. It waits for the first one.
    wanted: VecDeque<(Key, Mode)>,
}

/// The locks of one participant.
#[derive(Debug, Default)]
pub struct Locks {
    locks: HashMap<Key, Lock, RandomState>,
    owners: BTreeMap<Timestamp, Owner>,
    waiting: usize,
}

impl Locks {
    /// Locks keys for a transaction, in their order. If the transaction waits already, this request
    /// is ignored.
    ///
    /// # Errors
    /// [`LocksBusy`].
    pub fn lock(&mut self, owner: Timestamp, mut wanted: Vec<(Key, Mode)>) -> Result<Acquired, LocksBusy> {
        let keys = self.locks.len() + wanted.len();
        if keys > LOCKED_KEYS_MAX {
            return Err(LocksBusy { found: keys, most: LOCKED_KEYS_MAX });
        }
        if self.waiting >= LOCK_WAITERS_MAX {
            return Err(LocksBusy { found: self.waiting + 1, most: LOCK_WAITERS_MAX });
        }
        if self.owners.get(&owner).is_some_and(|entry| !entry.wanted.is_empty()) {
            return Ok(Acquired::Later);
        }
        // If a key occurs in both modes, exclusive comes first and shared is dropped.
        let is_shared = |mode: &Mode| *mode == Mode::Shared;
        wanted.sort_by(|(a, mode), (b, other)| a.cmp(b).then(is_shared(mode).cmp(&is_shared(other))));
        wanted.dedup_by(|(later, _), (first, _)| later == first);
        self.owners.entry(owner).or_default().wanted.extend(wanted);
        Ok(if self.go_on(owner) { Acquired::Now } else { Acquired::Later })
    }

    /// Takes locks until one is not free. Returns whether all are held.
    fn go_on(&mut self, owner: Timestamp) -> bool {
        let Some(entry) = self.owners.get_mut(&owner) else { return false };
        while let Some((key, mode)) = entry.wanted.pop_front() {
            if entry.held.iter().any(|(held, _)| *held == key) {
                continue;
            }
            let lock = self.locks.entry(key.clone()).or_default();
            if !lock.waiting.is_empty() || !lock.allows(mode) {
                lock.waiting.push_back((owner, mode));
                self.waiting += 1;
                entry.wanted.push_front((key, mode));
                return false;
            }
            lock.holders.push((owner, mode));
            entry.held.push((key, mode));
        }
        true
    }

    /// Releases all that a transaction holds or waits for. Returns whether it held all that it
    /// wanted, and the transactions whose requests are fulfilled now.
    pub fn unlock(&mut self, owner: Timestamp) -> (bool, Vec<Timestamp>) {
        let Some(entry) = self.owners.remove(&owner) else { return (false, Vec::new()) };
        let all = entry.wanted.is_empty();
        if let Some((key, _)) = entry.wanted.front()
            && let Some(lock) = self.locks.get_mut(key)
        {
            lock.waiting.retain(|(waiting, _)| *waiting != owner);
            self.waiting -= 1;
        }
        let mut freed: VecDeque<Key> = entry.held.into_iter().map(|(key, _)| key).collect();
        freed.iter().for_each(|key| self.let_go(key, owner));
        // A request behind the removed one may be next.
        freed.extend(entry.wanted.into_iter().take(1).map(|(key, _)| key));
        let mut fulfilled = Vec::new();
        for key in freed {
            self.serve(&key, &mut fulfilled);
        }
        (all, fulfilled)
    }

    fn let_go(&mut self, key: &Key, owner: Timestamp) {
        if let Some(lock) = self.locks.get_mut(key) {
            lock.holders.retain(|(holder, _)| *holder != owner);
        }
    }

    /// Grants a key to the waiting requests that are compatible with each other, in order.
    fn serve(&mut self, key: &Key, fulfilled: &mut Vec<Timestamp>) {
        while let Some(lock) = self.locks.get_mut(key) {
            let next = lock.waiting.front().copied().filter(|(_, mode)| lock.allows(*mode));
            let Some((owner, mode)) = next else {
                if lock.holders.is_empty() && lock.waiting.is_empty() {
                    self.locks.remove(key);
                }
                return;
            };
            lock.waiting.pop_front();
            lock.holders.push((owner, mode));
            self.waiting -= 1;
            if let Some(entry) = self.owners.get_mut(&owner) {
                entry.held.extend(entry.wanted.pop_front());
            }
            if self.go_on(owner) {
                fulfilled.push(owner);
            }
        }
    }

    /// The first of these keys that the transaction has not locked exclusively.
    #[must_use]
    pub fn missing<'k>(&self, owner: Timestamp, mut keys: impl Iterator<Item = &'k Key>) -> Option<&'k Key> {
        let entry = self.owners.get(&owner);
        let holds = |key: &Key| {
            entry.is_some_and(|entry| {
                entry.held.iter().any(|(held, mode)| held == key && *mode == Mode::Exclusive)
            })
        };
        keys.find(|key| !holds(key))
    }

    /// The keys that a transaction holds in shared mode.
    #[must_use]
    pub fn shared(&self, owner: Timestamp) -> Vec<Key> {
        let held = self.owners.get(&owner).into_iter().flat_map(|entry| &entry.held);
        held.filter(|(_, mode)| *mode == Mode::Shared).map(|(key, _)| key.clone()).collect()
    }

    /// All transactions of a client that hold or wait for locks.
    #[must_use]
    pub fn owned_by(&self, client: ClientId) -> Vec<Timestamp> {
        self.owners.keys().filter(|timestamp| timestamp.client == client).copied().collect()
    }

    /// Keys that are locked.
    #[must_use]
    pub fn len(&self) -> usize {
        self.locks.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Mode::{Exclusive, Shared};
    use proptest::prelude::*;

    fn at(time: u64) -> Timestamp {
        Timestamp { time, client: ClientId(1) }
    }

    fn key(name: u8) -> Key {
        Key::new(&[name]).unwrap()
    }

    fn wanted(keys: &[(u8, Mode)]) -> Vec<(Key, Mode)> {
        keys.iter().map(|(name, mode)| (key(*name), *mode)).collect()
    }

    #[test]
    fn readers_share_and_writers_wait_in_order() {
        let mut locks = Locks::default();
        assert_eq!(locks.lock(at(1), wanted(&[(b'a', Shared)])), Ok(Acquired::Now));
        assert_eq!(locks.lock(at(2), wanted(&[(b'a', Shared)])), Ok(Acquired::Now));
        assert_eq!(locks.lock(at(3), wanted(&[(b'a', Exclusive), (b'b', Shared)])), Ok(Acquired::Later));
        assert_eq!(locks.lock(at(4), wanted(&[(b'a', Shared)])), Ok(Acquired::Later), "behind the writer");
        assert_eq!(locks.unlock(at(1)), (true, vec![]));
        assert_eq!(locks.unlock(at(2)), (true, vec![at(3)]));
        assert_eq!(locks.missing(at(3), [key(b'a')].iter()), None);
        assert_eq!(locks.shared(at(3)), [key(b'b')]);
        assert_eq!(locks.unlock(at(3)), (true, vec![at(4)]));
        assert_eq!((locks.unlock(at(4)), locks.unlock(at(4))), ((true, vec![]), (false, vec![])));
        assert!(locks.is_empty());
    }

    #[test]
    fn who_goes_away_while_waiting_makes_room() {
        let mut locks = Locks::default();
        locks.lock(at(1), wanted(&[(b'a', Shared)])).unwrap();
        locks.lock(at(2), wanted(&[(b'a', Exclusive)])).unwrap();
        locks.lock(at(3), wanted(&[(b'a', Shared)])).unwrap();
        assert_eq!(locks.unlock(at(2)), (false, vec![at(3)]));
        assert_eq!(locks.owned_by(ClientId(1)), [at(1), at(3)]);
    }

    #[test]
    fn a_key_that_is_wanted_both_ways_is_locked_exclusively() {
        let mut locks = Locks::default();
        let both = wanted(&[(b'a', Shared), (b'a', Exclusive)]);
        assert_eq!(locks.lock(at(1), both), Ok(Acquired::Now));
        assert_eq!(locks.missing(at(1), [key(b'a')].iter()), None);
    }

    #[test]
    fn requests_beyond_the_bound_are_refused() {
        let mut locks = Locks::default();
        for time in 0..=LOCK_WAITERS_MAX as u64 {
            locks.lock(at(time), wanted(&[(b'a', Exclusive)])).unwrap();
        }
        let busy = LocksBusy { found: LOCK_WAITERS_MAX + 1, most: LOCK_WAITERS_MAX };
        assert_eq!(locks.lock(at(9999), wanted(&[(b'b', Shared)])), Err(busy));
        let many = vec![(key(b'c'), Shared); LOCKED_KEYS_MAX];
        assert!(locks.lock(at(9999), many).is_err());
    }

    proptest! {
        #[test]
        fn everybody_gets_their_locks_and_nobody_has_what_excludes_another(
            requests in prop::collection::vec(prop::collection::vec((0_u8..6, any::<bool>()), 1..5), 1..30),
            order in prop::collection::vec(any::<prop::sample::Index>(), 60),
        ) {
            let mut locks = Locks::default();
            let (mut active, mut waits) = (Vec::new(), 0);
            let total = requests.len();
            let mut requests = (1_u64..).zip(requests);
            let mut ended = 0;
            for pick in order.iter().cycle().take(1000) {
                if pick.index(2) == 0 && let Some((time, request)) = requests.next() {
                    let request: Vec<(Key, Mode)> = request.into_iter()
                        .map(|(name, exclusive)| (key(name), if exclusive { Exclusive } else { Shared })).collect();
                    match locks.lock(at(time), request).unwrap() {
                        Acquired::Now => active.push(at(time)),
                        Acquired::Later => waits += 1,
                    }
                } else if !active.is_empty() {
                    let (all, next) = locks.unlock(active.swap_remove(pick.index(active.len())));
                    prop_assert!(all);
                    ended += 1;
                    waits -= next.len();
                    active.extend(next);
                }
                for lock in locks.locks.values() {
                    let exclusive = lock.holders.iter().filter(|(_, mode)| *mode == Exclusive).count();
                    prop_assert!(exclusive == 0 || lock.holders.len() == 1);
                }
                prop_assert!(waits == 0 || !active.is_empty(), "{} wait for each other", waits);
                prop_assert_eq!(waits, locks.waiting);
            }
            prop_assert_eq!((ended, locks.is_empty()), (total, true));
        }
    }
}
