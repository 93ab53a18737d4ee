//! Decides from a page's zone map, without reading the page, whether a predicate holds for no row
//! (`Never`), for every row (`Always`), or is undecided (`Maybe`).
//!
//! Invariants
//! - `Never` and `Always` are proofs, provided that the zone map is correct; in all other cases the
//!   result is `Maybe`.
//! - In a page whose values are all NULL, only the condition `IS NULL` can be true. A missing bound
//!   proves nothing.

use crate::{
    limits::RANGE_LOOKED_UP_MAX,
    predicate::{NarrowComparison, Predicate, TextTest},
};
use rackscan_format::{
    key_filter::KeyFilter,
    program::Comparison,
    zone::{Zone, ZoneValue},
};
use std::cmp::Ordering;

/// What is known about a predicate over some rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// It holds for no row.
    Never,
    /// The rows must be read to decide.
    Maybe,
    /// It holds for every row.
    Always,
}

/// A zone map with the number of rows it covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds<'a> {
    pub(crate) zone: &'a Zone,
    pub(crate) rows: u32,
}

impl Bounds<'_> {
    fn all_null(&self) -> bool {
        self.zone.nulls >= self.rows
    }

    /// Corrects a verdict on values for rows that are NULL, of which no leaf holds.
    fn unless_null(&self, verdict: Verdict) -> Verdict {
        if self.all_null() {
            return Verdict::Never;
        }
        if verdict == Verdict::Always && self.zone.nulls > 0 { Verdict::Maybe } else { verdict }
    }

    /// The bounds of an integer page.
    pub(crate) fn integers(&self) -> Option<(i64, i64)> {
        match (&self.zone.min, &self.zone.max) {
            (Some(ZoneValue::Integer(min)), Some(ZoneValue::Integer(max))) if min <= max => {
                Some((*min, *max))
            }
            _ => None,
        }
    }

    fn text_min(&self) -> Option<&[u8]> {
        match &self.zone.min {
            Some(ZoneValue::Text(min)) => Some(min),
            _ => None,
        }
    }

    fn text_max(&self) -> Option<&[u8]> {
        match &self.zone.max {
            Some(ZoneValue::Text(max)) => Some(max),
            _ => None,
        }
    }
}

/// The verdict of zone maps on a predicate over rows that lie in one page of each input. `bounds`
/// returns the zone map of an input.
pub(crate) fn verdict<'z>(predicate: &Predicate, bounds: &impl Fn(usize) -> Bounds<'z>) -> Verdict {
    match predicate {
        Predicate::Constant(value) => {
            if *value {
                Verdict::Always
            } else {
                Verdict::Never
            }
        }
        Predicate::Interval { input, low, high } => {
            let bounds = bounds(*input);
            bounds.unless_null(interval(bounds.integers(), *low, *high))
        }
        Predicate::Set { input, values, negated } => {
            let bounds = bounds(*input);
            bounds.unless_null(set(bounds.integers(), values, *negated))
        }
        Predicate::Columns { op, left, right } => {
            let (left, right) = (bounds(*left), bounds(*right));
            let verdict = columns(*op, left.integers(), right.integers());
            left.unless_null(verdict).min(right.unless_null(verdict))
        }
        Predicate::Null { input, is_null } => {
            let bounds = bounds(*input);
            match (bounds.zone.nulls == 0, bounds.all_null()) {
                (true, _) if *is_null => Verdict::Never,
                (true, _) => Verdict::Always,
                (_, true) if *is_null => Verdict::Always,
                (_, true) => Verdict::Never,
                _ => Verdict::Maybe,
            }
        }
        Predicate::Text { input, test: TextTest::Node { .. }, .. } => {
            let _ = input;
            Verdict::Maybe
        }
        Predicate::Text { input, test, .. } => {
            let bounds = bounds(*input);
            bounds.unless_null(text(bounds.text_min(), bounds.text_max(), test))
        }
        Predicate::All(items) => {
            items.iter().map(|item| verdict(item, bounds)).min().unwrap_or(Verdict::Always)
        }
        Predicate::Any(items) => {
            items.iter().map(|item| verdict(item, bounds)).max().unwrap_or(Verdict::Never)
        }
        Predicate::Expression { comparison, inputs, .. } => {
            let reach = |input: usize| bounds(input).integers();
            let verdict = expression(comparison, reach);
            inputs.iter().map(|input| bounds(*input).unless_null(verdict)).min().unwrap_or(verdict)
        }
        Predicate::Keys { input, filter, .. } => {
            let bounds = bounds(*input);
            bounds.unless_null(keys(bounds.integers(), filter))
        }
        Predicate::General { .. } => Verdict::Maybe,
    }
}

/// Whether values between the `known` bounds can be in a key filter.
pub(crate) fn keys(known: Option<(i64, i64)>, filter: &KeyFilter) -> Verdict {
    match known {
        Some((min, max)) if !filter.contains_between(min, max, RANGE_LOOKED_UP_MAX) => Verdict::Never,
        _ => Verdict::Maybe,
    }
}

