//! How do integers travel in few bytes? As differences to the smallest, in the narrowest of 1, 2, 4 and 8 bytes.
//!
//! Invariants
//! - `value = reference + lane`, wrapping in 64 bits; a width of 0 means that all rows have the reference.
//! - Values under a null are anything.
//! - Decimals beyond 64 bits travel whole, in lanes of 16 bytes.

use super::{Reader, WireError, malformed};
use arrow::buffer::NullBuffer;

/// How a run of integers is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lanes {
    /// Bytes of a lane: 0, 1, 2, 4, 8 or 16.
    pub(super) width: u8,
    /// Added to each lane.
    pub(super) reference: i128,
}

const WIDE: u8 = 16;

/// Smallest and largest value of the rows that have one.
fn bounds<T: Copy + Ord>(values: &[T], nulls: Option<&NullBuffer>) -> Option<(T, T)> {
    let wider = |(min, max): (T, T), value: T| (min.min(value), max.max(value));
    match nulls.filter(|nulls| nulls.null_count() > 0) {
        None => {
            let first = *values.first()?;
            Some(values.iter().fold((first, first), |known, value| wider(known, *value)))
        }
        Some(nulls) => nulls
            .valid_indices()
            .map(|row| values[row])
            .fold(None, |known, value| Some(known.map_or((value, value), |known| wider(known, value)))),
    }
}

pub(super) fn encode(values: &[i64], nulls: Option<&NullBuffer>, buffer: &mut Vec<u8>) -> Lanes {
    let (min, max) = bounds(values, nulls).unwrap_or((0, 0));
    let width = match max.abs_diff(min) {
        0 => 0,
        1..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    };
    append(values, min, width, buffer);
    Lanes { width, reference: min.into() }
}

/// Appends the low `width` bytes of each difference; higher bytes are zero, but for rows that are null.
fn append(values: &[i64], reference: i64, width: u8, buffer: &mut Vec<u8>) {
    let start = buffer.len();
    buffer.resize(start + values.len() * usize::from(width), 0);
    let target = &mut buffer[start..];
    match width {
        0 => {}
        1 => store::<1>(values, reference, target),
        2 => store::<2>(values, reference, target),
        4 => store::<4>(values, reference, target),
        _ => store::<8>(values, reference, target),
    }
}

fn store<const W: usize>(values: &[i64], reference: i64, target: &mut [u8]) {
    for (lane, value) in target.as_chunks_mut::<W>().0.iter_mut().zip(values) {
        let bytes = value.wrapping_sub(reference).to_le_bytes();
        lane.copy_from_slice(&bytes[..W]);
    }
}

pub(super) fn decode(lanes: Lanes, rows: usize, reader: &mut Reader<'_>) -> Result<Vec<i64>, WireError> {
    let Ok(reference) = i64::try_from(lanes.reference) else {
        return malformed("the width of a reference", 16, "8 bytes");
    };
    let width = usize::from(lanes.width);
    let bytes = reader.buffer(rows * width)?;
    match width {
        0 => Ok(vec![reference; rows]),
        1 => Ok(load::<1>(bytes, reference)),
        2 => Ok(load::<2>(bytes, reference)),
        4 => Ok(load::<4>(bytes, reference)),
        8 => Ok(load::<8>(bytes, reference)),
        other => malformed("the width of lanes", other, "0, 1, 2, 4 or 8"),
    }
}

fn load<const W: usize>(bytes: &[u8], reference: i64) -> Vec<i64> {
    let lanes = bytes.as_chunks::<W>().0.iter();
    lanes
        .map(|lane| {
            let mut full = [0; 8];
            full[..W].copy_from_slice(lane);
            reference.wrapping_add(i64::from_le_bytes(full))
        })
        .collect()
}

pub(super) fn encode_wide(values: &[i128], nulls: Option<&NullBuffer>, buffer: &mut Vec<u8>) -> Lanes {
    let narrow: Result<Vec<i64>, _> = values.iter().map(|value| i64::try_from(*value)).collect();
    if let Ok(narrow) = narrow {
        return encode(&narrow, nulls, buffer);
    }
    for value in values {
        buffer.extend_from_slice(&value.to_le_bytes());
    }
    Lanes { width: WIDE, reference: 0 }
}

pub(super) fn decode_wide(
    lanes: Lanes,
    rows: usize,
    reader: &mut Reader<'_>,
) -> Result<Vec<i128>, WireError> {
    if lanes.width != WIDE {
        return Ok(decode(lanes, rows, reader)?.into_iter().map(i128::from).collect());
    }
    let bytes = reader.buffer(rows * usize::from(WIDE))?;
    Ok(bytes.as_chunks::<16>().0.iter().map(|lane| i128::from_le_bytes(*lane)).collect())
}
