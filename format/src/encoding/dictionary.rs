//! Encodes pages of texts with few distinct values: a page stores the sorted list of its distinct
//! texts, and for each row a code, which is a position in that list.
//!
//! ```text
//! blocks of codes (encoding::integer) | u32 ends of the entries | bytes of the entries
//! sections: 0 = number of entries, 1 = where the ends are, 2 = where the bytes are
//! ```
//!
//! Invariants
//! - Entries ascend, so codes compare like their texts, and a range of texts is a range of codes.
//! - A page contains exactly the entries that its rows use. A page of nulls contains a single empty
//!   entry.
//! - Every code that this module returns is a valid entry: [`DictionaryPage::unpack`] checks each
//!   block.

use super::{
    bitpack::{Narrow, Scratch},
    encoder::in_page,
    integer::{IntegerBlock, IntegerPage, for_each_block},
    text::{END_BYTES, Ends, range_of, verify_ends},
};
use crate::page::{PageFault, PageView};

const SECTION_ENTRIES: usize = 0;
const SECTION_ENDS: usize = 1;
const SECTION_BYTES: usize = 2;

/// The texts of a page: codes and dictionary.
#[derive(Clone, Copy, Debug)]
pub struct DictionaryPage<'p> {
    codes: IntegerPage<'p>,
    ends: Ends<'p>,
    bytes: &'p [u8],
}

impl<'p> DictionaryPage<'p> {
    pub(crate) fn open(view: &PageView<'p>) -> Result<Self, PageFault> {
        let sections = view.header().sections;
        let entries = sections[SECTION_ENTRIES] as usize;
        if entries == 0 {
            return Err(PageFault::malformed("the number of dictionary entries", 0_u64, view.rows()));
        }
        let length = entries.saturating_mul(END_BYTES);
        let ends = view.section("the dictionary's place", sections[SECTION_ENDS], length)?.as_chunks().0;
        let count = verify_ends("the end of a dictionary entry", ends)?;
        let bytes = view.section("the place of the dictionary's bytes", sections[SECTION_BYTES], count)?;
        Ok(Self { codes: IntegerPage::open(view, 1)?, ends, bytes })
    }

    /// Distinct texts.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.ends.len()
    }

    /// The text of a code below `entries()`.
    #[must_use]
    pub fn entry(&self, code: usize) -> &'p [u8] {
        &self.bytes[range_of(self.ends, code)]
    }

    /// The first code whose text is not below `text`; `entries()` when all are.
    #[must_use]
    pub fn lower_bound(&self, text: &[u8]) -> usize {
        self.partition_point(|entry| entry < text)
    }

    /// The first code whose text is above `text`; `entries()` when none is.
    #[must_use]
    pub fn upper_bound(&self, text: &[u8]) -> usize {
        self.partition_point(|entry| entry <= text)
    }

    /// The code of `text`, if it is in the dictionary.
    #[must_use]
    pub fn find(&self, text: &[u8]) -> Option<usize> {
        let code = self.lower_bound(text);
        (code < self.entries() && self.entry(code) == text).then_some(code)
    }

    fn partition_point(&self, below: impl Fn(&[u8]) -> bool) -> usize {
        let (mut from, mut to) = (0, self.entries());
        while from < to {
            let middle = from.midpoint(to);
            if below(self.entry(middle)) {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        from
    }

    /// Rows of the page.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.codes.rows()
    }

    /// Blocks of the page.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.codes.blocks()
    }

    /// A block of codes, to be unpacked by [`Self::unpack`]; its bounds are bounds of the codes.
    ///
    /// # Errors
    /// When there is no such block, or its descriptor is impossible.
    pub fn block(&self, block: usize) -> Result<IntegerBlock<'p>, PageFault> {
        self.codes.block(block)
    }

    /// Unpacks a block of codes: code = `block.reference()` + number, and below `entries()` for
    /// each row of the block.
    ///
    /// # Errors
    /// When a code would be beyond the last entry.
    pub fn unpack<'s>(
        &self,
        block: &IntegerBlock<'_>,
        scratch: &'s mut Scratch,
    ) -> Result<Narrow<'s>, PageFault> {
        let last = self.entries() as u64 - 1;
        // A negative code of a malicious page is refused like one beyond the last entry.
        let Some(first) = u64::try_from(block.reference()).ok().filter(|first| *first <= last) else {
            return Err(PageFault::malformed("the smallest code of a block", block.reference(), last));
        };
        let numbers = block.unpack(scratch);
        // Widths are whole bits, so a packed number can exceed the dictionary, although the writer
        // never stores such a number.
        if block.largest_number() > last - first {
            let largest = numbers.max(block.rows());
            if largest > last - first {
                return Err(PageFault::malformed("a code", first.saturating_add(largest), last));
            }
        }
        Ok(numbers)
    }

    /// Appends the codes of a whole block, each below `entries()`; null rows have a code, too.
    ///
    /// # Errors
    /// When there is no such block, or a code would be beyond the last entry.
    pub fn decode_block(
        &self,
        block: usize,
        scratch: &mut Scratch,
        codes: &mut Vec<u32>,
    ) -> Result<(), PageFault> {
        let (block, level) = (self.block(block)?, scratch.level);
        let numbers = self.unpack(&block, scratch)?;
        block.append(level, numbers, 0..block.rows(), codes);
        Ok(())
    }

    /// Appends the codes of the rows given, counted within the page and ascending.
    ///
    /// # Errors
    /// When a row is beyond the page's, or a code would be beyond the last entry.
    pub fn gather(&self, rows: &[u32], scratch: &mut Scratch, codes: &mut Vec<u32>) -> Result<(), PageFault> {
        for_each_block(rows, self.rows(), |block, rows| self.gather_block(block, rows, scratch, codes))
    }

    /// Appends the codes of some rows of a block, counted within it (or within the page; the number
    /// of their block is ignored).
    ///
    /// # Errors
    /// When there is no such block, or a code would be beyond the last entry.
    pub fn gather_block(
        &self,
        block: usize,
        rows: &[u32],
        scratch: &mut Scratch,
        codes: &mut Vec<u32>,
    ) -> Result<(), PageFault> {
        let (block, level) = (self.block(block)?, scratch.level);
        let numbers = self.unpack(&block, scratch)?;
        block.append_some(level, numbers, rows, codes);
        Ok(())
    }
}

/// Appends the entries and returns the sections of the header that locate them.
pub(crate) fn write_entries<'e>(
    entries: impl ExactSizeIterator<Item = &'e [u8]> + Clone,
    page: &mut Vec<u8>,
) -> [u32; 6] {
    let mut sections = [0; 6];
    sections[SECTION_ENTRIES] = in_page(entries.len());
    sections[SECTION_ENDS] = in_page(page.len());
    let mut end = 0_usize;
    for entry in entries.clone() {
        end += entry.len();
        page.extend_from_slice(&in_page(end).to_le_bytes());
    }
    sections[SECTION_BYTES] = in_page(page.len());
    for entry in entries {
        page.extend_from_slice(entry);
    }
    sections
}
