//! Cuts a column of a segment into pages and encodes them.
//!
//! An encoder measures the whole chunk (the column's values in the segment) first: bounds, divisor,
//! distinct texts, compressed sizes. Then blocks are added to a page as long as it stays within the
//! page size, and each page is written once.
//!
//! Invariants
//! - Pages contain whole blocks of rows, in order, without gaps; only the chunk's last block may be
//!   short.
//! - A stored page has at most `page_bytes` bytes, unless it is a single block that is larger, and
//!   never more than `PAGE_BYTES_MAX`.
//! - No bytes of a null row's value are stored.

use crate::{
    encoding::{
        ChunkEncoder, FloatChunk, IntegerChunk, PageSummary, TextScratch, choose_text, integer::LANES_ALIGN,
        text::TextValues, validity::Bitmap,
    },
    ids::{ColumnId, PageNumber, SegmentId, TableId},
    limits::{BLOCK_ROWS, PAGE_BYTES_MAX, PAGE_SIZE_MAX, PAGE_SIZE_MIN, SECTOR_BYTES, SEGMENT_ROWS_MAX},
    page::{HEADER_BYTES, PageHeader, stored_bytes, with_header},
    schema::ColumnType,
    zone::{Zone, ZoneValue},
};
use bytemuck::Zeroable;
use std::ops::Range;

pub use crate::encoding::encoder::Effort;

/// The values of a chunk; the values of null rows are ignored.
#[derive(Clone, Copy, Debug)]
pub enum Values<'v> {
    /// Values of a type that is stored as integers.
    Integers(&'v [i64]),
    /// Values of `Float64`.
    Floats(&'v [f64]),
    /// Values of `Text`.
    Text(TextValues<'v>),
}

/// One column of a segment, to be encoded.
#[derive(Clone, Copy, Debug)]
pub struct ChunkInput<'v> {
    /// Its table.
    pub table: TableId,
    /// Its segment.
    pub segment: SegmentId,
    /// Its column.
    pub column: ColumnId,
    /// The column's type, which must agree with `values`.
    pub column_type: ColumnType,
    /// All rows of the segment.
    pub values: Values<'v>,
    /// One bit per row, least significant first, set where there is a value; `None` when no row is
    /// null.
    pub validity: Option<&'v [u8]>,
    /// Target bytes of a stored page.
    pub page_bytes: u32,
}

/// A page ready to be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct EncodedPage {
    /// The stored bytes: header, payload, zeros up to whole sectors.
    pub bytes: Vec<u8>,
    /// Its first row, counted within the segment.
    pub first_row: u32,
    /// Its rows.
    pub rows: u32,
    /// Bounds of its values, for the directory.
    pub zone: Zone,
}

/// Why a chunk cannot be encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The chunk has no rows, or too many.
    #[error("column {column} of a segment has {found} rows, expected 1 to {SEGMENT_ROWS_MAX}")]
    Rows {
        /// The column.
        column: ColumnId,
        /// Rows given.
        found: usize,
    },
    /// The values are of another kind than the column's type is stored as.
    #[error("column {column} has the type {column_type}, but its values were given as {found}")]
    Type {
        /// The column.
        column: ColumnId,
        /// Its type.
        column_type: ColumnType,
        /// The values given.
        found: &'static str,
    },
    /// The validity bitmap is too short for the rows.
    #[error("the validity bitmap of column {column} has {found} bytes, expected at least {wanted}")]
    Validity {
        /// The column.
        column: ColumnId,
        /// One bit per row, in bytes.
        wanted: usize,
        /// Bytes given.
        found: usize,
    },
    /// The offsets of texts descend or exceed the bytes of all texts.
    #[error(
        "in column {column}, the text of row {row} ends at byte {end}, expected a byte from {start} to {bytes}"
    )]
    Offsets {
        /// The column.
        column: ColumnId,
        /// The row.
        row: usize,
        /// Where its text begins.
        start: u32,
        /// Where its text ends.
        end: u32,
        /// Bytes of all texts.
        bytes: usize,
    },
    /// The page size is not valid.
    #[error(
        "the page size is {found} bytes, expected a multiple of {SECTOR_BYTES} from {PAGE_SIZE_MIN} to {PAGE_SIZE_MAX}"
    )]
    PageSize {
        /// The page size asked for.
        found: u32,
    },
    /// One block alone is larger than a page may be.
    #[error(
        "column {column}: the {BLOCK_ROWS} rows from row {first_row} on need {bytes} bytes, and they must fit into one \
         page of at most {PAGE_BYTES_MAX} bytes: shorten the values"
    )]
    BlockTooLarge {
        /// The column.
        column: ColumnId,
        /// The block's first row.
        first_row: usize,
        /// Stored bytes of a page of that block.
        bytes: u64,
    },
}

