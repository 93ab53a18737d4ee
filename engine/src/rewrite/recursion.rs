//! Prepares the column types of WITH RECURSIVE, and marks the casts that the text itself contains.
//!
//! The first rows decide the types: a function widens them for later rows
//! (`functions::first_rows`). DataFusion casts the columns of a later step to these types, and
//! nothing distinguishes such a cast from one in the text. So a cast in the text becomes the
//! argument of a function here, and `rules::recursion` refuses only DataFusion's casts.

use datafusion::sql::sqlparser::ast::{Expr, Query, SelectItem, SetExpr};

use super::syntax::{call, text};
use crate::functions::{FIRST_ROWS, NAMED_CAST};

/// Marks the first rows, and the casts of all steps of the query.
pub(super) fn rewrite(query: &mut Query) {
    let with = query.with.as_mut().filter(|with| with.recursive);
    for table in with.into_iter().flat_map(|with| &mut with.cte_tables) {
        if let SetExpr::SetOperation { left, right, .. } = table.query.body.as_mut() {
            widen(left, table.alias.columns.len());
            mark(right);
        }
    }
}

/// Widens the columns of the first rows; the first `named` columns have names from the WITH clause.
fn widen(first: &mut SetExpr, named: usize) {
    match first {
        SetExpr::Select(select) => {
            for (at, item) in select.projection.iter_mut().enumerate() {
                widen_item(item, at < named);
            }
        }
        // Several rows have a common type, which NULL takes, too.
        SetExpr::Values(values) if values.rows.len() == 1 => {
            values.rows.iter_mut().flat_map(|row| &mut row.content).for_each(widen_value);
        }
        SetExpr::Query(query) => widen(&mut query.body, named),
        _ => {}
    }
}

fn widen_item(item: &mut SelectItem, is_named: bool) {
    let name = match item {
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(name.clone()),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => parts.last().cloned(),
        _ => None,
    };
    match item {
        SelectItem::ExprWithAlias { expr, .. } => widen_value(expr),
        SelectItem::UnnamedExpr(expr) if is_named || name.is_some() => {
            widen_value(expr);
            if let Some(alias) = name {
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
            }
        }
        _ => {}
    }
}

fn widen_value(value: &mut Expr) {
    *value = call(FIRST_ROWS, vec![value.clone()]);
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
    fn first_rows_and_casts_of_steps_are_marked_and_no_others() {
        let sql = "WITH RECURSIVE t AS (SELECT 1::INT AS n UNION ALL SELECT (n + 0.5)::INT, n::TEXT || 'x' FROM t) \
                   SELECT max(n::TEXT) AS n FROM t";
        let expected = sql.replace("(n + 0.5)::INT", "named_cast((n + 0.5)::INT, '')");
        let expected = expected.replace("1::INT AS n", "first_rows(1::INT) AS n");
        assert_eq!(rewritten(sql).unwrap(), expected);
        let sql = "WITH RECURSIVE t (a) AS (SELECT 1, b, 2, t.c FROM t UNION ALL SELECT a, b, 2, c FROM t), \
                   u AS (VALUES (1, 'x') UNION SELECT * FROM u) SELECT * FROM t, u";
        let expected = sql
            .replace(
                "SELECT 1, b, 2, t.c",
                "SELECT first_rows(1), first_rows(b) AS b, 2, first_rows(t.c) AS c",
            )
            .replace("(1, 'x')", "(first_rows(1), first_rows('x'))");
        assert_eq!(rewritten(sql).unwrap(), expected);
        let plain = "WITH t AS (SELECT 1::INT AS n UNION ALL SELECT 2::INT) SELECT n FROM t";
        assert_eq!(rewritten(plain).unwrap(), plain);
    }
}
