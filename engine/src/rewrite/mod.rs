//! Changes a parsed statement before DataFusion plans it.
//!
//! DataFusion 55.2 silently ignores some clauses, and plans some expressions with another meaning
//! than SQL has. Such clauses are refused here, and such expressions are replaced by others that it
//! plans correctly. Decision 0054 lists them.
//!
//! Invariants
//! - A statement that is not refused has the same meaning as in PostgreSQL, or as in DuckDB if
//!   PostgreSQL does not support it.
//! - Columns of the result keep the names that they would have without the rewrite.

mod cast_names;
mod casts;
mod functions;
mod names;
mod numbers;
mod operators;
mod ordering;
mod own_expressions;
mod patterns;
mod precedence;
mod recursion;
mod refusal;
mod regexes;
mod row_sets;
mod rows;
mod series;
mod syntax;
mod templates;
mod times;
mod unions;
mod using;
mod values;
mod windows;

use crate::visitors::visit_mut;
use std::ops::ControlFlow;

use datafusion::sql::{
    parser::Statement,
    sqlparser::ast::{
        self, AccessExpr, Expr, GroupByExpr, Ident, JoinConstraint, JoinOperator, OrderBy, Query, Select,
        SelectFlavor, SelectItem, SetExpr, TableFactor, Value, VisitorMut, WildcardAdditionalOptions,
    },
};

use crate::error::EngineError;
pub(crate) use names::{shown, without_marks};
use refusal::{Flow, flow, refuse};
pub(crate) use using::{MARK, own_column};

/// Rewrites a statement.
///
/// # Errors
/// Parts that DataFusion would ignore, or plan wrong.
pub(crate) fn rewrite(statement: &mut Statement) -> Result<(), EngineError> {
    match statement {
        Statement::Statement(statement) => {
            let is_query = matches!(**statement, ast::Statement::Query(_));
            match visit_mut(statement.as_mut(), &mut Rewriter { is_query, ..Rewriter::default() }) {
                ControlFlow::Break(error) => Err(*error),
                ControlFlow::Continue(()) => Ok(()),
            }
        }
        Statement::Explain(explain) => rewrite(&mut explain.statement),
        _ => Ok(()),
    }
}

#[derive(Default)]
struct Rewriter {
    /// For each SELECT that is being rewritten: the texts of its columns without a name.
    columns: Vec<Vec<Option<String>>>,
    /// Whether the statement is a query.
    is_query: bool,
    /// How deep the query that is being rewritten is nested.
    depth: usize,
    /// How many subqueries rows were compared with.
    row_sets: usize,
}

