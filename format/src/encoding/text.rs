//! Defines buffers of decoded texts, views of texts to be encoded, and code that all encodings of
//! texts use.
//!
//! Invariants
//! - Texts are bytes here. Code that makes strings of them validates UTF-8. A text is never stored
//!   in part.

use super::{bitpack::Scratch, integer::IntegerPage};
use crate::{limits::BLOCK_ROWS, page::PageFault};
use std::ops::Range;

/// Decoded texts, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextBuffer {
    /// The bytes of all texts.
    pub bytes: Vec<u8>,
    /// Where each text ends in `bytes`; it begins where the previous one ends.
    pub ends: Vec<u32>,
}

impl TextBuffer {
    /// Removes the texts and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Texts held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether no text is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The text at `position`, which must be below `len()`.
    #[must_use]
    pub fn get(&self, position: usize) -> &[u8] {
        let start = if position == 0 { 0 } else { self.ends[position - 1] };
        &self.bytes[start as usize..self.ends[position] as usize]
    }

    /// Appends a text.
    ///
    /// # Errors
    /// When all texts together would take 4 GiB or more.
    pub fn push(&mut self, text: &[u8]) -> Result<(), PageFault> {
        let end = self.end_after(text.len())?;
        self.bytes.extend_from_slice(text);
        self.ends.push(end);
        Ok(())
    }

    /// Where the buffer would end with `length` more bytes.
    pub(crate) fn end_after(&self, length: usize) -> Result<u32, PageFault> {
        let end = self.bytes.len().saturating_add(length);
        u32::try_from(end).map_err(|_| PageFault::malformed("the number of decoded bytes", end, u32::MAX))
    }
}

/// Texts to encode, in arrow's layout: text `i` is `bytes[offsets[i]..offsets[i + 1]]`.
#[derive(Clone, Copy, Debug)]
pub struct TextValues<'v> {
    /// The bytes of all texts.
    pub bytes: &'v [u8],
    /// One more offset than there are texts, ascending, all within `bytes`.
    pub offsets: &'v [u32],
}

impl<'v> TextValues<'v> {
    /// Texts held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Whether no text is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The text of a row below `len()`.
    #[must_use]
    pub fn get(&self, row: usize) -> &'v [u8] {
        &self.bytes[self.offsets[row] as usize..self.offsets[row + 1] as usize]
    }
}

/// Little-endian ends of consecutive ranges; the first range begins at 0.
pub(crate) type Ends<'p> = &'p [[u8; END_BYTES]];
/// Bytes of one end.
pub(crate) const END_BYTES: usize = size_of::<u32>();

/// The range at `index`, which must be below `ends.len()`.
pub(crate) fn range_of(ends: Ends<'_>, index: usize) -> Range<usize> {
    let end_of = |index: usize| u32::from_le_bytes(ends[index]) as usize;
    if index == 0 { 0..end_of(0) } else { end_of(index - 1)..end_of(index) }
}

/// Checks that the ends do not descend, and returns the last one. Overlapping ranges could make a
/// small page decode to more bytes than fit in memory.
pub(crate) fn verify_ends(what: &'static str, ends: Ends<'_>) -> Result<usize, PageFault> {
    let mut before = 0;
    for end in ends {
        let end = u32::from_le_bytes(*end);
        if end < before {
            return Err(PageFault::malformed(what, before, end));
        }
        before = end;
    }
    Ok(before as usize)
}

/// Decodes the lengths of a block's texts, and returns their sum.
pub(crate) fn lengths_of(
    page: &IntegerPage<'_>,
    block: usize,
    scratch: &mut Scratch,
    lengths: &mut Vec<u32>,
) -> Result<u64, PageFault> {
    lengths.clear();
    let block = page.block(block)?;
    let (smallest, largest) = block.bounds();
    if smallest < 0 || largest > u32::MAX.into() {
        return Err(PageFault::malformed("the length of a text", largest.cast_unsigned(), u32::MAX));
    }
    block.decode_into(0..block.rows(), scratch, lengths);
    debug_assert!(lengths.len() <= BLOCK_ROWS);
    Ok(lengths.iter().map(|length| u64::from(*length)).sum())
}
