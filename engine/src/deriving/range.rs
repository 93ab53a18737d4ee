//! Reads the WHERE clause of a materialised view as one range of one column.
//!
//! The caller evaluates the bounds of the range, which are expressions, and returns them as stored
//! integers in the same order.
//!
//! Invariants
//! - Several bounds on one side all apply: the range is their intersection. It may be empty.
//! - The range contains exactly the values that satisfy the clause: a clause that a range of
//!   integers cannot express is refused.

use crate::visitors::visit;
use crate::{
    deriving::{clause::refused, source::Source},
    error::EngineError,
};
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Query, Value, ValueWithSpan, Visitor};
use rackscan_format::{
    derived::Within,
    ids::ColumnId,
    schema::{ColumnDefinition, ColumnType, TableDefinition},
};
use std::ops::ControlFlow;

const ONE_RANGE: &str = "its rows are those in one range of one column: compare it with constants by <, <=, =, >=, > and BETWEEN, joined by AND";

/// A range of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) column: String,
    bounds: Vec<Bound>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Bound {
    comparison: Comparison,
    constant: Expr,
}

/// The comparison of the column with a constant on its right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    AtLeast,
    Above,
    Below,
    AtMost,
    Equal,
}

impl Comparison {
    fn of(operator: &BinaryOperator) -> Option<Self> {
        Some(match operator {
            BinaryOperator::GtEq => Self::AtLeast,
            BinaryOperator::Gt => Self::Above,
            BinaryOperator::Lt => Self::Below,
            BinaryOperator::LtEq => Self::AtMost,
            BinaryOperator::Eq => Self::Equal,
            _ => return None,
        })
    }

    /// The same comparison with the constant on the left.
    fn mirrored(self) -> Self {
        match self {
            Self::AtLeast => Self::AtMost,
            Self::Above => Self::Below,
            Self::Below => Self::Above,
            Self::AtMost => Self::AtLeast,
            Self::Equal => Self::Equal,
        }
    }
}

impl Range {
    /// Reads WHERE. Always `Some` for a clause that is accepted, as it has at least one comparison.
    pub(super) fn of(source: &Source, selection: &Expr) -> Result<Option<Self>, EngineError> {
        let mut range: Option<Self> = None;
        let mut waiting = vec![selection];
        while let Some(expression) = waiting.pop() {
            let expression = bare(expression);
            if let Expr::BinaryOp { left, op: BinaryOperator::And, right } = expression {
                // The left operand is visited first.
                waiting.extend([&**right, left]);
                continue;
            }
            let (column, bounds) = comparison(source, expression)?;
            let range = range.get_or_insert_with(|| Self { column: column.clone(), bounds: Vec::new() });
            if range.column != column {
                let found = format!("WHERE with {:?} and {column:?} in a materialized view", range.column);
                return Err(refused(&found, ONE_RANGE));
            }
            range.bounds.extend(bounds);
        }
        Ok(range)
    }

    /// The constants of the bounds.
    pub(super) fn constants(&self) -> impl Iterator<Item = &Expr> {
        self.bounds.iter().map(|bound| &bound.constant)
    }

    /// The range with these values of its constants.
    ///
    /// # Errors
    /// Another number of values; a column that the table does not have, or in which values may be
    /// missing; bounds that no range can have.
    pub(super) fn within(&self, definition: &TableDefinition, values: &[i64]) -> Result<Within, EngineError> {
        let (column, column_type) = present(definition, &self.column)?;
        let name = &self.column;
        if values.len() != self.bounds.len() {
            let (found, expected) = (values.len(), self.bounds.len());
            return Err(EngineError::Plan(format!(
                "{found} values of constants for the range of {name:?}, expected {expected}"
            )));
        }
        let next = |value: i64| {
            value.checked_add(1).ok_or_else(|| {
                EngineError::Plan(format!(
                    "the range of column {name:?} has {value} as a bound, expected less than the greatest value of the column's type"
                ))
            })
        };
        let (mut from, mut until) = (i64::MIN, None::<i64>);
        for (bound, value) in self.bounds.iter().zip(values.iter().copied()) {
            let (least, end) = match bound.comparison {
                Comparison::AtLeast => (Some(value), None),
                Comparison::Above => (Some(next(value)?), None),
                Comparison::Below => (None, Some(value)),
                Comparison::AtMost => (None, Some(next(value)?)),
                Comparison::Equal => (Some(value), Some(next(value)?)),
            };
            from = least.map_or(from, |least| from.max(least));
            until = match (until, end) {
                (Some(until), Some(end)) => Some(until.min(end)),
                (until, end) => until.or(end),
            };
        }
        // Only these types have values as large as the greatest integer.
        let is_wide = matches!(column_type, ColumnType::Int64 | ColumnType::TimestampMicros);
        if is_wide && until.is_none() {
            return Err(EngineError::Plan(format!(
                "the range of column {name:?} has no end, which a range of a {column_type} must have: add {name} < a constant"
            )));
        }
        Ok(Within { column, from, until: until.unwrap_or(i64::MAX) })
    }
}

