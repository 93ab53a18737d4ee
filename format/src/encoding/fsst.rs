//! Encodes pages of free texts, compressed with a table of up to 255 symbols of up to 8 bytes.
//!
//! FSST (Boncz, Neumann and Leis, "FSST: Fast Random Access String Compression", VLDB 2020): each
//! byte of compressed text is the code of a symbol; code 255 means that the next byte is a plain
//! byte. The table is trained once per chunk on a sample and is stored in every page of the chunk.
//!
//! ```text
//! blocks of lengths (encoding::integer) | u32 end of each group's codes | lengths of the symbols | bytes of the symbols | codes
//! sections: 0 = where the ends are, 1 = where the symbols are, 2 = how many symbols, 3 = where the codes are, 4 = how many codes
//! ```
//!
//! The stored lengths are those of the uncompressed texts, so the texts of consecutive rows are
//! decoded together and cut afterwards. Each group of [`GROUP_ROWS`] rows can be decoded
//! separately: reading the text of one row decodes one group.
//!
//! Invariants
//! - No symbol spans two texts, so the codes of neighbouring rows can be decoded together.
//! - Decoded bytes and lengths must agree; codes that end with an incomplete escape are refused.

use super::{
    bitpack::Scratch,
    encoder::in_page,
    integer::{IntegerPage, for_each_block},
    text::{END_BYTES, Ends, TextBuffer, lengths_of, range_of, verify_ends},
};
use crate::{
    limits::BLOCK_ROWS,
    page::{PageFault, PageView},
};
use az::SaturatingAs;
use fsst::{Compressor, Decompressor, ESCAPE_CODE, Symbol};
use std::ops::Range;

/// Rows of a group: the unit whose codes begin at a stored offset.
pub const GROUP_ROWS: usize = 128;
/// Groups of a block; a short block has the same number, the last ones being empty.
pub(crate) const BLOCK_GROUPS: usize = BLOCK_ROWS / GROUP_ROWS;
/// Symbols of a table, code 255 being the escape.
const SYMBOLS_MAX: usize = ESCAPE_CODE as usize;
const SYMBOL_BYTES_MAX: u8 = 8;
const SECTION_ENDS: usize = 0;
const SECTION_SYMBOLS: usize = 1;
const SECTION_SYMBOLS_COUNT: usize = 2;
const SECTION_CODES: usize = 3;
const SECTION_CODES_COUNT: usize = 4;

/// The texts of a page, compressed.
pub struct FsstPage<'p> {
    lengths: IntegerPage<'p>,
    ends: Ends<'p>,
    codes: &'p [u8],
    table: Box<SymbolTable>,
}

struct SymbolTable {
    symbols: [Symbol; SYMBOLS_MAX],
    lengths: [u8; SYMBOLS_MAX],
}

impl std::fmt::Debug for FsstPage<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FsstPage").field("lengths", &self.lengths).field("codes", &self.codes.len()).finish()
    }
}

impl SymbolTable {
    fn open(view: &PageView<'_>, at: u32, count: u32) -> Result<Box<Self>, PageFault> {
        let count = count as usize;
        if count > SYMBOLS_MAX {
            return Err(PageFault::malformed("the number of symbols", count, SYMBOLS_MAX));
        }
        let lengths = view.section("the place of the symbols", at, count)?;
        if let Some(length) = lengths.iter().find(|length| **length == 0 || **length > SYMBOL_BYTES_MAX) {
            return Err(PageFault::malformed("the length of a symbol", *length, SYMBOL_BYTES_MAX));
        }
        let sum: usize = lengths.iter().map(|length| usize::from(*length)).sum();
        let mut bytes = &view.section("the place of the symbols", at, count + sum)?[count..];
        let mut table = Box::new(Self { symbols: [Symbol::ZERO; SYMBOLS_MAX], lengths: [0; SYMBOLS_MAX] });
        for (code, length) in lengths.iter().enumerate() {
            let (symbol, rest) = bytes.split_at((*length).into());
            let mut padded = [0; SYMBOL_BYTES_MAX as usize];
            padded[..symbol.len()].copy_from_slice(symbol);
            table.symbols[code] = Symbol::from_slice(&padded);
            table.lengths[code] = *length;
            bytes = rest;
        }
        Ok(table)
    }

    /// Decodes `codes`, which must give `wanted` bytes, and appends the result.
    fn decode(&self, codes: &[u8], wanted: u64, out: &mut Vec<u8>) -> Result<(), PageFault> {
        // Codes that end with an odd number of consecutive escapes end within an escape, because
        // the first of these escapes is always a code of its own.
        let escapes = codes.iter().rev().take_while(|code| **code == ESCAPE_CODE).count();
        if escapes % 2 == 1 {
            return Err(PageFault::malformed(
                "the number of escapes at the end of codes",
                escapes,
                escapes - 1,
            ));
        }
        let decoded = Decompressor::new(&self.symbols, &self.lengths).decompress(codes);
        if decoded.len() as u64 != wanted {
            return Err(PageFault::malformed("the number of decoded bytes", decoded.len(), wanted));
        }
        if out.is_empty() {
            *out = decoded;
        } else {
            out.extend_from_slice(&decoded);
        }
        Ok(())
    }
}

