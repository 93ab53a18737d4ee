//! Corrects the precedence of `IS DISTINCT FROM`.
//!
//! Its right operand ends at the next AND or OR. The parser (sqlparser 0.62) extends it to the end
//! of the expression: it parses `a IS DISTINCT FROM b AND c` as `a IS DISTINCT FROM (b AND c)`.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value};

/// A part of a condition, without its parentheses.
enum Part {
    Operand(Box<Expr>),
    Not,
    And,
    Or,
}

/// Restores SQL's precedence of a condition's operators, where the parser has it wrong.
pub(super) fn rewrite(expression: &mut Expr) {
    if reaches_too_far(expression) {
        let mut parts = Vec::new();
        flatten(std::mem::replace(expression, Expr::value(Value::Null)), &mut parts);
        parts.reverse();
        *expression = any_of(&mut parts);
    }
}

fn is_logical(expression: &Expr) -> bool {
    matches!(expression, Expr::BinaryOp { op: BinaryOperator::And | BinaryOperator::Or, .. })
}

fn reaches_too_far(expression: &Expr) -> bool {
    match expression {
        Expr::BinaryOp { left, op: BinaryOperator::And | BinaryOperator::Or, right } => {
            reaches_too_far(left) || reaches_too_far(right)
        }
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => reaches_too_far(expr),
        Expr::IsDistinctFrom(_, right) | Expr::IsNotDistinctFrom(_, right) => is_logical(right),
        _ => false,
    }
}

fn flatten(expression: Expr, parts: &mut Vec<Part>) {
    match expression {
        Expr::BinaryOp { left, op: op @ (BinaryOperator::And | BinaryOperator::Or), right } => {
            flatten(*left, parts);
            parts.push(if op == BinaryOperator::And { Part::And } else { Part::Or });
            flatten(*right, parts);
        }
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => {
            parts.push(Part::Not);
            flatten(*expr, parts);
        }
        Expr::IsDistinctFrom(left, right) if is_logical(&right) => {
            compared(*right, parts, |right| Expr::IsDistinctFrom(left, right));
        }
        Expr::IsNotDistinctFrom(left, right) if is_logical(&right) => {
            compared(*right, parts, |right| Expr::IsNotDistinctFrom(left, right));
        }
        other => parts.push(Part::Operand(Box::new(other))),
    }
}

/// Splits the right side: its first operand is what the left one is compared with.
fn compared(right: Expr, parts: &mut Vec<Part>, compare: impl FnOnce(Box<Expr>) -> Expr) {
    let start = parts.len();
    flatten(right, parts);
    let negations = parts[start..].iter().take_while(|part| matches!(part, Part::Not)).count();
    let mut first: Vec<Part> = parts.drain(start..=start + negations).rev().collect();
    let operand = compare(Box::new(negated(&mut first)));
    parts.insert(start, Part::Operand(Box::new(operand)));
}

/// The operands joined by OR; `parts` are in reverse order.
fn any_of(parts: &mut Vec<Part>) -> Expr {
    let mut left = all_of(parts);
    while matches!(parts.last(), Some(Part::Or)) {
        parts.pop();
        left = binary(left, BinaryOperator::Or, all_of(parts));
    }
    left
}

fn all_of(parts: &mut Vec<Part>) -> Expr {
    let mut left = negated(parts);
    while matches!(parts.last(), Some(Part::And)) {
        parts.pop();
        left = binary(left, BinaryOperator::And, negated(parts));
    }
    left
}

fn negated(parts: &mut Vec<Part>) -> Expr {
    match parts.pop() {
        Some(Part::Not) => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(negated(parts)) },
        Some(Part::Operand(operand)) => *operand,
        Some(Part::And | Part::Or) | None => unreachable!("operators have operands"),
    }
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use datafusion::sql::{
        parser::DFParser,
        sqlparser::ast::{Expr, VisitorMut},
    };

    use crate::{rewrite::rewrite, visitors::visit_mut};

    /// Writes parentheses around all that has parts.
    struct Grouped;

    impl VisitorMut for Grouped {
        type Break = ();

        fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
            if let Expr::Nested(inner) = &*expression {
                *expression = inner.as_ref().clone();
            } else if !matches!(expression, Expr::Identifier(_)) {
                *expression = Expr::Nested(Box::new(expression.clone()));
            }
            ControlFlow::Continue(())
        }
    }

    fn grouped(condition: &str) -> String {
        let sql = format!("SELECT x FROM t WHERE {condition}");
        let mut statement = DFParser::parse_sql(&sql).unwrap().pop_front().unwrap();
        rewrite(&mut statement).unwrap();
        let datafusion::sql::parser::Statement::Statement(mut statement) = statement else { unreachable!() };
        let _ = visit_mut(statement.as_mut(), &mut Grouped);
        statement.to_string()
    }

    #[test]
    fn is_distinct_from_reaches_to_the_next_and_or_or() {
        for (condition, expected) in [
            ("a IS DISTINCT FROM b AND c", "(a IS DISTINCT FROM b) AND c"),
            ("a IS NOT DISTINCT FROM b OR c AND d", "(a IS NOT DISTINCT FROM b) OR (c AND d)"),
            ("p AND a IS DISTINCT FROM b OR c", "(p AND (a IS DISTINCT FROM b)) OR c"),
            ("NOT a IS DISTINCT FROM b AND c", "(NOT (a IS DISTINCT FROM b)) AND c"),
            ("a IS DISTINCT FROM NOT b AND c", "(a IS DISTINCT FROM (NOT b)) AND c"),
            (
                "a IS DISTINCT FROM b AND c IS NOT DISTINCT FROM d AND e",
                "((a IS DISTINCT FROM b) AND (c IS NOT DISTINCT FROM d)) AND e",
            ),
            (
                "a IS DISTINCT FROM b OR c AND d IS DISTINCT FROM e",
                "(a IS DISTINCT FROM b) OR (c AND (d IS DISTINCT FROM e))",
            ),
        ] {
            assert_eq!(grouped(condition), grouped(expected));
        }
        assert_ne!(grouped("a IS DISTINCT FROM (b AND c)"), grouped("a IS DISTINCT FROM b AND c"));
    }
}
