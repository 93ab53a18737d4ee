//! Defines key filters: approximate sets of the 64-bit keys of a join's build side, with which a
//! scan of the probe side drops rows that the join cannot need.
//!
//! Keys are stored integers (`i64`: days, microseconds, unscaled decimals). If they lie close
//! together, the set is a bitmap from the smallest to the largest key, which is exact. Otherwise it
//! is a split-block Bloom filter, as Apache Parquet's `BloomFilter.md` describes it: the upper half
//! of a key's hash selects one block of 256 bits, and the lower half selects one bit in each of the
//! block's eight words.
//!
//! Invariants
//! - There are no false negatives: an inserted key is always contained. A bitmap has no false
//!   positives; a Bloom filter has about one in a hundred at [`KEY_BITS`] bits per key.
//! - The receiver of a filter computes the digest from the bytes, so a program never runs with
//!   another filter than the one whose digest it contains.

use crate::{
    codec::CodecError,
    limits::{BLOCK_ROWS, KEY_FILTER_BYTES_MAX},
    simd::{Kernel, Level},
};
use az::SaturatingAs;
use serde::{Deserialize, Serialize};

/// Bits per key of a Bloom filter, as long as the filter stays within its size limit.
pub const KEY_BITS: usize = 10;
/// Maximum bits per key of a bitmap: more than those of a Bloom filter, because a bitmap is faster
/// to probe, is built without sorting, and can tell whether it contains any key of a page's range.
pub const BITMAP_KEY_BITS: u64 = 64;
/// Words of a block.
const WORDS: usize = 8;
/// Bytes of a block.
const SPLIT_BYTES: usize = WORDS * 4;
/// Parquet's salts: odd, so that each is a permutation of the 32 bits it multiplies.
const SALTS: [u32; WORDS] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// The representation of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KeyFilterForm {
    /// One bit for each integer from the smallest to the largest key.
    Bitmap,
    /// Blocks of a Bloom filter.
    Blocks,
}

/// Identifies a filter in a program, which does not contain the filter itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyFilterName {
    /// The representation of its bytes.
    pub form: KeyFilterForm,
    /// A digest of its bytes.
    pub digest: u64,
    /// The number of its bytes.
    pub length_bytes: u32,
    /// The number of inserted keys, for estimates.
    pub keys: u32,
    /// The smallest key; larger than `high` when there are no keys.
    pub low: i64,
    /// The largest key.
    pub high: i64,
}

#[derive(Clone, PartialEq, Eq)]
enum Members {
    /// Bit `key - low`, from the lowest bit of the first word.
    Bitmap(Vec<u64>),
    Blocks(Vec<[u32; WORDS]>),
}

