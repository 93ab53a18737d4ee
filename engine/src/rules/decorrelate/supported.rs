//! Recognises the correlated subqueries that DataFusion 55.2 plans correctly.
//!
//! DataFusion's rules move correlated conditions from filters to a join. That is correct, and the
//! best plan, if no operator between the filter and the subquery's rows changes the meaning of the
//! condition.

use crate::visitors::Tree;
use datafusion::{
    common::DFSchema,
    error::Result,
    logical_expr::{Cast, Expr, Join, JoinType, LogicalPlan, Operator, utils::split_conjunction},
};

use super::outer::{OuterColumns, subquery_of};

/// Where in a plan a subquery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    Filter,
    /// Also for a select list, where EXISTS and IN become counts ([`crate::rules::InSubqueries`]).
    Projection,
    Aggregate,
    Other,
}

/// Whether DataFusion plans this subquery right; `schema` has the columns of the query around it.
pub(super) fn is_supported(part: &Expr, position: Position, schema: &DFSchema) -> Result<bool> {
    let Some(subquery) = subquery_of(part) else { return Ok(true) };
    let plan = subquery.subquery.as_ref();
    let outer = OuterColumns::of(plan)?;
    if outer.is_empty() {
        return Ok(match part {
            Expr::ScalarSubquery(_) => true,
            Expr::SetComparison(_) => position == Position::Filter,
            _ => position != Position::Other,
        });
    }
    if !outer.nested.is_empty() || !outer.own.iter().all(|column| schema.has_column(column)) {
        return Ok(false);
    }
    let is_compared_with_outer = match part {
        Expr::InSubquery(of) => of.expr.contains_outer(),
        Expr::SetComparison(of) => of.expr.contains_outer(),
        _ => false,
    };
    if is_compared_with_outer {
        return Ok(false);
    }
    match (position, part) {
        (Position::Filter | Position::Projection, Expr::ScalarSubquery(_)) => is_aggregate(plan),
        (Position::Filter, _) => is_filtered(plan, &|_| true),
        (Position::Projection, Expr::Exists(_) | Expr::InSubquery(_)) => is_filtered(plan, &is_equation),
        _ => Ok(false),
    }
}

/// Whether DataFusion plans the LATERAL right side of this join right.
pub(super) fn is_supported_lateral(join: &Join) -> Result<bool> {
    let mut right = join.right.as_ref();
    while let LogicalPlan::SubqueryAlias(alias) = right {
        right = &alias.input;
    }
    let LogicalPlan::Subquery(lateral) = right else { return Ok(false) };
    let outer = OuterColumns::of(&lateral.subquery)?;
    let is_next =
        outer.nested.is_empty() && outer.own.iter().all(|column| join.left.schema().has_column(column));
    let has_condition = join.filter.is_some() || !join.on.is_empty();
    Ok(is_next
        && (is_filtered(&lateral.subquery, &|_| true)? || !has_condition && is_aggregate(&lateral.subquery)?))
}

/// Whether outer columns are only in filters that can become join conditions.
fn is_filtered(plan: &LogicalPlan, is_allowed: &impl Fn(&Expr) -> bool) -> Result<bool> {
    if OuterColumns::of(plan)?.is_empty() {
        return Ok(true);
    }
    match plan {
        LogicalPlan::Projection(projection) => {
            Ok(!projection.expr.iter().any(Expr::contains_outer)
                && is_filtered(&projection.input, is_allowed)?)
        }
        LogicalPlan::Filter(filter) => {
            let correlated =
                split_conjunction(&filter.predicate).into_iter().filter(|part| part.contains_outer());
            Ok(correlated.into_iter().all(|part| is_allowed(part) && !has_subquery(part))
                && is_filtered(&filter.input, is_allowed)?)
        }
        LogicalPlan::Join(join) if join.join_type == JoinType::Inner => Ok(!has_outer_condition(join)
            && is_filtered(&join.left, is_allowed)?
            && is_filtered(&join.right, is_allowed)?),
        _ => Ok(false),
    }
}

/// Whether it is an aggregate without groups, correlated by equations, that is NULL for no rows, or
/// a count.
fn is_aggregate(plan: &LogicalPlan) -> Result<bool> {
    let LogicalPlan::Projection(projection) = plan else { return Ok(false) };
    let ([value], LogicalPlan::Aggregate(aggregate)) =
        (projection.expr.as_slice(), projection.input.as_ref())
    else {
        return Ok(false);
    };
    let value = value.clone().unalias_nested().data;
    let is_null_of_none = is_strict(&value)? && aggregate.aggr_expr.iter().all(is_null_without_rows);
    let is_known = matches!(value, Expr::Column(_)) || is_null_of_none;
    Ok(is_known
        && aggregate.group_expr.is_empty()
        && !aggregate.aggr_expr.iter().any(Expr::contains_outer)
        && is_filtered(&aggregate.input, &is_equation)?)
}

/// Whether the expression is NULL whenever one of its columns is.
fn is_strict(expression: &Expr) -> Result<bool> {
    let is_other = |part: &Expr| match part {
        Expr::Column(_) | Expr::Literal(..) | Expr::Cast(_) | Expr::Negative(_) => false,
        Expr::BinaryExpr(binary) => !matches!(
            binary.op,
            Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide | Operator::Modulo
        ),
        _ => true,
    };
    Ok(!expression.exists(|part| Ok(is_other(part)))?)
}

/// Whether an aggregate is NULL for no rows.
fn is_null_without_rows(aggregate: &Expr) -> bool {
    match aggregate {
        Expr::Alias(alias) => is_null_without_rows(&alias.expr),
        Expr::AggregateFunction(aggregate) => matches!(aggregate.func.name(), "avg" | "max" | "min" | "sum"),
        _ => false,
    }
}

/// Whether a column equals an expression of outer columns only.
fn is_equation(condition: &Expr) -> bool {
    let Expr::BinaryExpr(binary) = condition else { return false };
    let is_column = |side: &Expr| match side {
        Expr::Column(_) => true,
        Expr::Cast(Cast { expr, .. }) => matches!(expr.as_ref(), Expr::Column(_)),
        _ => false,
    };
    let is_outer = |side: &Expr| !side.any_column_refs();
    let is_between = is_column(&binary.left) && is_outer(&binary.right)
        || is_column(&binary.right) && is_outer(&binary.left);
    binary.op == Operator::Eq && is_between
}

fn has_outer_condition(join: &Join) -> bool {
    let mut conditions = join.on.iter().flat_map(|(left, right)| [left, right]).chain(&join.filter);
    conditions.any(Expr::contains_outer)
}

/// Whether the expression contains a subquery.
pub(super) fn has_subquery(expression: &Expr) -> bool {
    expression.exists(|part| Ok(subquery_of(part).is_some())).unwrap_or(true)
}
