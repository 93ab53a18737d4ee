//! Rewrites ORDER BY of an expression.
//!
//! A name alone refers to an output column; names within an expression refer to input columns.
//! DataFusion resolves both as output columns, and refuses expressions beside DISTINCT even where
//! they are output columns.

use crate::visitors::visit_mut;
use std::{collections::BTreeSet, ops::ControlFlow};

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, Ident, ObjectNamePart, OrderBy, OrderByKind, Select, SelectItem, SetExpr, TableFactor,
    Value, ValueWithSpan, VisitorMut,
};

use super::{
    names::marked,
    own_expressions,
    syntax::{bare, normal, number},
};

/// Rewrites ORDER BY keys that DataFusion would take for another column. In the outermost query, an
/// output column with the name of an input column gets a mark: DataFusion cannot have both.
pub(super) fn rewrite(body: &mut SetExpr, order_by: Option<&mut OrderBy>, is_outermost: bool) {
    let SetExpr::Select(select) = body else { return };
    let Some(OrderBy { kind: OrderByKind::Expressions(keys), .. }) = order_by else { return };
    let mut keys: Vec<&mut Expr> = keys.iter_mut().map(|key| &mut key.expr).collect();
    for key in &mut keys {
        if !is_name_of_output(key, select)
            && let Some(position) = position_of(key, select)
        {
            **key = number(&position.to_string());
        }
    }
    if !is_outermost {
        name_positions(select, &keys);
    }
    let Some(table) = only_table(select) else { return };
    let (aliases, mut found) = (aliases(select), BTreeSet::new());
    // Qualifies names that output columns have, too, with their table.
    let mut qualify = |expression: &mut Expr| {
        if let Expr::Identifier(name) = &*expression
            && aliases.contains(&normal(name))
        {
            let qualified = table.iter().chain([name]).cloned().collect();
            found.insert(normal(name));
            *expression = Expr::CompoundIdentifier(qualified);
        }
    };
    for key in &mut keys {
        if !matches!(bare(key), Expr::Identifier(_)) {
            own_expressions::visit_mut(*key, &mut qualify);
        }
    }
    if is_outermost {
        mark(select, &mut keys, &found);
    }
}

/// Gives columns that are ordered by position their text as an alias: DataFusion sorts the result
/// of a grouping by names.
fn name_positions(select: &mut Select, keys: &[&mut Expr]) {
    for key in keys {
        let Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) = bare(key) else { continue };
        let Some(at) = digits.parse::<usize>().ok().and_then(|position| position.checked_sub(1)) else {
            continue;
        };
        let Some(item) = select.projection.get_mut(at) else { continue };
        if let SelectItem::UnnamedExpr(expr) = item
            && !matches!(bare(expr), Expr::Identifier(_) | Expr::CompoundIdentifier(_))
        {
            let alias = Ident::with_quote('"', expr.to_string());
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
}

/// Marks the columns of these names, and orders by their positions.
fn mark(select: &mut Select, keys: &mut [&mut Expr], names: &BTreeSet<String>) {
    for (at, item) in select.projection.iter_mut().enumerate() {
        let SelectItem::ExprWithAlias { alias, .. } = item else { continue };
        let name = normal(alias);
        if !names.contains(&name) {
            continue;
        }
        for key in keys.iter_mut() {
            if matches!(bare(key), Expr::Identifier(found) if normal(found) == name) {
                **key = number(&(at + 1).to_string());
            }
        }
        *alias = marked(&name, &format!("o{at}"));
    }
}

/// Whether it is the name of an output column.
fn is_name_of_output(key: &Expr, select: &Select) -> bool {
    let Expr::Identifier(name) = bare(key) else { return false };
    select.projection.iter().any(|item| match item {
        SelectItem::ExprWithAlias { alias, .. } => normal(alias) == normal(name),
        SelectItem::UnnamedExpr(Expr::Identifier(column)) => normal(column) == normal(name),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
            parts.last().is_some_and(|column| normal(column) == normal(name))
        }
        // `*` may contain it.
        SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => true,
        _ => false,
    })
}

/// The position of the column of a SELECT DISTINCT that has this expression, if it is known.
fn position_of(key: &Expr, select: &Select) -> Option<usize> {
    if !matches!(select.distinct, Some(Distinct::Distinct)) || matches!(bare(key), Expr::Value(_)) {
        return None;
    }
    for (at, item) in select.projection.iter().enumerate() {
        match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                if written_alike(expr) == written_alike(key) {
                    return Some(at + 1);
                }
            }
            _ => return None,
        }
    }
    None
}

