//! Combines the values of each group into one value, for one aggregate (a sum, a count, a minimum
//! or a maximum).
//!
//! Invariants
//! - Sums of integers and decimals have 128 bits; a sum beyond them is an error. Sums of integers
//!   never overflow, however a table is cut into segments and a segment into groups.
//! - Sums of doubles are added in row order.
//! - The smallest and largest double follow IEEE total order, as in arrow's kernels; texts compare
//!   by code point.
//! - A group without a value has a count of 0 and no sum, minimum or maximum.

use super::{
    integers::{integers_of, integers_to},
    partial::PartialValues,
};
use crate::{narrow::int::Int, types::arrow_scale};
use arrow::{
    array::{
        Array, ArrayRef, AsArray, Decimal128Array, Float64Array, Int64Array, StringViewArray,
        StringViewBuilder,
    },
    buffer::NullBuffer,
    datatypes::{Decimal128Type, Float64Type, Int64Type},
    error::ArrowError,
};
use rackscan_format::{
    limits::DECIMAL_DIGITS_MAX,
    program::{AggregateFunction, COMPUTED_DIGITS_MAX, ValueType},
};
use std::{cmp::Ordering, sync::Arc};

/// One aggregate over all groups; each vector has one entry per group.
pub(super) enum Accumulator {
    Counts { counts: Vec<i64>, every_row: bool },
    Integers { value_type: ValueType, combine: Combine, values: Vec<i64>, seen: Vec<bool> },
    Decimals { precision: u8, scale: i8, combine: Combine, values: Vec<i128>, seen: Vec<bool> },
    Floats { combine: Combine, values: Vec<f64>, seen: Vec<bool> },
    Texts { combine: Combine, values: Vec<Option<Box<str>>>, bytes: usize },
}

/// How two values of a group are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Combine {
    Sum,
    Min,
    Max,
}

impl Combine {
    /// Whether a new value replaces the known one.
    fn replaces(self, order: Ordering) -> bool {
        match self {
            Self::Sum => false,
            Self::Min => order == Ordering::Less,
            Self::Max => order == Ordering::Greater,
        }
    }

    fn integers(self, known: i64, value: i64) -> i64 {
        match self {
            Self::Sum => unreachable!("sums of integers are decimals"),
            Self::Min => known.min(value),
            Self::Max => known.max(value),
        }
    }

    fn decimals(self, known: i128, value: i128) -> Result<i128, ArrowError> {
        match self {
            Self::Sum => known.checked_add(value).ok_or_else(|| {
                ArrowError::ArithmeticOverflow(format!("the sum {known} + {value} is beyond 128 bits"))
            }),
            Self::Min => Ok(known.min(value)),
            Self::Max => Ok(known.max(value)),
        }
    }

    fn floats(self, known: f64, value: f64) -> f64 {
        match self {
            Self::Sum => known + value,
            _ if self.replaces(value.total_cmp(&known)) => value,
            _ => known,
        }
    }
}

impl Accumulator {
    pub(super) fn new(function: AggregateFunction, argument: Option<ValueType>) -> Result<Self, ArrowError> {
        let (seen, combine) = (
            Vec::new(),
            match function {
                AggregateFunction::CountRows => {
                    return Ok(Self::Counts { counts: Vec::new(), every_row: true });
                }
                AggregateFunction::Count => return Ok(Self::Counts { counts: Vec::new(), every_row: false }),
                AggregateFunction::Sum => Combine::Sum,
                AggregateFunction::Min => Combine::Min,
                AggregateFunction::Max => Combine::Max,
            },
        );
        match argument {
            None => Err(ArrowError::ComputeError(format!("{function:?} without an argument"))),
            Some(ValueType::Decimal { precision, scale }) => {
                // Ten more digits, the type that `program::verify` gives the sum.
                let more = if combine == Combine::Sum { 10 } else { 0 };
                let precision = (precision + more).min(COMPUTED_DIGITS_MAX);
                let scale = arrow_scale(scale);
                Ok(Self::Decimals { precision, scale, combine, values: Vec::new(), seen })
            }
            Some(ValueType::Int64) if combine == Combine::Sum => Ok(Self::Decimals {
                precision: COMPUTED_DIGITS_MAX,
                scale: 0,
                combine,
                values: Vec::new(),
                seen,
            }),
            Some(ValueType::Float64) => Ok(Self::Floats { combine, values: Vec::new(), seen }),
            Some(ValueType::Text) => Ok(Self::Texts { combine, values: Vec::new(), bytes: 0 }),
            Some(value_type) => Ok(Self::Integers { value_type, combine, values: Vec::new(), seen }),
        }
    }