/// The set of keys.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyFilter {
    members: Members,
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
        Self::bitmap_of(keys).unwrap_or_else(|| Self::blocks_of(keys))
    }

    /// The set of `keys` as a bitmap, if they lie close enough together.
    #[must_use]
    pub fn bitmap_of(keys: &[i64]) -> Option<Self> {
        let (low, high) = bounds_of(keys);
        let most = (keys.len() as u64 * BITMAP_KEY_BITS).min(KEY_FILTER_BYTES_MAX as u64 * 8);
        let range = width_of(low, high).filter(|range| *range <= most)?;
        let mut words = vec![0_u64; usize::try_from(range.div_ceil(64)).ok()?];
        for &key in keys {
            let bit = key.abs_diff(low);
            // The key lies in the range, so its word exists; only 64-bit targets are supported.
            words[(bit / 64) as usize] |= 1 << (bit % 64);
        }
        let distinct: u32 = words.iter().map(|word| word.count_ones()).sum();
        Some(Self::named(Members::Bitmap(words), distinct, (low, high)))
    }

    fn blocks_of(keys: &[i64]) -> Self {
        let bytes = (keys.len() * KEY_BITS).div_ceil(8).clamp(SPLIT_BYTES, KEY_FILTER_BYTES_MAX);
        let mut blocks = vec![[0; WORDS]; bytes.div_ceil(SPLIT_BYTES)];
        for &key in keys {
            let hash = hash(key);
            let block = block_of(hash, blocks.len());
            blocks[block].iter_mut().zip(bits_of(hash)).for_each(|(word, bit)| *word |= bit);
        }
        // The count is for estimates, so it may saturate.
        let count = keys.len().saturating_as::<u32>();
        Self::named(Members::Blocks(blocks), count, bounds_of(keys))
    }

    /// Decodes a filter from the bytes of a peer and checks that it is the one that `name`
    /// identifies.
    ///
    /// # Errors
    /// When the number or the digest of the bytes is wrong.
    pub fn from_bytes(bytes: &[u8], name: &KeyFilterName) -> Result<Self, CodecError> {
        let (members, whole) = match name.form {
            KeyFilterForm::Bitmap => {
                let (words, rest) = bytes.as_chunks();
                let expected = width_of(name.low, name.high).map(|range| range.div_ceil(64));
                let whole = rest.is_empty() && expected == Some(words.len() as u64);
                (Members::Bitmap(words.iter().map(|word| u64::from_le_bytes(*word)).collect()), whole)
            }
            KeyFilterForm::Blocks => {
                let (words, rest) = bytes.as_chunks::<4>();
                let (blocks, more) = words.as_chunks();
                let whole = rest.is_empty() && more.is_empty() && !blocks.is_empty();
                let blocks = blocks.iter().map(|block| block.map(u32::from_le_bytes));
                (Members::Blocks(blocks.collect()), whole)
            }
        };
        let found = Self::named(members, name.keys, (name.low, name.high));
        if whole && bytes.len() <= KEY_FILTER_BYTES_MAX && found.name == *name {
            return Ok(found);
        }
        let (found, bytes) = (found.name.digest, bytes.len());
        let reason = format!("found {bytes} bytes with digest {found:016x}, expected {name:?}");
        Err(CodecError::Malformed { what: "key filter", reason })
    }

    /// Its bytes, the same on every machine.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        match &self.members {
            Members::Bitmap(words) => words.iter().flat_map(|word| word.to_le_bytes()).collect(),
            Members::Blocks(blocks) => blocks.iter().flatten().flat_map(|word| word.to_le_bytes()).collect(),
        }
    }

    /// The name by which programs identify it.
    #[must_use]
    pub fn name(&self) -> KeyFilterName {
        self.name
    }

    /// The keys, ascending; `None` for a Bloom filter, which does not store them.
    pub fn keys(&self) -> Option<impl Iterator<Item = i64> + '_> {
        let Members::Bitmap(words) = &self.members else { return None };
        let set = |bit: &u64| words[(bit / 64) as usize] & (1 << (bit % 64)) != 0;
        let bits = (0..words.len() as u64 * 64).filter(set);
        Some(bits.map(|bit| self.name.low.wrapping_add_unsigned(bit)))
    }

    /// Whether the key may have been inserted.
    #[must_use]
    #[inline(always)]
    pub fn contains(&self, key: i64) -> bool {
        match &self.members {
            Members::Bitmap(words) => in_bitmap(words, self.name.low, key) == 1,
            Members::Blocks(blocks) => {
                in_blocks(blocks, key) && self.name.low <= key && key <= self.name.high
            }
        }
    }

    /// Whether a key from `min` to `max` may have been inserted; looks up single keys of a Bloom
    /// filter if they are at most `single_keys_max`.
    #[must_use]
    pub fn contains_between(&self, min: i64, max: i64, single_keys_max: u64) -> bool {
        let (min, max) = (min.max(self.name.low), max.min(self.name.high));
        if min > max {
            return false;
        }
        match &self.members {
            Members::Bitmap(words) => {
                let (first, last) = (min.abs_diff(self.name.low), max.abs_diff(self.name.low));
                let (from_first, to_last) = (u64::MAX << (first % 64), u64::MAX >> (63 - last % 64));
                let (first, last) = ((first / 64) as usize, (last / 64) as usize);
                if first == last {
                    return words[first] & from_first & to_last != 0;
                }
                let between = words[first + 1..last].iter().any(|word| *word != 0);
                between || words[first] & from_first != 0 || words[last] & to_last != 0
            }
            Members::Blocks(_) if max.abs_diff(min) < single_keys_max => {
                (min..=max).any(|key| self.contains(key))
            }
            Members::Blocks(_) => true,
        }
    }

    /// Writes 1 for each key that may have been inserted, 0 for others.
    pub fn probe(&self, level: Level, keys: &[i64; BLOCK_ROWS], answers: &mut [u8; BLOCK_ROWS]) {
        match &self.members {
            Members::Bitmap(words) => {
                level.run(ProbeBitmap { words, low: self.name.low, keys, answers });
            }
            Members::Blocks(_) => level.run(ProbeBlocks { filter: self, keys, answers }),
        }
    }

    fn named(members: Members, keys: u32, (low, high): (i64, i64)) -> Self {
        let (form, bytes) = match &members {
            Members::Bitmap(words) => (KeyFilterForm::Bitmap, words.len() * 8),
            Members::Blocks(blocks) => (KeyFilterForm::Blocks, blocks.len() * SPLIT_BYTES),
        };
        // Our filters are within KEY_FILTER_BYTES_MAX, and `from_bytes` refuses longer ones of
        // peers.
        let length_bytes = bytes.saturating_as::<u32>();
        let with = |digest: u64, word: u64| mix(digest ^ word).wrapping_add(digest.rotate_left(17));
        let start = u64::from(length_bytes);
        let digest = match &members {
            Members::Bitmap(words) => words.iter().fold(start, |digest, word| with(digest, *word)),
            Members::Blocks(blocks) => {
                blocks.iter().flatten().fold(start, |digest, word| with(digest, u64::from(*word)))
            }
        };
        Self { members, name: KeyFilterName { form, digest, length_bytes, keys, low, high } }
    }
}

