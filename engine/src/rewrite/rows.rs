//! Compares rows, such as `(a, b) = (1, 2)`, column by column, with SQL's rules for NULL.
//!
//! DataFusion turns rows into structs, and compares a struct that contains NULL as a value.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, UnaryOperator,
};

use super::{refusal::refuse, syntax::bare};
use crate::error::EngineError;

/// Replaces `ROW (a, b)` by `(a, b)`.
pub(super) fn as_tuple(expression: &mut Expr) {
    let Expr::Function(Function { name, args: FunctionArguments::List(list), .. }) = &*expression else {
        return;
    };
    let value = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    };
    if name.to_string().eq_ignore_ascii_case("row")
        && let Some(values) = list.args.iter().map(value).collect::<Option<Vec<_>>>()
        && !values.is_empty()
    {
        *expression = Expr::Tuple(values);
    }
}

/// Replaces a comparison of rows by comparisons of their columns.
pub(super) fn rewrite(expression: &mut Expr) -> Result<(), Box<EngineError>> {
    let rewritten = match &*expression {
        Expr::BinaryOp { left, op, right } => match (bare(left), bare(right)) {
            (Expr::Tuple(left), Expr::Tuple(right)) => Some(compared(left, op, right)?),
            (Expr::Tuple(_), other) | (other, Expr::Tuple(_)) if is_comparison(op) => {
                return Err(beside_a_row(other));
            }
            _ => None,
        },
        Expr::InList { expr, list, negated } => match bare(expr) {
            Expr::Tuple(row) => {
                let equal = list.iter().map(|entry| match bare(entry) {
                    Expr::Tuple(entry) => compared(row, &BinaryOperator::Eq, entry),
                    other => Err(beside_a_row(other)),
                });
                let any = joined(equal.collect::<Result<_, _>>()?, &BinaryOperator::Or);
                Some(if *negated { not(any) } else { any })
            }
            _ => None,
        },
        Expr::Between { expr, negated, low, high } => match (bare(expr), bare(low), bare(high)) {
            (Expr::Tuple(row), Expr::Tuple(low), Expr::Tuple(high)) => {
                let within = vec![
                    compared(row, &BinaryOperator::GtEq, low)?,
                    compared(row, &BinaryOperator::LtEq, high)?,
                ];
                let within = joined(within, &BinaryOperator::And);
                Some(if *negated { not(within) } else { within })
            }
            (Expr::Tuple(_), other, _) => return Err(beside_a_row(other)),
            _ => None,
        },
        Expr::IsDistinctFrom(left, right) => match (bare(left), bare(right)) {
            (Expr::Tuple(left), Expr::Tuple(right)) => {
                Some(pairwise(left, right, &BinaryOperator::Or, Expr::IsDistinctFrom)?)
            }
            _ => None,
        },
        Expr::IsNotDistinctFrom(left, right) => match (bare(left), bare(right)) {
            (Expr::Tuple(left), Expr::Tuple(right)) => {
                Some(pairwise(left, right, &BinaryOperator::And, Expr::IsNotDistinctFrom)?)
            }
            _ => None,
        },
        // For a row with a NULL and another value, neither IS NULL nor IS NOT NULL is true.
        Expr::IsNull(row) => each_of(row, Expr::IsNull),
        Expr::IsNotNull(row) => each_of(row, Expr::IsNotNull),
        Expr::Case { operand: Some(operand), .. } if matches!(bare(operand), Expr::Tuple(_)) => {
            return Err(refuse("CASE over a row", "write CASE WHEN (...) = (...) THEN"));
        }
        _ => None,
    };
    if let Some(rewritten) = rewritten {
        *expression = rewritten;
    }
    Ok(())
}

fn is_comparison(op: &BinaryOperator) -> bool {
    matches!(
        op,
        BinaryOperator::Eq
            | BinaryOperator::NotEq
            | BinaryOperator::Lt
            | BinaryOperator::LtEq
            | BinaryOperator::Gt
            | BinaryOperator::GtEq
    )
}

fn beside_a_row(other: &Expr) -> Box<EngineError> {
    refuse(&format!("comparing a row with {other}"), "compare it with a row of as many columns")
}

/// Compares the columns of two rows one by one.
pub(super) fn compared(left: &[Expr], op: &BinaryOperator, right: &[Expr]) -> Result<Expr, Box<EngineError>> {
    let equal = |(left, right): (&Expr, &Expr)| binary(left.clone(), BinaryOperator::Eq, right.clone());
    let pairs = pairs(left, right)?;
    Ok(match op {
        BinaryOperator::Eq => joined(pairs.into_iter().map(equal).collect(), &BinaryOperator::And),
        BinaryOperator::NotEq => {
            let unequal =
                |(left, right): (&Expr, &Expr)| binary(left.clone(), BinaryOperator::NotEq, right.clone());
            joined(pairs.into_iter().map(unequal).collect(), &BinaryOperator::Or)
        }
        BinaryOperator::Lt | BinaryOperator::LtEq | BinaryOperator::Gt | BinaryOperator::GtEq => {
            let strict = match op {
                BinaryOperator::Lt | BinaryOperator::LtEq => BinaryOperator::Lt,
                _ => BinaryOperator::Gt,
            };
            let mut pairs = pairs.into_iter().rev();
            let Some((left, right)) = pairs.next() else { unreachable!("rows have columns") };
            let last = binary(left.clone(), op.clone(), right.clone());
            pairs.fold(last, |rest, (left, right)| {
                let first = binary(left.clone(), strict.clone(), right.clone());
                let equal = binary(left.clone(), BinaryOperator::Eq, right.clone());
                binary(first, BinaryOperator::Or, binary(equal, BinaryOperator::And, rest))
            })
        }
        other => return Err(refuse(&format!("{other} between rows"), "compare rows, or columns one by one")),
    })
}

