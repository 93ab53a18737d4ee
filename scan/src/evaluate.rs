//! Evaluates any expression node of a scan program over arrow arrays, with arrow's kernels. A node
//! is one operation of the program: a column, a constant, or a function of earlier nodes.
//!
//! A scan computes here what it cannot compute faster on packed blocks ([`crate::narrow`]) or
//! dictionaries. DataFusion uses the same kernels, so the results are those of DataFusion.
//!
//! Invariants
//! - Each node is evaluated once per set of rows. Recursion is bounded by the number of nodes of a
//!   verified program.
//! - A node that can fail (such as a division) is evaluated only on rows that need its value. Rows
//!   that an AND or OR has already decided, and rows that do not take a branch of CASE, are left
//!   out. At most `PARTIAL_EVALUATIONS_MAX` such partial evaluations are made; after that, nodes
//!   are evaluated on all rows.

use crate::{
    constants::{PreparedConstant, prepare},
    limits::PARTIAL_EVALUATIONS_MAX,
    types::arrow_type,
};
use arrow::{
    array::{
        Array, ArrayRef, AsArray, BooleanArray, Datum, Int32Array, StringViewArray, StringViewBuilder,
        UInt32Array, new_null_array,
    },
    buffer::BooleanBuffer,
    compute::{
        CastOptions, DatePart as ArrowDatePart, and_kleene, cast_with_options, date_part, filter, is_null,
        kernels::{cmp, numeric, zip::zip},
        like, nilike, nlike, not, or_kleene, take,
    },
    datatypes::Float64Type,
    error::ArrowError,
};
use rackscan_format::program::{
    Arithmetic, Comparison, DatePart, Node, NodeIndex, ValueType, VerifiedProgram,
};
use std::{cell::Cell, sync::Arc};

/// A program prepared for evaluation, shared by all batches of a scan.
#[derive(Debug)]
pub(crate) struct Expressions {
    program: Arc<VerifiedProgram>,
    prepared: Vec<PreparedConstant>,
    fallible: Vec<bool>,
}

impl Expressions {
    pub(crate) fn new(program: Arc<VerifiedProgram>) -> Result<Self, ArrowError> {
        let prepared = prepare(&program)?;
        let types = program.node_types();
        let mut fallible: Vec<bool> = Vec::with_capacity(types.len());
        for node in &program.program().nodes {
            let mut may_fail = node.can_fail(types);
            node.for_each_operand(&mut |operand| may_fail |= fallible[usize::from(operand)]);
            fallible.push(may_fail);
        }
        Ok(Self { program, prepared, fallible })
    }

    pub(crate) fn program(&self) -> &VerifiedProgram {
        &self.program
    }

    /// An evaluation over `rows` rows of `columns`, which holds every input that an evaluated node
    /// needs.
    pub(crate) fn over<'a>(&'a self, columns: &'a [Option<ArrayRef>], rows: usize) -> Evaluation<'a> {
        Evaluation {
            expressions: self,
            columns: columns.to_vec(),
            row_numbers: None,
            rows,
            values: vec![None; self.prepared.len()],
            partial_left: Cell::new(PARTIAL_EVALUATIONS_MAX),
        }
    }
}

/// The value of a node: one per row, or one for all rows.
#[derive(Clone, Debug)]
enum Value {
    Rows(ArrayRef),
    Scalar(ArrayRef),
}

impl Datum for Value {
    fn get(&self) -> (&dyn Array, bool) {
        match self {
            Self::Rows(array) => (array.as_ref(), false),
            Self::Scalar(array) => (array.as_ref(), true),
        }
    }
}

impl Value {
    /// Applies `compute` to the array. The result is a scalar if this value is.
    fn map(
        &self,
        compute: impl FnOnce(&ArrayRef) -> Result<ArrayRef, ArrowError>,
    ) -> Result<Self, ArrowError> {
        Ok(match self {
            Self::Rows(array) => Self::Rows(compute(array)?),
            Self::Scalar(array) => Self::Scalar(compute(array)?),
        })
    }
}