struct ProbeBitmap<'a> {
    words: &'a [u64],
    low: i64,
    keys: &'a [i64; BLOCK_ROWS],
    answers: &'a mut [u8; BLOCK_ROWS],
}

impl Kernel for ProbeBitmap<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (key, answer) in self.keys.iter().zip(self.answers) {
            *answer = in_bitmap(self.words, self.low, *key);
        }
    }
}

struct ProbeBlocks<'a> {
    filter: &'a KeyFilter,
    keys: &'a [i64; BLOCK_ROWS],
    answers: &'a mut [u8; BLOCK_ROWS],
}

impl Kernel for ProbeBlocks<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Members::Blocks(blocks) = &self.filter.members else { return };
        let (low, high) = (self.filter.name.low, self.filter.name.high);
        for (key, answer) in self.keys.iter().zip(self.answers) {
            *answer = u8::from(in_blocks(blocks, *key) & (low <= *key) & (*key <= high));
        }
    }
}

/// 1 if the key's bit exists and is set. The distance from `low` is taken modulo 2^64: a key
/// outside the bitmap's range is too far away to have a bit.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "what is cast is checked against a length, or one bit")]
fn in_bitmap(words: &[u64], low: i64, key: i64) -> u8 {
    let bit = key.wrapping_sub(low).cast_unsigned();
    words.get((bit / 64) as usize).map_or(0, |word| (word >> (bit % 64)) as u8 & 1)
}

#[inline(always)]
fn in_blocks(blocks: &[[u32; WORDS]], key: i64) -> bool {
    let hash = hash(key);
    let block = &blocks[block_of(hash, blocks.len())];
    block.iter().zip(bits_of(hash)).fold(0, |missing, (word, bit)| missing | (bit & !word)) == 0
}

/// The smallest and the largest key; `(i64::MAX, i64::MIN)` if there are none.
fn bounds_of(keys: &[i64]) -> (i64, i64) {
    keys.iter().fold((i64::MAX, i64::MIN), |(low, high), key| (low.min(*key), high.max(*key)))
}

