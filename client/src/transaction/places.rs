//! Remembers the places of keys: the slots in which participants last reported them, so that the
//! keys can be read one-sidedly.
//!
//! The table has two halves, recent and old. An entry is put into the recent half when it is new,
//! and moved there when it is used. When the recent half is full, the old half is dropped and the
//! recent half becomes the old one. This approximates least-recently-used eviction without a list
//! of uses.
//!
//! Invariants
//! - Places are hints: bytes that are read there are verified, and places from an earlier life of
//!   the participant are never used.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use rackscan_ramp::{item::Key, slot::Place};

/// A place, and the life of the participant for which it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    life: u64,
    place: Place,
}

/// The places of keys.
#[derive(Debug)]
pub(super) struct Places {
    young: HashMap<Key, Known, RandomState>,
    old: HashMap<Key, Known, RandomState>,
    most: usize,
}

impl Places {
    pub(super) fn new(most: usize) -> Self {
        Self { young: HashMap::default(), old: HashMap::default(), most }
    }

    /// The place of a key in this life of its participant.
    pub(super) fn find(&mut self, key: &Key, life: u64) -> Option<Place> {
        if let Some(known) = self.young.get(key) {
            return (known.life == life).then_some(known.place);
        }
        let (key, known) = self.old.remove_entry(key)?;
        if known.life != life {
            return None;
        }
        self.add(key, known);
        Some(known.place)
    }

    /// Records the place that the participant named.
    pub(super) fn learn(&mut self, key: &Key, life: u64, place: Place) {
        let known = Known { life, place };
        match self.young.get_mut(key) {
            Some(there) => *there = known,
            None => self.add(key.clone(), known),
        }
    }

    /// Removes a key that has no place, as the participant said.
    pub(super) fn forget(&mut self, key: &Key) {
        self.young.remove(key);
        self.old.remove(key);
    }

    fn add(&mut self, key: Key, known: Known) {
        if self.young.len() >= self.most / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, known);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        Key::new(format!("key{number}").as_bytes()).unwrap()
    }

    fn place(number: usize) -> Place {
        Place { offset_bytes: 64 * number as u64, length_bytes: 128 }
    }

    #[test]
    fn what_is_used_stays_and_the_table_is_bounded() {
        let mut places = Places::new(100);
        for number in 0..1000 {
            places.learn(&key(number), 7, place(number));
            assert_eq!(places.find(&key(0), 7), Some(place(0)), "it is used all the time");
            assert!(places.len() <= 101, "{}", places.len());
        }
        assert_eq!(places.find(&key(1), 7), None);
        assert_eq!(places.find(&key(999), 7), Some(place(999)));
    }

    #[test]
    fn a_place_of_another_life_is_none() {
        let mut places = Places::new(100);
        places.learn(&key(1), 7, place(1));
        assert_eq!(places.find(&key(1), 8), None);
        places.learn(&key(1), 8, place(2));
        assert_eq!(places.find(&key(1), 8), Some(place(2)));
    }
}
