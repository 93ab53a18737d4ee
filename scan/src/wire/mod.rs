//! Defines the byte format in which a batch travels from a node to a client.
//!
//! ```text
//! header (24 bytes) | one descriptor per column (40 bytes) | buffers, each at a multiple of 8 bytes
//! ```
//!
//! | type of a column | its buffers, in this order |
//! |---|---|
//! | any, if a row is null | validity bits, before the others |
//! | boolean | bits |
//! | double | the doubles |
//! | integer, decimal | differences to the smallest value, of 1, 2, 4 or 8 bytes (`lanes`) |
//! | text | lengths of the texts, as `lanes`; bytes of the texts |
//! | text with few distinct values | codes of the rows; lengths of the distinct texts; bytes of these (`text`) |
//!
//! Buffers follow one another in column order. Positions follow from counts, so no offset is
//! stored. The length of a batch is a multiple of 8 bytes, because batches follow one another
//! directly. In a batch of a few groups, most of the bytes are headers and descriptors.
//!
//! ```text
//! mod         the header; whole batches
//! layout      constants, errors, checked reading and writing of buffers
//! descriptor  the descriptor of a column
//! column      one column: validity, booleans, integers, doubles
//!   lanes     integers in few bytes
//!   text      lengths and bytes of texts, or a dictionary
//! ```
//!
//! Invariants
//! - All numbers are little-endian. The checksum covers everything after itself.
//! - Decoding checks every count against the given bytes and `WIRE_CELLS_MAX` before it uses the
//!   count.

mod column;
mod descriptor;
mod lanes;
mod layout;
mod text;

use crate::limits::WIRE_CELLS_MAX;
use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions},
    datatypes::SchemaRef,
};
use az::SaturatingAs;
use descriptor::{DESCRIPTOR_BYTES, Descriptor};
use layout::{
    ALIGNMENT, HEADER_BYTES, MAGIC, Reader, UNCOVERED_BYTES, Writer, count32, malformed, word32, word64,
};
use std::sync::Arc;

pub use layout::WireError;

/// Appends a batch to `bytes`.
///
/// # Errors
/// If a column has a type that no scan yields, or the batch is larger than a receiver accepts.
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
    header[16..20].copy_from_slice(&count32(rows).to_le_bytes());
    header[20..24].copy_from_slice(&count32(columns).to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[start + UNCOVERED_BYTES..]);
    bytes[start + 4..start + 8].copy_from_slice(&checksum.to_le_bytes());
    Ok(())
}

/// Reads the batch at the beginning of `bytes`, and returns it with the number of bytes it took.
///
/// # Errors
/// If the bytes are not a batch of that schema.
pub fn decode(bytes: &[u8], schema: &SchemaRef) -> Result<(RecordBatch, usize), WireError> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return malformed("the number of bytes", bytes.len(), format!("at least {HEADER_BYTES}"));
    };
    if header[..4] != MAGIC {
        let found = word32(header, 0) as usize;
        return malformed("the magic", found, format!("{:#010x}", u32::from_le_bytes(MAGIC)));
    }
    // A length that no usize holds is larger than all bytes, and refused below.
    let total = word64(header, 8).saturating_as::<usize>();
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