/// The verdict on a comparison of two expressions, if the columns lie within the bounds `known`.
pub(crate) fn expression(
    comparison: &NarrowComparison,
    known: impl Fn(usize) -> Option<(i64, i64)>,
) -> Verdict {
    let NarrowComparison { op, steps, left, right } = comparison;
    let reach = |input: usize| {
        let (min, max) = known(input).unwrap_or((i64::MIN, i64::MAX));
        (min.into(), max.into())
    };
    match steps.step_bounds(reach) {
        Some(step_bounds) => columns(*op, Some(step_bounds.of(*left)), Some(step_bounds.of(*right))),
        None => Verdict::Maybe,
    }
}

/// Whether values between the `known` bounds lie within `low ..= high`.
pub(crate) fn interval(known: Option<(i64, i64)>, low: i64, high: i64) -> Verdict {
    match known {
        Some((min, max)) if max < low || min > high => Verdict::Never,
        Some((min, max)) if min >= low && max <= high => Verdict::Always,
        _ => Verdict::Maybe,
    }
}

/// Whether values between the `known` bounds are in the ascending `values`.
pub(crate) fn set(known: Option<(i64, i64)>, values: &[i64], negated: bool) -> Verdict {
    let Some((min, max)) = known else { return Verdict::Maybe };
    let begin = values.partition_point(|value| *value < min);
    let end = values.partition_point(|value| *value <= max);
    let verdict = match end - begin {
        0 => Verdict::Never,
        _ if min == max => Verdict::Always,
        _ => Verdict::Maybe,
    };
    match verdict {
        Verdict::Never if negated => Verdict::Always,
        Verdict::Always if negated => Verdict::Never,
        other => other,
    }
}

/// The verdict on `left op right` for values within these bounds.
pub(crate) fn columns<T: Ord>(op: Comparison, left: Option<(T, T)>, right: Option<(T, T)>) -> Verdict {
    let (Some((left_min, left_max)), Some((right_min, right_max))) = (left, right) else {
        return Verdict::Maybe;
    };
    let less = |never: bool, always: bool| match (never, always) {
        (true, _) => Verdict::Never,
        (_, true) => Verdict::Always,
        _ => Verdict::Maybe,
    };
    let disjoint = left_max < right_min || left_min > right_max;
    let same = left_min == left_max && right_min == right_max && left_min == right_min;
    match op {
        Comparison::Equal => less(disjoint, same),
        Comparison::NotEqual => less(same, disjoint),
        Comparison::Less => less(left_min >= right_max, left_max < right_min),
        Comparison::LessOrEqual => less(left_min > right_max, left_max <= right_min),
        Comparison::Greater => less(left_max <= right_min, left_min > right_max),
        Comparison::GreaterOrEqual => less(left_max < right_min, left_min >= right_max),
    }
}

fn text(min: Option<&[u8]>, max: Option<&[u8]>, test: &TextTest) -> Verdict {
    match test {
        TextTest::Interval { low, high } => {
            let low = low.as_ref().map(|(low, included)| (low.as_slice(), *included));
            let high = high.as_ref().map(|(high, included)| (high.as_slice(), *included));
            let above = low.map_or(Verdict::Always, |low| above(min, max, low));
            let below = high.map_or(Verdict::Always, |high| below(min, max, high));
            above.min(below)
        }
        TextTest::Set { values, negated } => {
            let begin = min.map_or(0, |min| values.partition_point(|value| value.as_slice() < min));
            let end = max.map_or(values.len(), |max| values.partition_point(|value| value.as_slice() <= max));
            // Text bounds may be truncated, so even equal bounds do not prove a value.
            match (begin >= end, *negated) {
                (true, false) => Verdict::Never,
                (true, true) => Verdict::Always,
                (false, _) => Verdict::Maybe,
            }
        }
        TextTest::Like { pattern, negated } => {
            let prefix = pattern.prefix();
            let beyond = min.is_some_and(|min| min > prefix && !min.starts_with(prefix))
                || max.is_some_and(|max| max < prefix);
            match (beyond, *negated) {
                (true, false) => Verdict::Never,
                (true, true) => Verdict::Always,
                (false, _) => Verdict::Maybe,
            }
        }
        TextTest::Node { .. } => Verdict::Maybe,
    }
}

fn above(min: Option<&[u8]>, max: Option<&[u8]>, (low, included): (&[u8], bool)) -> Verdict {
    let least = if included { Ordering::Equal } else { Ordering::Greater };
    match (min.map(|min| min.cmp(low)), max.map(|max| max.cmp(low))) {
        (Some(order), _) if order >= least => Verdict::Always,
        (_, Some(order)) if order < least => Verdict::Never,
        _ => Verdict::Maybe,
    }
}

fn below(min: Option<&[u8]>, max: Option<&[u8]>, (high, included): (&[u8], bool)) -> Verdict {
    let most = if included { Ordering::Equal } else { Ordering::Less };
    match (min.map(|min| min.cmp(high)), max.map(|max| max.cmp(high))) {
        (_, Some(order)) if order <= most => Verdict::Always,
        (Some(order), _) if order > most => Verdict::Never,
        _ => Verdict::Maybe,
    }
}
