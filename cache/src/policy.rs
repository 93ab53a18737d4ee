//! Decides which pages a cache admits and which pages it evicts: S3-FIFO (Yang et al., SOSP 2023)
//! behind a doorkeeper, which remembers requested keys.
//!
//! ```text
//! cache not full -----------------------------------------> small
//! cache full: page requested for the first time ----------> doorkeeper (its key only), not admitted
//!             page requested before ----------------------> small
//! small, a queue of a tenth of the cache: used twice -----> main
//!                                         otherwise ------> ghosts (its key only)
//! ghosts: page requested again ---------------------------> main
//! main, a queue of the remainder: used since last time ---> the end of main again
//!                                 otherwise --------------> evicted
//! ```
//!
//! The doorkeeper is not part of S3-FIFO. With it, a page that is read only once does not displace
//! a page of a full cache; only its key is noted. So a scan of a large table does not empty the
//! cache. Queues are first-in first-out, so a hit moves nothing.
//!
//! Invariants
//! - The units (the sizes, as the caller counts them) of all entries never exceed the budget.
//! - A key is in at most one queue, and no key of an entry is among the ghosts.
//! - The policy only counts: it has no page memory, no clock and no lock.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

use foldhash::fast::FixedState;

use crate::{
    doorkeeper::Doorkeeper,
    ghosts::Ghosts,
    limits::{EVICTION_STEPS_MAX, SMALL_PERCENT, USES_MAX},
};

/// What to do with a page that is not in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Make room and keep it.
    Admit,
    /// Serve it without keeping it.
    Bypass,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queue {
    Small,
    Main,
}

#[derive(Debug)]
struct Entry {
    units: u64,
    uses: u8,
    queue: Queue,
    /// Distinguishes this entry from earlier ones of the same key, which may still be queued.
    turn: u64,
}

/// The entries of a cache, without their contents. Sizes are counted in units of the caller's
/// choice.
#[derive(Debug)]
pub struct Policy<K> {
    entries: HashMap<K, Entry, FixedState>,
    small: VecDeque<(K, u64)>,
    main: VecDeque<(K, u64)>,
    small_units: u64,
    used_units: u64,
    budget_units: u64,
    turn: u64,
    doorkeeper: Doorkeeper,
    ghosts: Ghosts<K>,
}

