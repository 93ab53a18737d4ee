//! Which rows of a block does a leaf over stored integers keep, without widening a value?
//!
//! A block's values are `reference + divisor * number`. The constant is translated once, to the numbers it lies
//! between; the block's bounds often decide without unpacking; else the numbers are compared in the lanes they were
//! unpacked to, 8 bits each where that is what they take.
//!
//! Invariant: rows without a value are for the caller to remove; the answers here are about the numbers stored.

pub(crate) mod compare;

use crate::{
    prune::{self, Verdict},
    selection::{RowBytes, Selection},
};
use arrow::array::ArrayRef;
use rackscan_format::{
    encoding::{
        bitpack::{Narrow, Scratch},
        integer::IntegerBlock,
    },
    limits::BLOCK_ROWS,
    program::Comparison,
};
use std::collections::HashMap;

/// Room for unpacking and comparing one block; one per scan.
pub(crate) struct Room {
    pub(crate) scratch: Box<Scratch>,
    pub(crate) other: Box<Scratch>,
    pub(crate) answers: Box<RowBytes>,
    /// The entries of the dictionary page last seen of an input: batches of one page share them.
    pub(crate) entries: HashMap<usize, (usize, ArrayRef)>,
}

impl Room {
    pub(crate) fn new() -> Self {
        let answers = Box::new([0; BLOCK_ROWS]);
        Self { scratch: Scratch::new(), other: Scratch::new(), answers, entries: HashMap::new() }
    }
}

fn decided(verdict: Verdict) -> Option<Selection> {
    match verdict {
        Verdict::Never => Some(Selection::NONE),
        Verdict::Always => Some(Selection::first(BLOCK_ROWS)),
        Verdict::Maybe => None,
    }
}

/// Rows whose value is within `low ..= high`.
pub(crate) fn interval(block: &IntegerBlock<'_>, low: i64, high: i64, room: &mut Room) -> Selection {
    if let Some(selection) = decided(prune::interval(Some(block.bounds()), low, high)) {
        return selection;
    }
    let Some((low, high)) = numbers_between(block, low, high) else { return Selection::NONE };
    // A constant block has one number, 0, in no lane.
    let largest = block.lane().largest();
    if low > largest {
        return Selection::NONE;
    }
    compare::between(block.unpack(&mut room.scratch), low, high.min(largest), &mut room.answers);
    Selection::from_bytes(&room.answers)
}

/// The numbers whose values lie within `low ..= high`; `None` when there are none.
fn numbers_between(block: &IntegerBlock<'_>, low: i64, high: i64) -> Option<(u64, u64)> {
    let (reference, divisor) = (i128::from(block.reference()), i128::from(block.divisor()));
    let above = (i128::from(low) - reference).max(0);
    // Rounded up: the first number whose value is not below.
    let first = (above + divisor - 1) / divisor;
    let last = (i128::from(high) - reference).div_euclid(divisor);
    match (u64::try_from(first), u64::try_from(last)) {
        (Ok(first), Ok(last)) if first <= last => Some((first, last)),
        _ => None,
    }
}

/// Rows whose value is in `values`, ascending, or (negated) is not.
pub(crate) fn set(block: &IntegerBlock<'_>, values: &[i64], negated: bool, room: &mut Room) -> Selection {
    if let Some(selection) = decided(prune::set(Some(block.bounds()), values, negated)) {
        return selection;
    }
    let (reference, divisor) = (i128::from(block.reference()), i128::from(block.divisor()));
    let largest = block.lane().largest();
    let numbers = values.iter().filter_map(|value| {
        let difference = i128::from(*value) - reference;
        let number = (difference % divisor == 0).then(|| u64::try_from(difference / divisor).ok())??;
        (number <= largest).then_some(number)
    });
    let numbers: Vec<u64> = numbers.collect();
    compare::among(block.unpack(&mut room.scratch), &numbers, &mut room.answers);
    let among = Selection::from_bytes(&room.answers);
    if negated { Selection::first(BLOCK_ROWS).without(&among) } else { among }
}

