//! Defines the list of withheld rows of a segment: the numbers of the rows that were updated or
//! deleted since the segment was written.
//!
//! A segment never changes. A scan of a segment gets its withheld rows and leaves them out of the
//! result.
//!
//! ```text
//! CRC-32C of all bytes after it: u32 | then for each block that has withheld rows, ascending:
//!   number of the block: u16 | number of its withheld rows: u16 | then, by that number:
//!     1 to 63       a u16 for each row, ascending, counted in the block
//!     64 to 1,023   128 bytes, a bit for each row of the block, the first row in the lowest bit of the first byte
//!     1,024         nothing
//! ```
//!
//! Invariants
//! - Each set of rows has exactly one encoding; the encoding of the empty set has no bytes. Numbers
//!   are little-endian.
//! - Every row is below `SEGMENT_ROWS_MAX`. [`WithheldRows::verify`] checks the rows against the
//!   length of their segment.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Visitor},
};

use crate::limits::{BLOCK_ROWS, SEGMENT_ROWS_MAX, WITHHELD_BYTES_MAX};

/// 64-bit words of a bitmap of one block.
pub const BLOCK_WORDS: usize = BLOCK_ROWS / 64;
/// The minimum number of rows of a block that are written as a bitmap: fewer rows take less space
/// as numbers.
const BITMAP_ROWS_MIN: usize = BLOCK_ROWS / 16;
/// [`BLOCK_ROWS`] in the type of row numbers.
const ROWS_PER_BLOCK: u32 = 1 << BLOCK_ROWS.trailing_zeros();
const CHECKSUM_BYTES: usize = 4;
const HEAD_BYTES: usize = 4;
const BITMAP_BYTES: usize = BLOCK_ROWS / 8;

const _: () = assert!(ROWS_PER_BLOCK as usize == BLOCK_ROWS);
const _: () = assert!(WithheldRows::bytes_max(SEGMENT_ROWS_MAX) == WITHHELD_BYTES_MAX);

/// Why bytes or row numbers are not a valid set of withheld rows, or not one of a given segment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the list of withheld rows of a segment is wrong: {what}: found {found}, expected {expected}")]
pub struct WithheldError {
    /// The part at fault.
    pub what: &'static str,
    /// The value found.
    pub found: String,
    /// The valid values.
    pub expected: String,
}

fn fault<T>(
    what: &'static str,
    found: impl ToString,
    expected: impl Into<String>,
) -> Result<T, WithheldError> {
    Err(WithheldError { what, found: found.to_string(), expected: expected.into() })
}

/// A block that has withheld rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    block: u16,
    rows: u16,
    /// Where its rows begin in the encoding.
    at: u32,
}

/// A set of rows of one segment. The default is the empty set.
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

    /// The set of the given rows, numbered within their segment, in any order; they may repeat.
    ///
    /// # Errors
    /// When a row number is not below `SEGMENT_ROWS_MAX`.
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
        Self::with_checksum(bytes)
    }

    /// Writes the checksum of the encoded blocks into the first bytes, which `bytes` reserves for
    /// it.
    fn with_checksum(mut bytes: Vec<u8>) -> Result<Self, WithheldError> {
        if bytes.len() == CHECKSUM_BYTES {
            return Ok(Self::default());
        }
        let checksum = crc32c::crc32c(&bytes[CHECKSUM_BYTES..]);
        bytes[..CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
        Self::parse(bytes)
    }

    /// All of a segment's `segment_rows` rows except those in `kept`, which may come in any order
    /// and repeat. Rows beyond the segment's end are ignored.
    ///
    /// # Errors
    /// When `segment_rows` exceeds `SEGMENT_ROWS_MAX`.
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
        Self::with_checksum(bytes)
    }

    /// Decodes a set.
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
        Self::parse(bytes.to_vec())
    }

    /// Parses bytes whose checksum is right.
    fn parse(bytes: Vec<u8>) -> Result<Self, WithheldError> {
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
            let length = content_bytes(count.into())?;
            let Some(content) = bytes.get(at..at + length) else {
                return fault("the bytes of a block", bytes.len() - at, length.to_string());
            };
            check_rows(content, count)?;
            let start = u32::try_from(at).expect("an offset: at most WITHHELD_BYTES_MAX");
            blocks.push(Block { block, rows: count, at: start });
            // At most 1,024 rows of each of 4,096 blocks.
            rows += u32::from(count);
            at += length;
        }
        if blocks.is_empty() || at != bytes.len() {
            return fault(
                "bytes after the last block",
                bytes.len() - at.min(bytes.len()),
                "none, after at least one block",
            );
        }
        Ok(Self { bytes, blocks, rows })
    }

    /// The encoded set.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The maximum number of encoded bytes of a set of rows of a segment of `segment_rows` rows.
    #[must_use]
    pub const fn bytes_max(segment_rows: u32) -> usize {
        CHECKSUM_BYTES + (segment_rows as usize).div_ceil(BLOCK_ROWS) * (HEAD_BYTES + BITMAP_BYTES)
    }

    /// Checks that all rows of the set lie within a segment of `segment_rows` rows.
    ///
    /// # Errors
    /// When a row lies beyond the segment's end.
    pub fn verify(&self, segment_rows: u32) -> Result<(), WithheldError> {
        match self.blocks.last().and_then(|block| self.rows_of(block).last()) {
            Some(last) if last >= segment_rows => {
                fault("a row", last, format!("below {segment_rows}, the segment's rows"))
            }
            _ => Ok(()),
        }
    }

    /// Whether this set contains all rows of `other`.
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

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The number of withheld rows.
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

    /// The withheld rows of a block as a bitmap, the first row in the lowest bit of the first word;
    /// `None` if no row of the block is withheld.
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
        // `parse` has checked offsets and lengths.
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

/// Serialized as the encoded bytes.
impl Serialize for WithheldRows {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.bytes)
    }
}

/// Deserialized with the checks of [`WithheldRows::from_bytes`].
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
    u16::try_from(row / ROWS_PER_BLOCK).expect("a block: a segment has at most 4,096")
}

/// The encoded bytes of a block with `rows` withheld rows, without its header.
fn content_bytes(rows: usize) -> Result<usize, WithheldError> {
    match rows {
        0 => fault("the rows of a block", 0, format!("1 to {BLOCK_ROWS}")),
        BLOCK_ROWS => Ok(0),
        few if few < BITMAP_ROWS_MIN => Ok(2 * few),
        many if many < BLOCK_ROWS => Ok(BITMAP_BYTES),
        other => fault("the rows of a block", other, format!("1 to {BLOCK_ROWS}")),
    }
}

/// Appends a block with these rows, which ascend and are at least one.
fn write_block(rows: &[u32], bytes: &mut Vec<u8>) {
    let count = u16::try_from(rows.len()).expect("rows of a block: at most BLOCK_ROWS");
    bytes.extend_from_slice(&block_of(rows[0]).to_le_bytes());
    bytes.extend_from_slice(&count.to_le_bytes());
    write_rows(rows, bytes);
}

/// Appends the rows of a block, without the header.
fn write_rows(rows: &[u32], bytes: &mut Vec<u8>) {
    let in_block = rows.iter().map(|row| row % ROWS_PER_BLOCK);
    if rows.len() == BLOCK_ROWS {
        return;
    }
    if rows.len() < BITMAP_ROWS_MIN {
        let numbers = in_block.map(|row| u16::try_from(row).expect("a row of a block: below BLOCK_ROWS"));
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
