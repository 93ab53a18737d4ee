//! Interprets a program one row and one value at a time: a second implementation of its semantics,
//! with which scans are compared.

use super::{Datum, Table};
use rackscan_format::{
    program::{
        AggregateFunction, Arithmetic, Comparison, DatePart, Literal, Node, NodeIndex, Output, ValueType,
        VerifiedProgram,
    },
    row_place::RowPlace,
};
use std::{cmp::Ordering, collections::BTreeMap};

/// The rows (in order) or groups (by key) that a program yields over the blocks' rows.
pub(crate) fn rows(table: &Table, program: &VerifiedProgram) -> Vec<Vec<Datum>> {
    let selected = (0..table.rows()).filter(|row| passes(table, program, *row));
    match &program.program().output {
        Output::Rows(nodes) => {
            let most = program.program().limit_rows.map_or(usize::MAX, |rows| rows as usize);
            let value = |row: usize| nodes.iter().map(|node| value(table, program, *node, row)).collect();
            selected.take(most).map(value).collect()
        }
        Output::Groups { .. } => groups(table, program, selected),
    }
}

pub(crate) fn passes(table: &Table, program: &VerifiedProgram, row: usize) -> bool {
    let filter = program.program().filter.iter();
    filter.into_iter().all(|node| value(table, program, *node, row) == Datum::Boolean(true))
}

fn groups(table: &Table, program: &VerifiedProgram, rows: impl Iterator<Item = usize>) -> Vec<Vec<Datum>> {
    let Output::Groups { keys, aggregates } = &program.program().output else { panic!("groups") };
    let mut groups: BTreeMap<String, (Vec<Datum>, Vec<usize>)> = BTreeMap::new();
    if keys.is_empty() {
        groups.insert(String::new(), (Vec::new(), Vec::new()));
    }
    for row in rows {
        let key: Vec<Datum> = keys.iter().map(|key| value(table, program, *key, row)).collect();
        let name = if keys.is_empty() { String::new() } else { name_of(&key) };
        groups.entry(name).or_insert_with(|| (key, Vec::new())).1.push(row);
    }
    let aggregated = groups.into_values().map(|(mut result, rows)| {
        for aggregate in aggregates {
            let values: Vec<Datum> = match aggregate.argument {
                None => Vec::new(),
                Some(argument) => {
                    let values = rows.iter().map(|row| value(table, program, argument, *row));
                    values.filter(|value| *value != Datum::Null).collect()
                }
            };
            result.push(aggregate_of(aggregate.function, &rows, &values));
        }
        result
    });
    aggregated.collect()
}

/// A name that sorts groups in some fixed order.
pub(crate) fn name_of(key: &[Datum]) -> String {
    key.iter()
        .map(|datum| match datum {
            Datum::Float(value) => format!("{:x}|", value.to_bits()),
            other => format!("{other:?}|"),
        })
        .collect()
}

fn aggregate_of(function: AggregateFunction, rows: &[usize], values: &[Datum]) -> Datum {
    let count = |count: usize| Datum::Number(i128::try_from(count).expect("few rows"));
    match function {
        AggregateFunction::CountRows => count(rows.len()),
        AggregateFunction::Count => count(values.len()),
        AggregateFunction::Min => {
            values.iter().min_by(|left, right| order(left, right)).cloned().unwrap_or(Datum::Null)
        }
        AggregateFunction::Max => {
            values.iter().max_by(|left, right| order(left, right)).cloned().unwrap_or(Datum::Null)
        }
        AggregateFunction::Sum => {
            let Some((first, rest)) = values.split_first() else { return Datum::Null };
            rest.iter().fold(first.clone(), |sum, value| match (sum, value) {
                (Datum::Number(sum), Datum::Number(value)) => Datum::Number(sum + value),
                (Datum::Float(sum), Datum::Float(value)) => Datum::Float(sum + value),
                (sum, value) => panic!("a sum of {sum:?} and {value:?}"),
            })
        }
    }
}

/// Whether a type holds a number.
fn holds(value_type: ValueType, number: i128) -> bool {
    match value_type {
        ValueType::Int32 => i32::try_from(number).is_ok(),
        ValueType::Int64 => i64::try_from(number).is_ok(),
        _ => true,
    }
}

