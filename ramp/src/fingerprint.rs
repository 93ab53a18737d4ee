//! Hashes a key to 64 bits, its fingerprint, which represents the key in write sets and filters.
//!
//! Invariant: a key has the same fingerprint on every machine and in every release, because slots
//! and logs store fingerprints.

use serde::{Deserialize, Serialize};

/// Sixty-four bits that stand for a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    /// The fingerprint of a key: its bytes, eight at a time, through the finaliser of SplitMix64.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        let mix = |word: u64| {
            let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            word ^ (word >> 31)
        };
        let word = |chunk: &[u8]| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        };
        let start = mix((key.len() as u64).wrapping_add(0x9E37_79B9_7F4A_7C15));
        let fold = |hash: u64, chunk| mix(hash.wrapping_add(0x9E37_79B9_7F4A_7C15) ^ word(chunk));
        Self(key.chunks(8).fold(start, fold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_the_same_in_every_release() {
        // Computed once by another implementation of the rule that stands at the function.
        let found = [&b"a"[..], b"user6284781860667377211", b"12345678"].map(|key| Fingerprint::of(key).0);
        assert_eq!(found, GOLDEN, "{found:#018x?}");
    }
    const GOLDEN: [u64; 3] = [0x4488_e597_ee6b_41f2, 0x4478_1b67_cca3_25b5, 0x535f_84ad_a962_5a89];
}