/// The column of the table with this name.
pub(super) fn known<'d>(
    definition: &'d TableDefinition,
    name: &str,
) -> Result<(ColumnId, &'d ColumnDefinition), EngineError> {
    definition.column(name).ok_or_else(|| {
        let names: Vec<&str> = definition.columns.iter().map(|column| column.name.as_str()).collect();
        let (table, names) = (&definition.name, names.join(", "));
        let message = format!("table {table} has no column {name:?}; there are {names}");
        EngineError::invalid("42703", message)
    })
}

/// The column of the table with this name, which must not allow missing values.
pub(super) fn present(
    definition: &TableDefinition,
    name: &str,
) -> Result<(ColumnId, ColumnType), EngineError> {
    let (id, column) = known(definition, name)?;
    if column.nullable {
        let table = &definition.name;
        return Err(EngineError::Plan(format!(
            "column {name:?} of table {table} must be NOT NULL: a sum of missing values is not kept"
        )));
    }
    Ok((id, column.column_type))
}

/// The column that is compared, and its bounds.
fn comparison(source: &Source, expression: &Expr) -> Result<(String, Vec<Bound>), EngineError> {
    let no_range = || refused(&format!("WHERE {expression} in a materialized view"), ONE_RANGE);
    let (column, bounds) = match expression {
        Expr::Between { expr, negated: false, low, high } => {
            (source.column(bare(expr))?, vec![(Comparison::AtLeast, &**low), (Comparison::AtMost, &**high)])
        }
        Expr::BinaryOp { left, op, right } => {
            let comparison = Comparison::of(op).ok_or_else(no_range)?;
            match source.column(bare(left))? {
                Some(column) => (Some(column), vec![(comparison, &**right)]),
                None => (source.column(bare(right))?, vec![(comparison.mirrored(), &**left)]),
            }
        }
        _ => return Err(no_range()),
    };
    let column = column.ok_or_else(no_range)?;
    if !bounds.iter().all(|(_, constant)| is_constant(constant)) {
        return Err(no_range());
    }
    let bound = |(comparison, constant): (_, &Expr)| Bound { comparison, constant: constant.clone() };
    Ok((column, bounds.into_iter().map(bound).collect()))
}

/// Whether the expression has no columns, queries, parameters or functions. Functions are excluded
/// because some of them return another value on another day.
fn is_constant(expression: &Expr) -> bool {
    visit(expression, &mut Constant).is_continue()
}

/// A visitor that breaks off at the first part that is not constant.
struct Constant;

impl Visitor for Constant {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        match expression {
            Expr::Identifier(_)
            | Expr::CompoundIdentifier(_)
            | Expr::MatchAgainst { .. }
            | Expr::Wildcard(_)
            | Expr::QualifiedWildcard(..)
            | Expr::Function(_)
            | Expr::Value(ValueWithSpan { value: Value::Placeholder(_), .. }) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// The expression without the parentheses around it.
pub(super) fn bare(mut expression: &Expr) -> &Expr {
    while let Expr::Nested(inner) = expression {
        expression = inner;
    }
    expression
}

#[cfg(test)]
mod tests {
    use crate::deriving::samples::{aggregate, error, lines};
    use rackscan_format::{derived::Within, ids::ColumnId};

    /// The range of a WHERE about `day` with constants of these values, or why there is none.
    fn within(selection: &str, values: &[i64]) -> Result<(i64, i64), String> {
        let found = aggregate(&format!("SELECT supplier, count(*) FROM lines WHERE {selection} GROUP BY 1"))
            .and_then(|view| view.sum(&lines(), values))
            .map_err(|error| error.to_string())?;
        let Within { column, from, until } = found.within.unwrap();
        assert_eq!(column, ColumnId(3), "{selection}");
        Ok((from, until))
    }

    #[test]
    fn each_comparison_is_a_range_without_its_end_and_the_same_one_mirrored() {
        for (selection, expected) in [
            ("day >= 7", (7, i64::MAX)),
            ("day > 7", (8, i64::MAX)),
            ("day < 7", (i64::MIN, 7)),
            ("day <= 7", (i64::MIN, 8)),
            ("day = 7", (7, 8)),
            ("7 <= day", (7, i64::MAX)),
            ("7 < day", (8, i64::MAX)),
            ("7 > day", (i64::MIN, 7)),
            ("7 >= day", (i64::MIN, 8)),
            ("7 = day", (7, 8)),
            ("((7) = (lines.day))", (7, 8)),
        ] {
            assert_eq!(within(selection, &[7]), Ok(expected), "{selection}");
        }
    }

    #[test]
    fn several_comparisons_are_the_range_that_they_have_in_common() {
        for (selection, values, expected) in [
            ("day BETWEEN 3 AND 5", &[3, 5][..], (3, 6)),
            ("day >= 3 AND day < 9", &[3, 9], (3, 9)),
            ("day < 9 AND day >= 3", &[9, 3], (3, 9)),
            ("day >= 3 AND (day > 4 AND day >= 2)", &[3, 4, 2], (5, i64::MAX)),
            ("day < 9 AND day <= 6 AND 8 > day", &[9, 6, 8], (i64::MIN, 7)),
            ("day BETWEEN 3 AND 9 AND day = 4", &[3, 9, 4], (4, 5)),
            // Empty.
            ("day > 9 AND day < 3", &[9, 3], (10, 3)),
        ] {
            assert_eq!(within(selection, values), Ok(expected), "{selection}");
        }
    }