/// The evaluation of nodes over one set of rows.
pub(crate) struct Evaluation<'a> {
    expressions: &'a Expressions,
    columns: Vec<Option<ArrayRef>>,
    row_numbers: Option<ArrayRef>,
    rows: usize,
    values: Vec<Option<Value>>,
    partial_left: Cell<u32>,
}

impl Evaluation<'_> {
    /// The same, with the numbers of the rows, for a program that has [`Node::RowNumber`].
    pub(crate) fn with_row_numbers(self, row_numbers: ArrayRef) -> Self {
        Self { row_numbers: Some(row_numbers), ..self }
    }

    /// The value of `node` for each row.
    pub(crate) fn array(&mut self, node: NodeIndex) -> Result<ArrayRef, ArrowError> {
        match self.value(node)? {
            Value::Rows(array) => Ok(array),
            Value::Scalar(array) if self.rows == 1 => Ok(array),
            Value::Scalar(array) => take(&array, &UInt32Array::from(vec![0; self.rows]), None),
        }
    }

    /// The rows for which a boolean node is `truth`.
    pub(crate) fn rows_where(&mut self, node: NodeIndex, truth: bool) -> Result<BooleanBuffer, ArrowError> {
        let array = self.array(node)?;
        let answers = boolean(&array)?;
        let values = if truth { answers.values().clone() } else { !answers.values() };
        Ok(match answers.nulls() {
            Some(nulls) => &values & nulls.inner(),
            None => values,
        })
    }

    fn value(&mut self, node: NodeIndex) -> Result<Value, ArrowError> {
        let index = usize::from(node);
        if let Some(value) = &self.values[index] {
            return Ok(value.clone());
        }
        let value = self.compute(index)?;
        self.values[index] = Some(value.clone());
        Ok(value)
    }

    fn compute(&mut self, index: usize) -> Result<Value, ArrowError> {
        let expressions = self.expressions;
        let program = expressions.program.program();
        match &program.nodes[index] {
            Node::Column(input) => match self.columns.get(usize::from(*input)) {
                Some(Some(array)) => Ok(Value::Rows(Arc::clone(array))),
                _ => Err(ArrowError::ComputeError(format!("input {input} was not decoded"))),
            },
            Node::Literal(_) => match &expressions.prepared[index] {
                PreparedConstant::Scalar(array) => Ok(Value::Scalar(Arc::clone(array))),
                other => Err(ArrowError::ComputeError(format!("a constant was prepared as {other:?}"))),
            },
            Node::Compare { op, left, right } => {
                let (left, right) = (self.value(*left)?, self.value(*right)?);
                pair(&left, &right, compare(*op, &left, &right)?)
            }
            Node::And(items) => self.evaluate_connective(items, Connective::And),
            Node::Or(items) => self.evaluate_connective(items, Connective::Or),
            Node::Not(item) => self.value(*item)?.map(|array| Ok(Arc::new(not(boolean(array)?)?))),
            Node::IsNull(item) => self.value(*item)?.map(|array| Ok(Arc::new(is_null(array)?))),
            Node::InSet { item, negated, .. } => {
                let item = self.value(*item)?;
                match &expressions.prepared[index] {
                    PreparedConstant::Set(set) => {
                        item.map(|array| Ok(Arc::new(set.contain(array, *negated)?)))
                    }
                    other => Err(ArrowError::ComputeError(format!("a set was prepared as {other:?}"))),
                }
            }
            Node::Like { .. } => self.like(index),
            Node::Arithmetic { op, left, right } => {
                let (left, right) = (self.value(*left)?, self.value(*right)?);
                let array = match op {
                    Arithmetic::Add => numeric::add(&left, &right)?,
                    Arithmetic::Subtract => numeric::sub(&left, &right)?,
                    Arithmetic::Multiply => numeric::mul(&left, &right)?,
                };
                pair_array(&left, &right, with_one_nan(&array)?)
            }
            Node::Negate(item) => self.value(*item)?.map(|array| with_one_nan(&numeric::neg(array)?)),
            Node::Cast { item, to } => {
                let options = CastOptions { safe: false, ..CastOptions::default() };
                self.value(*item)?.map(|array| cast_with_options(array, &arrow_type(*to), &options))
            }
            Node::Case { branches, otherwise } => {
                self.case(expressions.program.node_types()[index], branches, *otherwise)
            }
            Node::DatePart { part, item } => {
                let part = match part {
                    DatePart::Year => ArrowDatePart::Year,
                    DatePart::Month => ArrowDatePart::Month,
                    DatePart::Day => ArrowDatePart::Day,
                };
                self.value(*item)?.map(|array| date_part(array, part))
            }
            Node::Substring { item, start, length } => {
                self.value(*item)?.map(|array| substring(array, *start, *length))
            }
            Node::RowNumber => match &self.row_numbers {
                Some(numbers) => Ok(Value::Rows(Arc::clone(numbers))),
                None => Err(ArrowError::ComputeError("nobody said where these rows lie".into())),
            },
            // Key filters are evaluated on blocks (`narrow::keys`). Keeping all rows here is
            // correct, because a key filter may keep any row.
            Node::InKeys { .. } => Ok(Value::Scalar(Arc::new(BooleanArray::from(vec![true])))),
        }
    }

    fn like(&mut self, index: usize) -> Result<Value, ArrowError> {
        let expressions = self.expressions;
        let Node::Like { item, pattern, negated, case_insensitive } =
            &expressions.program.program().nodes[index]
        else {
            return Err(ArrowError::ComputeError("not a LIKE node".into()));
        };
        let item = self.value(*item)?;
        if let PreparedConstant::Pattern(pattern) = &expressions.prepared[index] {
            return item.map(|array| {
                let texts = text(array)?;
                let answers = BooleanBuffer::collect_bool(texts.len(), |row| {
                    pattern.matches(texts.value(row).as_bytes()) != *negated
                });
                Ok(Arc::new(BooleanArray::new(answers, texts.nulls().cloned())))
            });
        }
        let pattern = StringViewArray::new_scalar(pattern);
        item.map(|array| {
            let answers = match (case_insensitive, negated) {
                (false, false) => like(array, &pattern)?,
                (false, true) => nlike(array, &pattern)?,
                (true, false) => arrow::compute::ilike(array, &pattern)?,
                (true, true) => nilike(array, &pattern)?,
            };
            Ok(Arc::new(answers))
        })
    }

    /// AND or OR, left to right. An item that may fail is evaluated only on rows that are still
    /// undecided.
    fn evaluate_connective(
        &mut self,
        items: &[NodeIndex],
        connective: Connective,
    ) -> Result<Value, ArrowError> {
        let mut result: Option<BooleanArray> = None;
        for &item in items {
            let Some(known) = result else {
                result = Some(boolean(&self.array(item)?)?.clone());
                continue;
            };
            let undecided = match connective {
                // True or null; for OR, false or null.
                Connective::And => undecided(&known, false),
                Connective::Or => undecided(&known, true),
            };
            let array = self.array_on(item, &undecided)?;
            let next = boolean(&array)?;
            result = Some(match connective {
                Connective::And => and_kleene(&known, next)?,
                Connective::Or => or_kleene(&known, next)?,
            });
        }
        let result = result.ok_or_else(|| ArrowError::ComputeError("AND or OR of nothing".into()))?;
        Ok(Value::Rows(Arc::new(result)))
    }

    fn case(
        &mut self,
        value_type: ValueType,
        branches: &[(NodeIndex, NodeIndex)],
        otherwise: Option<NodeIndex>,
    ) -> Result<Value, ArrowError> {
        let mut result = new_null_array(&arrow_type(value_type), self.rows);
        let mut open = BooleanBuffer::new_set(self.rows);
        for &(condition, value) in branches {
            if open.count_set_bits() == 0 {
                break;
            }
            let condition = self.array_on(condition, &open)?;
            let condition = boolean(&condition)?;
            let holds = match condition.nulls() {
                Some(nulls) => condition.values() & nulls.inner(),
                None => condition.values().clone(),
            };
            let taken = &holds & &open;
            let value = self.array_on(value, &taken)?;
            open = &open & &!&taken;
            result = zip(&BooleanArray::new(taken, None), &value, &result)?;
        }
        if let Some(otherwise) = otherwise
            && open.count_set_bits() > 0
        {
            let value = self.array_on(otherwise, &open)?;
            result = zip(&BooleanArray::new(open, None), &value, &result)?;
        }
        Ok(Value::Rows(result))
    }

    /// The value of `node` on the `wanted` rows; other rows have an arbitrary value.
    fn array_on(&mut self, node: NodeIndex, wanted: &BooleanBuffer) -> Result<ArrayRef, ArrowError> {
        let wanted_rows = wanted.count_set_bits();
        let known = self.values[usize::from(node)].is_some();
        if known || !self.expressions.fallible[usize::from(node)] || wanted_rows == self.rows {
            return self.array(node);
        }
        if wanted_rows == 0 {
            let value_type = self.expressions.program.node_types()[usize::from(node)];
            return Ok(new_null_array(&arrow_type(value_type), self.rows));
        }
        let Some(left) = self.partial_left.get().checked_sub(1) else { return self.array(node) };
        self.partial_left.set(left);
        let mask = BooleanArray::new(wanted.clone(), None);
        let columns: Result<Vec<Option<ArrayRef>>, ArrowError> = self
            .columns
            .iter()
            .map(|column| column.as_ref().map(|column| filter(column, &mask)).transpose())
            .collect();
        let mut partial = Evaluation {
            expressions: self.expressions,
            columns: columns?,
            // No operand is a row number.
            row_numbers: None,
            rows: wanted_rows,
            values: vec![None; self.values.len()],
            partial_left: Cell::new(left),
        };
        let values = partial.array(node)?;
        self.partial_left.set(partial.partial_left.get());
        let mut next = 0_i32;
        let positions = (0..self.rows).map(|row| {
            wanted.value(row).then(|| {
                next += 1;
                next - 1
            })
        });
        take(&values, &Int32Array::from_iter(positions), None)
    }
}