    /// Adds empty entries up to `groups` groups.
    pub(super) fn grow(&mut self, groups: usize) {
        match self {
            Self::Counts { counts, .. } => counts.resize(groups, 0),
            Self::Integers { values, seen, .. } => {
                values.resize(groups, 0);
                seen.resize(groups, false);
            }
            Self::Decimals { values, seen, .. } => {
                values.resize(groups, 0);
                seen.resize(groups, false);
            }
            Self::Floats { values, seen, .. } => {
                values.resize(groups, 0.0);
                seen.resize(groups, false);
            }
            Self::Texts { values, .. } => values.resize(groups, None),
        }
    }

    pub(super) fn memory_bytes(&self, groups: usize) -> usize {
        groups
            * match self {
                Self::Counts { .. } | Self::Integers { .. } | Self::Floats { .. } => 9,
                Self::Decimals { .. } | Self::Texts { .. } => 17,
            }
            + if let Self::Texts { bytes, .. } = self { *bytes } else { 0 }
    }

    /// Adds one value per row to the row's group.
    pub(super) fn add(&mut self, groups: &[u32], argument: Option<&ArrayRef>) -> Result<(), ArrowError> {
        if let Self::Counts { counts, every_row: true } = self {
            groups.iter().for_each(|group| counts[*group as usize] += 1);
            return Ok(());
        }
        let Some(array) = argument else {
            return Err(ArrowError::ComputeError("an aggregate's argument was not computed".into()));
        };
        let valid = |row: usize| array.is_valid(row);
        let rows = groups.iter().map(|group| *group as usize).enumerate().filter(|(row, _)| valid(*row));
        match self {
            Self::Counts { counts, .. } => rows.for_each(|(_, group)| counts[group] += 1),
            Self::Integers { combine, values, seen, .. } => {
                let integers = integers_of(array).ok_or_else(|| unexpected_type(array))?;
                for (row, group) in rows {
                    let value = integers[row];
                    values[group] = if seen[group] { combine.integers(values[group], value) } else { value };
                    seen[group] = true;
                }
            }
            Self::Decimals { combine, values, seen, .. } => {
                let decimals = array.as_primitive_opt::<Decimal128Type>();
                let integers = array.as_primitive_opt::<Int64Type>();
                for (row, group) in rows {
                    let value = match (decimals, integers) {
                        (Some(decimals), _) => decimals.value(row),
                        (_, Some(integers)) => integers.value(row).into(),
                        _ => return Err(unexpected_type(array)),
                    };
                    values[group] = if seen[group] { combine.decimals(values[group], value)? } else { value };
                    seen[group] = true;
                }
            }
            Self::Floats { combine, values, seen } => {
                let floats = array.as_primitive_opt::<Float64Type>().ok_or_else(|| unexpected_type(array))?;
                for (row, group) in rows {
                    let value = floats.value(row);
                    values[group] = if seen[group] { combine.floats(values[group], value) } else { value };
                    seen[group] = true;
                }
            }
            Self::Texts { combine, values, bytes } => {
                let texts = array.as_string_view_opt().ok_or_else(|| unexpected_type(array))?;
                for (row, group) in rows {
                    keep_text(*combine, &mut values[group], texts, row, bytes);
                }
            }
        }
        Ok(())
    }