/// Rows where the values of two blocks compare as asked.
pub(crate) fn columns(
    op: Comparison,
    left: &IntegerBlock<'_>,
    right: &IntegerBlock<'_>,
    room: &mut Room,
) -> Selection {
    if let Some(selection) = decided(prune::columns(op, Some(left.bounds()), Some(right.bounds()))) {
        return selection;
    }
    let base = left.reference().min(right.reference());
    let Room { scratch, other, answers, .. } = room;
    let (left_fits, right_fits) = (fits_i32(left, base), fits_i32(right, base));
    let (left_numbers, right_numbers) = (left.unpack(scratch), right.unpack(other));
    if left_fits && right_fits {
        let (mut left_values, mut right_values) = ([0_i32; BLOCK_ROWS], [0_i32; BLOCK_ROWS]);
        differences(left, left_numbers, base, &mut left_values);
        differences(right, right_numbers, base, &mut right_values);
        compare::pairwise(op, &left_values, &right_values, answers);
    } else {
        let (mut left_values, mut right_values) = ([0_i64; BLOCK_ROWS], [0_i64; BLOCK_ROWS]);
        values(left, left_numbers, &mut left_values);
        values(right, right_numbers, &mut right_values);
        compare::pairwise(op, &left_values, &right_values, answers);
    }
    Selection::from_bytes(answers)
}

/// The largest value a block's bytes can unpack to, whatever its descriptor says.
pub(crate) fn largest_value(block: &IntegerBlock<'_>) -> i128 {
    i128::from(block.reference()) + i128::from(block.divisor()) * i128::from(block.largest_number())
}

fn fits_i32(block: &IntegerBlock<'_>, base: i64) -> bool {
    largest_value(block) - i128::from(base) <= i128::from(i32::MAX)
}

/// All values of a block less `base`; the caller has proved that they fit 31 bits.
fn differences(block: &IntegerBlock<'_>, numbers: Narrow<'_>, base: i64, values: &mut [i32; BLOCK_ROWS]) {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "proved by the caller; divisor and offset are smaller yet"
    )]
    let (offset, divisor) =
        (block.reference().wrapping_sub(base) as i32, block.divisor().cast_signed() as i32);
    fn widen<L: Copy>(lanes: &[L], values: &mut [i32], of: impl Fn(L) -> i32) {
        values.iter_mut().zip(lanes).for_each(|(value, lane)| *value = of(*lane));
    }
    let of = |number: i32| offset.wrapping_add(divisor.wrapping_mul(number));
    match numbers {
        Narrow::Constant => values.fill(offset),
        Narrow::U8(lanes) => widen(lanes, values, |lane| of(lane.into())),
        Narrow::U16(lanes) => widen(lanes, values, |lane| of(lane.into())),
        Narrow::U32(lanes) => widen(lanes, values, |lane| of(lane.cast_signed())),
        // Numbers of 33 bits and more do not fit 31 bits.
        Narrow::U64(_) => values.fill(offset),
    }
}

/// All values of a block.
pub(crate) fn values(block: &IntegerBlock<'_>, numbers: Narrow<'_>, values: &mut [i64; BLOCK_ROWS]) {
    fn widen<L: Copy + Into<u64>>(
        block: &IntegerBlock<'_>,
        lanes: &[L; BLOCK_ROWS],
        values: &mut [i64; BLOCK_ROWS],
    ) {
        let (reference, divisor) = (block.reference(), block.divisor());
        if divisor == 1 {
            for (value, lane) in values.iter_mut().zip(lanes) {
                *value = reference.wrapping_add((*lane).into().cast_signed());
            }
        } else if let (Ok(divisor), true) = (u32::try_from(divisor), size_of::<L>() <= 4) {
            // 32 by 32 bits to 64 is one vector instruction, 64 by 64 is not.
            for (value, lane) in values.iter_mut().zip(lanes) {
                let lane: u64 = (*lane).into();
                let product = (lane & u64::from(u32::MAX)) * u64::from(divisor);
                *value = reference.wrapping_add(product.cast_signed());
            }
        } else {
            for (value, lane) in values.iter_mut().zip(lanes) {
                *value = block.value_of((*lane).into());
            }
        }
    }
    match numbers {
        Narrow::Constant => values.fill(block.reference()),
        Narrow::U8(lanes) => widen(block, lanes, values),
        Narrow::U16(lanes) => widen(block, lanes, values),
        Narrow::U32(lanes) => widen(block, lanes, values),
        Narrow::U64(lanes) => widen(block, lanes, values),
    }
}
