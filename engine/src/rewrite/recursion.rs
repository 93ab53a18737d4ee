//! Which steps of WITH RECURSIVE have casts of their own?
//!
//! DataFusion casts the columns of a step to the types of the first rows, and nothing tells such a
//! cast from one of the statement. The latter becomes the argument of a function here, so that
//! `rules::recursion` refuses the former alone.

use datafusion::sql::sqlparser::ast::{Expr, Query, SelectItem, SetExpr};

use super::{call, text};
use crate::functions::NAMED_CAST;

/// Marks the casts of all steps of the query.
pub(super) fn rewrite(query: &mut Query) {
    let with = query.with.as_mut().filter(|with| with.recursive);
    for table in with.into_iter().flat_map(|with| &mut with.cte_tables) {
        if let SetExpr::SetOperation { right, .. } = table.query.body.as_mut() {
            mark(right);
        }
    }
}

fn mark(step: &mut SetExpr) {
    match step {
        SetExpr::Select(select) => select.projection.iter_mut().for_each(mark_item),
        SetExpr::SetOperation { left, right, .. } => {
            mark(left);
            mark(right);
        }
        SetExpr::Query(query) => mark(&mut query.body),
        _ => {}
    }
}

fn mark_item(item: &mut SelectItem) {
    if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
        && is_cast(expr)
    {
        *expr = call(NAMED_CAST, vec![expr.clone(), text(String::new())]);
    }
}

fn is_cast(expression: &Expr) -> bool {
    match expression {
        Expr::Nested(inner) => is_cast(inner),
        other => matches!(other, Expr::Cast { .. }),
    }
}

#[cfg(test)]
mod tests {
    use crate::rewrite::tests::rewritten;

    #[test]
    fn casts_of_steps_are_marked_and_no_others() {
        let sql = "WITH RECURSIVE t AS (SELECT 1::INT AS n UNION ALL SELECT (n + 0.5)::INT, n::TEXT || 'x' FROM t) \
                   SELECT max(n::TEXT) AS n FROM t";
        let expected = sql.replace("(n + 0.5)::INT", "named_cast((n + 0.5)::INT, '')");
        assert_eq!(rewritten(sql).unwrap(), expected);
        let plain = "WITH t AS (SELECT 1::INT AS n UNION ALL SELECT 2::INT) SELECT n FROM t";
        assert_eq!(rewritten(plain).unwrap(), plain);
    }
}
