//! Which rows of a block does a leaf over stored integers keep, without widening a value?
//!
//! A block's values are `reference + divisor * number`. The constant is translated once, to the
//! numbers it lies between; the block's bounds often decide without unpacking; else the numbers are
//! compared in the lanes they were unpacked to, 8 bits each where that is what they take.
//!
//! Invariant: rows without a value are for the caller to remove; the answers here are about the
//! numbers stored.

pub(crate) mod compare;
pub(crate) mod expression;
pub(crate) mod int;
pub(crate) mod kernels;

use self::{
    expression::Interval,
    int::{Width, at_width},
    kernels::{Compare, Side},
};
use crate::{
    limits::KEYS_TRIED,
    prune::{self, Verdict},
    selection::{RowBytes, Selection},
};
use arrow::array::ArrayRef;
use rackscan_format::{
    encoding::{bitpack::Scratch, integer::IntegerBlock},
    key_filter::KeyFilter,
    limits::{BLOCK_ROWS, KEY_FILTERS_MAX},
    program::Comparison,
    simd::Level,
};
use std::collections::HashMap;

/// Room for unpacking and comparing one block; one per scan.
pub(crate) struct Room {
    pub(crate) scratch: Box<Scratch>,
    pub(crate) answers: Box<RowBytes>,
    /// The steps of an expression, or the columns of a comparison.
    pub(crate) steps: expression::Room,
    /// The entries of the dictionary page last seen of an input: batches of one page share them.
    pub(crate) entries: HashMap<usize, (usize, ArrayRef)>,
    /// What each key filter of the program has been good for.
    pub(crate) searches: [Searches; KEY_FILTERS_MAX],
}

/// How many rows a key filter was asked about, and how many it kept.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Searches {
    pub(crate) tested: u64,
    pub(crate) kept: u64,
}

impl Searches {
    /// Whether so many are kept that asking about the others does not pay. A filter may keep what
    /// it likes, so that giving it up changes nothing for whoever asked.
    pub(crate) fn given_up(&self) -> bool {
        self.tested >= KEYS_TRIED && self.kept > self.tested / 8 * 7
    }
}

impl Room {
    pub(crate) fn new(level: Level) -> Self {
        Self {
            scratch: Scratch::at(level),
            answers: Box::new([0; BLOCK_ROWS]),
            steps: expression::Room::default(),
            entries: HashMap::new(),
            searches: [Searches::default(); KEY_FILTERS_MAX],
        }
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
    let level = room.scratch.level();
    compare::between(level, block.unpack(&mut room.scratch), (low, high.min(largest)), &mut room.answers);
    Selection::from_bytes(level, &room.answers)
}

/// The numbers whose values lie within `low ..= high`; `None` when there are none.
fn numbers_between(block: &IntegerBlock<'_>, low: i64, high: i64) -> Option<(u64, u64)> {
    let (reference, divisor) = (block.reference(), block.divisor());
    // Differences that are not negative fit 64 bits without a sign.
    let above = |value: i64| (value >= reference).then(|| value.wrapping_sub(reference).cast_unsigned());
    let last = above(high)? / divisor;
    // Rounded up: the first number whose value is not below.
    let first = above(low).unwrap_or(0).div_ceil(divisor);
    (first <= last).then_some((first, last))
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
    let level = room.scratch.level();
    compare::among(level, block.unpack(&mut room.scratch), &numbers, &mut room.answers);
    let among = Selection::from_bytes(level, &room.answers);
    if negated { Selection::first(BLOCK_ROWS).without(&among) } else { among }
}

/// Rows of `wanted` whose value may be in a filter.
pub(crate) fn keys(
    block: &IntegerBlock<'_>,
    filter: &KeyFilter,
    wanted: &Selection,
    room: &mut Room,
) -> Selection {
    if prune::keys(Some(block.bounds()), filter) == Verdict::Never {
        return Selection::NONE;
    }
    let Room { scratch, steps, answers, .. } = room;
    steps.make(0);
    let Some([lanes, _]) = steps.pair() else { return Selection::NONE };
    let (level, values) = (scratch.level(), lanes.get_mut::<i64>());
    kernels::decode(level, block, block.unpack(scratch), values);
    // Looking up all rows costs each of them less, looking up the wanted ones costs fewer.
    if wanted.count() < BLOCK_ROWS / 4 {
        let mut kept = Selection::NONE;
        wanted.rows().filter(|row| filter.contains(values[*row])).for_each(|row| kept.insert(row));
        return kept;
    }
    filter.probe(level, values, answers);
    Selection::from_bytes(level, answers).and(wanted)
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
    let Room { scratch, steps, answers, .. } = room;
    steps.make(0);
    let Some([left_lanes, right_lanes]) = steps.pair() else { return Selection::NONE };
    let level = scratch.level();
    at_width!(width_of(left).max(width_of(right)), T => {
        kernels::decode(level, left, left.unpack(scratch), left_lanes.get_mut::<T>());
        kernels::decode(level, right, right.unpack(scratch), right_lanes.get_mut::<T>());
        let (left, right) = (Side::Lanes(left_lanes.get::<T>()), Side::Lanes(right_lanes.get::<T>()));
        level.run(Compare { op, left, right, answers: &mut *answers });
    });
    Selection::from_bytes(level, answers)
}

/// The largest value a block's bytes can unpack to, whatever its descriptor says.
pub(crate) fn largest_value(block: &IntegerBlock<'_>) -> i128 {
    i128::from(block.reference()) + i128::from(block.divisor()) * i128::from(block.largest_number())
}

/// The values a block's bytes can unpack to.
pub(crate) fn reach_of(block: &IntegerBlock<'_>) -> Interval {
    (block.reference().into(), largest_value(block))
}

/// The narrowest integer for a block's values. A lying block's values wrap in 64 bits, wherever
/// they are compared.
fn width_of(block: &IntegerBlock<'_>) -> Width {
    Width::of(reach_of(block)).min(Width::W64)
}