#[derive(Clone, Copy)]
enum Connective {
    And,
    Or,
}

/// The rows whose value does not decide the whole AND or OR.
fn undecided(known: &BooleanArray, decisive: bool) -> BooleanBuffer {
    let other = if decisive { !known.values() } else { known.values().clone() };
    match known.nulls() {
        Some(nulls) => &other | &!nulls.inner(),
        None => other,
    }
}

/// Compares as DataFusion does: by arrow's total order of doubles, except that both zeros are equal
/// and all NaN are equal.
fn compare(op: Comparison, left: &Value, right: &Value) -> Result<BooleanArray, ArrowError> {
    let (left, right) = (&left.map(canonical)?, &right.map(canonical)?);
    match op {
        Comparison::Equal => cmp::eq(left, right),
        Comparison::NotEqual => cmp::neq(left, right),
        Comparison::Less => cmp::lt(left, right),
        Comparison::LessOrEqual => cmp::lt_eq(left, right),
        Comparison::Greater => cmp::gt(left, right),
        Comparison::GreaterOrEqual => cmp::gt_eq(left, right),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "one of the fallible kernels")]
fn canonical(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let is_canonical = |value: &f64| value.to_bits() == canonical_double(*value).to_bits();
    Ok(match array.as_primitive_opt::<Float64Type>() {
        Some(doubles) if !doubles.values().iter().all(is_canonical) => {
            Arc::new(doubles.unary::<_, Float64Type>(canonical_double))
        }
        _ => Arc::clone(array),
    })
}