/// Whether what two numbers become fits its type. Programs are drawn so that it does.
pub(crate) fn fits(op: Arithmetic, left: &Datum, right: &Datum, result: ValueType) -> bool {
    match (left, right) {
        (Datum::Number(left), Datum::Number(right)) => holds(result, of_numbers(op, *left, *right)),
        _ => true,
    }
}

fn of_numbers(op: Arithmetic, left: i128, right: i128) -> i128 {
    match op {
        Arithmetic::Add => left + right,
        Arithmetic::Subtract => left - right,
        Arithmetic::Multiply => left * right,
    }
}

fn held(number: i128, value_type: ValueType) -> i128 {
    assert!(holds(value_type, number), "{number} as {value_type}");
    number
}

/// Order of two values of one type.
pub(crate) fn order(left: &Datum, right: &Datum) -> Ordering {
    match (left, right) {
        (Datum::Boolean(left), Datum::Boolean(right)) => left.cmp(right),
        (Datum::Number(left), Datum::Number(right)) => left.cmp(right),
        (Datum::Float(left), Datum::Float(right)) => left.total_cmp(right),
        (Datum::Text(left), Datum::Text(right)) => left.cmp(right),
        (left, right) => panic!("{left:?} and {right:?} do not compare"),
    }
}

pub(crate) fn literal(literal: &Literal) -> Datum {
    match literal {
        Literal::Null(_) => Datum::Null,
        Literal::Boolean(value) => Datum::Boolean(*value),
        Literal::Int32(value) | Literal::Date32(value) => Datum::Number((*value).into()),
        Literal::Int64(value) | Literal::TimestampMicros(value) => Datum::Number((*value).into()),
        Literal::Decimal { unscaled, .. } => Datum::Number(*unscaled),
        Literal::Float64(value) => Datum::Float(*value),
        Literal::Text(value) => Datum::Text(value.clone()),
    }
}

/// The value of a node in a row.
pub(crate) fn value(table: &Table, program: &VerifiedProgram, node: NodeIndex, row: usize) -> Datum {
    let of = |node: NodeIndex| value(table, program, node, row);
    let type_of = |node: NodeIndex| program.node_types()[usize::from(node)];
    match &program.program().nodes[usize::from(node)] {
        Node::Column(input) => table.columns[usize::from(*input)].values[row].clone(),
        Node::Literal(constant) => literal(constant),
        Node::Compare { op, left, right } => match (of(*left), of(*right)) {
            (Datum::Null, _) | (_, Datum::Null) => Datum::Null,
            (left, right) => Datum::Boolean(compare(*op, order(&positive(left), &positive(right)))),
        },
        Node::And(items) => connect(items.iter().map(|item| of(*item)), false),
        Node::Or(items) => connect(items.iter().map(|item| of(*item)), true),
        Node::Not(item) => match of(*item) {
            Datum::Boolean(value) => Datum::Boolean(!value),
            other => other,
        },
        Node::IsNull(item) => Datum::Boolean(of(*item) == Datum::Null),
        Node::InSet { item, set, negated } => match of(*item) {
            Datum::Null => Datum::Null,
            item => {
                let found = set.iter().any(|constant| order(&item, &literal(constant)) == Ordering::Equal);
                Datum::Boolean(found != *negated)
            }
        },
        Node::Like { item, pattern, negated, case_insensitive } => match of(*item) {
            Datum::Text(text) if *case_insensitive => {
                Datum::Boolean(like(&text.to_lowercase(), &pattern.to_lowercase()) != *negated)
            }
            Datum::Text(text) => Datum::Boolean(like(&text, pattern) != *negated),
            other => other,
        },
        Node::Arithmetic { op, left, right } => {
            let result = type_of(node);
            arithmetic(*op, (of(*left), type_of(*left)), (of(*right), type_of(*right)), result)
        }
        Node::Negate(item) => match of(*item) {
            Datum::Number(number) => Datum::Number(held(-number, type_of(node))),
            Datum::Float(value) => Datum::Float(one_nan(-value)),
            other => other,
        },
        Node::Cast { item, to } => match (of(*item), type_of(*item), to) {
            (Datum::Number(number), from, ValueType::Decimal { scale, .. }) => {
                let from = if let ValueType::Decimal { scale, .. } = from { scale } else { 0 };
                Datum::Number(number * 10_i128.pow(u32::from(scale - from)))
            }
            (other, _, _) => other,
        },
        Node::Case { branches, otherwise } => {
            let taken = branches.iter().find(|(condition, _)| of(*condition) == Datum::Boolean(true));
            taken.map(|(_, value)| *value).or(*otherwise).map_or(Datum::Null, of)
        }
        Node::DatePart { part, item } => match of(*item) {
            Datum::Number(days) => Datum::Number(date_part(*part, days).into()),
            other => other,
        },
        Node::RowNumber => place(table, row),
        Node::InKeys { item, keys } => match of(*item) {
            Datum::Number(key) => {
                let filter = &program.key_filters()[usize::from(*keys)];
                Datum::Boolean(i64::try_from(key).is_ok_and(|key| filter.contains(key)))
            }
            other => other,
        },
        Node::Substring { item, start, length } => match of(*item) {
            Datum::Text(text) => {
                let rest = text.chars().skip(*start as usize - 1);
                Datum::Text(rest.take(length.map_or(usize::MAX, |most| most as usize)).collect())
            }
            other => other,
        },
    }
}

