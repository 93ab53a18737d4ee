//! How does a batch travel from a node to a client?
//!
//! ```text
//! header (24 bytes) | one descriptor per column (40 bytes) | buffers, each at a multiple of 8 bytes
//! ```
//! Buffers follow one another in column order: validity bits if a row is null, then the lanes of
//! integers, the bits of booleans, the doubles, or a text's lanes of lengths (of rows, or of
//! dictionary entries after the rows' codes) and its bytes. Their places follow from counts, so
//! there is no offset to get wrong. A batch takes a multiple of 8 bytes: batches stand one behind
//! the other, and those of a few groups are mostly what describes them.
//!
//! Integers and decimals travel as the difference to the smallest value in 1, 2, 4 or 8 bytes
//! (`lanes`); a text travels once per distinct value when few are distinct (`text`).
//!
//! Invariants
//! - Little-endian throughout. The checksum covers everything behind itself.
//! - Decoding follows no count it has not held against the bytes given and `WIRE_CELLS_MAX`.

mod column;
mod lanes;
mod text;

use crate::limits::WIRE_CELLS_MAX;
use arrow::{
    array::{Array, ArrayRef, RecordBatch, RecordBatchOptions},
    datatypes::{DataType, SchemaRef},
    error::ArrowError,
};
use column::Descriptor;
use std::sync::Arc;

const MAGIC: [u8; 4] = *b"RSB\x02";
const HEADER_BYTES: usize = 24;
const DESCRIPTOR_BYTES: usize = 40;
const ALIGNMENT: usize = 8;
/// Magic and checksum: what the checksum does not cover.
const UNCOVERED_BYTES: usize = 8;

/// Why bytes are not a batch.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The bytes break the layout.
    #[error("batch on the wire: {what} is {found}, expected {expected}")]
    Malformed {
        /// The part at fault.
        what: &'static str,
        /// What is there.
        found: u64,
        /// What would be right.
        expected: String,
    },
    /// The batch cannot be rebuilt, or has a type that no scan yields.
    #[error("batch on the wire: {0}")]
    Arrow(#[from] ArrowError),
}

fn malformed<T>(what: &'static str, found: usize, expected: impl Into<String>) -> Result<T, WireError> {
    Err(WireError::Malformed { what, found: found as u64, expected: expected.into() })
}

/// Bytes that [`encode`] appends at most.
#[must_use]
pub fn encoded_len(batch: &RecordBatch) -> usize {
    let columns = batch.columns().iter().map(|column| {
        let rows = column.len();
        let values = match column.data_type() {
            DataType::Boolean => rows.div_ceil(8),
            DataType::Int32 | DataType::Date32 => rows * 4,
            DataType::Decimal128(_, _) => rows * 16,
            DataType::Utf8View => rows * 4 + ALIGNMENT + text::bytes(column),
            _ => rows * 8,
        };
        DESCRIPTOR_BYTES + rows.div_ceil(8) + values + 3 * ALIGNMENT
    });
    columns.sum::<usize>() + HEADER_BYTES + 2 * ALIGNMENT
}

/// Appends a batch to `bytes`.
///
/// # Errors
/// When a column has a type that no scan yields, or the batch is larger than a receiver accepts.
pub fn encode(batch: &RecordBatch, bytes: &mut Vec<u8>) -> Result<(), WireError> {
    let rows = batch.num_rows();
    let columns = batch.num_columns();
    check_cells(rows, columns)?;
    let start = bytes.len();
    bytes.resize(start + HEADER_BYTES + columns * DESCRIPTOR_BYTES, 0);
    let mut writer = Writer { bytes, start };
    for (index, column) in batch.columns().iter().enumerate() {
        let descriptor = column::encode(column, &mut writer)?;
        let at = start + HEADER_BYTES + index * DESCRIPTOR_BYTES;
        writer.bytes[at..at + DESCRIPTOR_BYTES].copy_from_slice(&descriptor.to_bytes());
    }
    writer.align();
    let total = bytes.len() - start;
    let header = &mut bytes[start..start + HEADER_BYTES];
    header[..4].copy_from_slice(&MAGIC);
    header[8..16].copy_from_slice(&(total as u64).to_le_bytes());
    header[16..20].copy_from_slice(&small(rows).to_le_bytes());
    header[20..24].copy_from_slice(&small(columns).to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[start + UNCOVERED_BYTES..]);
    bytes[start + 4..start + 8].copy_from_slice(&checksum.to_le_bytes());
    Ok(())
}

