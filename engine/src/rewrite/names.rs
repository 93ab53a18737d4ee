//! Makes equal names of result columns distinct.
//!
//! DataFusion 55.2 refuses `SELECT 1, 1`. All but the first of such columns get a unique name,
//! which contains a mark (a character that no statement contains). [`shown`] removes the mark from
//! answers.

use crate::visitors::{visit, visit_mut};
use std::{
    collections::{BTreeSet, HashMap},
    ops::ControlFlow,
};

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, OrderBy, Query, SelectItem, SetExpr, Visitor, VisitorMut,
};

use super::syntax::normal;

/// A character that no statement has.
const MARK: char = '\u{1}';

/// The maximum characters of a name that a column gets from its expression; as in PostgreSQL.
const NAME_CHARACTERS_MAX: usize = 63;

/// How the text of a subquery begins.
const SUBQUERY: &str = "(select ";

/// A unique name that is shown as `name`.
pub(super) fn marked(name: &str, number: &str) -> Ident {
    Ident::with_quote('"', format!("{name}{MARK}{number}"))
}

/// The name of the column at this position that is named after its text.
pub(super) fn of_text(text: &str, at: usize) -> Ident {
    let name: String = text.chars().take(NAME_CHARACTERS_MAX).collect();
    marked(&name, &at.to_string())
}

/// Whether DataFusion names it differently from its text: `Int64(1)`, `max(t.v)`.
pub(super) fn is_called_otherwise(expression: &Expr) -> bool {
    !matches!(expression, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
}

/// The name of a scalar subquery: the text of its column, unless that has a name.
pub(super) fn of_subquery(query: &Query) -> Option<String> {
    match first_column(&query.body)? {
        SelectItem::UnnamedExpr(Expr::Subquery(query)) => of_subquery(query),
        SelectItem::UnnamedExpr(expression) if is_called_otherwise(expression) => {
            Some(expression.to_string())
        }
        _ => None,
    }
}

/// A name without its mark.
pub(crate) fn shown(name: &str) -> &str {
    name.split_once(MARK).map_or(name, |(shown, _)| shown)
}

/// A text with names in it, without their marks.
pub(crate) fn without_marks(text: &str) -> String {
    let mut parts = text.split(MARK);
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // The mark is followed by a number, which may have a letter before it.
        let part = part.strip_prefix(['a', 'o']).unwrap_or(part);
        shown += part.trim_start_matches(|digit: char| digit.is_ascii_digit());
    }
    shown
}

/// Keeps the names of columns: DataFusion calls an outer one `outer_ref(t.x)`.
pub(super) fn keep_column_names(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) => {
            for item in &mut select.projection {
                let SelectItem::UnnamedExpr(expr) = &*item else { continue };
                let name = match expr {
                    Expr::Identifier(name) => Some(name),
                    Expr::CompoundIdentifier(parts) => parts.last(),
                    _ => None,
                };
                if let Some(alias) = name.cloned() {
                    *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                }
            }
        }
        SetExpr::SetOperation { left, .. } => keep_column_names(left),
        SetExpr::Query(query) => keep_column_names(&mut query.body),
        _ => {}
    }
}

/// Gives columns of an answer, beside all columns of a table (`*`), names that the table does not
/// have. Columns that the query orders or groups by keep theirs.
pub(super) fn distinguish_beside_all(body: &mut SetExpr, order_by: Option<&OrderBy>) {
    let SetExpr::Select(select) = body else { return };
    let is_all =
        |item: &SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
    if !select.projection.iter().any(is_all) || select.distinct.is_some() {
        return;
    }
    let mut used = Identifiers::default();
    let _ = visit(&select.group_by, &mut used);
    let conditions = [&select.having, &select.qualify];
    conditions.into_iter().flatten().for_each(|condition| _ = visit(condition, &mut used));
    let _ = order_by.map(|order_by| visit(order_by, &mut used));
    for (at, item) in select.projection.iter_mut().enumerate() {
        let (SelectItem::ExprWithAlias { expr, .. } | SelectItem::UnnamedExpr(expr)) = &*item else {
            continue;
        };
        let is_column =
            matches!(item, SelectItem::UnnamedExpr(Expr::Identifier(_) | Expr::CompoundIdentifier(_)));
        let is_named = matches!(item, SelectItem::ExprWithAlias { .. }) || matches!(expr, Expr::Subquery(_));
        let Some((_, name)) = name_of(item) else { continue };
        if is_column || is_named && !used.names.contains(&name) {
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: marked(&name, &format!("a{at}")) };
        }
    }
}

