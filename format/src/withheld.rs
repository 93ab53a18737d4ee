//! Which rows of a segment are not there any more? The numbers of those that were updated or
//! deleted since it was written.
//!
//! A segment never changes. Whoever scans one is given the rows that do not exist for that scan,
//! and they do not come out of it.
//!
//! ```text
//! CRC-32C of the rest: u32 | of each block with such rows, ascending:
//!   block: u16 | how many: u16 | which, by how many there are:
//!     1 to 63       a u16 for each, ascending, counted in the block
//!     64 to 1,023   128 bytes, a bit for each row of the block, the first row in the lowest bit of the first byte
//!     1,024         nothing
//! ```
//!
//! Invariants
//! - A set has one encoding; that of the empty set has no bytes. Numbers are little-endian.
//! - Every row is below `SEGMENT_ROWS_MAX`. Whether a segment has it is for
//!   [`WithheldRows::verify`].

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Visitor},
};

use crate::limits::{BLOCK_ROWS, SEGMENT_ROWS_MAX};

/// Words of 64 bits that a block's rows take.
pub const BLOCK_WORDS: usize = BLOCK_ROWS / 64;
/// The fewest rows of a block that are written as bits: fewer take less as numbers.
const BITMAP_ROWS_MIN: usize = BLOCK_ROWS / 16;
/// [`BLOCK_ROWS`], as the rows of a segment are counted.
const ROWS_PER_BLOCK: u32 = 1 << BLOCK_ROWS.trailing_zeros();
const CHECKSUM_BYTES: usize = 4;
const HEAD_BYTES: usize = 4;
const BITMAP_BYTES: usize = BLOCK_ROWS / 8;

const _: () = assert!(ROWS_PER_BLOCK as usize == BLOCK_ROWS);

/// Why bytes or numbers are no withheld rows, or not those of a segment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("withheld rows: {what}: found {found}, expected {expected}")]
pub struct WithheldError {
    /// The part at fault.
    pub what: &'static str,
    /// What is there.
    pub found: String,
    /// What would be right.
    pub expected: String,
}

fn fault<T>(
    what: &'static str,
    found: impl ToString,
    expected: impl Into<String>,
) -> Result<T, WithheldError> {
    Err(WithheldError { what, found: found.to_string(), expected: expected.into() })
}

/// A block with rows that are withheld.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    block: u16,
    rows: u16,
    /// Where its rows begin in the encoding.
    at: u32,
}

/// A set of rows of one segment. The default is none of them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct WithheldRows {
    bytes: Vec<u8>,
    blocks: Vec<Block>,
    rows: u32,
}

impl fmt::Debug for WithheldRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, blocks) = (self.rows, self.blocks.len());
        f.debug_struct("WithheldRows").field("rows", &rows).field("blocks", &blocks).finish()
    }
}

impl WithheldRows {
    /// The empty set.
    pub const NONE: Self = Self { bytes: Vec::new(), blocks: Vec::new(), rows: 0 };

    /// The set of these rows, counted in their segment, in any order; they may repeat.
    ///
    /// # Errors
    /// When a row is one that no segment has.
    pub fn of(rows: impl IntoIterator<Item = u32>) -> Result<Self, WithheldError> {
        let mut rows: Vec<u32> = rows.into_iter().collect();
        rows.sort_unstable();
        rows.dedup();
        if let Some(last) = rows.last().filter(|last| **last >= SEGMENT_ROWS_MAX) {
            return fault("a row", last, format!("below {SEGMENT_ROWS_MAX}"));
        }
        if rows.is_empty() {
            return Ok(Self::default());
        }
        let mut bytes = vec![0; CHECKSUM_BYTES];
        for rows in rows.chunk_by(|one, next| block_of(*one) == block_of(*next)) {
            write_block(rows, &mut bytes);
        }
        Self::sealed(bytes)
    }

