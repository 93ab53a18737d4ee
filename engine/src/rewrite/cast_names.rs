//! Gives distinct names to groups and aggregates that differ only by a cast.
//!
//! DataFusion 55.2 leaves casts out of names. So `GROUP BY v, v::TEXT` and
//! `SELECT avg(v), avg(v::NUMERIC)` have two columns of one name, and it refuses them. In a SELECT
//! with such expressions, each cast is wrapped in a function call, which is part of the name.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
};

use datafusion::sql::sqlparser::ast::{Expr, GroupByExpr, Ident, OrderBy, Select, SelectItem, SetExpr};

use super::{
    names::name_in_plan,
    own_expressions,
    syntax::{call, normal, text},
};
use crate::functions::NAMED_CAST;

/// Makes casts part of the names in a SELECT whose groups, aggregates or windows would otherwise
/// have equal names.
pub(super) fn rewrite(body: &mut SetExpr, order_by: Option<&mut OrderBy>) {
    match body {
        SetExpr::Select(select) => of_select(select, order_by),
        SetExpr::SetOperation { left, right, .. } => {
            rewrite(left, None);
            rewrite(right, None);
        }
        _ => {}
    }
}

fn of_select(select: &mut Select, order_by: Option<&mut OrderBy>) {
    let mut names = Names::default();
    if let GroupByExpr::Expressions(groups, _) = &select.group_by {
        groups.iter().for_each(|group| names.note_group(group, &select.projection));
    }
    let mut note_call = |expression: &Expr| {
        if matches!(expression, Expr::Function(_)) {
            names.note(expression);
        }
        ControlFlow::Continue(())
    };
    let _ = own_expressions::visit(select, &mut note_call);
    let _ = order_by.as_ref().map(|order_by| own_expressions::visit(*order_by, &mut note_call));
    if names.written.values().all(|written| written.len() < 2) {
        return;
    }
    let columns = select.projection.clone();
    own_expressions::visit_mut(select, name_cast);
    for (item, column) in select.projection.iter_mut().zip(columns) {
        if let SelectItem::UnnamedExpr(expr) = &mut *item
            && column != SelectItem::UnnamedExpr(expr.clone())
        {
            let alias = Ident::with_quote('"', column.to_string());
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
    if let Some(order_by) = order_by {
        own_expressions::visit_mut(order_by, name_cast);
    }
}

/// For each name in a plan: the texts of the groups and function calls that have it.
#[derive(Default)]
struct Names {
    written: BTreeMap<String, BTreeSet<String>>,
}

impl Names {
    fn note(&mut self, expression: &Expr) {
        let written = expression.to_string().to_ascii_lowercase();
        self.written.entry(name_in_plan(expression)).or_default().insert(written);
    }

    fn note_group(&mut self, group: &Expr, columns: &[SelectItem]) {
        match group {
            Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets) => {
                sets.iter().flatten().for_each(|group| self.note_group(group, columns));
            }
            Expr::Tuple(groups) => groups.iter().for_each(|group| self.note_group(group, columns)),
            _ => self.note(column_of(group, columns).unwrap_or(group)),
        }
    }
}

/// The output column that a group refers to, by its position or its name.
fn column_of<'a>(group: &Expr, columns: &'a [SelectItem]) -> Option<&'a Expr> {
    let position = match group {
        Expr::Value(value) => value.to_string().parse::<usize>().ok()?.checked_sub(1)?,
        Expr::Identifier(name) => columns.iter().position(
            |item| matches!(item, SelectItem::ExprWithAlias { alias, .. } if normal(alias) == normal(name)),
        )?,
        _ => return None,
    };
    match columns.get(position)? {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

/// Wraps a cast in a call of the function.
fn name_cast(expression: &mut Expr) {
    if let Expr::Cast { data_type, .. } = expression {
        let name = text(data_type.to_string().to_ascii_lowercase());
        *expression = call(NAMED_CAST, vec![expression.clone(), name]);
    }
}

#[cfg(test)]
mod tests {
    use crate::rewrite::tests::rewritten;

    #[test]
    fn casts_have_names_where_groups_and_aggregates_have_one_name_without() {
        for (sql, expected) in [
            (
                "SELECT v::TEXT FROM t GROUP BY v, v::TEXT",
                "SELECT named_cast(v::TEXT, 'text') AS \"v::TEXT\" FROM t GROUP BY v, named_cast(v::TEXT, 'text')",
            ),
            (
                "SELECT v::TEXT AS a, v::INT AS b FROM t GROUP BY 1, b",
                "SELECT named_cast(v::TEXT, 'text') AS a, named_cast(v::INT, 'int') AS b FROM t GROUP BY 1, b",
            ),
            (
                "SELECT avg(v) AS a, avg(CAST(v AS INT)) AS b FROM t",
                "SELECT avg(v) AS a, avg(named_cast(CAST(v AS INT), 'int')) AS b FROM t",
            ),
            (
                "SELECT 1 AS x FROM t GROUP BY g HAVING max(v) > 1 ORDER BY max(v::INT)",
                "SELECT 1 AS x FROM t GROUP BY g HAVING max(v) > 1 ORDER BY max(named_cast(v::INT, 'int'))",
            ),
        ] {
            assert_eq!(rewritten(sql).unwrap(), expected);
        }
        for sql in [
            "SELECT v::TEXT AS x FROM t GROUP BY v::TEXT",
            "SELECT sum(v::INT) AS a, avg(v::INT) AS b, v::TEXT AS c FROM t",
            "SELECT max(v) AS a, (SELECT max(v::INT) FROM t) AS b FROM t",
        ] {
            assert_eq!(rewritten(sql).unwrap(), sql);
        }
    }
}