/// The names that expressions use.
#[derive(Default)]
struct Identifiers {
    names: BTreeSet<String>,
}

impl Visitor for Identifiers {
    type Break = ();

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        if let Expr::Identifier(name) = expression {
            self.names.insert(normal(name));
        }
        ControlFlow::Continue(())
    }
}

/// Gives columns distinct names. Columns of different tables are already distinct.
pub(super) fn distinguish(columns: &mut [SelectItem]) {
    let mut seen: HashMap<String, BTreeSet<Option<String>>> = HashMap::new();
    for (at, item) in columns.iter_mut().enumerate() {
        let Some((table, name)) = name_of(item) else { continue };
        // DataFusion gives all subqueries within expressions the same name.
        let has_query = matches!(item, SelectItem::UnnamedExpr(_)) && name.contains(SUBQUERY);
        let key = if has_query { SUBQUERY.to_owned() } else { name.clone() };
        let tables = seen.entry(key).or_default();
        let is_aliased = matches!(item, SelectItem::ExprWithAlias { .. });
        let is_alone = match &table {
            None => tables.is_empty(),
            Some(_) => !tables.contains(&None) && !tables.contains(&table),
        };
        tables.insert(table);
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
            && !is_alone
        {
            let text = match &*expr {
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Subquery(_) => name,
                _ if is_aliased => name,
                unnamed => unnamed.to_string(),
            };
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: of_text(&text, at) };
        }
    }
}

/// The table and the name of an output column.
fn name_of(item: &SelectItem) -> Option<(Option<String>, String)> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some((None, normal(alias))),
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some((None, normal(name))),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
            let (name, tables) = parts.split_last()?;
            let tables: Vec<String> = tables.iter().map(normal).collect();
            Some((Some(tables.join(".")), normal(name)))
        }
        SelectItem::UnnamedExpr(Expr::Subquery(query)) => {
            let first = first_column(&query.body).and_then(name_of);
            Some((None, first.map_or_else(|| SUBQUERY.to_owned(), |(_, name)| name)))
        }
        SelectItem::UnnamedExpr(expression) => Some((None, name_in_plan(expression))),
        _ => None,
    }
}

/// The first column of a query, which gives a subquery in a select list its name.
fn first_column(body: &SetExpr) -> Option<&SelectItem> {
    match body {
        SetExpr::Select(select) => select.projection.first(),
        SetExpr::SetOperation { left, .. } => first_column(left),
        SetExpr::Query(query) => first_column(&query.body),
        _ => None,
    }
}

/// About the name that DataFusion gives an expression: without case, parentheses and casts.
pub(super) fn name_in_plan(expression: &Expr) -> String {
    let mut expression = expression.clone();
    let _ = visit_mut(&mut expression, &mut Simplifier);
    match &expression {
        Expr::Identifier(name) => normal(name),
        Expr::CompoundIdentifier(parts) => parts.last().map(normal).unwrap_or_default(),
        other => other.to_string().to_ascii_lowercase(),
    }
}

/// Removes parentheses and casts.
struct Simplifier;

