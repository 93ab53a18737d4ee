//! Chooses the encoding that makes a chunk of texts smallest, and writes its pages.
//!
//! Invariants
//! - The size of every row is known before pages are cut, so nothing is encoded twice.
//! - FSST is tried only where it could be smaller than a dictionary: a symbol stands for at most 8
//!   bytes, and each text that is not empty needs at least one symbol.
//! - Null rows are empty texts here; they have no entry in a dictionary.

use super::{
    ChunkEncoder, Encoding, PageSummary,
    bitpack::width_of,
    dictionary,
    distinct::{Distinct, NO_RANK},
    encoder::Effort,
    fsst::{BLOCK_GROUPS, Compressed, table_bytes},
    integer::DESCRIPTOR_BYTES,
    integer_plan::{Domain, IntegerPlan},
    plain,
    text::{END_BYTES, TextValues},
    validity::Bitmap,
};
use crate::{limits::BLOCK_ROWS, zone::ZoneValue};
use fsst::Compressor;
use std::ops::Range;

/// Rows compressed in one call, which bounds the memory that the call reserves.
const COMPRESSED_ROWS: usize = 64 * BLOCK_ROWS;
/// FSST is chosen over plain texts only if it saves at least one byte in this many, because
/// decoding costs more than copying.
const SAVED_PART_MIN: usize = 10;

/// Memory for compressed texts that is reused from chunk to chunk.
#[derive(Debug, Default)]
pub(crate) struct TextScratch {
    codes: Vec<u8>,
    ends: Vec<u64>,
}

/// Chooses the encoding that makes a chunk of texts smallest.
pub(crate) fn choose<'c>(
    texts: TextValues<'c>,
    validity: Option<Bitmap<'c>>,
    page_bytes: u32,
    (effort, room): (Effort, &'c mut TextScratch),
) -> Box<dyn ChunkEncoder + 'c> {
    let lengths = Lengths::measure(&texts);
    let plain_bytes = (texts.offsets[texts.len()] - texts.offsets[0]) as usize;
    let not_empty = lengths.values.iter().filter(|length| **length > 0).count();
    let fsst_bytes_min = match effort {
        Effort::Full => not_empty.max(plain_bytes / 8),
        Effort::Quick => plain_bytes,
    };

    let distinct = Distinct::of(&texts, validity);
    let dictionary = distinct.map(|distinct| (distinct.estimated_bytes(page_bytes as usize), distinct));
    let dictionary = match dictionary {
        Some((bytes, distinct)) if bytes <= lengths.bytes + fsst_bytes_min => {
            return Box::new(DictionaryChunk::new(distinct, validity));
        }
        other => other,
    };

    let plain = TextChunk { texts, validity, lengths, page_bytes: 0 };
    if effort == Effort::Quick {
        return Box::new(PlainChunk { chunk: plain });
    }
    let compressor = compress(&plain.texts, room);
    let fsst_bytes = room.codes.len() + table_bytes(&compressor);
    if let Some((bytes, distinct)) = dictionary
        && bytes <= plain.lengths.bytes + plain_bytes.min(fsst_bytes)
    {
        return Box::new(DictionaryChunk::new(distinct, validity));
    }
    if fsst_bytes <= plain_bytes - plain_bytes / SAVED_PART_MIN {
        let codes = Compressed { compressor, codes: &room.codes, ends: &room.ends };
        return Box::new(FsstChunk { chunk: plain, codes });
    }
    Box::new(PlainChunk { chunk: plain })
}

/// Trains a symbol table on a sample (FSST takes 16 KiB of it) and compresses every text.
fn compress(texts: &TextValues<'_>, room: &mut TextScratch) -> Compressor {
    let slices: Vec<&[u8]> = (0..texts.len()).map(|row| texts.get(row)).collect();
    let compressor = Compressor::train(&slices);
    room.codes.clear();
    room.ends.clear();
    for slices in slices.chunks(COMPRESSED_ROWS) {
        const LANES: usize = Compressor::DEFAULT_BULK_LANES;
        compressor.compress_bulk_into::<LANES>(slices, &mut room.codes, &mut room.ends);
    }
    compressor
}