    /// Adds the values of some rows, each with its group. A count counts the rows.
    pub(super) fn add_values<T: Int>(
        &mut self,
        rows: impl Iterator<Item = (usize, T)>,
    ) -> Result<(), ArrowError> {
        match self {
            Self::Counts { counts, .. } => rows.for_each(|(group, _)| counts[group] += 1),
            Self::Integers { combine, values, seen, .. } => {
                for (group, value) in rows {
                    let value = i64::cut(value.wide());
                    values[group] = if seen[group] { combine.integers(values[group], value) } else { value };
                    seen[group] = true;
                }
            }
            Self::Decimals { combine, values, seen, .. } => {
                for (group, value) in rows {
                    let value = value.wide();
                    values[group] = if seen[group] { combine.decimals(values[group], value)? } else { value };
                    seen[group] = true;
                }
            }
            Self::Floats { .. } | Self::Texts { .. } => {
                return Err(ArrowError::ComputeError("integers of an aggregate that has none".into()));
            }
        }
        Ok(())
    }

    /// Adds counts, sums or extremes of some rows of each group. Only aggregates over stored
    /// integers and texts have such partial values.
    pub(super) fn add_partial(&mut self, groups: &[u32], partial: &PartialValues) -> Result<(), ArrowError> {
        let (of_groups, values) = match partial {
            PartialValues::Numbers { counts, values } => (counts, values),
            PartialValues::Texts(texts) => return self.add(groups, Some(texts)),
        };
        let groups = groups.iter().map(|group| *group as usize);
        if let Self::Counts { counts, .. } = self {
            groups.zip(of_groups).for_each(|(group, count)| counts[group] += count);
            return Ok(());
        }
        let rows = of_groups.iter().zip(values.iter().copied());
        let rows =
            groups.zip(rows).filter(|(_, (count, _))| **count > 0).map(|(group, (_, value))| (group, value));
        match self {
            Self::Integers { combine, values, seen, .. } => {
                for (group, value) in rows {
                    // Extremes have the argument's type.
                    let value = i64::cut(value);
                    values[group] = if seen[group] { combine.integers(values[group], value) } else { value };
                    seen[group] = true;
                }
            }
            Self::Decimals { combine, values, seen, .. } => {
                for (group, value) in rows {
                    values[group] = if seen[group] { combine.decimals(values[group], value)? } else { value };
                    seen[group] = true;
                }
            }
            Self::Counts { .. } | Self::Floats { .. } | Self::Texts { .. } => {
                return Err(ArrowError::ComputeError(
                    "partial integers of an aggregate that has none".into(),
                ));
            }
        }
        Ok(())
    }

    /// Returns one row per group.
    pub(super) fn finish(self) -> Result<ArrayRef, ArrowError> {
        Ok(match self {
            Self::Counts { counts, .. } => Arc::new(Int64Array::from(counts)),
            Self::Integers { value_type, values, seen, .. } => integers_to(value_type, values, nulls(seen))?,
            Self::Decimals { precision, scale, values, seen, .. } => {
                let array = Decimal128Array::try_new(values.into(), nulls(seen))?;
                Arc::new(array.with_precision_and_scale(precision, scale)?)
            }
            Self::Floats { values, seen, .. } => Arc::new(Float64Array::try_new(values.into(), nulls(seen))?),
            Self::Texts { values, .. } => {
                let mut builder = StringViewBuilder::with_capacity(values.len());
                values.iter().for_each(|value| builder.append_option(value.as_deref()));
                Arc::new(builder.finish())
            }
        })
    }
}

fn keep_text(
    combine: Combine,
    known: &mut Option<Box<str>>,
    texts: &StringViewArray,
    row: usize,
    bytes: &mut usize,
) {
    let text = texts.value(row);
    if known.as_deref().is_none_or(|known| combine.replaces(text.cmp(known))) {
        *bytes += text.len();
        *bytes -= known.as_deref().map_or(0, str::len);
        *known = Some(text.into());
    }
}

fn nulls(seen: Vec<bool>) -> Option<NullBuffer> {
    Some(NullBuffer::from(seen)).filter(|nulls| nulls.null_count() > 0)
}

fn unexpected_type(array: &ArrayRef) -> ArrowError {
    ArrowError::ComputeError(format!("an aggregate over {}, not the program's type", array.data_type()))
}

// The sum of a stored decimal over a whole segment fits 128 bits, so only sums of computed decimals
// can fail.
const _: () = assert!(DECIMAL_DIGITS_MAX + 10 < COMPUTED_DIGITS_MAX);
