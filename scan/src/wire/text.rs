//! Encodes a text column as lengths and bytes. If few texts are distinct, each distinct text is
//! stored once.
//!
//! Dictionary pages yield the same arrow view for the same text, so distinct *views* are counted,
//! which is fast. Equal texts with different views only cost a few bytes.

use super::{
    descriptor::Descriptor,
    lanes,
    layout::{Reader, WireError, Writer, count32, malformed},
};
use crate::limits::{WIRE_DICTIONARY_ENTRIES_MAX, WIRE_DICTIONARY_ROWS_PER_ENTRY};
use arrow::{
    array::{Array, ArrayRef, StringArray, StringViewArray, UInt32Array},
    buffer::{Buffer, NullBuffer, OffsetBuffer},
    compute::take,
};
use az::SaturatingAs;
use std::{collections::HashMap, sync::Arc};

pub(super) fn encode(
    texts: &StringViewArray,
    descriptor: &mut Descriptor,
    writer: &mut Writer<'_>,
) -> Result<(), WireError> {
    let total = texts.lengths().map(|length| length as usize).sum();
    if let Some((codes, entries)) = dictionary(texts) {
        descriptor.lanes = lanes::encode(&codes, None, writer.buffer());
        descriptor.entries = count32(entries.len());
        let values = entries.iter().map(|row| texts.value(*row));
        let lengths: Vec<u32> = values.clone().map(|text| count32(text.len())).collect();
        descriptor.entry_lanes = lanes::encode(&lengths, None, writer.buffer());
        descriptor.text_bytes = append(values, 0, writer);
    } else if texts.null_count() == 0 {
        let lengths: Vec<u32> = texts.lengths().collect();
        descriptor.lanes = lanes::encode(&lengths, None, writer.buffer());
        descriptor.text_bytes = append((0..texts.len()).map(|row| texts.value(row)), total, writer);
    } else {
        let values = texts.iter().map(Option::unwrap_or_default);
        let lengths: Vec<u32> = values.clone().map(|text| count32(text.len())).collect();
        descriptor.lanes = lanes::encode(&lengths, None, writer.buffer());
        descriptor.text_bytes = append(values, total, writer);
    }
    match i32::try_from(descriptor.text_bytes) {
        Ok(_) => Ok(()),
        Err(_) => malformed("the bytes of a text column", bytes_of(descriptor), i32::MAX.to_string()),
    }
}

/// The length is the sender's word: one that no usize holds saturates, and no buffer is so long.
fn bytes_of(descriptor: &Descriptor) -> usize {
    descriptor.text_bytes.saturating_as::<usize>()
}

/// Appends the texts, of about `total` bytes, and returns their exact number of bytes.
fn append<'t>(values: impl Iterator<Item = &'t str>, total: usize, writer: &mut Writer<'_>) -> u64 {
    let buffer = writer.buffer();
    let start = buffer.len();
    buffer.reserve(total);
    values.for_each(|value| buffer.extend_from_slice(value.as_bytes()));
    (buffer.len() - start) as u64
}

/// A code for each row and a row for each code, if there are few distinct texts. Null rows have an
/// arbitrary code.
fn dictionary(texts: &StringViewArray) -> Option<(Vec<u32>, Vec<usize>)> {
    let most = (texts.len() / WIRE_DICTIONARY_ROWS_PER_ENTRY).min(WIRE_DICTIONARY_ENTRIES_MAX);
    let mut code_of: HashMap<u128, u32, foldhash::fast::FixedState> = HashMap::default();
    // A small lossy cache in front of the table: few distinct texts rarely get past it.
    let mut recent: [(u128, u32); CACHE_ENTRIES] = [(0, u32::MAX); CACHE_ENTRIES];
    let mut codes = Vec::with_capacity(texts.len());
    let mut entries: Vec<usize> = Vec::new();
    for (row, view) in texts.views().iter().enumerate() {
        if texts.is_null(row) {
            codes.push(0);
            continue;
        }
        let known = &mut recent[cache_position(*view)];
        if known.0 == *view && known.1 != u32::MAX {
            codes.push(known.1);
            continue;
        }
        let next = count32(entries.len());
        let code = *code_of.entry(*view).or_insert(next);
        if code == next {
            entries.push(row);
            // Gives up early if nearly all texts are distinct.
            if entries.len() > most || entries.len() > 64 + row / 2 {
                return None;
            }
        }
        *known = (*view, code);
        codes.push(code);
    }
    (!entries.is_empty()).then_some((codes, entries))
}

const CACHE_ENTRIES: usize = 64;

/// A view's position in the cache: the top bits of a product, which depend on all lower bits.
fn cache_position(view: u128) -> usize {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let bytes = view.to_le_bytes();
    let mixed = bytes
        .as_chunks::<8>()
        .0
        .iter()
        .fold(0_u64, |mixed, half| mixed.rotate_left(23) ^ u64::from_le_bytes(*half));
    let place = mixed.wrapping_mul(ODD) >> (u64::BITS - CACHE_ENTRIES.ilog2());
    usize::try_from(place).expect("a position in the cache: it has few bits") % CACHE_ENTRIES
}

pub(super) fn decode(
    descriptor: &Descriptor,
    rows: usize,
    nulls: Option<NullBuffer>,
    reader: &mut Reader<'_>,
) -> Result<ArrayRef, WireError> {
    let first = lanes::decode::<i64>(descriptor.lanes, rows, reader)?;
    if descriptor.entries == 0 {
        return Ok(Arc::new(views(&first, nulls, descriptor, reader)?));
    }
    let entries = descriptor.entries as usize;
    if entries > WIRE_DICTIONARY_ENTRIES_MAX {
        let expected = format!("at most {WIRE_DICTIONARY_ENTRIES_MAX}");
        return malformed("the number of dictionary entries", entries, expected);
    }
    let lengths = lanes::decode::<i64>(descriptor.entry_lanes, entries, reader)?;
    let values = views(&lengths, None, descriptor, reader)?;
    let mut codes: Vec<u32> = Vec::with_capacity(rows);
    for code in first {
        match u32::try_from(code) {
            Ok(code) if code < descriptor.entries => codes.push(code),
            _ => {
                return malformed("a dictionary code", code, format!("below {entries}"));
            }
        }
    }
    let codes = UInt32Array::try_new(codes.into(), nulls)?;
    Ok(take(&values, &codes, None)?)
}

/// Texts of these lengths, as views of one buffer.
fn views(
    lengths: &[i64],
    nulls: Option<NullBuffer>,
    descriptor: &Descriptor,
    reader: &mut Reader<'_>,
) -> Result<StringViewArray, WireError> {
    let bytes = reader.buffer(bytes_of(descriptor))?;
    let mut offsets: Vec<i32> = Vec::with_capacity(lengths.len() + 1);
    let mut end = 0_i32;
    offsets.push(end);
    for length in lengths {
        let next = i32::try_from(*length).ok().filter(|length| *length >= 0);
        match next.and_then(|length| end.checked_add(length)) {
            Some(next) if usize::try_from(next).is_ok_and(|next| next <= bytes.len()) => end = next,
            _ => {
                return malformed("the length of a text", *length, format!("within {} bytes", bytes.len()));
            }
        }
        offsets.push(end);
    }
    let texts = StringArray::try_new(OffsetBuffer::new(offsets.into()), Buffer::from(bytes), nulls)?;
    Ok(StringViewArray::from(&texts))
}
