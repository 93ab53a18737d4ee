//! How many times are the rows of a chain of UNIONs compared?
//!
//! Once: `a UNION b UNION c` is `a UNION ALL b UNION c`. DataFusion 55.2 would group the rows at
//! each link of the chain.

use datafusion::sql::sqlparser::ast::{SetExpr, SetOperator, SetQuantifier};

/// Leaves out every comparison of rows that are compared afterwards.
pub(super) fn rewrite(body: &mut SetExpr) {
    let mut is_compared = false;
    let mut link = body;
    while let SetExpr::SetOperation { op, set_quantifier, left, .. } = link {
        if *op != SetOperator::Union {
            return;
        }
        match set_quantifier {
            SetQuantifier::None | SetQuantifier::Distinct if is_compared => {
                *set_quantifier = SetQuantifier::All
            }
            SetQuantifier::None | SetQuantifier::Distinct => is_compared = true,
            SetQuantifier::All => {}
            _ => return,
        }
        link = left;
    }
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
    }
}
