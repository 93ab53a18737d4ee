//! Stores *ghosts*: the keys of pages that were evicted from the cache lately, without the pages.
//!
//! Invariants
//! - The pages of the keys have at most a given total size (in units of the caller); the oldest key
//!   is forgotten first.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

use foldhash::fast::FixedState;

/// Keys in the order in which they were inserted.
#[derive(Debug)]
pub(crate) struct Ghosts<K> {
    /// The turn at which a key was inserted, and the units that it stands for.
    keys: HashMap<K, (u64, u64), FixedState>,
    /// Turns ascend. An entry whose key was inserted again or removed since is skipped.
    order: VecDeque<(K, u64)>,
    turn: u64,
    units: u64,
    units_max: u64,
}

impl<K: Copy + Eq + Hash> Ghosts<K> {
    pub(crate) fn new(units_max: u64) -> Self {
        Self { keys: HashMap::default(), order: VecDeque::new(), turn: 0, units: 0, units_max }
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.keys.contains_key(key)
    }

    /// Inserts a key as the newest.
    pub(crate) fn insert(&mut self, key: K, units: u64) {
        self.remove(&key);
        self.turn += 1;
        self.keys.insert(key, (self.turn, units));
        self.order.push_back((key, self.turn));
        self.units += units;
        while self.units > self.units_max {
            let Some((oldest, turn)) = self.order.pop_front() else { return };
            if self.keys.get(&oldest).is_some_and(|(came, _)| *came == turn) {
                self.remove(&oldest);
            }
        }
        if self.order.len() > 2 * self.keys.len() + 64 {
            let keys = &self.keys;
            self.order.retain(|(key, turn)| keys.get(key).is_some_and(|(came, _)| came == turn));
        }
    }

    /// Removes a key. Returns whether it was there.
    pub(crate) fn remove(&mut self, key: &K) -> bool {
        let removed = self.keys.remove(key);
        self.units -= removed.map_or(0, |(_, units)| units);
        removed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_keys_are_forgotten_and_a_key_that_comes_again_is_new() {
        let mut ghosts = Ghosts::new(3);
        for key in [1, 2, 3, 1, 4] {
            ghosts.insert(key, 1);
        }
        assert_eq!([1, 2, 3, 4].map(|key| ghosts.contains(&key)), [true, false, true, true]);
        assert!(ghosts.remove(&3) && !ghosts.remove(&3));
        ghosts.insert(5, 2);
        assert_eq!([1, 4, 5].map(|key| ghosts.contains(&key)), [false, true, true]);
    }

    #[test]
    fn keys_that_come_and_go_leave_nothing_behind() {
        let mut ghosts = Ghosts::new(8);
        for key in 0..10_000 {
            ghosts.insert(key, 1);
            ghosts.remove(&key);
        }
        assert!(ghosts.order.len() <= 64, "{}", ghosts.order.len());
    }
}