/// The expression with all names in the form in which they are looked up.
fn written_alike(expression: &Expr) -> Expr {
    let mut alike = bare(expression).clone();
    let _ = visit_mut(&mut alike, &mut Lowercase);
    alike
}

struct Lowercase;

impl VisitorMut for Lowercase {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        let lower = |name: &mut Ident| name.value = normal(name);
        match expression {
            Expr::Identifier(name) => lower(name),
            Expr::CompoundIdentifier(parts) => parts.iter_mut().for_each(lower),
            Expr::Function(function) => {
                for part in &mut function.name.0 {
                    if let ObjectNamePart::Identifier(part) = part {
                        lower(part);
                    }
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// The name of the table of a SELECT from a single table.
fn only_table(select: &Select) -> Option<Vec<Ident>> {
    let [from] = select.from.as_slice() else { return None };
    let TableFactor::Table { name, alias, args: None, .. } = &from.relation else { return None };
    if !from.joins.is_empty() {
        return None;
    }
    if let Some(alias) = alias {
        return Some(vec![alias.name.clone()]);
    }
    let part = |part: &ObjectNamePart| match part {
        ObjectNamePart::Identifier(part) => Some(part.clone()),
        ObjectNamePart::Function(_) => None,
    };
    name.0.iter().map(part).collect()
}

/// The aliases of columns that differ from the name of the column itself.
fn aliases(select: &Select) -> Vec<String> {
    let alias = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { expr, alias } => {
            let column = match bare(expr) {
                Expr::Identifier(column) => Some(column),
                Expr::CompoundIdentifier(parts) => parts.last(),
                _ => None,
            };
            (column.map(normal) != Some(normal(alias))).then(|| normal(alias))
        }
        _ => None,
    };
    select.projection.iter().filter_map(alias).collect()
}

#[cfg(test)]
mod tests {
    use crate::rewrite::tests::rewritten;

    #[test]
    fn names_within_expressions_are_columns_of_the_table() {
        for (sql, expected) in [
            ("SELECT -v AS v FROM t ORDER BY -v", "SELECT -v AS v FROM t ORDER BY -t.v"),
            ("SELECT -v AS V FROM t AS s ORDER BY -v", "SELECT -v AS V FROM t AS s ORDER BY -s.v"),
            ("SELECT x AS v FROM a.b ORDER BY v + x", "SELECT x AS v FROM a.b ORDER BY a.b.v + x"),
        ] {
            let within = |query: &str| format!("SELECT * FROM ({query}) AS u");
            assert_eq!(rewritten(&within(sql)).unwrap(), within(expected));
        }
        assert_eq!(
            rewritten("SELECT g, -v AS V FROM t ORDER BY -v, v").unwrap(),
            "SELECT g, -v AS \"v\u{1}o1\" FROM t ORDER BY -t.v, 2"
        );
        for sql in [
            "SELECT -v AS v FROM sales ORDER BY v",
            "SELECT -v AS v FROM sales ORDER BY (v)",
            "SELECT sales.v AS v FROM sales ORDER BY -v",
            "SELECT -v AS v FROM a CROSS JOIN b ORDER BY -v",
            "SELECT -v AS v FROM sales ORDER BY (SELECT v FROM u)",
        ] {
            assert_eq!(rewritten(sql).unwrap(), sql);
        }
    }

    #[test]
    fn expressions_of_a_distinct_select_are_positions() {
        for (order, expected) in [
            ("a + 1", "ORDER BY 1"),
            ("(A + 1)", "ORDER BY 1"),
            ("b DESC", "ORDER BY 2 DESC"),
            ("c", "ORDER BY c"),
            ("a + 2", "ORDER BY a + 2"),
        ] {
            let sql = format!("SELECT DISTINCT (a + 1) AS x, b AS c FROM t ORDER BY {order}");
            let expected = format!("SELECT DISTINCT (a + 1) AS x, b AS c FROM t {expected}");
            assert_eq!(rewritten(&sql).unwrap(), expected);
        }
        let sql = "SELECT DISTINCT *, a + b AS c FROM t ORDER BY a + b";
        assert_eq!(rewritten(sql).unwrap(), sql);
    }
}