/// The number of integers from `low` to `high`; `None` if it is 0 or 2^64.
fn width_of(low: i64, high: i64) -> Option<u64> {
    if low > high { None } else { high.abs_diff(low).checked_add(1) }
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

    fn near_keys() -> Vec<i64> {
        (0..20_000).map(|key| key * 3 + i64::from(key % 7 == 0)).collect()
    }

    /// Too far apart for a bitmap.
    fn far_keys() -> Vec<i64> {
        (0..20_000).map(|key| key * 100_003 - 7).collect()
    }

    #[test]
    fn every_inserted_key_is_found_and_few_others_are() {
        let (near, far) = (KeyFilter::of(&near_keys()), KeyFilter::of(&far_keys()));
        assert_eq!((near.name().form, far.name().form), (KeyFilterForm::Bitmap, KeyFilterForm::Blocks));
        assert!(near_keys().iter().all(|key| near.contains(*key)));
        assert!(far_keys().iter().all(|key| far.contains(*key)));
        assert_eq!((-9..70_000).filter(|key| near.contains(*key)).count(), 20_000);
        let wrong = far_keys().iter().filter(|key| far.contains(*key + 1)).count();
        assert!(wrong < 400, "{wrong} of 20000");
    }

    #[test]
    fn nothing_is_in_a_filter_of_no_keys() {
        let filter = KeyFilter::of(&[]);
        assert!((-500..500).all(|key| !filter.contains(key)));
        assert!(!filter.contains_between(i64::MIN, i64::MAX, 0));
    }

    #[test]
    fn a_bitmap_at_the_ends_of_what_is_stored_holds_its_keys_alone() {
        for low in [i64::MIN, -100, i64::MAX - 200] {
            let keys: Vec<i64> = [0, 3, 64, 127, 128, 200].map(|key| low + key).into();
            let filter = KeyFilter::of(&keys);
            assert_eq!((filter.name().form, filter.name().keys), (KeyFilterForm::Bitmap, 6));
            assert_eq!(filter.keys().map(Iterator::collect), Some(keys.clone()));
            let others = [i64::MIN, i64::MIN + 77, -1, 0, 1, 5, i64::MAX - 9, i64::MAX];
            for key in others.into_iter().chain(keys.iter().copied()) {
                assert_eq!(filter.contains(key), keys.contains(&key), "{key} of {low}");
            }
        }
    }

    #[test]
    fn ranges_hold_a_key_exactly_when_one_of_them_is_set() {
        let keys = [5, 70, 71, 130, 260, 300, 400, 511];
        let filter = KeyFilter::of(&keys);
        assert_eq!(filter.name().form, KeyFilterForm::Bitmap);
        for min in -3..520 {
            for max in min..520 {
                let expected = keys.iter().any(|key| (min..=max).contains(key));
                assert_eq!(filter.contains_between(min, max, 0), expected, "{min} to {max}");
            }
        }
        assert!(filter.contains_between(i64::MIN, i64::MAX, 0) && !filter.contains_between(512, i64::MAX, 0));
    }

    #[test]
    fn ranges_of_a_bloom_filter_are_looked_into_while_they_are_short() {
        let filter = KeyFilter::of(&far_keys());
        assert!(filter.contains_between(99_990, 99_999, 64) && filter.contains_between(1, 99_000, 64));
        let ruled_out = (0..1000).filter(|at| !filter.contains_between(at * 50, at * 50 + 3, 64)).count();
        assert!(ruled_out > 900, "{ruled_out} of 1000");
    }

    #[test]
    fn every_level_answers_alike() {
        for keys in [near_keys(), far_keys()] {
            let filter = KeyFilter::of(&keys);
            let step = keys[1] - keys[0];
            let asked: [i64; BLOCK_ROWS] =
                std::array::from_fn(|row| keys[row] + row as i64 % 3 * step / 2 - step);
            for level in Level::available() {
                let mut answers = [9; BLOCK_ROWS];
                filter.probe(level, &asked, &mut answers);
                let expected = asked.map(|key| u8::from(filter.contains(key)));
                assert_eq!(answers, expected, "{level}");
            }
        }
    }

    #[test]
    fn a_filter_arrives_as_it_was_sent_or_not_at_all() {
        for keys in [near_keys(), far_keys()] {
            let filter = KeyFilter::of(&keys);
            let (bytes, name) = (filter.to_bytes(), filter.name());
            assert_eq!(KeyFilter::from_bytes(&bytes, &name), Ok(filter.clone()));
            for wrong in [&bytes[1..], &bytes[SPLIT_BYTES..], &[]] {
                assert!(KeyFilter::from_bytes(wrong, &name).is_err());
            }
            let mut changed = bytes.clone();
            changed[77] ^= 4;
            assert!(KeyFilter::from_bytes(&changed, &name).is_err());
            let mut swapped = bytes.clone();
            swapped[..80].rotate_left(7);
            assert!(KeyFilter::from_bytes(&swapped, &name).is_err());
            for form in [KeyFilterForm::Bitmap, KeyFilterForm::Blocks] {
                let other = KeyFilterName { form, high: name.high + 64, ..name };
                assert!(form != KeyFilterForm::Bitmap || KeyFilter::from_bytes(&bytes, &other).is_err());
                let found = KeyFilter::from_bytes(&bytes, &KeyFilterName { form, ..name });
                assert_eq!(found.is_ok(), form == name.form);
            }
        }
    }

    #[test]
    fn a_filter_of_many_keys_stays_within_its_limit() {
        let far: Vec<i64> = (0..1_200_000).map(|key| key * 1000).collect();
        let filter = KeyFilter::of(&far);
        assert_eq!(
            (filter.name().form, filter.to_bytes().len()),
            (KeyFilterForm::Blocks, KEY_FILTER_BYTES_MAX)
        );
        assert!(far.iter().all(|key| filter.contains(*key)));
        let most = KEY_FILTER_BYTES_MAX as i64 * 8;
        let near: Vec<i64> = (0..most).step_by(7).chain([most - 1]).collect();
        let filter = KeyFilter::of(&near);
        assert_eq!(
            (filter.name().form, filter.to_bytes().len()),
            (KeyFilterForm::Bitmap, KEY_FILTER_BYTES_MAX)
        );
    }
}
