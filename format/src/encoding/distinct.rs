//! Finds the distinct texts of a chunk and their ranks (positions in sorted order), unless there
//! are too many for a dictionary.
//!
//! Invariants
//! - If the first [`SAMPLE_ROWS`] rows are mostly distinct, the search ends there, so it costs
//!   little.
//! - Ranks follow the byte order of the texts.

use super::{bitpack, text::TextValues, validity::Bitmap};

/// The maximum number of entries of a dictionary: codes have at most 16 bits.
pub(crate) const ENTRIES_MAX: usize = 1 << 16;
/// The number of rows after which the search gives up if more than [`SAMPLE_DISTINCT_MAX`] of them
/// are distinct.
const SAMPLE_ROWS: usize = 16 * 1024;
const SAMPLE_DISTINCT_MAX: usize = SAMPLE_ROWS / 4 * 3;
/// The rank of a row without a value.
pub(crate) const NO_RANK: u32 = u32::MAX;

/// A chunk's texts as ranks among its distinct texts.
pub(crate) struct Distinct<'v> {
    /// The distinct texts, ascending.
    pub(crate) entries: Vec<&'v [u8]>,
    /// For each row a position in `entries`, or [`NO_RANK`].
    pub(crate) ranks: Vec<u32>,
}

impl<'v> Distinct<'v> {
    /// `None` when there are too many distinct texts.
    pub(crate) fn of(texts: &TextValues<'v>, validity: Option<Bitmap<'_>>) -> Option<Self> {
        let mut table = Table { slots: vec![0; 1024], entries: Vec::new() };
        let mut ranks = Vec::with_capacity(texts.len());
        for row in 0..texts.len() {
            let valid = validity.is_none_or(|bitmap| bitmap.is_valid(row));
            ranks.push(if valid { table.find_or_add(texts.get(row)) } else { NO_RANK });
            let limit = if row == SAMPLE_ROWS { SAMPLE_DISTINCT_MAX } else { ENTRIES_MAX };
            if table.entries.len() > limit {
                return None;
            }
        }
        let mut order: Vec<u32> = (0..).take(table.entries.len()).collect();
        order.sort_unstable_by_key(|entry| table.entries[*entry as usize].0);
        let mut rank_of = vec![0_u32; order.len()];
        for (rank, entry) in (0_u32..).zip(&order) {
            rank_of[*entry as usize] = rank;
        }
        for rank in ranks.iter_mut().filter(|rank| **rank != NO_RANK) {
            *rank = rank_of[*rank as usize];
        }
        let entries = order.iter().map(|entry| table.entries[*entry as usize].0).collect();
        Some(Self { entries, ranks })
    }

    /// The estimated bytes of all pages of `page_bytes` with their codes, assuming the worst case
    /// that every page holds all entries.
    pub(crate) fn estimated_bytes(&self, page_bytes: usize) -> usize {
        let width = bitpack::width_of((self.entries.len() as u64).saturating_sub(1));
        let codes = self.ranks.len() * usize::from(width) / 8;
        let entries: usize = self.entries.iter().map(|entry| entry.len() + size_of::<u32>()).sum();
        let room_for_codes = page_bytes.saturating_sub(entries).max(page_bytes / 4);
        codes + entries * codes.div_ceil(room_for_codes).max(1)
    }
}

/// A hash table with open addressing and linear probing, at most half full. A slot holds an entry's
/// position plus one, or 0.
struct Table<'v> {
    slots: Vec<u32>,
    entries: Vec<(&'v [u8], u64)>,
}

impl<'v> Table<'v> {
    #[expect(clippy::cast_possible_truncation, reason = "a slot is the low bits of a hash; entries are few")]
    fn find_or_add(&mut self, text: &'v [u8]) -> u32 {
        let hash = hash_of(text);
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        while let Some(entry) = self.slots[slot].checked_sub(1) {
            let (known, known_hash) = self.entries[entry as usize];
            if known_hash == hash && known == text {
                return entry;
            }
            slot = (slot + 1) & mask;
        }
        self.entries.push((text, hash));
        let count = self.entries.len() as u32;
        self.slots[slot] = count;
        if self.entries.len() * 2 > self.slots.len() {
            self.grow();
        }
        count - 1
    }

    #[expect(clippy::cast_possible_truncation, reason = "a slot is the low bits of a hash")]
    fn grow(&mut self) {
        let mask = self.slots.len() * 4 - 1;
        self.slots = vec![0; mask + 1];
        for (count, (_, hash)) in (1_u32..).zip(&self.entries) {
            let mut slot = *hash as usize & mask;
            while self.slots[slot] != 0 {
                slot = (slot + 1) & mask;
            }
            self.slots[slot] = count;
        }
    }
}

/// Folds words by multiplication (as wyhash does): a few cycles for the short texts that
/// dictionaries hold.
fn hash_of(text: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let fold = |left: u64, right: u64| {
        let product = u128::from(left ^ ODD) * u128::from(right ^ ODD.rotate_left(32));
        let [high, low] = [product >> 64, product & u128::from(u64::MAX)];
        u64::try_from(high ^ low).expect("a word: both halves are below 2^64")
    };
    let (words, rest) = text.as_chunks();
    let mut hash = text.len() as u64;
    for word in words {
        hash = fold(hash, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    fold(fold(hash, u64::from_le_bytes(last)), ODD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts_of(texts: &[String]) -> (Vec<u8>, Vec<u32>) {
        let mut offsets = vec![0];
        let mut bytes = Vec::new();
        for text in texts {
            bytes.extend_from_slice(text.as_bytes());
            offsets.push(u32::try_from(bytes.len()).unwrap());
        }
        (bytes, offsets)
    }

    #[test]
    fn ranks_order_rows_as_their_texts_do() {
        let texts: Vec<String> =
            (0..5000_u32).map(|row| (row.wrapping_mul(7919) % 997).to_string()).collect();
        let (bytes, offsets) = texts_of(&texts);
        let distinct = Distinct::of(&TextValues { bytes: &bytes, offsets: &offsets }, None).unwrap();
        assert_eq!(distinct.entries.len(), 997);
        assert!(distinct.entries.is_sorted());
        for (row, text) in texts.iter().enumerate() {
            assert_eq!(distinct.entries[distinct.ranks[row] as usize], text.as_bytes());
        }
    }

    #[test]
    fn mostly_distinct_texts_are_given_up() {
        let texts: Vec<String> = (0..20_000).map(|row| row.to_string()).collect();
        let (bytes, offsets) = texts_of(&texts);
        assert!(Distinct::of(&TextValues { bytes: &bytes, offsets: &offsets }, None).is_none());
    }
}