    /// Of blocks behind room for a checksum.
    fn sealed(mut bytes: Vec<u8>) -> Result<Self, WithheldError> {
        if bytes.len() == CHECKSUM_BYTES {
            return Ok(Self::default());
        }
        let checksum = crc32c::crc32c(&bytes[CHECKSUM_BYTES..]);
        bytes[..CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
        Self::indexed(bytes)
    }

    /// All of a segment's `segment_rows` rows but these, in any order; they may repeat. Rows that
    /// the segment does not have are passed over.
    ///
    /// # Errors
    /// When no segment has so many rows.
    pub fn all_but(kept: impl IntoIterator<Item = u32>, segment_rows: u32) -> Result<Self, WithheldError> {
        if segment_rows > SEGMENT_ROWS_MAX {
            return fault("the rows of a segment", segment_rows, format!("at most {SEGMENT_ROWS_MAX}"));
        }
        let mut kept: Vec<u32> = kept.into_iter().filter(|row| *row < segment_rows).collect();
        kept.sort_unstable();
        let mut kept = kept.as_slice();
        let mut bytes = vec![0; CHECKSUM_BYTES];
        let mut rows = Vec::with_capacity(BLOCK_ROWS);
        for first in (0..segment_rows).step_by(BLOCK_ROWS) {
            let end = segment_rows.min(first + ROWS_PER_BLOCK);
            let (of_block, rest) = kept.split_at(kept.partition_point(|row| *row < end));
            kept = rest;
            rows.clear();
            rows.extend((first..end).filter(|row| of_block.binary_search(row).is_err()));
            if !rows.is_empty() {
                write_block(&rows, &mut bytes);
            }
        }
        Self::sealed(bytes)
    }

    /// The set whose encoding this is.
    ///
    /// # Errors
    /// When the bytes are not exactly an encoding, or have changed since they were written.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, WithheldError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let most = Self::bytes_max(SEGMENT_ROWS_MAX);
        if bytes.len() > most {
            return fault("their bytes", bytes.len(), format!("at most {most}"));
        }
        let Some((stored, rest)) = bytes.split_first_chunk::<CHECKSUM_BYTES>() else {
            return fault("their bytes", bytes.len(), format!("none, or more than {CHECKSUM_BYTES}"));
        };
        let (stored, found) = (u32::from_le_bytes(*stored), crc32c::crc32c(rest));
        if stored != found {
            return fault("their checksum", format!("{found:08x}"), format!("{stored:08x}"));
        }
        Self::indexed(bytes.to_vec())
    }

    /// Looks into bytes whose checksum is right.
    fn indexed(bytes: Vec<u8>) -> Result<Self, WithheldError> {
        let (mut blocks, mut rows) = (Vec::<Block>::new(), 0);
        let mut at = CHECKSUM_BYTES;
        while let Some(&[b0, b1, r0, r1]) = bytes.get(at..).and_then(|rest| rest.first_chunk::<HEAD_BYTES>())
        {
            let (block, count) = (u16::from_le_bytes([b0, b1]), u16::from_le_bytes([r0, r1]));
            if u32::from(block) >= SEGMENT_ROWS_MAX / ROWS_PER_BLOCK {
                return fault("a block", block, format!("below {}", SEGMENT_ROWS_MAX / ROWS_PER_BLOCK));
            }
            if let Some(before) = blocks.last().filter(|before| before.block >= block) {
                return fault("a block", block, format!("one after {}", before.block));
            }
            at += HEAD_BYTES;
            let length = bytes_of(count.into())?;
            let Some(content) = bytes.get(at..at + length) else {
                return fault("the bytes of a block", bytes.len() - at, length.to_string());
            };
            check_rows(content, count)?;
            // At most `WITHHELD_BYTES_MAX`, and 1,024 rows of each of at most 4,096 blocks.
            blocks.push(Block { block, rows: count, at: u32::try_from(at).unwrap_or(u32::MAX) });
            rows += u32::from(count);
            at += length;
        }
        if blocks.is_empty() || at != bytes.len() {
            return fault(
                "bytes behind the last block",
                bytes.len() - at.min(bytes.len()),
                "none, behind one block at least",
            );
        }
        Ok(Self { bytes, blocks, rows })
    }

    /// The encoding.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The most bytes that a set of rows of a segment of so many rows takes.
    #[must_use]
    pub const fn bytes_max(segment_rows: u32) -> usize {
        CHECKSUM_BYTES + (segment_rows as usize).div_ceil(BLOCK_ROWS) * (HEAD_BYTES + BITMAP_BYTES)
    }

    /// Checks that a segment of so many rows has all of these.
    ///
    /// # Errors
    /// When it ends before one of them.
    pub fn verify(&self, segment_rows: u32) -> Result<(), WithheldError> {
        match self.blocks.last().and_then(|block| self.rows_of(block).last()) {
            Some(last) if last >= segment_rows => {
                fault("a row", last, format!("below {segment_rows}, the segment's rows"))
            }
            _ => Ok(()),
        }
    }

    /// Whether all rows of another set are in this one, too.
    #[must_use]
    pub fn includes(&self, other: &Self) -> bool {
        other.blocks.iter().all(|block| {
            let ours = self.in_block(block.block.into()).unwrap_or([0; BLOCK_WORDS]);
            other.words_of(block).iter().zip(ours).all(|(theirs, ours)| theirs & !ours == 0)
        })
    }

