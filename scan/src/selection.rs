//! Represents a set of rows of one block as 1,024 bits.
//!
//! Comparisons write one byte per row, because compilers vectorise such loops; a multiplication
//! then packs eight bytes at a time into bits.

use rackscan_format::{
    limits::BLOCK_ROWS,
    simd::{Kernel, Level},
};

const WORDS: usize = BLOCK_ROWS / 64;

/// One answer per row of a block: 0 or 1.
pub(crate) type RowBytes = [u8; BLOCK_ROWS];

/// A set of rows of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    words: [u64; WORDS],
}

impl Selection {
    pub(crate) const NONE: Self = Self { words: [0; WORDS] };

    /// The first `rows` rows.
    #[inline]
    pub(crate) fn first(rows: usize) -> Self {
        let mut words = [0; WORDS];
        for (index, word) in words.iter_mut().enumerate() {
            let here = rows.saturating_sub(index * 64).min(64);
            *word = if here == 64 { u64::MAX } else { (1 << here) - 1 };
        }
        Self { words }
    }

    /// The rows whose byte is 1; every byte is 0 or 1.
    #[inline]
    pub(crate) fn from_bytes(level: Level, bytes: &RowBytes) -> Self {
        level.run(Gather(bytes))
    }

    /// The rows whose bit is 1 in little-endian bytes, such as a validity bitmap's.
    pub(crate) fn from_bits(bits: &[u8]) -> Self {
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(bits.chunks(8)) {
            let mut full = [0; 8];
            full[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(full);
        }
        Self { words }
    }

    /// The rows whose bit is 1, the first row in the lowest bit of the first word.
    pub(crate) fn from_words(words: [u64; WORDS]) -> Self {
        Self { words }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(crate) fn contains(&self, row: usize) -> bool {
        self.words[row / 64] >> (row % 64) & 1 == 1
    }

    pub(crate) fn insert(&mut self, row: usize) {
        self.words[row / 64] |= 1 << (row % 64);
    }

    #[inline]
    pub(crate) fn and(&self, other: &Self) -> Self {
        self.combine(other, |one, two| one & two)
    }

    #[inline]
    pub(crate) fn or(&self, other: &Self) -> Self {
        self.combine(other, |one, two| one | two)
    }

    #[inline]
    pub(crate) fn without(&self, other: &Self) -> Self {
        self.combine(other, |one, two| one & !two)
    }

    fn combine(&self, other: &Self, how: impl Fn(u64, u64) -> u64) -> Self {
        let mut words = self.words;
        words.iter_mut().zip(other.words).for_each(|(one, two)| *one = how(*one, two));
        Self { words }
    }

    /// The rows in ascending order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(index, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest.wrapping_sub(1);
                (bit < 64).then_some(index * 64 + bit)
            })
        })
    }

    /// Appends the rows, ascending.
    pub(crate) fn append_rows(&self, rows: &mut Vec<u32>) {
        for (first, word) in (0_u32..).step_by(64).zip(self.words) {
            let (mut here, mut count, mut rest) = ([0; 64], 0, word);
            while rest != 0 {
                here[count % 64] = first + rest.trailing_zeros();
                rest &= rest - 1;
                count += 1;
            }
            rows.extend_from_slice(&here[..count.min(64)]);
        }
    }

    /// Writes `other` for each row that is not selected.
    pub(crate) fn replace_others(&self, level: Level, values: &mut [u16; BLOCK_ROWS], other: u16) {
        level.run(ReplaceOthers { selection: self, values, other });
    }

    /// Keeps the first `limit` rows.
    pub(crate) fn truncate(&mut self, limit: usize) {
        let mut left = limit;
        for word in &mut self.words {
            while word.count_ones() as usize > left {
                *word &= !(1 << (63 - word.leading_zeros()));
            }
            left -= word.count_ones() as usize;
        }
    }
}

struct ReplaceOthers<'a> {
    selection: &'a Selection,
    values: &'a mut [u16; BLOCK_ROWS],
    other: u16,
}

impl Kernel for ReplaceOthers<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { selection, values, other } = self;
        for (values, word) in values.as_chunks_mut::<64>().0.iter_mut().zip(selection.words) {
            if word == u64::MAX {
                continue;
            }
            // Each row has a bit of its own, so that rows do not depend on each other's shifts.
            for (values, quarter) in values.as_chunks_mut::<16>().0.iter_mut().zip(0..4) {
                let bits = (word >> (16 * quarter) & 0xffff) as u16;
                for (bit, value) in values.iter_mut().enumerate() {
                    *value = if bits & (1 << bit) != 0 { *value } else { other };
                }
            }
        }
    }
}

struct Gather<'a>(&'a RowBytes);

impl Kernel for Gather<'_> {
    type Output = Selection;

    #[inline(always)]
    fn run(self) -> Selection {
        // Bit 8i of the product sums into byte 7, so row i of eight lands in bit i of that byte.
        const GATHER: u64 = 0x0102_0408_1020_4080;
        let mut words = [0; WORDS];
        for (word, rows) in words.iter_mut().zip(self.0.as_chunks::<64>().0) {
            for (index, eight) in rows.as_chunks::<8>().0.iter().enumerate() {
                let packed = u64::from_le_bytes(*eight).wrapping_mul(GATHER) >> 56;
                *word |= packed << (8 * index);
            }
        }
        Selection { words }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_the_same_rows_in_order() {
        let mut bytes = [0; BLOCK_ROWS];
        let wanted: Vec<usize> = (0..BLOCK_ROWS).filter(|row| row * row % 7 == 2).collect();
        wanted.iter().for_each(|row| bytes[*row] = 1);
        for level in Level::available() {
            let selection = Selection::from_bytes(level, &bytes);
            assert_eq!(selection.rows().collect::<Vec<_>>(), wanted);
            assert_eq!(selection.count(), wanted.len());
            let mut rows = vec![9];
            selection.append_rows(&mut rows);
            assert!(rows[1..].iter().map(|row| *row as usize).eq(wanted.iter().copied()));
        }
    }

    #[test]
    fn the_first_rows_are_the_first_rows() {
        for rows in [0, 1, 63, 64, 65, 1000, 1024] {
            assert_eq!(Selection::first(rows).rows().collect::<Vec<_>>(), (0..rows).collect::<Vec<_>>());
        }
    }

    #[test]
    fn truncation_keeps_the_first_of_the_selected_rows() {
        let mut selection = Selection::NONE;
        [3, 70, 71, 900].iter().for_each(|row| selection.insert(*row));
        selection.truncate(3);
        assert_eq!(selection.rows().collect::<Vec<_>>(), [3, 70, 71]);
    }
}
