//! Encodes the integers of a column in few bytes: the smallest value once (the *reference*), and
//! for each row its difference from the reference, in 0, 1, 2, 4 or 8 bytes (the *lane*; its size
//! is the *width*).
//!
//! Invariants
//! - `value = reference + lane`, wrapping in 64 bits. With width 0, every row equals
//!   the reference.
//! - The value of a null row is arbitrary.
//! - Decimals beyond 64 bits have no reference: the lane is the value itself, in 16 bytes.

use super::layout::{Reader, WireError, malformed};
use arrow::buffer::NullBuffer;
use rackscan_format::{
    encoding::integer::Stored,
    simd::{Kernel, Level},
};

/// How a sequence of integers is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lanes {
    /// Bytes of a lane: 0, 1, 2, 4, 8 or 16.
    pub(super) width: u8,
    /// Added to each lane.
    pub(super) reference: i128,
}

const WIDE: u8 = 16;

impl Lanes {
    /// Whether every value is within these bounds, whatever the lanes hold.
    pub(super) fn within(&self, low: i128, high: i128) -> bool {
        let largest = match self.width {
            0 => 0,
            width @ (1 | 2 | 4) => (1_i128 << (8 * width)) - 1,
            _ => i128::from(u64::MAX),
        };
        self.reference >= low && self.reference.saturating_add(largest) <= high
    }
}

/// Smallest and largest value of the rows that have one.
fn bounds<T: Copy + Ord>(values: &[T], nulls: Option<&NullBuffer>) -> Option<(T, T)> {
    match nulls.filter(|nulls| nulls.null_count() > 0) {
        None => Level::chosen().run(Bounds(values)),
        Some(nulls) => nulls.valid_indices().map(|row| values[row]).fold(None, |known, value| {
            Some(known.map_or((value, value), |(min, max): (T, T)| (min.min(value), max.max(value))))
        }),
    }
}

struct Bounds<'a, T>(&'a [T]);

impl<T: Copy + Ord> Kernel for Bounds<'_, T> {
    type Output = Option<(T, T)>;

    #[inline(always)]
    fn run(self) -> Option<(T, T)> {
        let (mut min, mut max) = (*self.0.first()?, *self.0.first()?);
        for value in self.0 {
            min = min.min(*value);
            max = max.max(*value);
        }
        Some((min, max))
    }
}

pub(super) fn encode<T: Copy + Ord + Into<i64>>(
    values: &[T],
    nulls: Option<&NullBuffer>,
    buffer: &mut Vec<u8>,
) -> Lanes {
    let (min, max): (i64, i64) = bounds(values, nulls).map_or((0, 0), |(min, max)| (min.into(), max.into()));
    let width = match max.abs_diff(min) {
        0 => 0,
        1..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    };
    let start = buffer.len();
    buffer.resize(start + values.len() * usize::from(width), 0);
    let target = &mut buffer[start..];
    match width {
        0 => {}
        1 => Level::chosen().run(Store::<T, 1> { values, reference: min, target }),
        2 => Level::chosen().run(Store::<T, 2> { values, reference: min, target }),
        4 => Level::chosen().run(Store::<T, 4> { values, reference: min, target }),
        _ => Level::chosen().run(Store::<T, 8> { values, reference: min, target }),
    }
    Lanes { width, reference: min.into() }
}

/// Stores the low bytes of each difference. The high bytes are zero, except in null rows.
struct Store<'a, T, const W: usize> {
    values: &'a [T],
    reference: i64,
    target: &'a mut [u8],
}

impl<T: Copy + Into<i64>, const W: usize> Kernel for Store<'_, T, W> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { values, reference, target } = self;
        for (lane, value) in target.as_chunks_mut::<W>().0.iter_mut().zip(values) {
            let bytes = (*value).into().wrapping_sub(reference).to_le_bytes();
            lane.copy_from_slice(&bytes[..W]);
        }
    }
}

/// Decodes the values. Values that do not fit `T` are truncated, so callers ask [`Lanes::within`]
/// first, or decode 64 bits and check.
pub(super) fn decode<T: Stored>(
    lanes: Lanes,
    rows: usize,
    reader: &mut Reader<'_>,
) -> Result<Vec<T>, WireError> {
    let Ok(reference) = i64::try_from(lanes.reference) else {
        return malformed("the width of a reference", 16, "8 bytes");
    };
    let width = usize::from(lanes.width);
    let bytes = reader.buffer(rows * width)?;
    match width {
        0 => Ok(vec![T::from_stored(reference); rows]),
        1 => Ok(load::<T, 1>(bytes, reference)),
        2 => Ok(load::<T, 2>(bytes, reference)),
        4 => Ok(load::<T, 4>(bytes, reference)),
        8 => Ok(load::<T, 8>(bytes, reference)),
        other => malformed("the width of lanes", other, "0, 1, 2, 4 or 8"),
    }
}

fn load<T: Stored, const W: usize>(bytes: &[u8], reference: i64) -> Vec<T> {
    let lanes = bytes.as_chunks::<W>().0.iter();
    lanes
        .map(|lane| {
            let mut full = [0; 8];
            full[..W].copy_from_slice(lane);
            T::from_stored(reference.wrapping_add(i64::from_le_bytes(full)))
        })
        .collect()
}

pub(super) fn encode_wide(values: &[i128], nulls: Option<&NullBuffer>, buffer: &mut Vec<u8>) -> Lanes {
    if let Some(narrow) = narrow(values) {
        return encode(&narrow, nulls, buffer);
    }
    for value in values {
        buffer.extend_from_slice(&value.to_le_bytes());
    }
    Lanes { width: WIDE, reference: 0 }
}

/// The values in 64 bits, if all of them fit. All are converted before the check, because nearly
/// always they fit.
fn narrow(values: &[i128]) -> Option<Vec<i64>> {
    let mut narrow = vec![0; values.len()];
    Level::chosen().run(LowHalves { values, narrow: &mut narrow }).then_some(narrow)
}

/// Stores the low halves, and returns whether every high half is only a sign extension.
struct LowHalves<'a> {
    values: &'a [i128],
    narrow: &'a mut [i64],
}

impl Kernel for LowHalves<'_> {
    type Output = bool;

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "what is cut off is compared with what it must be")]
    fn run(self) -> bool {
        let mut beyond = 0;
        for (low, value) in self.narrow.iter_mut().zip(self.values) {
            *low = *value as i64;
            beyond |= (value >> 64) as i64 ^ (*low >> 63);
        }
        beyond == 0
    }
}

pub(super) fn decode_wide(
    lanes: Lanes,
    rows: usize,
    reader: &mut Reader<'_>,
) -> Result<Vec<i128>, WireError> {
    if lanes.width != WIDE {
        return decode(lanes, rows, reader);
    }
    let bytes = reader.buffer(rows * usize::from(WIDE))?;
    Ok(bytes.as_chunks::<16>().0.iter().map(|lane| i128::from_le_bytes(*lane)).collect())
}
