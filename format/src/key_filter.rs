//! Which keys does a join still want? A set of 64-bit keys that may say yes too often, and never says no wrongly.
//!
//! A split-block Bloom filter, as Apache Parquet's `BloomFilter.md` describes it: a key names one block of 256 bits by the
//! upper half of its hash, and one bit in each of the block's eight words by the lower half. Keys are stored integers
//! (`i64`: days, microseconds, unscaled decimals), so no bytes are hashed.
//!
//! Invariants
//! - A key that was inserted is contained; of others about one in a hundred is, at [`KEY_BITS`] bits per key.
//! - Its digest is worked out from its bytes wherever it arrives, so nobody runs another filter than a program names.

use crate::{
    codec::CodecError,
    limits::{BLOCK_ROWS, KEY_FILTER_BYTES_MAX},
    simd::{Kernel, Level},
};
use serde::{Deserialize, Serialize};

/// Bits that each key gets while the filter stays within its limit.
pub const KEY_BITS: usize = 10;
/// Words of a block.
const WORDS: usize = 8;
/// Bytes of a block.
const SPLIT_BYTES: usize = WORDS * 4;
/// Parquet's salts: odd, so that each is a permutation of the 32 bits it multiplies.
const SALTS: [u32; WORDS] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// A filter that a program names without holding it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyFilterName {
    /// Worked out from its bytes.
    pub digest: u64,
    /// How many there are.
    pub length_bytes: u32,
    /// Keys that were inserted, for estimates.
    pub keys: u32,
    /// The smallest of them; larger than `high` when there are none.
    pub low: i64,
    /// The largest.
    pub high: i64,
}

/// The set of keys.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyFilter {
    blocks: Vec<[u32; WORDS]>,
    name: KeyFilterName,
}

impl std::fmt::Debug for KeyFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyFilter").field("name", &self.name).finish_non_exhaustive()
    }
}

impl KeyFilter {
    /// The set of `keys`, which may repeat, in at most `KEY_FILTER_BYTES_MAX` bytes.
    #[must_use]
    pub fn of(keys: &[i64]) -> Self {
        let bytes = (keys.len() * KEY_BITS).div_ceil(8).clamp(SPLIT_BYTES, KEY_FILTER_BYTES_MAX);
        let mut blocks = vec![[0; WORDS]; bytes.div_ceil(SPLIT_BYTES)];
        for &key in keys {
            let hash = hash(key);
            let block = block_of(hash, blocks.len());
            blocks[block].iter_mut().zip(bits_of(hash)).for_each(|(word, bit)| *word |= bit);
        }
        let low = keys.iter().min().copied().unwrap_or(i64::MAX);
        let high = keys.iter().max().copied().unwrap_or(i64::MIN);
        Self::named(blocks, u32::try_from(keys.len()).unwrap_or(u32::MAX), (low, high))
    }

    /// The filter that bytes from a peer hold, if they are those that `name` means.
    ///
    /// # Errors
    /// When there are too few or too many bytes, or other ones.
    pub fn from_bytes(bytes: &[u8], name: &KeyFilterName) -> Result<Self, CodecError> {
        let (words, rest) = bytes.as_chunks::<4>();
        let blocks: Vec<[u32; WORDS]> =
            words.as_chunks().0.iter().map(|block| block.map(u32::from_le_bytes)).collect();
        let whole = rest.is_empty() && blocks.len() * SPLIT_BYTES == bytes.len() && !blocks.is_empty();
        let found = Self::named(blocks, name.keys, (name.low, name.high));
        if whole && bytes.len() <= KEY_FILTER_BYTES_MAX && found.name == *name {
            return Ok(found);
        }
        let (found, bytes) = (found.name.digest, bytes.len());
        let reason = format!("{bytes} bytes of digest {found:016x}, expected {name:?}");
        Err(CodecError::Malformed { what: "key filter", reason })
    }

    /// Its bytes, the same on every machine.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.blocks.iter().flatten().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// What programs call it.
    #[must_use]
    pub fn name(&self) -> KeyFilterName {
        self.name
    }

    /// Whether the key may have been inserted.
    #[must_use]
    #[inline(always)]
    pub fn contains(&self, key: i64) -> bool {
        let hash = hash(key);
        let block = &self.blocks[block_of(hash, self.blocks.len())];
        let missing = block.iter().zip(bits_of(hash)).fold(0, |missing, (word, bit)| missing | (bit & !word));
        missing == 0 && self.name.low <= key && key <= self.name.high
    }