fn pairwise(
    left: &[Expr],
    right: &[Expr],
    op: &BinaryOperator,
    of_pair: impl Fn(Box<Expr>, Box<Expr>) -> Expr,
) -> Result<Expr, Box<EngineError>> {
    let each = pairs(left, right)?.into_iter().map(|(left, right)| {
        let (left, right) = (Box::new(left.clone()), Box::new(right.clone()));
        nested(of_pair(left, right))
    });
    Ok(joined(each.collect(), op))
}

fn each_of(row: &Expr, of_column: impl Fn(Box<Expr>) -> Expr) -> Option<Expr> {
    let Expr::Tuple(columns) = bare(row) else { return None };
    if columns.iter().any(|column| matches!(bare(column), Expr::Tuple(_))) {
        return None;
    }
    let each = columns.iter().map(|column| nested(of_column(Box::new(column.clone()))));
    Some(joined(each.collect(), &BinaryOperator::And))
}

fn pairs<'e>(left: &'e [Expr], right: &'e [Expr]) -> Result<Vec<(&'e Expr, &'e Expr)>, Box<EngineError>> {
    if let Some(row) = left.iter().chain(right).find(|part| matches!(bare(part), Expr::Tuple(_))) {
        return Err(refuse(&format!("comparing rows within rows, such as {row}"), "compare rows of columns"));
    }
    if left.len() == right.len() {
        return Ok(left.iter().zip(right).collect());
    }
    let (left, right) = (left.len(), right.len());
    let message = format!("a row of {left} columns is compared with one of {right}, expected as many");
    Err(Box::new(EngineError::invalid("42601", message)))
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    nested(Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) })
}

/// The parts joined by the operator; there is at least one.
fn joined(parts: Vec<Expr>, op: &BinaryOperator) -> Expr {
    let joined = parts.into_iter().reduce(|left, right| binary(left, op.clone(), right));
    joined.unwrap_or_else(|| unreachable!("rows have columns, and lists have rows"))
}

fn not(expression: Expr) -> Expr {
    nested(Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(expression) })
}

fn nested(expression: Expr) -> Expr {
    Expr::Nested(Box::new(expression))
}

#[cfg(test)]
mod tests {
    use crate::rewrite::tests::rewritten;

    #[test]
    fn rows_are_compared_column_by_column() {
        for (row, columns) in [
            ("(a, b) = (1, 2)", "((a = 1) AND (b = 2))"),
            ("((a, b)) <> (1, 2)", "((a <> 1) OR (b <> 2))"),
            ("(a, b) < (1, 2)", "((a < 1) OR ((a = 1) AND (b < 2)))"),
            ("(a, b) >= (1, 2)", "((a > 1) OR ((a = 1) AND (b >= 2)))"),
            ("(a, b) IN ((1, 2), (3, 4))", "(((a = 1) AND (b = 2)) OR ((a = 3) AND (b = 4)))"),
            ("(a, b) NOT IN ((1, 2))", "(NOT ((a = 1) AND (b = 2)))"),
            ("ROW(a, b) = ROW(1, 2)", "((a = 1) AND (b = 2))"),
            ("(a, b) IS NULL", "((a IS NULL) AND (b IS NULL))"),
            ("(a, b) IS NOT NULL", "((a IS NOT NULL) AND (b IS NOT NULL))"),
            ("(a, b) IS DISTINCT FROM (1, 2)", "((a IS DISTINCT FROM 1) OR (b IS DISTINCT FROM 2))"),
        ] {
            let sql = format!("SELECT x FROM t WHERE {row}");
            assert_eq!(rewritten(&sql).unwrap(), format!("SELECT x FROM t WHERE {columns}"));
        }
        assert_eq!(
            rewritten("SELECT (a, b) = (c, d)").unwrap(),
            "SELECT ((a = c) AND (b = d)) AS \"(a, b) = (c, d)\u{1}0\""
        );
    }

    #[test]
    fn rows_of_other_widths_and_what_is_no_row_are_refused() {
        for sql in [
            "SELECT (1, 2) = (1, 2, 3)",
            "SELECT (1, 2) < 3",
            "SELECT (1, 2) IN ((1, 2), 3)",
            "SELECT ((1, 2), 3) < ((1, 2), 4)",
        ] {
            assert!(rewritten(sql).unwrap_err().contains("row"), "{sql}");
        }
    }
}