impl<'p> FsstPage<'p> {
    pub(crate) fn open(view: &PageView<'p>) -> Result<Self, PageFault> {
        let sections = view.header().sections;
        let length = view.blocks() * BLOCK_GROUPS * END_BYTES;
        let ends =
            view.section("the place of the groups' ends", sections[SECTION_ENDS], length)?.as_chunks().0;
        let count = sections[SECTION_CODES_COUNT] as usize;
        let codes = view.section("the place of the codes", sections[SECTION_CODES], count)?;
        let last = verify_ends("the end of a group's codes", ends)?;
        if last > count {
            return Err(PageFault::malformed("the end of the last group's codes", last, count));
        }
        let table = SymbolTable::open(view, sections[SECTION_SYMBOLS], sections[SECTION_SYMBOLS_COUNT])?;
        let lengths = IntegerPage::open(view, 1)?;
        Ok(Self { lengths, ends, codes, table })
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

    /// The codes of some groups, at least one, counted within the page.
    fn codes(&self, groups: Range<usize>) -> &'p [u8] {
        let (first, last) = (range_of(self.ends, groups.start), range_of(self.ends, groups.end - 1));
        &self.codes[first.start..last.end]
    }

    /// Appends the texts of a whole block.
    ///
    /// # Errors
    /// When there is no such block, or its codes and lengths do not fit.
    pub fn decode_block(
        &self,
        block: usize,
        scratch: &mut Scratch,
        out: &mut TextBuffer,
    ) -> Result<(), PageFault> {
        let mut block_lengths = Vec::with_capacity(BLOCK_ROWS);
        let sum = lengths_of(&self.lengths, block, scratch, &mut block_lengths)?;
        let codes = self.codes(block * BLOCK_GROUPS..(block + 1) * BLOCK_GROUPS);
        let mut end = out.end_after(0)?;
        // A sum beyond usize is refused as one beyond 4 GiB.
        out.end_after(sum.saturating_as::<usize>())?;
        self.table.decode(codes, sum, &mut out.bytes)?;
        out.ends.extend(block_lengths.iter().map(|length| {
            end += length;
            end
        }));
        Ok(())
    }

    /// Appends the texts of these rows, which are numbered within the page and ascend. Decodes only
    /// their groups.
    ///
    /// # Errors
    /// A row is not in the page, codes and lengths do not agree, or `out` would exceed 4 GiB.
    pub fn gather(&self, rows: &[u32], scratch: &mut Scratch, out: &mut TextBuffer) -> Result<(), PageFault> {
        let (mut decoded, mut block_lengths) = (Vec::new(), Vec::with_capacity(BLOCK_ROWS));
        for_each_block(rows, self.lengths.rows(), |block, rows| {
            lengths_of(&self.lengths, block, scratch, &mut block_lengths)?;
            for rows in rows.chunk_by(|left, right| group_of(*left) == group_of(*right)) {
                let group = group_of(rows[0]);
                let first = group * GROUP_ROWS - block * BLOCK_ROWS;
                let lengths = &block_lengths[first..block_lengths.len().min(first + GROUP_ROWS)];
                let sum = lengths.iter().map(|length| u64::from(*length)).sum();
                decoded.clear();
                self.table.decode(self.codes(group..group + 1), sum, &mut decoded)?;
                let (mut row_at, mut start) = (0, 0);
                for row in rows {
                    let row = *row as usize % GROUP_ROWS;
                    let skipped: u32 = lengths[row_at..row].iter().sum();
                    start += skipped as usize;
                    row_at = row;
                    out.push(&decoded[start..start + lengths[row] as usize])?;
                }
            }
            Ok(())
        })
    }
}

fn group_of(row: u32) -> usize {
    row as usize / GROUP_ROWS
}

/// The compressed texts of a chunk: the codes of row `i` end at `ends[i]`.
pub(crate) struct Compressed<'c> {
    pub(crate) compressor: Compressor,
    pub(crate) codes: &'c [u8],
    pub(crate) ends: &'c [u64],
}

/// Bytes that the symbol table adds to each page.
pub(crate) fn table_bytes(compressor: &Compressor) -> usize {
    compressor.symbol_lengths().iter().map(|length| 1 + usize::from(*length)).sum()
}

impl Compressed<'_> {
    /// Bytes of the codes of some rows.
    pub(crate) fn codes_bytes(&self, rows: Range<usize>) -> usize {
        let range = self.codes_range(rows);
        range.end - range.start
    }

    fn codes_range(&self, rows: Range<usize>) -> Range<usize> {
        let end_of = |rows: usize| match rows {
            0 => 0,
            rows => usize::try_from(self.ends[rows - 1]).expect("an end: an offset in `codes`"),
        };
        end_of(rows.start)..end_of(rows.end)
    }

    /// Appends the codes of some rows (whole blocks) and returns the sections of the header that
    /// locate them.
    pub(crate) fn write(&self, rows: Range<usize>, page: &mut Vec<u8>) -> [u32; 6] {
        let mut sections = [0; 6];
        sections[SECTION_ENDS] = in_page(page.len());
        for group in 1..=rows.len().div_ceil(BLOCK_ROWS) * BLOCK_GROUPS {
            let end = (rows.start + group * GROUP_ROWS).min(rows.end);
            page.extend_from_slice(&in_page(self.codes_bytes(rows.start..end)).to_le_bytes());
        }
        sections[SECTION_SYMBOLS] = in_page(page.len());
        let lengths = self.compressor.symbol_lengths();
        sections[SECTION_SYMBOLS_COUNT] = in_page(lengths.len());
        page.extend_from_slice(lengths);
        for (symbol, length) in self.compressor.symbol_table().iter().zip(lengths) {
            page.extend_from_slice(&symbol.to_u64().to_le_bytes()[..usize::from(*length)]);
        }
        let codes = &self.codes[self.codes_range(rows)];
        sections[SECTION_CODES] = in_page(page.len());
        sections[SECTION_CODES_COUNT] = in_page(codes.len());
        page.extend_from_slice(codes);
        sections
    }
}
