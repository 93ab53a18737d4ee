//! Prepares the constants of a program (literals, IN sets and LIKE patterns) once per scan.

use crate::{
    pattern::Pattern,
    stored::unscaled,
    types::{arrow_scale, arrow_type},
};
use arrow::{
    array::{
        Array, ArrayRef, AsArray, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array,
        Int64Array, StringViewArray, TimestampMicrosecondArray, new_null_array,
    },
    buffer::{BooleanBuffer, NullBuffer},
    datatypes::{
        DataType, Date32Type, Decimal128Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType,
    },
    error::ArrowError,
};
use rackscan_format::program::{Literal, Node, VerifiedProgram};
use std::sync::Arc;

/// A node's constants in the form that its evaluation needs.
#[derive(Clone, Debug)]
pub(crate) enum PreparedConstant {
    /// Nothing to prepare.
    None,
    /// A constant as an array of one row.
    Scalar(ArrayRef),
    /// The values of an IN set.
    Set(SetValues),
    /// A LIKE pattern without `_`.
    Pattern(Pattern),
}

/// Prepares the constants of each node.
pub(crate) fn prepare(program: &VerifiedProgram) -> Result<Vec<PreparedConstant>, ArrowError> {
    let nodes = program.program().nodes.iter();
    nodes
        .map(|node| match node {
            Node::Literal(literal) => scalar(literal).map(PreparedConstant::Scalar),
            Node::InSet { set, .. } => Ok(PreparedConstant::Set(SetValues::new(set))),
            Node::Like { pattern, case_insensitive: false, .. } => {
                Ok(Pattern::parse(pattern).map_or(PreparedConstant::None, PreparedConstant::Pattern))
            }
            _ => Ok(PreparedConstant::None),
        })
        .collect()
}

fn scalar(literal: &Literal) -> Result<ArrayRef, ArrowError> {
    Ok(match literal {
        Literal::Null(value_type) => new_null_array(&arrow_type(*value_type), 1),
        Literal::Boolean(value) => Arc::new(BooleanArray::from(vec![*value])),
        Literal::Int32(value) => Arc::new(Int32Array::from(vec![*value])),
        Literal::Int64(value) => Arc::new(Int64Array::from(vec![*value])),
        Literal::Date32(value) => Arc::new(Date32Array::from(vec![*value])),
        Literal::TimestampMicros(value) => Arc::new(TimestampMicrosecondArray::from(vec![*value])),
        Literal::Decimal { unscaled, precision, scale } => {
            let scale = arrow_scale(*scale);
            Arc::new(Decimal128Array::from(vec![*unscaled]).with_precision_and_scale(*precision, scale)?)
        }
        Literal::Float64(value) => Arc::new(Float64Array::from(vec![*value])),
        Literal::Text(value) => Arc::new(StringViewArray::from(vec![value.as_str()])),
    })
}

/// The values of an IN set, ascending. Floats are equal if their bits are, as in arrow's total
/// order.
#[derive(Clone, Debug)]
pub(crate) enum SetValues {
    Integers(Vec<i128>),
    Floats(Vec<u64>),
    Texts(Vec<Box<str>>),
}

impl SetValues {
    fn new(set: &[Literal]) -> Self {
        match set.first() {
            Some(Literal::Text(_)) => Self::Texts(sorted(set.iter().filter_map(|literal| match literal {
                Literal::Text(text) => Some(text.as_str().into()),
                _ => None,
            }))),
            Some(Literal::Float64(_)) => {
                Self::Floats(sorted(set.iter().filter_map(|literal| match literal {
                    Literal::Float64(value) => Some(value.to_bits()),
                    _ => None,
                })))
            }
            _ => Self::Integers(sorted(set.iter().filter_map(unscaled))),
        }
    }

    /// Whether each item is in the set (or, negated, is not). NULL where the item is NULL.
    pub(crate) fn contain(&self, items: &dyn Array, negated: bool) -> Result<BooleanArray, ArrowError> {
        let nulls: Option<NullBuffer> = items.nulls().cloned();
        let rows = items.len();
        let answers = match self {
            Self::Texts(texts) => {
                let items = items.as_string_view_opt().ok_or_else(|| unexpected_type(items))?;
                BooleanBuffer::collect_bool(rows, |row| {
                    let found = texts.binary_search_by(|text| (**text).cmp(items.value(row))).is_ok();
                    found != negated
                })
            }
            Self::Floats(bits) => {
                let items = items.as_primitive_opt::<Float64Type>().ok_or_else(|| unexpected_type(items))?;
                let items = items.values();
                BooleanBuffer::collect_bool(rows, |row| {
                    bits.binary_search(&items[row].to_bits()).is_ok() != negated
                })
            }
            Self::Integers(values) => {
                let has = |value: i128| values.binary_search(&value).is_ok() != negated;
                integer_rows(items, &has)?
            }
        };
        Ok(BooleanArray::new(answers, nulls))
    }
}

fn integer_rows(items: &dyn Array, has: &impl Fn(i128) -> bool) -> Result<BooleanBuffer, ArrowError> {
    let rows = items.len();
    let widened = |value: &dyn Fn(usize) -> i128| BooleanBuffer::collect_bool(rows, |row| has(value(row)));
    match items.data_type() {
        DataType::Boolean => {
            let items = items.as_boolean();
            Ok(widened(&|row| i128::from(items.value(row))))
        }
        DataType::Int32 => {
            let items = items.as_primitive::<Int32Type>().values();
            Ok(widened(&|row| i128::from(items[row])))
        }
        DataType::Int64 => {
            let items = items.as_primitive::<Int64Type>().values();
            Ok(widened(&|row| i128::from(items[row])))
        }
        DataType::Date32 => {
            let items = items.as_primitive::<Date32Type>().values();
            Ok(widened(&|row| i128::from(items[row])))
        }
        DataType::Timestamp(_, _) => {
            let items = items
                .as_primitive_opt::<TimestampMicrosecondType>()
                .ok_or_else(|| unexpected_type(items))?
                .values();
            Ok(widened(&|row| i128::from(items[row])))
        }
        DataType::Decimal128(_, _) => {
            let items = items.as_primitive::<Decimal128Type>().values();
            Ok(widened(&|row| items[row]))
        }
        _ => Err(unexpected_type(items)),
    }
}

fn unexpected_type(items: &dyn Array) -> ArrowError {
    ArrowError::InvalidArgumentError(format!(
        "the left side of IN has type {}, expected the type of the set",
        items.data_type()
    ))
}

fn sorted<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable();
    values.dedup();
    values
}
