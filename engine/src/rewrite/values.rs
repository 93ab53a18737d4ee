//! Rewrites VALUES with subqueries to `SELECT ... UNION ALL SELECT ...`, because DataFusion fails
//! with an internal error for them.

use crate::visitors::visit;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, Query, Select, SelectFlavor, SelectItem, SetExpr, SetOperator, SetQuantifier,
    Visitor, helpers::attached_token::AttachedToken,
};

use super::refusal::refuse;
use crate::error::EngineError;

/// The maximum rows that are written as SELECT; each is one level deeper.
const ROWS_MAX: usize = 100;

/// Replaces the VALUES of a query by SELECTs if they have a subquery.
pub(super) fn rewrite(body: &mut SetExpr) -> Result<(), Box<EngineError>> {
    if let SetExpr::SetOperation { left, right, .. } = body {
        rewrite(left)?;
        return rewrite(right);
    }
    let SetExpr::Values(values) = &*body else { return Ok(()) };
    if visit(values, &mut Subqueries).is_continue() {
        return Ok(());
    }
    if values.rows.len() > ROWS_MAX {
        return Err(refuse(
            &format!("a subquery in VALUES of more than {ROWS_MAX} rows"),
            "write it in VALUES of fewer rows",
        ));
    }
    let selects = values.rows.iter().map(|row| SetExpr::Select(Box::new(select(row))));
    let union = selects.reduce(|left, right| SetExpr::SetOperation {
        op: SetOperator::Union,
        set_quantifier: SetQuantifier::All,
        left: Box::new(left),
        right: Box::new(right),
    });
    if let Some(union) = union {
        *body = union;
    }
    Ok(())
}

/// Finds out whether there is a query.
struct Subqueries;

impl Visitor for Subqueries {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}

/// A row as a SELECT, with the column names of VALUES.
fn select(row: &[Expr]) -> Select {
    let column = |(at, expr): (usize, &Expr)| SelectItem::ExprWithAlias {
        expr: expr.clone(),
        alias: Ident::new(format!("column{}", at + 1)),
    };
    Select {
        select_token: AttachedToken::empty(),
        optimizer_hints: Vec::new(),
        distinct: None,
        select_modifiers: None,
        top: None,
        top_before_distinct: false,
        projection: row.iter().enumerate().map(column).collect(),
        exclude: None,
        into: None,
        from: Vec::new(),
        lateral_views: Vec::new(),
        prewhere: None,
        selection: None,
        connect_by: Vec::new(),
        group_by: GroupByExpr::Expressions(Vec::new(), Vec::new()),
        cluster_by: Vec::new(),
        distribute_by: Vec::new(),
        sort_by: Vec::new(),
        having: None,
        named_window: Vec::new(),
        qualify: None,
        window_before_qualify: false,
        value_table_mode: None,
        flavor: SelectFlavor::Standard,
    }
}

#[cfg(test)]
mod tests {
    use crate::rewrite::tests::rewritten;

    #[test]
    fn values_with_a_subquery_are_selects() {
        assert_eq!(
            rewritten("VALUES ((SELECT 1), 2), (3, 4)").unwrap(),
            "SELECT (SELECT 1) AS column1, 2 AS column2 UNION ALL SELECT 3 AS column1, 4 AS column2"
        );
        assert_eq!(
            rewritten("SELECT * FROM (VALUES (EXISTS (SELECT 1))) AS t (a)").unwrap(),
            "SELECT * FROM (SELECT EXISTS (SELECT 1) AS column1) AS t (a)"
        );
        let sql = "VALUES (1, 2), (3, 4)";
        assert_eq!(rewritten(sql).unwrap(), sql);
        let many = format!("VALUES ((SELECT 1)) {}", ", (2)".repeat(100));
        assert!(rewritten(&many).unwrap_err().contains("fewer rows"));
    }
}
