//! Bloom filters over the keys of a transaction: small sets of bits that answer whether the
//! transaction may have written a key. Only the answer no is certain.
//!
//! Invariants
//! - The answer for a key that was added is always yes. For another key it is seldom yes.
//! - The same keys give the same bits on every machine and in every release, because slots and logs
//!   store the bits.

use crate::{
    fingerprint::Fingerprint,
    limits::{BLOOM_BITS_PER_KEY, BLOOM_PROBES, METADATA_BYTES_MAX},
};
use serde::{Deserialize, Serialize};

/// A Bloom filter of whole words of 64 bits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct Bloom {
    bits: Vec<u8>,
}

impl Bloom {
    /// The filter of these keys, with [`BLOOM_BITS_PER_KEY`] bits for each.
    #[must_use]
    pub fn of(keys: &[Fingerprint]) -> Self {
        let bytes = (keys.len() * BLOOM_BITS_PER_KEY).div_ceil(8).next_multiple_of(8);
        let mut filter = Self { bits: vec![0; bytes.clamp(8, METADATA_BYTES_MAX)] };
        for key in keys {
            for bit in filter.probes(*key) {
                filter.bits[bit / 8] |= 1 << (bit % 8);
            }
        }
        filter
    }

    /// Its bits.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bits
    }

    /// A filter of these bits; `None` unless they are a positive number of whole words within the
    /// limit.
    #[must_use]
    pub fn from_bytes(bits: &[u8]) -> Option<Self> {
        let possible = !bits.is_empty() && bits.len().is_multiple_of(8) && bits.len() <= METADATA_BYTES_MAX;
        possible.then(|| Self { bits: bits.to_vec() })
    }

    /// Whether the key may have been put in.
    #[must_use]
    pub fn may_have(&self, key: Fingerprint) -> bool {
        self.probes(key).all(|bit| self.bits[bit / 8] & (1 << (bit % 8)) != 0)
    }

    /// Double hashing (Kirsch and Mitzenmacher): all probes are computed from the two halves of the
    /// fingerprint.
    fn probes(&self, key: Fingerprint) -> impl Iterator<Item = usize> + use<> {
        let bits = 8 * self.bits.len() as u64;
        let (start, step) = (key.0 & 0xFFFF_FFFF, (key.0 >> 32) | 1);
        (0..u64::from(BLOOM_PROBES)).map(move |probe| {
            let bit = start.wrapping_add(probe * step) % bits;
            usize::try_from(bit).expect("below the number of bits, which is a usize")
        })
    }
}

/// The bytes of a filter are empty, too many, or not whole words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a Bloom filter has {found} bytes, expected a multiple of 8 from 8 to {METADATA_BYTES_MAX}")]
pub struct FilterFault {
    /// Its length.
    pub found: usize,
}

impl TryFrom<Vec<u8>> for Bloom {
    type Error = FilterFault;

    fn try_from(bits: Vec<u8>) -> Result<Self, FilterFault> {
        Self::from_bytes(&bits).ok_or(FilterFault { found: bits.len() })
    }
}

impl From<Bloom> for Vec<u8> {
    fn from(filter: Bloom) -> Self {
        filter.bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Fingerprint {
        Fingerprint::of(&number.to_le_bytes())
    }

    #[test]
    fn what_was_put_in_is_found_and_other_keys_seldom() {
        for count in [1, 8, 100] {
            let keys: Vec<Fingerprint> = (0..count).map(key).collect();
            let filter = Bloom::of(&keys);
            assert!(keys.iter().all(|key| filter.may_have(*key)));
            let found = (1_000_000..1_010_000).filter(|other| filter.may_have(key(*other))).count();
            assert!(found < 150, "{found} of 10000 others in a filter of {count}");
        }
    }
}
