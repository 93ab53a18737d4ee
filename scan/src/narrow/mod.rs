//! Evaluates conditions on integer columns directly on packed blocks, in the narrow integers in
//! which the block is packed.
//!
//! A value of a block is `reference + divisor * number`, where only the numbers are packed. The
//! constant of a condition is translated once, to the range of numbers that match. The bounds of
//! the block often decide without unpacking. Otherwise the numbers are unpacked and compared at
//! their own width, 8 bits each where that is enough.
//!
//! ```text
//! mod          conditions on one or two columns: intervals, sets, keys, comparisons
//! compare      loops that compare unpacked numbers with constants
//! expression   expressions over columns, in the narrowest integers that are wide enough
//! int, kernels integers of each width, and the loops over a block of them
//! ```
//!
//! Invariant: the results are about the stored numbers. A NULL row has a stored number, too; the
//! caller removes these rows.

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
    limits::KEY_FILTER_TRIAL_ROWS,
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

/// Buffers for unpacking and comparing blocks; one per scan.
pub(crate) struct Buffers {
    pub(crate) scratch: Box<Scratch>,
    pub(crate) answers: Box<RowBytes>,
    /// For the steps of an expression, or the columns of a comparison.
    pub(crate) steps: expression::StepBuffers,
    /// For each text input, the page whose dictionary was decoded last and its entries: batches of
    /// one page share them.
    pub(crate) entries: HashMap<usize, (usize, ArrayRef)>,
    /// For each key filter of the program, how many rows it has kept.
    pub(crate) key_filter_uses: [KeyFilterUse; KEY_FILTERS_MAX],
}

/// How many rows a key filter was applied to, and how many it kept.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyFilterUse {
    pub(crate) tested: u64,
    pub(crate) kept: u64,
}

impl KeyFilterUse {
    /// Whether the filter keeps so many rows that applying it does not pay. Giving it up does not
    /// change the result, because a key filter may keep any row.
    pub(crate) fn is_given_up(&self) -> bool {
        self.tested >= KEY_FILTER_TRIAL_ROWS && self.kept > self.tested / 8 * 7
    }
}

impl Buffers {
    pub(crate) fn new(level: Level) -> Self {
        Self {
            scratch: Scratch::at(level),
            answers: Box::new([0; BLOCK_ROWS]),
            steps: expression::StepBuffers::default(),
            entries: HashMap::new(),
            key_filter_uses: [KeyFilterUse::default(); KEY_FILTERS_MAX],
        }
    }
}

fn selection_by_verdict(verdict: Verdict) -> Option<Selection> {
    match verdict {
        Verdict::Never => Some(Selection::NONE),
        Verdict::Always => Some(Selection::first(BLOCK_ROWS)),
        Verdict::Maybe => None,
    }
}

/// Rows whose value is within `low ..= high`.
pub(crate) fn interval(block: &IntegerBlock<'_>, low: i64, high: i64, buffers: &mut Buffers) -> Selection {
    if let Some(selection) = selection_by_verdict(prune::interval(Some(block.bounds()), low, high)) {
        return selection;
    }
    let Some((low, high)) = numbers_between(block, low, high) else { return Selection::NONE };
    // A constant block has one number, 0, which needs no lane.
    let largest = block.lane().largest();
    if low > largest {
        return Selection::NONE;
    }
    let level = buffers.scratch.level();
    compare::between(
        level,
        block.unpack(&mut buffers.scratch),
        (low, high.min(largest)),
        &mut buffers.answers,
    );
    Selection::from_bytes(level, &buffers.answers)
}

/// The range of numbers whose values lie within `low ..= high`; `None` if it is empty.
fn numbers_between(block: &IntegerBlock<'_>, low: i64, high: i64) -> Option<(u64, u64)> {
    let (reference, divisor) = (block.reference(), block.divisor());
    // Differences that are not negative fit 64 bits without a sign.
    let above = |value: i64| (value >= reference).then(|| value.wrapping_sub(reference).cast_unsigned());
    let last = above(high)? / divisor;
    // Rounded up: the first number whose value is at least `low`.
    let first = above(low).unwrap_or(0).div_ceil(divisor);
    (first <= last).then_some((first, last))
}

/// Rows whose value is in `values`, ascending, or (negated) is not.
pub(crate) fn set(
    block: &IntegerBlock<'_>,
    values: &[i64],
    negated: bool,
    buffers: &mut Buffers,
) -> Selection {
    if let Some(selection) = selection_by_verdict(prune::set(Some(block.bounds()), values, negated)) {
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
    let level = buffers.scratch.level();
    compare::in_set(level, block.unpack(&mut buffers.scratch), &numbers, &mut buffers.answers);
    let in_set = Selection::from_bytes(level, &buffers.answers);
    if negated { Selection::first(BLOCK_ROWS).without(&in_set) } else { in_set }
}

/// The rows of `wanted` whose value may be in a key filter.
pub(crate) fn keys(
    block: &IntegerBlock<'_>,
    filter: &KeyFilter,
    wanted: &Selection,
    buffers: &mut Buffers,
) -> Selection {
    if prune::keys(Some(block.bounds()), filter) == Verdict::Never {
        return Selection::NONE;
    }
    let Buffers { scratch, steps, answers, .. } = buffers;
    steps.make(0);
    let Some([lanes, _]) = steps.pair() else { return Selection::NONE };
    let (level, values) = (scratch.level(), lanes.get_mut::<i64>());
    kernels::decode(level, block, block.unpack(scratch), values);
    // Looking up all rows is cheaper per row; looking up the wanted rows is fewer rows.
    if wanted.count() < BLOCK_ROWS / 4 {
        let mut kept = Selection::NONE;
        wanted.rows().filter(|row| filter.contains(values[*row])).for_each(|row| kept.insert(row));
        return kept;
    }
    filter.probe(level, values, answers);
    Selection::from_bytes(level, answers).and(wanted)
}

/// The rows where the values of two blocks compare as `op`.
pub(crate) fn columns(
    op: Comparison,
    left: &IntegerBlock<'_>,
    right: &IntegerBlock<'_>,
    buffers: &mut Buffers,
) -> Selection {
    if let Some(selection) =
        selection_by_verdict(prune::columns(op, Some(left.bounds()), Some(right.bounds())))
    {
        return selection;
    }
    let Buffers { scratch, steps, answers, .. } = buffers;
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

/// The largest value that a block's bytes can unpack to, whatever its descriptor says.
pub(crate) fn largest_value(block: &IntegerBlock<'_>) -> i128 {
    i128::from(block.reference()) + i128::from(block.divisor()) * i128::from(block.largest_number())
}

/// The bounds of the values that a block's bytes can unpack to.
pub(crate) fn bounds_of(block: &IntegerBlock<'_>) -> Interval {
    (block.reference().into(), largest_value(block))
}

/// The narrowest integer for a block's values. Values of a block with a wrong descriptor wrap in 64
/// bits, wherever they are compared.
fn width_of(block: &IntegerBlock<'_>) -> Width {
    Width::of(bounds_of(block)).min(Width::W64)
}