    #[test]
    fn constants_come_out_in_the_order_in_which_their_values_are_expected() {
        let text = "SELECT supplier, count(*) FROM lines WHERE (day < 1 AND 2 <= day) AND day BETWEEN 3 AND 4 AND day = (5) GROUP BY 1";
        let view = aggregate(text).unwrap();
        let constants: Vec<String> = view.constants().into_iter().map(ToString::to_string).collect();
        assert_eq!(constants, ["1", "2", "3", "4", "(5)"]);
        assert_eq!(view.range_column(), Some("day"));
        let all = aggregate("SELECT supplier, count(*) FROM lines GROUP BY 1").unwrap();
        assert_eq!((all.constants().len(), all.range_column()), (0, None));
    }

    #[test]
    fn a_constant_is_whatever_has_no_columns_queries_parameters_and_functions() {
        for constant in [
            "date '1996-01-01' + interval '3' month",
            "-(1 + 2) * 3",
            "cast('1996-01-01' AS date)",
            "CASE WHEN true THEN 1 ELSE 2 END",
        ] {
            assert_eq!(within(&format!("day < {constant}"), &[7]), Ok((i64::MIN, 7)), "{constant}");
        }
        for constant in [
            "quantity",
            "lines.day + 1",
            "(SELECT 1)",
            "least(1, abs(quantity))",
            "least(1, 2)",
            "current_date",
            "now() - interval '1' day",
            "array(SELECT 1)",
            "CASE WHEN EXISTS (SELECT 1) THEN 1 END",
            "interval '1' day * quantity",
            "$1",
            "\"1996-01-01\"",
        ] {
            let found = within(&format!("day < {constant}"), &[7]).unwrap_err();
            assert!(found.contains("in one range of one column"), "{constant}: {found}");
        }
    }

    #[test]
    fn what_is_not_one_range_of_one_column_is_refused_with_its_text() {
        for selection in [
            "day = 1 OR day = 2",
            "NOT day = 1",
            "day <> 1",
            "day IN (1, 2)",
            "day NOT BETWEEN 1 AND 2",
            "1 BETWEEN day AND 2",
            "day IS NOT NULL",
            "day + 1 < 2",
            "1 < 2",
            "true",
            "day",
            "day LIKE '1'",
            "day BETWEEN quantity AND 2",
            "day BETWEEN 1 AND quantity",
        ] {
            let text = format!("SELECT supplier, count(*) FROM lines WHERE {selection} GROUP BY 1");
            let found = error(&text);
            let expected = format!("WHERE {selection} in a materialized view is not supported");
            assert!(found.starts_with(&expected) && found.contains("one range of one column"), "{found}");
        }
        let found = error("SELECT supplier, count(*) FROM lines WHERE day > 1 AND quantity < 2 GROUP BY 1");
        assert!(found.starts_with("WHERE with \"day\" and \"quantity\" in a materialized view"));
        let found = error("SELECT supplier, count(*) FROM lines WHERE other.day > 1 GROUP BY 1");
        assert_eq!(found, "other.day is no column of the view's table, which is called lines in the query");
    }

    #[test]
    fn bounds_that_no_range_has_are_refused_by_name() {
        for selection in ["day > 7", "day <= 7", "day = 7", "day BETWEEN 7 AND 7"] {
            let values = if selection.contains("BETWEEN") { &[0, i64::MAX][..] } else { &[i64::MAX] };
            let found = within(selection, values).unwrap_err();
            assert!(found.starts_with("the range of column \"day\" has 9223372036854775807 as"), "{found}");
        }
        assert_eq!(within("day >= 7", &[i64::MAX]), Ok((i64::MAX, i64::MAX)));
        assert_eq!(within("day < 7", &[i64::MIN]), Ok((i64::MIN, i64::MIN)));
        let found = within("day >= 7 AND day < 9", &[7]).unwrap_err();
        assert_eq!(found, "1 values of constants for the range of \"day\", expected 2");
    }

    #[test]
    fn a_range_without_an_end_does_not_lose_the_greatest_integer() {
        let of = |selection: &str| {
            let text = format!("SELECT supplier, count(*) FROM lines WHERE {selection} GROUP BY 1");
            aggregate(&text).unwrap().sum(&lines(), &[7]).map(|sum| sum.within.unwrap().until)
        };
        for name in ["supplier", "seen"] {
            let found = of(&format!("{name} >= 7")).unwrap_err().to_string();
            assert!(found.starts_with(&format!("the range of column \"{name}\" has no end")), "{found}");
            assert_eq!(of(&format!("{name} < 7")).unwrap(), 7);
        }
        assert_eq!(of("price >= 7").unwrap(), i64::MAX, "a decimal has 18 digits");
    }
}