impl VisitorMut for Rewriter {
    type Break = Box<EngineError>;

    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        unions::rewrite(&mut query.body);
        recursion::rewrite(query);
        let written = values::rewrite(&mut query.body)
            .and_then(|()| windows::rewrite(&mut query.body, query.order_by.as_mut()))
            .and_then(|()| merge_columns(&mut query.body, query.order_by.as_mut()));
        cast_names::rewrite(&mut query.body, query.order_by.as_mut());
        let is_outermost = self.is_query && self.depth == 0;
        ordering::rewrite(&mut query.body, query.order_by.as_mut(), is_outermost);
        if is_outermost {
            names::distinguish_beside_all(&mut query.body, query.order_by.as_ref());
        }
        self.depth += 1;
        flow(left_out_of_query(query).or_else(|| written.err()))
    }

    fn post_visit_query(&mut self, _: &mut Query) -> Flow {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        if matches!(select.flavor, SelectFlavor::FromFirstNoSelect) {
            select.projection = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
            select.flavor = SelectFlavor::Standard;
        }
        let text = |item: &SelectItem| match item {
            SelectItem::UnnamedExpr(Expr::Subquery(query)) => names::of_subquery(query),
            SelectItem::UnnamedExpr(expression) => Some(expression.to_string()),
            _ => None,
        };
        self.columns.push(select.projection.iter().map(text).collect());
        names::distinguish(&mut select.projection);
        if let GroupByExpr::Expressions(groups, _) = &mut select.group_by {
            for group in groups.iter_mut().filter(|group| **group == Expr::Tuple(Vec::new())) {
                *group = Expr::GroupingSets(vec![Vec::new()]);
            }
        }
        flow(windows::check_places(select).err())?;
        flow(joined_by_nothing(select))?;
        for condition in [&mut select.selection, &mut select.having].into_iter().flatten() {
            flow(row_sets::rewrite_condition(condition, &mut self.row_sets).err())?;
        }
        flow(left_out_of_select(select))
    }

    fn post_visit_select(&mut self, select: &mut Select) -> Flow {
        let columns = self.columns.pop().unwrap_or_default();
        let is_answer = self.is_query && self.depth == 1;
        for (at, (item, text)) in select.projection.iter_mut().zip(columns).enumerate() {
            let (SelectItem::UnnamedExpr(expression), Some(text)) = (&mut *item, text) else { continue };
            let alias = if is_answer && names::is_called_otherwise(expression) {
                names::of_text(&text, at)
            } else if expression.to_string() != text {
                Ident::with_quote('"', text)
            } else {
                continue;
            };
            *item = SelectItem::ExprWithAlias { expr: expression.clone(), alias };
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Flow {
        if let TableFactor::Derived { lateral: true, subquery, .. } = factor {
            names::keep_column_names(&mut subquery.body);
        }
        series::rewrite(factor);
        flow(left_out_of_table(factor))
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> Flow {
        precedence::rewrite(expression);
        rows::as_tuple(expression);
        flow(collated(expression).err())?;
        times::rewrite(expression);
        regexes::rewrite(expression);
        flow(numbers::rewrite(expression).err())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> Flow {
        match row_sets::rewrite(expression, &mut self.row_sets) {
            Ok(Some(written)) => *expression = written,
            Ok(None) => {}
            Err(refused) => return ControlFlow::Break(refused),
        }
        flow(functions::rewrite(expression).err())?;
        operators::rewrite(expression);
        let rewrites = [casts::rewrite, templates::rewrite, rows::rewrite, patterns::rewrite];
        flow(rewrites.iter().find_map(|rewrite| rewrite(expression).err()))
    }
}

/// Applies to each SELECT of a query, but not to queries nested in it.
fn merge_columns(body: &mut SetExpr, order_by: Option<&mut OrderBy>) -> Result<(), Box<EngineError>> {
    match body {
        SetExpr::Select(select) => using::rewrite(select, order_by),
        SetExpr::SetOperation { left, right, .. } => {
            merge_columns(left, None)?;
            merge_columns(right, None)
        }
        _ => Ok(()),
    }
}

/// Refuses clauses of a query that DataFusion ignores.
fn left_out_of_query(query: &Query) -> Option<Box<EngineError>> {
    let clauses = [
        (query.settings.is_some(), "SETTINGS"),
        (query.format_clause.is_some(), "FORMAT"),
        (query.for_clause.is_some(), "FOR XML, FOR JSON and FOR BROWSE"),
    ];
    if let Some(lock) = query.locks.first() {
        return Some(refuse(&lock.to_string(), "update the rows: no change of theirs is lost then"));
    }
    if query.fetch.is_some() {
        return Some(refuse("FETCH ... WITH TIES or PERCENT", "compare rank() in a query around it"));
    }
    left_out(&clauses)
}

fn left_out_of_select(select: &Select) -> Option<Box<EngineError>> {
    let (GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers)) = &select.group_by;
    if !modifiers.is_empty() {
        return Some(refuse(
            "GROUP BY ... WITH",
            "write GROUP BY ROLLUP (...), CUBE (...) or GROUPING SETS (...)",
        ));
    }
    let clauses = [
        (select.prewhere.is_some(), "PREWHERE"),
        (!select.connect_by.is_empty(), "CONNECT BY"),
        (select.exclude.is_some(), "EXCLUDE after the columns"),
        (select.value_table_mode.is_some(), "SELECT AS VALUE or STRUCT"),
        (select.select_modifiers.is_some(), "a modifier of MySQL after SELECT"),
        (!select.lateral_views.is_empty(), "LATERAL VIEW"),
        (!select.cluster_by.is_empty(), "CLUSTER BY"),
        (!select.distribute_by.is_empty(), "DISTRIBUTE BY"),
        (!select.sort_by.is_empty(), "SORT BY"),
        (select.into.is_some(), "SELECT ... INTO"),
    ];
    left_out(&clauses)
}

/// A join other than CROSS JOIN needs a condition: DataFusion makes a product without one.
fn joined_by_nothing(select: &Select) -> Option<Box<EngineError>> {
    let mut joins = select.from.iter().flat_map(|table| &table.joins);
    let join = joins.find(|join| {
        matches!(
            join.join_operator,
            JoinOperator::Join(JoinConstraint::None)
                | JoinOperator::Inner(JoinConstraint::None)
                | JoinOperator::Left(JoinConstraint::None)
                | JoinOperator::LeftOuter(JoinConstraint::None)
                | JoinOperator::Right(JoinConstraint::None)
                | JoinOperator::RightOuter(JoinConstraint::None)
                | JoinOperator::FullOuter(JoinConstraint::None)
        )
    })?;
    let what = format!("JOIN {} has no ON or USING, expected one: or write CROSS JOIN", join.relation);
    Some(Box::new(EngineError::Syntax(what)))
}

fn left_out_of_table(factor: &TableFactor) -> Option<Box<EngineError>> {
    let clauses = match factor {
        TableFactor::Table {
            sample,
            with_hints,
            partitions,
            index_hints,
            version,
            json_path,
            with_ordinality,
            ..
        } => [
            (sample.is_some(), "TABLESAMPLE"),
            (!with_hints.is_empty() || !index_hints.is_empty(), "a hint at a table"),
            (!partitions.is_empty(), "PARTITION at a table"),
            (version.is_some(), "a version at a table"),
            (json_path.is_some(), "a path at a table"),
            (*with_ordinality, "WITH ORDINALITY"),
        ]
        .to_vec(),
        TableFactor::Derived { sample, .. } => vec![(sample.is_some(), "TABLESAMPLE")],
        TableFactor::Function { with_ordinality, .. } | TableFactor::UNNEST { with_ordinality, .. } => {
            vec![(*with_ordinality, "WITH ORDINALITY")]
        }
        _ => Vec::new(),
    };
    left_out(&clauses)
}

fn left_out(clauses: &[(bool, &str)]) -> Option<Box<EngineError>> {
    let (_, clause) = clauses.iter().find(|(is_there, _)| *is_there)?;
    Some(refuse(clause, "leave it out"))
}

/// Texts are compared by their bytes, as in the collations "C" and "POSIX".
fn collated(expression: &mut Expr) -> Result<(), Box<EngineError>> {
    match expression {
        Expr::Collate { expr, collation } => {
            let name = collation.0.last().and_then(|part| part.as_ident()).map(|name| name.value.as_str());
            if !matches!(name, Some("C" | "POSIX" | "default")) {
                return Err(refuse(
                    &format!("COLLATE {collation}"),
                    "texts are compared as COLLATE \"C\" does",
                ));
            }
            *expression = std::mem::replace(expr, Expr::Value(Value::Null.into()));
            collated(expression)
        }
        Expr::CompoundFieldAccess { access_chain, .. }
            if access_chain.iter().any(|access| matches!(access, AccessExpr::Subscript(_))) =>
        {
            Err(refuse("a subscript, [...]", "unnest() in FROM has the elements of an array"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::parser::DFParser;

    /// What becomes of a statement, as text.
    pub(super) fn rewritten(sql: &str) -> Result<String, String> {
        let mut statement = DFParser::parse_sql(sql).unwrap().pop_front().unwrap();
        rewrite(&mut statement).map(|()| statement.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn clauses_that_would_be_left_out_are_refused() {
        for (sql, clause) in [
            ("SELECT g, count(*) FROM t GROUP BY g WITH ROLLUP", "WITH"),
            ("SELECT * FROM t TABLESAMPLE BERNOULLI (10)", "TABLESAMPLE"),
            ("SELECT * FROM (SELECT 1) AS t TABLESAMPLE (10 ROWS)", "TABLESAMPLE"),
            ("SELECT 1 WHERE EXISTS (SELECT * FROM t TABLESAMPLE SYSTEM (10))", "TABLESAMPLE"),
            ("SELECT * INTO u FROM t", "INTO"),
            ("SELECT * FROM t SORT BY x", "SORT BY"),
        ] {
            let refused = rewritten(sql).unwrap_err();
            assert!(refused.contains(clause) && refused.contains("is not supported"), "{sql}: {refused}");
        }
    }

    #[test]
    fn from_without_select_selects_everything() {
        assert_eq!(rewritten("FROM t").unwrap(), "SELECT * FROM t");
        assert_eq!(rewritten("SELECT 1 IN (FROM t) AS x").unwrap(), "SELECT 1 IN (SELECT * FROM t) AS x");
    }

    #[test]
    fn what_needs_no_other_words_stays_as_it_is() {
        for sql in ["SELECT a + b AS d, b AS c FROM t WHERE x LIKE 'a%'", "INSERT INTO t VALUES (1, 'a')"] {
            assert_eq!(rewritten(sql).unwrap(), sql);
        }
    }
}
