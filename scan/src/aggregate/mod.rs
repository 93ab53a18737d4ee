//! How do rows become groups, next to the pages?
//!
//! Rows arrive as arrays of keys and arguments ([`Groups::add_rows`]), or, where the narrow path
//! could do the work on unpacked blocks ([`direct`]), as partial groups ([`Groups::add_partial`]).
//! Both end in one table of groups.
//!
//! Invariant: what comes out is a partial aggregation. Groups of one answer may repeat in later
//! batches; whoever asked merges them.

mod accumulate;
pub(crate) mod direct;
mod domain;
mod keys;
mod masked;
mod table;

use crate::{narrow::int::Int, types::arrow_type};
use accumulate::Accumulator;
use arrow::{array::ArrayRef, error::ArrowError};
use keys::Keys;
use rackscan_format::program::{Aggregate, NodeIndex, Output, ValueType, VerifiedProgram};

/// What a program groups by and aggregates.
#[derive(Clone, Debug)]
pub(crate) struct Grouping {
    pub(crate) keys: Vec<NodeIndex>,
    pub(crate) aggregates: Vec<Aggregate>,
}

/// Groups of some rows, each with at least one row, and for each aggregate what its rows came to.
pub(crate) struct Partial {
    pub(crate) keys: Vec<ArrayRef>,
    pub(crate) rows: usize,
    pub(crate) values: Vec<PartialValues>,
}

/// What the rows of each group have come to.
pub(crate) enum PartialValues {
    /// How many have a value, and their sum or extreme, which means nothing where none has. Without
    /// values for counts.
    Numbers { counts: Vec<i64>, values: Vec<i128> },
    /// Their first or last text; null where none has one.
    Texts(ArrayRef),
}

impl Grouping {
    /// The program's, if it groups.
    pub(crate) fn of(program: &VerifiedProgram) -> Option<Self> {
        match &program.program().output {
            Output::Rows(_) => None,
            Output::Groups { keys, aggregates } => {
                Some(Self { keys: keys.clone(), aggregates: aggregates.clone() })
            }
        }
    }
}

/// The groups so far.
pub(crate) struct Groups {
    keys: Keys,
    accumulators: Vec<Accumulator>,
    /// The group of each row being added.
    group_of_row: Vec<u32>,
}

impl Groups {
    pub(crate) fn new(program: &VerifiedProgram, grouping: &Grouping) -> Result<Self, ArrowError> {
        let type_of = |node: NodeIndex| program.node_types()[usize::from(node)];
        let key_types: Vec<ValueType> = grouping.keys.iter().map(|key| type_of(*key)).collect();
        let accumulators = grouping
            .aggregates
            .iter()
            .map(|aggregate| Accumulator::new(aggregate.function, aggregate.argument.map(type_of)));
        Ok(Self {
            keys: Keys::new(&key_types)?,
            accumulators: accumulators.collect::<Result<_, _>>()?,
            group_of_row: Vec::new(),
        })
    }

    /// Adds rows: an array for each key, and for each aggregate its argument, if it has one.
    pub(crate) fn add_rows(
        &mut self,
        keys: &[ArrayRef],
        arguments: &[Option<ArrayRef>],
        rows: usize,
    ) -> Result<(), ArrowError> {
        self.group_of_row.clear();
        self.keys.assign(keys, rows, &mut self.group_of_row)?;
        for (accumulator, argument) in self.accumulators.iter_mut().zip(arguments) {
            accumulator.grow(self.keys.groups());
            accumulator.add(&self.group_of_row, argument.as_ref())?;
        }
        Ok(())
    }

    /// Adds partial groups.
    pub(crate) fn add_partial(&mut self, partial: &Partial) -> Result<(), ArrowError> {
        self.group_of_row.clear();
        self.keys.assign(&partial.keys, partial.rows, &mut self.group_of_row)?;
        for (accumulator, values) in self.accumulators.iter_mut().zip(&partial.values) {
            accumulator.grow(self.keys.groups());
            accumulator.add_partial(&self.group_of_row, values)?;
        }
        Ok(())
    }

