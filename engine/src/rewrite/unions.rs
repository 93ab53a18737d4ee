//! Rewrites a chain of UNIONs so that duplicates are removed only once.
//!
//! `a UNION b UNION c` becomes `a UNION ALL b UNION c`. DataFusion 55.2 would group the rows at
//! each UNION of the chain.

use datafusion::sql::sqlparser::ast::{SetExpr, SetOperator, SetQuantifier};

/// Makes a UNION a UNION ALL if its rows are compared afterwards anyway.
pub(super) fn rewrite(body: &mut SetExpr) {
    leave_out(body, false);
}

/// The same for a part of the chain. Long chains are balanced trees by now, and others are short.
fn leave_out(part: &mut SetExpr, is_compared: bool) {
    let SetExpr::SetOperation { op: SetOperator::Union, set_quantifier, left, right } = part else { return };
    let is_distinct = match set_quantifier {
        SetQuantifier::None | SetQuantifier::Distinct => true,
        SetQuantifier::All => false,
        _ => return,
    };
    if is_distinct && is_compared {
        *set_quantifier = SetQuantifier::All;
    }
    leave_out(left, is_compared || is_distinct);
    leave_out(right, is_compared || is_distinct);
}

#[cfg(test)]
mod tests {
    use crate::rewrite::tests::rewritten;

    #[test]
    fn rows_of_a_chain_are_compared_once() {
        for (sql, expected) in [
            ("SELECT a UNION SELECT b UNION SELECT c", "SELECT a UNION ALL SELECT b UNION SELECT c"),
            ("SELECT a UNION SELECT b UNION ALL SELECT c", "SELECT a UNION SELECT b UNION ALL SELECT c"),
            (
                "SELECT a EXCEPT SELECT b UNION SELECT c UNION DISTINCT SELECT d",
                "SELECT a EXCEPT SELECT b UNION ALL SELECT c UNION DISTINCT SELECT d",
            ),
        ] {
            assert_eq!(rewritten(sql).unwrap(), expected);
        }
        let long = rewritten(&format!("SELECT 1{}", " UNION SELECT 2".repeat(99))).unwrap();
        assert_eq!((long.matches("UNION").count(), long.matches("UNION ALL").count()), (99, 98));
    }
}
