//! Remembers, in little memory, whether a page was requested before, so that a page that is
//! requested only once does not enter a full cache.
//!
//! The doorkeeper is a table of 32-bit fingerprints of keys. A key that hashes to the entry of
//! another key replaces it, so old keys are forgotten at random and not in order. A key takes four
//! bytes.
//!
//! Invariants
//! - The table is allocated at the start and never grows.
//! - A key that was never seen counts as known only if its fingerprint is equal to that of another
//!   key.

use std::hash::{BuildHasher, Hash};

use az::SaturatingAs;
use foldhash::fast::FixedState;

use crate::limits::DOORKEEPER_FACTOR;

/// Fingerprints of keys; 0 marks an empty place.
#[derive(Debug)]
pub(crate) struct Doorkeeper {
    fingerprints: Box<[u32]>,
    hasher: FixedState,
}

impl Doorkeeper {
    /// A doorkeeper for a cache of `units` units.
    pub(crate) fn new(units: u64) -> Self {
        let places = units.saturating_mul(DOORKEEPER_FACTOR).max(64).next_power_of_two();
        // A smaller table, on a platform where this many places do not fit, only forgets more.
        let places = places.saturating_as::<usize>();
        Self { fingerprints: vec![0; places].into_boxed_slice(), hasher: FixedState::default() }
    }

    /// Returns whether the key is in the table, and toggles it: a known key is removed, a new one
    /// is added.
    pub(crate) fn has_seen(&mut self, key: &impl Hash) -> bool {
        let hash = self.hasher.hash_one(key);
        let [a, b, c, d, e, f, g, h] = hash.to_le_bytes();
        let fingerprint = u32::from_le_bytes([a, b, c, d]).max(1);
        let place = u32::from_le_bytes([e, f, g, h]) as usize & (self.fingerprints.len() - 1);
        let noted = &mut self.fingerprints[place];
        let has_seen = *noted == fingerprint;
        *noted = if has_seen { 0 } else { fingerprint };
        has_seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_the_second_time_and_new_again_the_third() {
        let mut doorkeeper = Doorkeeper::new(1000);
        assert_eq!([7, 7, 7].map(|key| doorkeeper.has_seen(&key)), [false, true, false]);
    }

    #[test]
    fn most_keys_of_a_few_are_remembered_and_a_flood_forgets_them() {
        let mut doorkeeper = Doorkeeper::new(1000);
        assert_eq!((0..500).filter(|key| doorkeeper.has_seen(key)).count(), 0);
        assert!((0..500).filter(|key| doorkeeper.has_seen(key)).count() > 400);
        for key in (0..500).chain(1000..100_000) {
            doorkeeper.has_seen(&key);
        }
        assert!((0..500).filter(|key| doorkeeper.has_seen(key)).count() < 5);
    }
}