    /// Writes 1 for each key that may have been inserted, 0 for others.
    pub fn probe(&self, level: Level, keys: &[i64; BLOCK_ROWS], answers: &mut [u8; BLOCK_ROWS]) {
        level.run(Probe { filter: self, keys, answers });
    }

    fn named(blocks: Vec<[u32; WORDS]>, keys: u32, (low, high): (i64, i64)) -> Self {
        let length_bytes = u32::try_from(blocks.len() * SPLIT_BYTES).unwrap_or(u32::MAX);
        let digest = blocks.iter().flatten().fold(u64::from(length_bytes), |digest, word| {
            mix(digest ^ u64::from(*word)).wrapping_add(digest.rotate_left(17))
        });
        Self { blocks, name: KeyFilterName { digest, length_bytes, keys, low, high } }
    }
}

struct Probe<'a> {
    filter: &'a KeyFilter,
    keys: &'a [i64; BLOCK_ROWS],
    answers: &'a mut [u8; BLOCK_ROWS],
}

impl Kernel for Probe<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (key, answer) in self.keys.iter().zip(self.answers) {
            *answer = u8::from(self.filter.contains(*key));
        }
    }
}

/// The finaliser of `SplitMix64`: every bit of the key reaches every bit of the hash.
#[inline(always)]
fn mix(key: u64) -> u64 {
    let key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ (key >> 31)
}

#[inline(always)]
fn hash(key: i64) -> u64 {
    mix(key.cast_unsigned())
}

/// The upper half of the hash, scaled to the number of blocks.
#[inline(always)]
fn block_of(hash: u64, blocks: usize) -> usize {
    (((hash >> 32) * blocks as u64) >> 32) as usize
}

/// One bit for each word, from the lower half of the hash.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "takes the lower half")]
fn bits_of(hash: u64) -> [u32; WORDS] {
    let key = hash as u32;
    SALTS.map(|salt| 1 << (key.wrapping_mul(salt) >> 27))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn odd_keys() -> Vec<i64> {
        (0..20_000).map(|key| key * 2 + 1).collect()
    }

    #[test]
    fn every_inserted_key_is_found_and_few_others_are() {
        let filter = KeyFilter::of(&odd_keys());
        assert!(odd_keys().iter().all(|key| filter.contains(*key)));
        let wrong = (0..20_000).filter(|key| filter.contains(key * 2)).count();
        assert!(wrong < 400, "{wrong} of 20000");
    }

    #[test]
    fn nothing_is_in_a_filter_of_no_keys() {
        let filter = KeyFilter::of(&[]);
        assert!((-500..500).all(|key| !filter.contains(key)));
    }

    #[test]
    fn every_level_answers_alike() {
        let filter = KeyFilter::of(&odd_keys());
        let keys: [i64; BLOCK_ROWS] = std::array::from_fn(|row| i64::try_from(row).unwrap() * 3 - 100);
        for level in Level::available() {
            let mut answers = [9; BLOCK_ROWS];
            filter.probe(level, &keys, &mut answers);
            let expected = keys.map(|key| u8::from(filter.contains(key)));
            assert_eq!(answers, expected, "{level}");
        }
    }

    #[test]
    fn a_filter_arrives_as_it_was_sent_or_not_at_all() {
        let filter = KeyFilter::of(&odd_keys());
        let bytes = filter.to_bytes();
        assert_eq!(KeyFilter::from_bytes(&bytes, &filter.name()), Ok(filter.clone()));
        for wrong in [&bytes[1..], &bytes[SPLIT_BYTES..], &[]] {
            assert!(KeyFilter::from_bytes(wrong, &filter.name()).is_err());
        }
        let mut changed = bytes.clone();
        changed[77] ^= 4;
        assert!(KeyFilter::from_bytes(&changed, &filter.name()).is_err());
        let mut swapped = bytes;
        swapped.swap(3, 40);
        assert!(KeyFilter::from_bytes(&swapped, &filter.name()).is_err());
    }

    #[test]
    fn a_filter_of_many_keys_stays_within_its_limit() {
        let keys: Vec<i64> = (0..1_200_000).collect();
        let filter = KeyFilter::of(&keys);
        assert_eq!(filter.to_bytes().len(), KEY_FILTER_BYTES_MAX);
        assert!(keys.iter().all(|key| filter.contains(*key)));
    }
}