/// The lengths of a chunk's texts, and the plan by which they are packed.
struct Lengths {
    values: Vec<i64>,
    plan: IntegerPlan,
    bytes: usize,
}

impl Lengths {
    fn measure(texts: &TextValues<'_>) -> Self {
        let values: Vec<i64> = texts.offsets.windows(2).map(|pair| i64::from(pair[1] - pair[0])).collect();
        let plan = IntegerPlan::measure(&values, None, Domain::Positions);
        let bytes = (0..values.len().div_ceil(BLOCK_ROWS)).map(|block| plan.block_bytes(block)).sum();
        Self { values, plan, bytes }
    }

    fn write(&self, blocks: Range<usize>, page: &mut Vec<u8>) {
        self.plan.write(&self.values, None, blocks, page);
    }
}

/// What the encoders of FSST and of plain texts have in common.
struct TextChunk<'c> {
    texts: TextValues<'c>,
    validity: Option<Bitmap<'c>>,
    lengths: Lengths,
    page_bytes: usize,
}

impl TextChunk<'_> {
    fn rows(&self, blocks: Range<usize>) -> Range<usize> {
        blocks.start * BLOCK_ROWS..(blocks.end * BLOCK_ROWS).min(self.texts.len())
    }

    fn grow(&mut self, block: usize, texts_bytes: usize) -> usize {
        self.page_bytes += self.lengths.plan.block_bytes(block) + texts_bytes;
        self.page_bytes
    }

    fn summary(&self, rows: Range<usize>, sections: [u32; 6]) -> PageSummary {
        let present = rows.filter(|row| self.validity.is_none_or(|bitmap| bitmap.is_valid(*row)));
        let bounds = present.map(|row| self.texts.get(row)).fold(None, |bounds, text| match bounds {
            None => Some((text, text)),
            Some((min, max)) => Some((text.min(min), text.max(max))),
        });
        PageSummary::texts(sections, bounds)
    }
}

struct FsstChunk<'c> {
    chunk: TextChunk<'c>,
    codes: Compressed<'c>,
}

impl ChunkEncoder for FsstChunk<'_> {
    fn encoding(&self) -> Encoding {
        Encoding::Fsst
    }

    fn begin_page(&mut self) {
        self.chunk.page_bytes = table_bytes(&self.codes.compressor);
    }

    fn grow(&mut self, block: usize) -> usize {
        let codes = self.codes.codes_bytes(self.chunk.rows(block..block + 1));
        self.chunk.grow(block, codes + BLOCK_GROUPS * END_BYTES)
    }

    fn write(&mut self, blocks: Range<usize>, page: &mut Vec<u8>) -> PageSummary {
        self.chunk.lengths.write(blocks.clone(), page);
        let rows = self.chunk.rows(blocks);
        let sections = self.codes.write(rows.clone(), page);
        self.chunk.summary(rows, sections)
    }
}

struct PlainChunk<'c> {
    chunk: TextChunk<'c>,
}

impl ChunkEncoder for PlainChunk<'_> {
    fn encoding(&self) -> Encoding {
        Encoding::Plain
    }

    fn begin_page(&mut self) {
        self.chunk.page_bytes = 0;
    }

    fn grow(&mut self, block: usize) -> usize {
        let rows = self.chunk.rows(block..block + 1);
        let offsets = self.chunk.texts.offsets;
        let texts = (offsets[rows.end] - offsets[rows.start]) as usize;
        self.chunk.grow(block, texts + END_BYTES)
    }

    fn write(&mut self, blocks: Range<usize>, page: &mut Vec<u8>) -> PageSummary {
        self.chunk.lengths.write(blocks.clone(), page);
        let rows = self.chunk.rows(blocks);
        let sections = plain::write_texts(&self.chunk.texts, rows.clone(), page);
        self.chunk.summary(rows, sections)
    }
}