/// Encodes chunks, one after the other, and reuses its memory between them; one per thread.
#[derive(Debug, Default)]
pub struct ChunkWriter {
    texts: TextScratch,
    effort: Effort,
}

impl ChunkWriter {
    /// A writer that has allocated no memory yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with the given effort.
    #[must_use]
    pub fn with(effort: Effort) -> Self {
        Self { effort, ..Self::default() }
    }

    /// Encodes a chunk and hands its pages to `out` in row order, page numbers counting from 0.
    ///
    /// Stored pages have at most `page_bytes` bytes, except pages of one block that is larger.
    ///
    /// # Errors
    /// When the input is inconsistent or a block is too large; pages before that one have been
    /// handed out.
    pub fn encode(
        &mut self,
        chunk: &ChunkInput<'_>,
        out: &mut dyn FnMut(EncodedPage),
    ) -> Result<(), ChunkError> {
        chunk.verify()?;
        let rows = chunk.rows();
        let validity = chunk.validity.map(|bytes| Bitmap::new(bytes, rows));
        let validity = validity.filter(|bitmap| bitmap.count_valid() < rows);
        let present;
        let encoder: &mut dyn ChunkEncoder = match chunk.values {
            Values::Integers(values) => &mut IntegerChunk::new(values, validity),
            Values::Floats(values) => &mut FloatChunk::new(values, validity),
            Values::Text(texts) => {
                present = validity.map(|bitmap| with_empty_nulls(&texts, bitmap));
                let texts = match &present {
                    Some((bytes, offsets)) => TextValues { bytes, offsets },
                    None => texts,
                };
                &mut *choose_text(texts, validity, chunk.page_bytes, (self.effort, &mut self.texts))
            }
        };
        cut(chunk, validity, encoder, out)
    }
}

/// Cuts a chunk into pages: each takes blocks as long as it stays within the page size.
fn cut(
    chunk: &ChunkInput<'_>,
    validity: Option<Bitmap<'_>>,
    encoder: &mut dyn ChunkEncoder,
    out: &mut dyn FnMut(EncodedPage),
) -> Result<(), ChunkError> {
    let validity_bytes = if validity.is_some() { BLOCK_ROWS / 8 } else { 0 };
    let stored = |payload: usize, blocks: usize| {
        stored_bytes((payload + blocks * validity_bytes + LANES_ALIGN) as u64)
    };
    let blocks = chunk.rows().div_ceil(BLOCK_ROWS);
    let (mut first, mut number) = (0, 0);
    while first < blocks {
        encoder.begin_page();
        let mut end = first + 1;
        let bytes = stored(encoder.grow(first), 1);
        if bytes > PAGE_BYTES_MAX.into() {
            let first_row = first * BLOCK_ROWS;
            return Err(ChunkError::BlockTooLarge { column: chunk.column, first_row, bytes });
        }
        while end < blocks && stored(encoder.grow(end), end + 1 - first) <= chunk.page_bytes.into() {
            end += 1;
        }
        out(page(chunk, PageNumber(number), validity, first..end, encoder));
        first = end;
        // There is at most one page per block, so at most CHUNK_PAGES_MAX pages.
        number += 1;
    }
    Ok(())
}