/// Reads the batch at the beginning of `bytes`, and says how many bytes it took.
///
/// # Errors
/// When the bytes are not a batch of that schema.
pub fn decode(bytes: &[u8], schema: &SchemaRef) -> Result<(RecordBatch, usize), WireError> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return malformed("the number of bytes", bytes.len(), format!("at least {HEADER_BYTES}"));
    };
    if header[..4] != MAGIC {
        let found = word32(header, 0) as usize;
        return malformed("the magic", found, format!("{:#010x}", u32::from_le_bytes(MAGIC)));
    }
    let total = usize::try_from(word64(header, 8)).unwrap_or(usize::MAX);
    let (rows, columns) = (word32(header, 16) as usize, word32(header, 20) as usize);
    if total > bytes.len() || !total.is_multiple_of(ALIGNMENT) {
        let expected = format!("a multiple of {ALIGNMENT} up to {}", bytes.len());
        return malformed("its length", total, expected);
    }
    if columns != schema.fields().len() {
        return malformed("the number of columns", columns, schema.fields().len().to_string());
    }
    check_cells(rows, columns)?;
    let bytes = &bytes[..total];
    let buffers_at = HEADER_BYTES + columns * DESCRIPTOR_BYTES;
    if buffers_at > total {
        return malformed("its length", total, format!("at least {buffers_at}"));
    }
    let (wanted, found) = (word32(header, 4), crc32c::crc32c(&bytes[UNCOVERED_BYTES..]));
    if wanted != found {
        return malformed("its checksum", found as usize, format!("{wanted}"));
    }
    let mut reader = Reader { bytes, at: buffers_at };
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(columns);
    let descriptors = bytes[HEADER_BYTES..buffers_at].as_chunks::<DESCRIPTOR_BYTES>().0;
    for (descriptor, field) in descriptors.iter().zip(schema.fields()) {
        let descriptor = Descriptor::from_bytes(descriptor);
        arrays.push(column::decode(&descriptor, field.data_type(), rows, &mut reader)?);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options)?;
    Ok((batch, total))
}

fn check_cells(rows: usize, columns: usize) -> Result<(), WireError> {
    match rows.checked_mul(columns.max(1)) {
        Some(cells) if cells <= WIRE_CELLS_MAX => Ok(()),
        _ => malformed("the number of rows", rows, format!("at most {WIRE_CELLS_MAX} over all columns")),
    }
}

/// A count that was checked to be at most `WIRE_CELLS_MAX`.
fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

/// Appends buffers to the batch that begins at `start`.
struct Writer<'a> {
    bytes: &'a mut Vec<u8>,
    start: usize,
}

impl Writer<'_> {
    fn align(&mut self) {
        let length = (self.bytes.len() - self.start).next_multiple_of(ALIGNMENT);
        self.bytes.resize(self.start + length, 0);
    }

    /// The vector to append one aligned buffer to.
    fn buffer(&mut self) -> &mut Vec<u8> {
        self.align();
        self.bytes
    }
}

/// Hands out buffers in order; never beyond the batch's end.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn buffer(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let start = self.at.next_multiple_of(ALIGNMENT);
        match start.checked_add(length).and_then(|end| self.bytes.get(start..end)) {
            Some(buffer) => {
                self.at = start + length;
                Ok(buffer)
            }
            None => malformed("the end of a buffer", start.saturating_add(length), {
                format!("at most {}", self.bytes.len())
            }),
        }
    }
}