    /// Finds the groups of rows by their only key, an integer, for [`Self::add_values`]; false
    /// where keys are of another kind.
    pub(crate) fn assign_integers(&mut self, keys: &[i64], is_null: impl Fn(usize) -> bool) -> bool {
        self.group_of_row.clear();
        let known = self.keys.assign_integers(keys, is_null, &mut self.group_of_row);
        self.accumulators.iter_mut().for_each(|accumulator| accumulator.grow(self.keys.groups()));
        known
    }

    /// Folds an aggregate's values of some rows, counted among those whose groups were found last.
    pub(crate) fn add_values<T: Int>(
        &mut self,
        aggregate: usize,
        values: impl Iterator<Item = (usize, T)>,
    ) -> Result<(), ArrowError> {
        let Self { accumulators, group_of_row, .. } = self;
        accumulators[aggregate].add_values(values.map(|(row, value)| (group_of_row[row] as usize, value)))
    }

    /// How many groups there are. Without keys there is always one.
    pub(crate) fn groups(&self) -> usize {
        self.keys.groups()
    }

    /// Bytes held, roughly.
    pub(crate) fn memory_bytes(&self) -> usize {
        let groups = self.keys.groups();
        self.keys.memory_bytes() + self.accumulators.iter().map(|one| one.memory_bytes(groups)).sum::<usize>()
    }

    /// The groups as arrays: keys, then aggregates.
    pub(crate) fn finish(mut self) -> Result<Vec<ArrayRef>, ArrowError> {
        let groups = self.keys.groups();
        let mut arrays = self.keys.finish()?;
        for mut accumulator in self.accumulators.drain(..) {
            accumulator.grow(groups);
            arrays.push(accumulator.finish()?);
        }
        Ok(arrays)
    }
}

/// Integers whatever their array type; `None` for types that are not stored in 64 bits.
fn integers_of(array: &ArrayRef) -> Option<Vec<i64>> {
    use arrow::{
        array::{Array, AsArray},
        datatypes::{DataType, Date32Type, Int32Type, Int64Type, TimestampMicrosecondType},
    };
    match array.data_type() {
        DataType::Int32 => {
            Some(array.as_primitive::<Int32Type>().values().iter().map(|value| i64::from(*value)).collect())
        }
        DataType::Date32 => {
            Some(array.as_primitive::<Date32Type>().values().iter().map(|value| i64::from(*value)).collect())
        }
        DataType::Int64 => Some(array.as_primitive::<Int64Type>().values().to_vec()),
        DataType::Timestamp(_, _) => {
            array.as_primitive_opt::<TimestampMicrosecondType>().map(|array| array.values().to_vec())
        }
        DataType::Boolean => {
            let array = array.as_boolean().values();
            Some(array.iter().map(i64::from).collect())
        }
        _ => None,
    }
}

/// Integers back to the array type of a value.
fn integers_to(
    value_type: ValueType,
    values: Vec<i64>,
    nulls: Option<arrow::buffer::NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    use arrow::array::{
        BooleanArray, Date32Array, Decimal128Array, Int32Array, Int64Array, TimestampMicrosecondArray,
    };
    use rackscan_format::encoding::integer::Stored;
    use std::sync::Arc;
    // Values came from arrays of this type, so none is cut.
    let narrow = |values: Vec<i64>| -> Vec<i32> { values.into_iter().map(i32::from_stored).collect() };
    Ok(match value_type {
        ValueType::Boolean => {
            let bits = values.iter().map(|value| *value != 0).collect();
            Arc::new(BooleanArray::new(bits, nulls))
        }
        ValueType::Int32 => Arc::new(Int32Array::try_new(narrow(values).into(), nulls)?),
        ValueType::Date32 => Arc::new(Date32Array::try_new(narrow(values).into(), nulls)?),
        ValueType::Int64 => Arc::new(Int64Array::try_new(values.into(), nulls)?),
        ValueType::TimestampMicros => Arc::new(TimestampMicrosecondArray::try_new(values.into(), nulls)?),
        ValueType::Decimal { precision, scale } => {
            let values: Vec<i128> = values.into_iter().map(i128::from).collect();
            let scale = i8::try_from(scale).unwrap_or(i8::MAX);
            let array = Decimal128Array::try_new(values.into(), nulls)?;
            Arc::new(array.with_precision_and_scale(precision, scale)?)
        }
        other => {
            let data_type = arrow_type(other);
            return Err(ArrowError::ComputeError(format!("{data_type} is not held in 64 bits")));
        }
    })
}