struct DictionaryChunk<'c> {
    distinct: Distinct<'c>,
    validity: Option<Bitmap<'c>>,
    /// For each entry the number of the last page that uses it; pages are numbered from 1.
    needed_by: Vec<u32>,
    page: u32,
    blocks: usize,
    entries: usize,
    entries_bytes: usize,
}

impl<'c> DictionaryChunk<'c> {
    fn new(distinct: Distinct<'c>, validity: Option<Bitmap<'c>>) -> Self {
        let needed_by = vec![0; distinct.entries.len()];
        Self { distinct, validity, needed_by, page: 0, blocks: 0, entries: 0, entries_bytes: 0 }
    }

    fn ranks(&self, blocks: Range<usize>) -> &[u32] {
        let ranks = &self.distinct.ranks;
        &ranks[blocks.start * BLOCK_ROWS..(blocks.end * BLOCK_ROWS).min(ranks.len())]
    }
}

impl ChunkEncoder for DictionaryChunk<'_> {
    fn encoding(&self) -> Encoding {
        Encoding::Dictionary
    }

    fn begin_page(&mut self) {
        self.page += 1;
        (self.blocks, self.entries, self.entries_bytes) = (0, 0, 0);
    }

    fn grow(&mut self, block: usize) -> usize {
        let Distinct { entries, ranks } = &self.distinct;
        let rows = block * BLOCK_ROWS..((block + 1) * BLOCK_ROWS).min(ranks.len());
        for rank in ranks[rows].iter().filter(|rank| **rank != NO_RANK) {
            let needed_by = &mut self.needed_by[*rank as usize];
            if *needed_by != self.page {
                *needed_by = self.page;
                self.entries += 1;
                self.entries_bytes += entries[*rank as usize].len() + END_BYTES;
            }
        }
        self.blocks += 1;
        let width = usize::from(width_of((self.entries as u64).saturating_sub(1)));
        self.entries_bytes + END_BYTES + self.blocks * (DESCRIPTOR_BYTES + width * BLOCK_ROWS / 8)
    }

    fn write(&mut self, blocks: Range<usize>, page: &mut Vec<u8>) -> PageSummary {
        let mut code_of = vec![NO_RANK; self.distinct.entries.len()];
        let ranks = self.ranks(blocks.clone());
        for rank in ranks.iter().filter(|rank| **rank != NO_RANK) {
            code_of[*rank as usize] = 0;
        }
        let mut entries: Vec<&[u8]> = Vec::with_capacity(self.entries);
        let mut next_code = 0;
        for (code, entry) in code_of.iter_mut().zip(&self.distinct.entries) {
            if *code != NO_RANK {
                *code = next_code;
                next_code += 1;
                entries.push(entry);
            }
        }
        let bounds = entries.first().copied().zip(entries.last().copied());
        if entries.is_empty() {
            entries.push(&[]);
        }
        let codes: Vec<i64> =
            ranks.iter().map(|rank| code_of.get(*rank as usize).map_or(0, |code| i64::from(*code))).collect();
        let valid = self.validity.map(|bitmap| bitmap.slice(blocks.start * BLOCK_ROWS, codes.len()));
        let plan = IntegerPlan::measure(&codes, valid, Domain::Positions);
        plan.write(&codes, valid, 0..blocks.len(), page);
        PageSummary::texts(dictionary::write_entries(entries.iter().copied(), page), bounds)
    }
}

impl PageSummary {
    fn texts(sections: [u32; 6], bounds: Option<(&[u8], &[u8])>) -> Self {
        let min = bounds.map(|(min, _)| ZoneValue::text_min(min));
        let max = bounds.and_then(|(_, max)| ZoneValue::text_max(max));
        Self { sections, divisor: 1, min, max }
    }
}