fn place(table: &Table, row: usize) -> Datum {
    let row = u32::try_from(row).expect("few rows");
    Datum::Number(RowPlace { segment: table.directory.segment, row }.number().into())
}

/// The two zeros are equal where values are compared, and only there.
fn positive(value: Datum) -> Datum {
    match value {
        // Also -0.0.
        Datum::Float(0.0) => Datum::Float(0.0),
        Datum::Float(number) => Datum::Float(one_nan(number)),
        other => other,
    }
}

fn compare(op: Comparison, order: Ordering) -> bool {
    match op {
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
    }
}

fn connect(mut items: impl Iterator<Item = Datum> + Clone, decisive: bool) -> Datum {
    if items.clone().any(|item| item == Datum::Boolean(decisive)) {
        return Datum::Boolean(decisive);
    }
    if items.any(|item| item == Datum::Null) { Datum::Null } else { Datum::Boolean(!decisive) }
}

fn arithmetic(
    op: Arithmetic,
    (left, left_type): (Datum, ValueType),
    (right, right_type): (Datum, ValueType),
    result: ValueType,
) -> Datum {
    match (left, right) {
        (Datum::Null, _) | (_, Datum::Null) => Datum::Null,
        (Datum::Float(left), Datum::Float(right)) => Datum::Float(one_nan(match op {
            Arithmetic::Add => left + right,
            Arithmetic::Subtract => left - right,
            Arithmetic::Multiply => left * right,
        })),
        (Datum::Number(left), Datum::Number(right)) => {
            let rescaled = |number: i128, from: ValueType| match (from, result, op) {
                (_, _, Arithmetic::Multiply) => number,
                (ValueType::Decimal { scale: from, .. }, ValueType::Decimal { scale: to, .. }, _) => {
                    number * 10_i128.pow(u32::from(to - from))
                }
                _ => number,
            };
            let (left, right) = (rescaled(left, left_type), rescaled(right, right_type));
            Datum::Number(held(of_numbers(op, left, right), result))
        }
        (left, right) => panic!("arithmetic on {left:?} and {right:?}"),
    }
}

/// LIKE by trying everything.
pub(crate) fn like(text: &str, pattern: &str) -> bool {
    let mut rest = pattern.chars();
    match rest.next() {
        None => text.is_empty(),
        Some('%') => {
            let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            ends.into_iter().any(|at| like(&text[at..], rest.as_str()))
        }
        Some('_') => {
            let mut text = text.chars();
            text.next().is_some() && like(text.as_str(), rest.as_str())
        }
        Some(plain) => {
            let wanted = if plain == '\\' { rest.next().unwrap_or('\\') } else { plain };
            let mut text = text.chars();
            text.next() == Some(wanted) && like(text.as_str(), rest.as_str())
        }
    }
}

/// Year, month and day of a day since 1970-01-01, by counting.
fn date_part(part: DatePart, days: i128) -> i32 {
    let leap = |year: i32| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let (mut year, mut left) = (1970, days);
    while left < 0 {
        year -= 1;
        left += if leap(year) { 366 } else { 365 };
    }
    while left >= if leap(year) { 366 } else { 365 } {
        left -= if leap(year) { 366 } else { 365 };
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    match part {
        DatePart::Year => year,
        DatePart::Month => month,
        DatePart::Day => i32::try_from(left).expect("a day of a month") + 1,
    }
}

/// The one NaN that there is.
fn one_nan(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}