/// Builds the page of some blocks.
fn page(
    chunk: &ChunkInput<'_>,
    number: PageNumber,
    validity: Option<Bitmap<'_>>,
    blocks: Range<usize>,
    encoder: &mut dyn ChunkEncoder,
) -> EncodedPage {
    let count = |number: usize| u32::try_from(number).expect("rows or bytes: at most PAGE_BYTES_MAX");
    let rows = blocks.start * BLOCK_ROWS..(blocks.end * BLOCK_ROWS).min(chunk.rows());
    let mut bytes = Vec::with_capacity(chunk.page_bytes as usize);
    bytes.resize(HEADER_BYTES, 0);
    let PageSummary { sections, divisor, min, max } = encoder.write(blocks, &mut bytes);
    let validity = validity.map(|bitmap| bitmap.slice(rows.start, rows.len()));
    let validity = validity.filter(|bitmap| bitmap.count_valid() < rows.len());
    let nulls = validity.map_or(0, |bitmap| rows.len() - bitmap.count_valid());
    let validity_at = validity.map_or(0, |_| count(bytes.len()));
    if let Some(bitmap) = validity {
        bitmap.write(&mut bytes);
    }
    let header = PageHeader {
        encoding: encoder.encoding() as u8,
        bounded: u8::from(bits_of(min.as_ref()).is_some()),
        table: chunk.table.0,
        segment: chunk.segment.0,
        column: chunk.column.0,
        page: number.0,
        first_row: count(rows.start),
        rows: count(rows.len()),
        nulls: count(nulls),
        min: bits_of(min.as_ref()).unwrap_or(0),
        max: bits_of(max.as_ref()).unwrap_or(0),
        divisor,
        validity_at,
        sections,
        ..PageHeader::zeroed()
    };
    EncodedPage {
        bytes: with_header(bytes, &header),
        first_row: header.first_row,
        rows: header.rows,
        zone: Zone { min, max, nulls: header.nulls },
    }
}

/// A bound as the header stores it; the header has no text bounds.
fn bits_of(bound: Option<&ZoneValue>) -> Option<u64> {
    match bound? {
        ZoneValue::Integer(value) => Some(value.cast_unsigned()),
        ZoneValue::Float(value) => Some(value.to_bits()),
        ZoneValue::Text(_) => None,
    }
}

/// Copies texts with null ones replaced by empty ones, so that none of their bytes are stored.
fn with_empty_nulls(texts: &TextValues<'_>, validity: Bitmap<'_>) -> (Vec<u8>, Vec<u32>) {
    let mut bytes = Vec::with_capacity(texts.bytes.len());
    let mut offsets = Vec::with_capacity(texts.offsets.len());
    offsets.push(0);
    for row in 0..texts.len() {
        if validity.is_valid(row) {
            bytes.extend_from_slice(texts.get(row));
        }
        let end = u32::try_from(bytes.len()).expect("the end of a text: ends do not exceed given offsets");
        offsets.push(end);
    }
    (bytes, offsets)
}

impl ChunkInput<'_> {
    /// Rows of the chunk.
    #[must_use]
    pub fn rows(&self) -> usize {
        match self.values {
            Values::Integers(values) => values.len(),
            Values::Floats(values) => values.len(),
            Values::Text(texts) => texts.len(),
        }
    }

    fn verify(&self) -> Result<(), ChunkError> {
        let Self { column, column_type, page_bytes, .. } = *self;
        let rows = self.rows();
        if rows == 0 || rows > SEGMENT_ROWS_MAX as usize {
            return Err(ChunkError::Rows { column, found: rows });
        }
        let (found, fits) = match self.values {
            Values::Integers(_) => ("integers", column_type.is_integer()),
            Values::Floats(_) => ("floats", column_type == ColumnType::Float64),
            Values::Text(_) => ("texts", column_type == ColumnType::Text),
        };
        if !fits {
            return Err(ChunkError::Type { column, column_type, found });
        }
        if let Some(found) = self.validity.map(<[u8]>::len)
            && found < rows.div_ceil(8)
        {
            return Err(ChunkError::Validity { column, wanted: rows.div_ceil(8), found });
        }
        if !(PAGE_SIZE_MIN..=PAGE_SIZE_MAX).contains(&page_bytes) || !page_bytes.is_multiple_of(SECTOR_BYTES)
        {
            return Err(ChunkError::PageSize { found: page_bytes });
        }
        let Values::Text(TextValues { bytes, offsets }) = self.values else { return Ok(()) };
        let wrong = offsets.windows(2).position(|pair| pair[1] < pair[0] || pair[1] as usize > bytes.len());
        wrong.map_or(Ok(()), |row| {
            let (start, end, bytes) = (offsets[row], offsets[row + 1], bytes.len());
            Err(ChunkError::Offsets { column, row, start, end, bytes })
        })
    }
}