    /// Bytes of memory that the set takes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.len() + self.blocks.len() * size_of::<Block>()
    }

    /// Whether no row is withheld.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// How many rows are withheld.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.rows
    }

    /// The rows, ascending.
    pub fn rows(&self) -> impl Iterator<Item = u32> + '_ {
        self.blocks.iter().flat_map(|block| self.rows_of(block))
    }

    /// Whether a row is withheld.
    #[must_use]
    pub fn contains(&self, row: u32) -> bool {
        let words = self.in_block((row / ROWS_PER_BLOCK) as usize);
        words.is_some_and(|words| words[row as usize / 64 % BLOCK_WORDS] >> (row % 64) & 1 == 1)
    }

    /// Those of a block as bits, the first row in the lowest bit of the first word; `None` if all
    /// of its rows are there.
    #[must_use]
    #[inline]
    pub fn in_block(&self, block: usize) -> Option<[u64; BLOCK_WORDS]> {
        let index = self.blocks.binary_search_by_key(&block, |one| usize::from(one.block)).ok()?;
        Some(self.words_of(&self.blocks[index]))
    }

    fn rows_of(&self, block: &Block) -> impl Iterator<Item = u32> + use<> {
        let (words, first) = (self.words_of(block), u32::from(block.block) * ROWS_PER_BLOCK);
        (first..first + ROWS_PER_BLOCK)
            .filter(move |row| words[(row - first) as usize / 64] >> (row % 64) & 1 == 1)
    }

    fn words_of(&self, block: &Block) -> [u64; BLOCK_WORDS] {
        let mut words = [0; BLOCK_WORDS];
        // Everything was checked when it was indexed.
        let rest = self.bytes.get(block.at as usize..).unwrap_or_default();
        match usize::from(block.rows) {
            BLOCK_ROWS => words = [u64::MAX; BLOCK_WORDS],
            count if count < BITMAP_ROWS_MIN => {
                for row in numbers(rest).take(count).map(usize::from) {
                    words[row / 64 % BLOCK_WORDS] |= 1 << (row % 64);
                }
            }
            _ => {
                let stored = rest.as_chunks::<8>().0;
                words.iter_mut().zip(stored).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
            }
        }
        words
    }
}

/// As its bytes.
impl Serialize for WithheldRows {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.bytes)
    }
}

/// Checked as [`WithheldRows::from_bytes`] does.
impl<'de> Deserialize<'de> for WithheldRows {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = WithheldRows;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the bytes of withheld rows")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<WithheldRows, E> {
                WithheldRows::from_bytes(bytes).map_err(E::custom)
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

fn block_of(row: u32) -> u16 {
    // There are at most 4,096 blocks in a segment.
    u16::try_from(row / ROWS_PER_BLOCK).unwrap_or(u16::MAX)
}

/// How many bytes say which rows of a block, if there are so many.
fn bytes_of(rows: usize) -> Result<usize, WithheldError> {
    match rows {
        0 => fault("the rows of a block", 0, format!("1 to {BLOCK_ROWS}")),
        BLOCK_ROWS => Ok(0),
        few if few < BITMAP_ROWS_MIN => Ok(2 * few),
        many if many < BLOCK_ROWS => Ok(BITMAP_BYTES),
        other => fault("the rows of a block", other, format!("1 to {BLOCK_ROWS}")),
    }
}

/// Appends a block with these rows, at least one, ascending.
fn write_block(rows: &[u32], bytes: &mut Vec<u8>) {
    // There are fewer blocks, and fewer rows in each, than 16 bits count.
    let count = u16::try_from(rows.len()).unwrap_or(u16::MAX);
    bytes.extend_from_slice(&block_of(rows[0]).to_le_bytes());
    bytes.extend_from_slice(&count.to_le_bytes());
    write_rows(rows, bytes);
}

/// Appends which rows of a block these are.
fn write_rows(rows: &[u32], bytes: &mut Vec<u8>) {
    let in_block = rows.iter().map(|row| row % ROWS_PER_BLOCK);
    if rows.len() == BLOCK_ROWS {
        return;
    }
    if rows.len() < BITMAP_ROWS_MIN {
        let numbers = in_block.map(|row| u16::try_from(row).unwrap_or(u16::MAX));
        numbers.for_each(|row| bytes.extend_from_slice(&row.to_le_bytes()));
        return;
    }
    let mut bits = [0_u8; BITMAP_BYTES];
    in_block.for_each(|row| bits[row as usize / 8] |= 1 << (row % 8));
    bytes.extend_from_slice(&bits);
}

fn check_rows(content: &[u8], rows: u16) -> Result<(), WithheldError> {
    if usize::from(rows) >= BITMAP_ROWS_MIN {
        let set: u32 = content.iter().map(|byte| byte.count_ones()).sum();
        let whole = usize::from(rows) == BLOCK_ROWS;
        return if whole || set == u32::from(rows) {
            Ok(())
        } else {
            fault("the bits of a block", set, rows.to_string())
        };
    }
    let mut least = 0;
    for row in numbers(content) {
        if row < least || usize::from(row) >= BLOCK_ROWS {
            return fault("a row of a block", row, format!("{least} to {}", BLOCK_ROWS - 1));
        }
        least = row + 1;
    }
    Ok(())
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    bytes.as_chunks::<2>().0.iter().map(|bytes| u16::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests;