impl VisitorMut for Simplifier {
    type Break = ();

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        match expression {
            Expr::Nested(expr) | Expr::Cast { expr, .. } => *expression = expr.as_ref().clone(),
            Expr::TypedString(constant) => *expression = Expr::Value(constant.value.clone()),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::shown;
    use super::{marked, without_marks};
    use crate::rewrite::tests::rewritten;

    #[test]
    fn marks_are_in_no_text_that_people_read() {
        let text = format!("a@0 as {}, {}@1", marked("sum(x)", "12").value, marked("o", "o3").value);
        assert_eq!(without_marks(&text), "a@0 as sum(x), o@1");
        assert_eq!(without_marks("o1"), "o1");
    }

    #[test]
    fn columns_of_the_same_name_are_told_apart_and_shown_alike() {
        assert_eq!(rewritten("SELECT 1, 1").unwrap(), "SELECT 1 AS \"1\u{1}0\", 1 AS \"1\u{1}1\"");
        assert_eq!(rewritten("SELECT a AS x, b AS x").unwrap(), "SELECT a AS x, b AS \"x\u{1}1\"");
        let sql = "SELECT a.x, b.x, y FROM a JOIN b ON a.y = b.y";
        assert_eq!(rewritten(sql).unwrap(), sql);
        let subqueries = rewritten("SELECT 1 IN (SELECT 2), 3 IN (SELECT 4)").unwrap();
        assert!(subqueries.ends_with("3 IN (SELECT 4) AS \"3 IN (SELECT 4)\u{1}1\""), "{subqueries}");
        let named = rewritten("SELECT a, (SELECT a FROM u), (SELECT a FROM v) FROM t").unwrap();
        assert_eq!(
            named,
            "SELECT a, (SELECT a FROM u) AS \"a\u{1}1\", (SELECT a FROM v) AS \"a\u{1}2\" FROM t"
        );
        assert_eq!([shown("1\u{1}1"), shown("x")], ["1", "x"]);
    }

    #[test]
    fn columns_beside_all_of_a_table_are_told_apart_from_its_columns() {
        for (sql, expected) in [
            ("SELECT *, a FROM t", "SELECT *, a AS \"a\u{1}a1\" FROM t"),
            ("SELECT t.*, b AS a FROM t ORDER BY c", "SELECT t.*, b AS \"a\u{1}a1\" FROM t ORDER BY c"),
        ] {
            assert_eq!(rewritten(sql).unwrap(), expected);
        }
        for sql in ["SELECT *, b AS a FROM t ORDER BY a", "SELECT a FROM (SELECT *, b AS a FROM t) AS u"] {
            assert_eq!(rewritten(sql).unwrap(), sql);
        }
    }

    #[test]
    fn columns_of_an_answer_are_called_what_they_were_written_as() {
        assert_eq!(rewritten("SELECT 1").unwrap(), "SELECT 1 AS \"1\u{1}0\"");
        let long = format!("SELECT '{}'", "x".repeat(80));
        assert!(rewritten(&long).unwrap().ends_with(&format!("AS \"'{}\u{1}0\"", "x".repeat(62))));
        assert_eq!(
            rewritten("SELECT max(t.v) FROM t").unwrap(),
            "SELECT max(t.v) AS \"max(t.v)\u{1}0\" FROM t"
        );
        for sql in ["SELECT a, t.b FROM t", "SELECT (SELECT v FROM t)", "INSERT INTO t SELECT 1"] {
            assert_eq!(rewritten(sql).unwrap(), sql);
        }
    }

    #[test]
    fn columns_that_differ_by_parentheses_and_casts_are_told_apart() {
        for (columns, second) in [
            ("a + b * c, (a + b) * c", "(a + b) * c"),
            ("v::INT, v::BIGINT", "v::BIGINT"),
            ("v, CAST(v AS INT)", "CAST(v AS INT)"),
            ("t.v, CAST(v AS INT)", "CAST(v AS INT)"),
        ] {
            let within = |columns: &str| format!("SELECT * FROM (SELECT {columns} FROM t) AS u");
            let expected = within(&format!("{columns} AS \"{second}\u{1}1\""));
            assert_eq!(rewritten(&within(columns)).unwrap(), expected);
        }
        let sql = "SELECT * FROM (SELECT a + b, a - b, CAST(v AS INT) FROM t) AS u";
        assert_eq!(rewritten(sql).unwrap(), sql);
    }
}
