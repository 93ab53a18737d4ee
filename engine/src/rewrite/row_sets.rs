//! Compares a row with the rows of a subquery.
//!
//! DataFusion compares only single columns. Here each row of the subquery is compared with EXISTS:
//!
//! ```text
//! (a, b) IN (q)    CASE WHEN EXISTS (q where a = c0 AND b = c1) THEN true
//!                       WHEN EXISTS (q where (a = c0 AND b = c1) IS NULL) THEN NULL ELSE false END
//! ```
//!
//! Where NULL and false have the same effect, the first EXISTS is enough.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, Ident, Query, SetExpr, TableAliasColumnDef, TableFactor, Value,
    helpers::attached_token::AttachedToken,
};
use datafusion::sql::sqlparser::{dialect::PostgreSqlDialect, parser::Parser};

use super::{refusal::refuse, rows::compared, syntax::bare};
use crate::{error::EngineError, limits::SUBQUERY_COPIES_MAX};

/// The prefix of the subqueries' table names.
const NAME: &str = "__row_set_";

type Rewritten = Result<Option<Expr>, Box<EngineError>>;

/// Rewrites comparisons of rows with subqueries in a condition of WHERE, HAVING or ON, where NULL
/// and false have the same effect. `sets` counts subqueries.
pub(super) fn rewrite_condition(condition: &mut Expr, sets: &mut usize) -> Result<(), Box<EngineError>> {
    match condition {
        Expr::Nested(inner) => rewrite_condition(inner, sets),
        Expr::BinaryOp { left, op: BinaryOperator::And | BinaryOperator::Or, right } => {
            rewrite_condition(left, sets)?;
            rewrite_condition(right, sets)
        }
        other => {
            if let Some(set) = RowSet::of(other)?
                && !set.negated
            {
                *other = set.exists(set.equal(sets)?);
            }
            Ok(())
        }
    }
}

/// Rewrites a comparison of a row with a subquery, if the expression is one.
pub(super) fn rewrite(expression: &Expr, sets: &mut usize) -> Rewritten {
    let Some(set) = RowSet::of(expression)? else { return Ok(None) };
    // The subquery is written twice, and the row sets nested in it are copied with it.
    let copies = set.query.to_string().matches(NAME).count();
    if copies > SUBQUERY_COPIES_MAX {
        let found = format!("comparing rows with subqueries that compare rows {copies} times");
        return Err(refuse(&found, "write NOT EXISTS, or fewer within each other"));
    }
    let equal = set.exists(set.equal(sets)?);
    let (alias, condition) = set.equal(sets)?;
    let unknown = set.exists((alias, Expr::IsNull(Box::new(condition))));
    let value = |value: Value| Expr::Value(value.into());
    let (true_value, false_value) = (value(Value::Boolean(!set.negated)), value(Value::Boolean(set.negated)));
    let when = |condition, result| CaseWhen { condition, result };
    Ok(Some(Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![when(equal, true_value), when(unknown, value(Value::Null))],
        else_result: Some(Box::new(false_value)),
    }))
}

/// A comparison of a row with a subquery.
struct RowSet<'e> {
    row: &'e [Expr],
    query: &'e Query,
    negated: bool,
}

/// The table and column names of a subquery.
struct Alias {
    table: Ident,
    columns: Vec<Ident>,
}

impl<'e> RowSet<'e> {
    fn of(expression: &'e Expr) -> Result<Option<Self>, Box<EngineError>> {
        let (row, query, negated) = match expression {
            Expr::InSubquery { expr, subquery, negated } => (bare(expr), subquery.as_ref(), *negated),
            Expr::InList { expr, list, negated } => match list.as_slice() {
                [Expr::Subquery(query)] => (bare(expr), query.as_ref(), *negated),
                _ => return Ok(None),
            },
            Expr::AnyOp { left, compare_op, right, .. } | Expr::AllOp { left, compare_op, right } => {
                let Expr::Subquery(query) = bare(right) else { return Ok(None) };
                let is_any = matches!(expression, Expr::AnyOp { .. });
                match (bare(left), compare_op, is_any) {
                    (row, BinaryOperator::Eq, true) => (row, query.as_ref(), false),
                    (row, BinaryOperator::NotEq, false) => (row, query.as_ref(), true),
                    (Expr::Tuple(_), op, _) => {
                        let found = format!("{op} of a row and all or any rows of a subquery");
                        return Err(refuse(&found, "write IN, NOT IN or EXISTS"));
                    }
                    _ => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        let Expr::Tuple(row) = row else { return Ok(None) };
        Ok(Some(Self { row, query, negated }))
    }

    /// New names for the subquery, and the condition that the row equals a row with those names.
    fn equal(&self, sets: &mut usize) -> Result<(Alias, Expr), Box<EngineError>> {
        *sets += 1;
        let table = Ident::with_quote('"', format!("{NAME}{sets}"));
        let names = (0..self.row.len()).map(|at| Ident::with_quote('"', format!("__row_{sets}_{at}")));
        let columns: Vec<Ident> = names.collect();
        let other: Vec<Expr> = columns.iter().cloned().map(Expr::Identifier).collect();
        let condition = compared(self.row, &BinaryOperator::Eq, &other)?;
        Ok((Alias { table, columns }, condition))
    }

    /// EXISTS over the subquery, with these names and this condition.
    fn exists(&self, (alias, condition): (Alias, Expr)) -> Expr {
        let parsed = Parser::new(&PostgreSqlDialect {})
            .try_with_sql("SELECT 1 FROM (SELECT 1) AS t (c) WHERE true")
            .and_then(|mut parser| parser.parse_query());
        let mut query = parsed.unwrap_or_else(|error| panic!("a constant statement is parsed: {error}"));
        let SetExpr::Select(select) = query.body.as_mut() else { unreachable!("the statement is a SELECT") };
        let TableFactor::Derived { subquery, alias: Some(named), .. } = &mut select.from[0].relation else {
            unreachable!("the statement has one table")
        };
        **subquery = self.query.clone();
        named.name = alias.table;
        named.columns =
            alias.columns.into_iter().map(|name| TableAliasColumnDef { name, data_type: None }).collect();
        select.selection = Some(condition);
        Expr::Exists { subquery: query, negated: false }
    }
}