/// Replaces every NaN by one NaN: processors differ in the sign of the NaN that they produce.
#[expect(clippy::unnecessary_wraps, reason = "one of the fallible kernels")]
fn with_one_nan(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    Ok(match array.as_primitive_opt::<Float64Type>() {
        Some(doubles) if doubles.values().iter().any(|value| value.is_nan()) => {
            Arc::new(doubles.unary::<_, Float64Type>(|value| if value.is_nan() { f64::NAN } else { value }))
        }
        _ => Arc::clone(array),
    })
}

/// The double with one zero and one NaN, which is the largest value of the total order.
fn canonical_double(value: f64) -> f64 {
    // True of -0.0, too.
    if value == 0.0 {
        0.0
    } else if value.is_nan() {
        f64::NAN
    } else {
        value
    }
}

fn pair(left: &Value, right: &Value, result: impl Array + 'static) -> Result<Value, ArrowError> {
    pair_array(left, right, Arc::new(result))
}

#[expect(clippy::unnecessary_wraps, reason = "the end of a chain of fallible kernels")]
fn pair_array(left: &Value, right: &Value, result: ArrayRef) -> Result<Value, ArrowError> {
    Ok(match (left, right) {
        (Value::Scalar(_), Value::Scalar(_)) => Value::Scalar(result),
        _ => Value::Rows(result),
    })
}