impl<K: Copy + Eq + Hash> Policy<K> {
    /// An empty cache of `budget_units` units.
    #[must_use]
    pub fn new(budget_units: u64) -> Self {
        Self {
            entries: HashMap::default(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            small_units: 0,
            used_units: 0,
            budget_units,
            turn: 0,
            doorkeeper: Doorkeeper::new(budget_units),
            ghosts: Ghosts::new(budget_units),
        }
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Units of all entries.
    #[must_use]
    pub fn used_units(&self) -> u64 {
        self.used_units
    }

    /// Whether the key has an entry.
    #[must_use]
    pub fn contains(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    /// Counts a use of an entry. Returns false if there is none.
    pub fn hit(&mut self, key: &K) -> bool {
        let entry = self.entries.get_mut(key);
        let found = entry.is_some();
        if let Some(entry) = entry {
            entry.uses = (entry.uses + 1).min(USES_MAX);
        }
        found
    }

    /// Decides whether a key without an entry gets one, because its page is asked for.
    pub fn miss(&mut self, key: K, units: u64) -> Verdict {
        if units > self.budget_units {
            return Verdict::Bypass;
        }
        let has_room = self.used_units + units <= self.budget_units;
        if has_room || self.ghosts.contains(&key) || self.doorkeeper.has_seen(&key) {
            return Verdict::Admit;
        }
        Verdict::Bypass
    }

    /// Gives a key an entry. Returns false and does nothing if the key has one or there is no room;
    /// [`Policy::evict`] makes room.
    pub fn insert(&mut self, key: K, units: u64) -> bool {
        if self.used_units + units > self.budget_units || self.contains(&key) {
            return false;
        }
        let queue = if self.ghosts.remove(&key) { Queue::Main } else { Queue::Small };
        self.used_units += units;
        self.turn += 1;
        self.entries.insert(key, Entry { units, uses: 0, queue, turn: self.turn });
        self.push(key, self.turn, queue, units);
        true
    }

    fn push(&mut self, key: K, turn: u64, queue: Queue, units: u64) {
        let places = match queue {
            Queue::Small => {
                self.small_units += units;
                &mut self.small
            }
            Queue::Main => &mut self.main,
        };
        places.push_back((key, turn));
        if places.len() > 2 * self.entries.len() + 64 {
            let entries = &self.entries;
            let is_live = |key: &K, turn| {
                entries.get(key).is_some_and(|entry| entry.turn == turn && entry.queue == queue)
            };
            places.retain(|(key, turn)| is_live(key, *turn));
        }
    }

    /// Removes an entry whose content is no longer valid. Returns false if there is none.
    pub fn remove(&mut self, key: &K) -> bool {
        let Some(entry) = self.entries.remove(key) else { return false };
        self.used_units -= entry.units;
        if entry.queue == Queue::Small {
            self.small_units -= entry.units;
        }
        true
    }

    /// Chooses a victim and removes it. Entries for which `can_evict` is false go to the end of the
    /// main queue; `None` if no victim is found within a bounded number of steps.
    pub fn evict(&mut self, mut can_evict: impl FnMut(&K) -> bool) -> Option<K> {
        for _ in 0..EVICTION_STEPS_MAX {
            let small_is_full = self.small_units * 100 > self.budget_units * SMALL_PERCENT;
            let all_is_small = self.small_units == self.used_units;
            let queue = if small_is_full || all_is_small { Queue::Small } else { Queue::Main };
            let places = if queue == Queue::Small { &mut self.small } else { &mut self.main };
            let (key, turn) = places.pop_front()?;
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            if entry.turn != turn || entry.queue != queue {
                continue;
            }
            let units = entry.units;
            let is_used = match queue {
                Queue::Small => entry.uses > 1,
                Queue::Main => entry.uses > 0,
            };
            if is_used || !can_evict(&key) {
                entry.uses = if queue == Queue::Small { 0 } else { entry.uses.saturating_sub(1) };
                entry.queue = Queue::Main;
                if queue == Queue::Small {
                    self.small_units -= units;
                }
                self.push(key, turn, Queue::Main, units);
                continue;
            }
            self.remove(&key);
            if queue == Queue::Small {
                self.ghosts.insert(key, units);
            }
            return Some(key);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Uses a key as a cache does. Whether it was there.
    fn access(policy: &mut Policy<u64>, key: u64, units: u64) -> bool {
        if policy.hit(&key) {
            return true;
        }
        if policy.miss(key, units) == Verdict::Admit {
            while !policy.insert(key, units) {
                if policy.evict(|_| true).is_none() {
                    break;
                }
            }
        }
        false
    }

    fn pass(policy: &mut Policy<u64>, keys: std::ops::Range<u64>) {
        for key in keys {
            access(policy, key, 1);
        }
    }

    /// Least recently used first, the yardstick.
    struct Lru {
        keys: VecDeque<u64>,
        most: usize,
    }

    impl Lru {
        fn access(&mut self, key: u64) -> bool {
            let found = self.keys.iter().position(|other| *other == key);
            match found {
                Some(place) => drop(self.keys.remove(place)),
                None if self.keys.len() == self.most => drop(self.keys.pop_front()),
                None => {}
            }
            self.keys.push_back(key);
            found.is_some()
        }
    }

    #[test]
    fn a_scan_of_ten_times_the_cache_leaves_the_hot_pages_in_it() {
        let mut policy = Policy::new(100);
        for _ in 0..5 {
            pass(&mut policy, 0..60);
        }
        pass(&mut policy, 1000..2000);
        assert_eq!((0..60).filter(|key| policy.contains(key)).count(), 60);
    }

    #[test]
    fn hot_pages_enter_a_cache_that_a_scan_has_filled() {
        let mut policy = Policy::new(100);
        pass(&mut policy, 1000..2000);
        for _ in 0..6 {
            pass(&mut policy, 0..60);
        }
        let hits = (0..60).filter(|key| access(&mut policy, *key, 1)).count();
        assert!(hits >= 55, "{hits} of 60");
    }

    #[test]
    fn a_scan_beside_a_hot_set_costs_fewer_hits_than_least_recently_used() {
        let (mut policy, mut lru) = (Policy::new(100), Lru { keys: VecDeque::new(), most: 100 });
        let (mut ours, mut theirs) = (0, 0);
        let mut scanned = 1000;
        for round in 0..20_000_u64 {
            // A key of the hot set after every three of the scan: too rare for a cache that the
            // scan goes through.
            let key = if round % 4 == 0 {
                round * 7919 / 4 % 80
            } else {
                scanned += 1;
                scanned
            };
            ours += u32::from(access(&mut policy, key, 1));
            theirs += u32::from(lru.access(key));
        }
        assert!(theirs < 100, "the yardstick is lost in this workload: {theirs} hits");
        assert!(ours > 4500, "{ours} of 5000 hits on the hot set");
    }

    #[test]
    fn entries_in_use_stay_and_others_go() {
        let mut policy = Policy::new(4);
        (0..4).for_each(|key| assert!(policy.insert(key, 1)));
        let evicted: Vec<u64> = (0..3).filter_map(|_| policy.evict(|key| *key != 0)).collect();
        assert_eq!(evicted, [1, 2, 3]);
        assert_eq!(policy.evict(|key| *key != 0), None);
        assert!(policy.contains(&0));
    }

    proptest! {
        #[test]
        fn the_budget_is_never_exceeded_and_what_is_counted_is_what_is_there(
            budget in 1_u64..40,
            steps in proptest::collection::vec((0_u64..30, 1_u64..9, 0_u8..10), 1..400),
        ) {
            let mut policy = Policy::new(budget);
            let mut sizes: HashMap<u64, u64> = HashMap::new();
            for (key, units, kind) in steps {
                match kind {
                    0 => {
                        prop_assert_eq!(policy.remove(&key), sizes.remove(&key).is_some());
                    }
                    1 => {
                        if let Some(gone) = policy.evict(|key| key % 3 != 0) {
                            prop_assert!(gone % 3 != 0 && sizes.remove(&gone).is_some());
                        }
                    }
                    _ => {
                        if !policy.hit(&key) && policy.miss(key, units) == Verdict::Admit {
                            while !policy.insert(key, units) {
                                let Some(gone) = policy.evict(|_| true) else { break };
                                prop_assert!(sizes.remove(&gone).is_some());
                            }
                            prop_assert!(policy.contains(&key), "what is admitted finds room");
                            sizes.insert(key, units);
                        }
                    }
                }
                prop_assert!(policy.used_units() <= budget);
                prop_assert_eq!(policy.used_units(), sizes.values().sum::<u64>());
                prop_assert_eq!(policy.len(), sizes.len());
                prop_assert!(policy.small.len() + policy.main.len() <= 4 * sizes.len() + 130);
            }
        }
    }
}
