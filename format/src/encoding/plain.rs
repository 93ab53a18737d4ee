//! Encodes pages of texts that do not compress: lengths, then the bytes as they are.
//!
//! ```text
//! blocks of lengths (encoding::integer) | u32 end of each block's bytes | bytes
//! sections: 0 = where the ends are, 1 = where the bytes are, 2 = how many bytes
//! ```
//!
//! Invariants
//! - The bytes of a block begin where those of the previous block end; lengths and ends must agree.

use super::{
    bitpack::Scratch,
    encoder::in_page,
    integer::{IntegerPage, for_each_block},
    text::{END_BYTES, Ends, TextBuffer, TextValues, lengths_of, range_of, verify_ends},
};
use crate::{
    limits::BLOCK_ROWS,
    page::{PageFault, PageView},
};

const SECTION_ENDS: usize = 0;
const SECTION_BYTES: usize = 1;
const SECTION_BYTES_COUNT: usize = 2;

/// The texts of a page, uncompressed.
#[derive(Clone, Debug)]
pub struct PlainPage<'p> {
    lengths: IntegerPage<'p>,
    ends: Ends<'p>,
    bytes: &'p [u8],
    block_lengths: Vec<u32>,
}

impl<'p> PlainPage<'p> {
    pub(crate) fn open(view: &PageView<'p>) -> Result<Self, PageFault> {
        let sections = view.header().sections;
        let length = view.blocks() * END_BYTES;
        let ends =
            view.section("the place of the blocks' ends", sections[SECTION_ENDS], length)?.as_chunks().0;
        let count = sections[SECTION_BYTES_COUNT] as usize;
        let bytes = view.section("the place of the texts", sections[SECTION_BYTES], count)?;
        let last = verify_ends("the end of a block's texts", ends)?;
        if last > count {
            return Err(PageFault::malformed("the end of the last text", last, count));
        }
        let lengths = IntegerPage::open(view, 1)?;
        Ok(Self { lengths, ends, bytes, block_lengths: Vec::with_capacity(BLOCK_ROWS) })
    }

    /// Rows of the page.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.lengths.rows()
    }

    /// Blocks of the page.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.lengths.blocks()
    }

    /// The bytes of a block; its lengths are stored in `self.block_lengths`.
    fn block(&mut self, block: usize, scratch: &mut Scratch) -> Result<&'p [u8], PageFault> {
        let sum = lengths_of(&self.lengths, block, scratch, &mut self.block_lengths)?;
        let range = range_of(self.ends, block);
        if range.len() as u64 != sum {
            return Err(PageFault::malformed("the number of bytes of a block's texts", range.len(), sum));
        }
        Ok(&self.bytes[range])
    }

    /// Appends the texts of a whole block.
    ///
    /// # Errors
    /// When there is no such block, or its lengths and ends do not fit.
    pub fn decode_block(
        &mut self,
        block: usize,
        scratch: &mut Scratch,
        out: &mut TextBuffer,
    ) -> Result<(), PageFault> {
        let bytes = self.block(block, scratch)?;
        out.end_after(bytes.len())?;
        let mut end = out.end_after(0)?;
        out.bytes.extend_from_slice(bytes);
        out.ends.extend(self.block_lengths.iter().map(|length| {
            end += length;
            end
        }));
        Ok(())
    }

    /// Appends the texts of the rows given, counted within the page and ascending.
    ///
    /// # Errors
    /// When a row is beyond the page's, or a block's lengths and ends do not fit.
    pub fn gather(
        &mut self,
        rows: &[u32],
        scratch: &mut Scratch,
        out: &mut TextBuffer,
    ) -> Result<(), PageFault> {
        for_each_block(rows, self.lengths.rows(), |index, rows| {
            let bytes = self.block(index, scratch)?;
            let (mut row_at, mut start) = (0, 0);
            for row in rows {
                let row = *row as usize % BLOCK_ROWS;
                let skipped: u32 = self.block_lengths[row_at..row].iter().sum();
                start += skipped as usize;
                row_at = row;
                out.push(&bytes[start..start + self.block_lengths[row] as usize])?;
            }
            Ok(())
        })
    }
}

/// Appends the texts of some rows (whole blocks) and returns the sections of the header that locate
/// them.
pub(crate) fn write_texts(
    texts: &TextValues<'_>,
    rows: std::ops::Range<usize>,
    page: &mut Vec<u8>,
) -> [u32; 6] {
    let mut sections = [0; 6];
    sections[SECTION_ENDS] = in_page(page.len());
    let first = texts.offsets[rows.start];
    let mut row = rows.start;
    while row < rows.end {
        row = (row + BLOCK_ROWS).min(rows.end);
        page.extend_from_slice(&(texts.offsets[row] - first).to_le_bytes());
    }
    let bytes = &texts.bytes[first as usize..texts.offsets[rows.end] as usize];
    sections[SECTION_BYTES] = in_page(page.len());
    sections[SECTION_BYTES_COUNT] = in_page(bytes.len());
    page.extend_from_slice(bytes);
    sections
}