fn boolean(array: &ArrayRef) -> Result<&BooleanArray, ArrowError> {
    array
        .as_boolean_opt()
        .ok_or_else(|| ArrowError::ComputeError(format!("{} where a boolean belongs", array.data_type())))
}

fn text(array: &ArrayRef) -> Result<&StringViewArray, ArrowError> {
    array
        .as_string_view_opt()
        .ok_or_else(|| ArrowError::ComputeError(format!("{} where a text belongs", array.data_type())))
}

/// The substring from character `start` (1 is the first) on; `start` and `length` count characters,
/// not bytes.
fn substring(array: &ArrayRef, start: u32, length: Option<u32>) -> Result<ArrayRef, ArrowError> {
    let texts = text(array)?;
    let skip = start.saturating_sub(1) as usize;
    let mut builder = StringViewBuilder::with_capacity(texts.len());
    for value in texts {
        builder.append_option(value.map(|value| characters(value, skip, length.map(|most| most as usize))));
    }
    Ok(Arc::new(builder.finish()))
}

fn characters(value: &str, skip: usize, most: Option<usize>) -> &str {
    let position = |text: &str, count: usize| {
        text.char_indices().nth(count).map_or(text.len(), |(position, _)| position)
    };
    let rest = &value[position(value, skip)..];
    most.map_or(rest, |most| &rest[..position(rest, most)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Float64Array;

    #[test]
    fn substrings_count_characters() {
        assert_eq!(characters("h\u{e9}llo", 1, Some(2)), "\u{e9}l");
        assert_eq!(characters("abc", 3, None), "");
        assert_eq!(characters("abc", 9, Some(1)), "");
        assert_eq!(characters("abc", 0, Some(9)), "abc");
    }

    #[test]
    fn the_two_zeros_are_equal_and_nan_is_above_everything_as_for_datafusion() {
        let doubles = |values: Vec<f64>| Value::Rows(Arc::new(Float64Array::from(values)));
        let left = doubles(vec![0.0, -0.0, -0.0, f64::NAN, f64::NAN]);
        let right = doubles(vec![-0.0, 0.0, 1.0, f64::NAN, f64::INFINITY]);
        let answers = |op| compare(op, &left, &right).unwrap().iter().flatten().collect::<Vec<_>>();
        assert_eq!(answers(Comparison::Equal), [true, true, false, true, false]);
        assert_eq!(answers(Comparison::Less), [false, false, true, false, false]);
        assert_eq!(answers(Comparison::GreaterOrEqual), [true, true, false, true, true]);
    }
}
