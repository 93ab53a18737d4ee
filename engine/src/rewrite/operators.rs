//! Replaces operators that DataFusion plans with another meaning.
//!
//! DataFusion plans `^` as the bitwise exclusive or. `IS TRUE` and similar operators cause an
//! internal error within DISTINCT.

use datafusion::sql::sqlparser::ast::{BinaryOperator, CastKind, DataType, ExactNumberInfo, Expr, Value};

use super::syntax::call;

/// The function that replaces `^`.
const POWER: &str = "power";

/// Writes `a ^ b` as a power of doubles, and `x IS TRUE` as a comparison.
pub(super) fn rewrite(expression: &mut Expr) {
    let rewritten = match &*expression {
        Expr::BinaryOp { left, op: BinaryOperator::BitwiseXor, right } => {
            call(POWER, vec![double(left), double(right)])
        }
        Expr::IsTrue(of) => Expr::IsNotDistinctFrom(of.clone(), boolean(true)),
        Expr::IsNotTrue(of) => Expr::IsDistinctFrom(of.clone(), boolean(true)),
        Expr::IsFalse(of) => Expr::IsNotDistinctFrom(of.clone(), boolean(false)),
        Expr::IsNotFalse(of) => Expr::IsDistinctFrom(of.clone(), boolean(false)),
        Expr::IsUnknown(of) => Expr::IsNull(of.clone()),
        Expr::IsNotUnknown(of) => Expr::IsNotNull(of.clone()),
        _ => return,
    };
    *expression = rewritten;
}

fn boolean(value: bool) -> Box<Expr> {
    Box::new(Expr::Value(Value::Boolean(value).into()))
}

/// The operand as a double. A power is one already, so that chains of powers do not become deeper.
fn double(operand: &Expr) -> Expr {
    let is_power = |function: &str| function.eq_ignore_ascii_case(POWER);
    if matches!(operand, Expr::Function(function) if is_power(&function.name.to_string())) {
        return operand.clone();
    }
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(operand.clone()),
        data_type: DataType::Double(ExactNumberInfo::None),
        array: false,
        format: None,
    }
}

#[cfg(test)]
mod tests {
    use crate::rewrite::tests::rewritten;

    #[test]
    fn a_caret_is_a_power_of_doubles() {
        for (operation, expected) in [
            ("a ^ 2", "power(CAST(a AS DOUBLE), CAST(2 AS DOUBLE))"),
            ("(a + 1) ^ b", "power(CAST((a + 1) AS DOUBLE), CAST(b AS DOUBLE))"),
            ("power(a, 2) ^ b", "power(power(a, 2), CAST(b AS DOUBLE))"),
        ] {
            let sql = format!("SELECT x FROM t WHERE y < {operation}");
            assert_eq!(rewritten(&sql).unwrap(), format!("SELECT x FROM t WHERE y < {expected}"));
        }
        let named = rewritten("SELECT a ^ b FROM t").unwrap();
        assert!(named.contains("AS \"a ^ b\u{1}0\""), "{named}");
    }

    #[test]
    fn tests_of_truth_are_comparisons() {
        for (test, expected) in [
            ("a IS TRUE", "a IS NOT DISTINCT FROM true"),
            ("a IS NOT TRUE", "a IS DISTINCT FROM true"),
            ("a IS FALSE", "a IS NOT DISTINCT FROM false"),
            ("(a > 1) IS NOT FALSE", "(a > 1) IS DISTINCT FROM false"),
            ("a IS UNKNOWN", "a IS NULL"),
            ("a IS NOT UNKNOWN", "a IS NOT NULL"),
        ] {
            let sql = format!("SELECT x FROM t WHERE {test}");
            assert_eq!(rewritten(&sql).unwrap(), format!("SELECT x FROM t WHERE {expected}"));
        }
    }
}
