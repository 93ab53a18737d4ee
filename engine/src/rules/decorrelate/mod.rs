//! Turns correlated subqueries into joins where DataFusion 55.2 cannot, or gives wrong answers.
//!
//! ```text
//! Filter: v < (S of a.k)                 Projection: columns of P
//!   P                         ===>         Filter: v < s
//!                                            Left join: P.k is not distinct from D.k
//!                                              P
//!                                              S for each row of D      D: SELECT DISTINCT k FROM P
//!
//! P: the plan of the outer query    S: the subquery, which uses the outer column k    D: its domain
//! ```
//!
//! This is "Unnesting Arbitrary Queries" (Neumann and Kemper, BTW 2015): [`domain`] computes D, and
//! [`push`] computes S with D. DataFusion plans the subqueries that it handles correctly
//! ([`supported`]).
//!
//! Invariants
//! - Nested subqueries are replaced first: after that, a subquery uses columns only of the query
//!   directly around it.
//! - A scalar subquery has at most one row for each outer row, or the statement fails.
//! - The outer rows are computed twice. If they might differ the second time, they are computed
//!   once and shared.

mod domain;
mod joined;
mod outer;
mod push;
mod supported;

use crate::visitors::{PlanTree, Tree};
use std::{collections::HashMap, sync::Arc};

use datafusion::{
    common::{
        Column, JoinType,
        config::ConfigOptions,
        not_impl_err, plan_err,
        tree_node::{Transformed, TransformedResult, TreeNodeRecursion},
    },
    error::Result,
    logical_expr::{
        Aggregate, Expr, Filter, Join, LogicalPlan, Projection, ScalarUDF, Sort, Subquery, Window,
        expr::{Exists, InSubquery, SetComparison},
        expr_rewriter::NamePreserver,
        ident,
        utils::{conjunction, split_conjunction_owned},
    },
    optimizer::AnalyzerRule,
};

use self::{
    domain::{JoinOf, Names, join_by_domain, refuse_many, repeatable},
    joined::{Joins, Outside, has_order, rows_that_exist},
    outer::{OuterColumns, is_lateral, subquery_of},
    push::{as_in_window, with_domain},
    supported::{Position, has_subquery, is_supported, is_supported_lateral},
};
pub(super) use domain::is_always_same;

use super::in_subquery::as_in;
use crate::functions::single_row;

/// The rule that turns correlated subqueries into joins.
#[derive(Debug)]
pub(crate) struct Decorrelate {
    single_row: Arc<ScalarUDF>,
}

impl Default for Decorrelate {
    fn default() -> Self {
        Self { single_row: Arc::new(single_row()) }
    }
}

impl AnalyzerRule for Decorrelate {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let names = Names::default();
        let joins = Joins { names: &names, single_row: &self.single_row };
        let statement = Statement { names: &names, joins };
        let plan = plan.transform_queries_up(|plan| statement.rewrite(plan)).data()?;
        match OuterColumns::of(&plan)?.own.first() {
            None => Ok(plan),
            Some(column) => not_impl_err!(
                "column {column} is used where it is not known, or by a subquery within LATERAL alone, which \
                 is not supported; select it in the LATERAL query, too"
            ),
        }
    }

    fn name(&self) -> &'static str {
        "decorrelate"
    }
}

struct Statement<'s> {
    names: &'s Names,
    joins: Joins<'s>,
}

impl Statement<'_> {
    fn rewrite(&self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        refuse_outer_aggregates(&plan)?;
        let names = NamePreserver::new(&plan);
        let plan = plan.transform_expressions(|expression| {
            let name = names.save(&expression);
            Ok(expression.transform_up(refreshed)?.update_data(|expression| name.restore(expression)))
        });
        let plan = plan?.data;
        match plan {
            LogicalPlan::Join(join) if is_lateral(&join)? => self.lateral(join),
            LogicalPlan::Join(join) => self.conditions(join),
            LogicalPlan::Filter(filter) => self.filter(filter),
            LogicalPlan::Sort(sort) => self.sort(sort),
            other => self.single_input(other),
        }
    }

    fn filter(&self, filter: Filter) -> Result<Transformed<LogicalPlan>> {
        if !has_unsupported(&filter.predicate, Position::Filter, &filter.input)? {
            return Ok(Transformed::no(LogicalPlan::Filter(filter)));
        }
        let conditions = split_conjunction_owned(filter.predicate);
        let (with, plain): (Vec<_>, Vec<_>) = conditions.into_iter().partition(has_subquery);
        let mut rows = Arc::unwrap_or_clone(filter.input);
        if let Some(plain) = conjunction(plain) {
            rows = LogicalPlan::Filter(Filter::try_new(plain, Arc::new(rows))?);
        }
        let columns = rows.schema().columns();
        let mut outside = Outside::new(rows, self.names)?;
        let with =
            with.into_iter().map(|condition| self.joins.replaced(condition, Position::Filter, &mut outside));
        let Some(predicate) = conjunction(with.collect::<Result<Vec<_>>>()?) else {
            return plan_err!("a filter without conditions");
        };
        let filtered = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(outside.joined))?);
        let selected = columns.into_iter().map(Expr::Column).collect();
        let plan = LogicalPlan::Projection(Projection::try_new(selected, Arc::new(filtered))?);
        Ok(Transformed::yes(plan))
    }

    /// Handles operators with one input, other than filters.
    fn single_input(&self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        let position = match &plan {
            LogicalPlan::Projection(_) => Position::Projection,
            LogicalPlan::Aggregate(_) => Position::Aggregate,
            LogicalPlan::Sort(_) | LogicalPlan::Window(_) => Position::Other,
            _ => return Ok(Transformed::no(plan)),
        };
        let inputs = plan.inputs();
        let [input] = inputs.as_slice() else { return Ok(Transformed::no(plan)) };
        let mut found = false;
        plan.each_expression(|expression| {
            found |= has_unsupported(expression, position, input)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        if !found {
            return Ok(Transformed::no(plan));
        }
        let mut outside = Outside::new((*input).clone(), self.names)?;
        let columns = plan.schema().columns();
        let names = NamePreserver::new_for_projection();
        let mut replaced = |expression: Expr| {
            let name = names.save(&expression);
            Ok(name.restore(self.joins.replaced(expression, position, &mut outside)?))
        };
        let plan = match plan {
            LogicalPlan::Projection(projection) => {
                let expressions = projection.expr.into_iter().map(replaced).collect::<Result<_>>()?;
                LogicalPlan::Projection(Projection::try_new(expressions, Arc::new(outside.joined))?)
            }
            LogicalPlan::Aggregate(aggregate) => {
                let groups = aggregate.group_expr.into_iter().map(&mut replaced).collect::<Result<_>>()?;
                let aggregates = aggregate.aggr_expr.into_iter().map(replaced).collect::<Result<_>>()?;
                LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(outside.joined), groups, aggregates)?)
            }
            LogicalPlan::Sort(mut sort) => {
                for key in &mut sort.expr {
                    key.expr = self.joins.replaced(key.expr.clone(), position, &mut outside)?;
                }
                let sorted = LogicalPlan::Sort(Sort { input: Arc::new(outside.joined), ..sort });
                let selected = columns.into_iter().map(Expr::Column).collect();
                LogicalPlan::Projection(Projection::try_new(selected, Arc::new(sorted))?)
            }
            LogicalPlan::Window(window) => self.window(window, outside)?,
            _ => unreachable!("these have a position"),
        };
        Ok(Transformed::yes(plan))
    }

    /// Handles sort keys with subqueries that use columns which are not selected: the rows are
    /// sorted before the selection.
    fn sort(&self, mut sort: Sort) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Projection(projection) = sort.input.as_ref() else {
            return self.single_input(LogicalPlan::Sort(sort));
        };
        let mut is_before = false;
        for key in &sort.expr {
            is_before |= uses_unselected(&key.expr, projection)?;
        }
        if !is_before {
            return self.single_input(LogicalPlan::Sort(sort));
        }
        let projection = projection.clone();
        let selected: HashMap<_, _> =
            projection.schema.columns().into_iter().zip(projection.expr.iter().cloned()).collect();
        for key in &mut sort.expr {
            let as_computed = key.expr.clone().transform_up(|part| match part {
                Expr::Column(column) => Ok(match selected.get(&column) {
                    Some(value) => Transformed::yes(value.clone().unalias()),
                    None => Transformed::no(Expr::Column(column)),
                }),
                other => Ok(Transformed::no(other)),
            });
            key.expr = as_computed.data()?;
            if key.expr.is_volatile() {
                return not_impl_err!("ORDER BY {} and a subquery is not supported", key.expr);
            }
        }
        sort.input = Arc::clone(&projection.input);
        let sorted = self.single_input(LogicalPlan::Sort(sort))?.data;
        let plan = Projection::try_new(projection.expr, Arc::new(sorted))?;
        Ok(Transformed::yes(LogicalPlan::Projection(plan)))
    }

    fn window(&self, window: Window, mut outside: Outside) -> Result<LogicalPlan> {
        let replaced =
            |expression: Expr| self.joins.replaced(expression.unalias(), Position::Other, &mut outside);
        let expressions: Vec<_> = window.window_expr.iter().cloned().map(replaced).collect::<Result<_>>()?;
        let computed = Window::try_new(expressions, Arc::new(outside.joined))?;
        let selected = as_in_window(&window, &computed);
        Ok(LogicalPlan::Projection(Projection::try_new(selected, Arc::new(LogicalPlan::Window(computed)))?))
    }

    /// Handles a join whose conditions have subqueries: their values become columns of the side
    /// that they use.
    fn conditions(&self, mut join: Join) -> Result<Transformed<LogicalPlan>> {
        let Some(filter) = join.filter.clone() else { return Ok(Transformed::no(LogicalPlan::Join(join))) };
        if !has_subquery(&filter) {
            return Ok(Transformed::no(LogicalPlan::Join(join)));
        }
        if join.join_type == JoinType::Inner {
            join.filter = None;
            let joined = LogicalPlan::Join(Join::try_new(
                join.left,
                join.right,
                join.on,
                None,
                join.join_type,
                join.join_constraint,
                join.null_equality,
                join.null_aware,
            )?);
            let filter = Filter::try_new(filter, Arc::new(joined))?;
            return Ok(Transformed::yes(self.filter(filter)?.data));
        }
        let columns = join.schema.columns();
        let mut sides = [Vec::new(), Vec::new()];
        let filter = filter.transform_up(|part| {
            if subquery_of(&part).is_none() {
                return Ok(Transformed::no(part));
            }
            let used = used_columns(&part)?;
            let is_of = |side: &LogicalPlan| used.iter().all(|column| side.schema().has_column(column));
            let side = match (is_of(&join.left), is_of(&join.right)) {
                (_, true) => 1,
                (true, false) => 0,
                (false, false) => {
                    return not_impl_err!(
                        "a subquery that uses columns of both sides, in the condition of an outer join, is not supported"
                    );
                }
            };
            let name = self.names.next("condition");
            sides[side].push(part.alias(&name));
            Ok(Transformed::yes(ident(name)))
        })?;
        let [left, right] = sides;
        let with = |input: Arc<LogicalPlan>, values: Vec<Expr>| -> Result<Arc<LogicalPlan>> {
            if values.is_empty() {
                return Ok(input);
            }
            let mut selected: Vec<_> = input.schema().columns().into_iter().map(Expr::Column).collect();
            selected.extend(values);
            let plan = LogicalPlan::Projection(Projection::try_new(selected, input)?);
            Ok(Arc::new(self.single_input(plan)?.data))
        };
        let joined = Join::try_new(
            with(join.left, left)?,
            with(join.right, right)?,
            join.on,
            Some(filter.data),
            join.join_type,
            join.join_constraint,
            join.null_equality,
            join.null_aware,
        )?;
        let selected = columns.into_iter().map(Expr::Column).collect();
        let plan = Projection::try_new(selected, Arc::new(LogicalPlan::Join(joined)))?;
        Ok(Transformed::yes(LogicalPlan::Projection(plan)))
    }

    fn lateral(&self, join: Join) -> Result<Transformed<LogicalPlan>> {
        if is_supported_lateral(&join)? {
            return Ok(Transformed::no(LogicalPlan::Join(join)));
        }
        if !matches!(join.join_type, JoinType::Inner | JoinType::Left) {
            return not_impl_err!("LATERAL on the right side of a {} JOIN is not supported", join.join_type);
        }
        if join.filter.as_ref().is_some_and(has_subquery) {
            return not_impl_err!("a subquery in the ON of LATERAL is not supported; write it in WHERE");
        }
        let columns = join.schema.columns();
        let left = repeatable(Arc::unwrap_or_clone(join.left), self.names)?;
        let domain = self.joins.domain(&join.right, &[], &left)?;
        let right = with_domain(&join.right, &domain)?;
        let by: Vec<_> = domain.columns().iter().cloned().zip(right.columns).collect();
        let of = JoinOf {
            join_type: join.join_type,
            on: join.on,
            filter: join.filter,
            null_equality: join.null_equality,
        };
        let joined = join_by_domain(left, right.plan, &by, of)?;
        refuse_many(&joined)?;
        let selected = columns.into_iter().map(Expr::Column).collect();
        let plan = Projection::try_new(selected, Arc::new(joined))?;
        Ok(Transformed::yes(LogicalPlan::Projection(plan)))
    }
}

/// The expression with a subquery, after its nested subqueries were replaced, without operators
/// that do not change whether it has rows.
fn refreshed(part: Expr) -> Result<Transformed<Expr>> {
    let part = as_in(part)?;
    let Some(subquery) = subquery_of(&part) else { return Ok(Transformed::no(part)) };
    let mut plan = Arc::clone(&subquery.subquery);
    if matches!(part, Expr::Exists(_)) && has_order(&plan) {
        plan = Arc::new(rows_that_exist(&plan).clone());
    }
    let outer_ref_columns = plan.all_out_ref_exprs();
    let subquery = Subquery { subquery: plan, outer_ref_columns, spans: subquery.spans.clone() };
    Ok(Transformed::yes(match part {
        Expr::ScalarSubquery(_) => Expr::ScalarSubquery(subquery),
        Expr::Exists(of) => Expr::Exists(Exists { subquery, ..of }),
        Expr::InSubquery(of) => Expr::InSubquery(InSubquery { subquery, ..of }),
        Expr::SetComparison(of) => Expr::SetComparison(SetComparison { subquery, ..of }),
        other => other,
    }))
}

/// Whether a subquery in the expression uses a column that the select list leaves out.
fn uses_unselected(expression: &Expr, list: &Projection) -> Result<bool> {
    expression.exists(|part| {
        let Some(subquery) = subquery_of(part) else { return Ok(false) };
        let used = OuterColumns::of(&subquery.subquery)?.all();
        let is_left_out = |column| !list.schema.has_column(column) && list.input.schema().has_column(column);
        Ok(used.iter().any(is_left_out))
    })
}

fn has_unsupported(expression: &Expr, position: Position, rows: &LogicalPlan) -> Result<bool> {
    expression.exists(|part| Ok(!is_supported(part, position, rows.schema())?))
}

/// Refuses aggregates of outer columns only: these belong to the query around the subquery.
fn refuse_outer_aggregates(plan: &LogicalPlan) -> Result<()> {
    let LogicalPlan::Aggregate(aggregate) = plan else { return Ok(()) };
    match aggregate.aggr_expr.iter().find(|of| of.contains_outer() && !of.any_column_refs()) {
        Some(of) => not_impl_err!("{of} in a subquery, of columns from outside alone, is not supported"),
        None => Ok(()),
    }
}

/// The columns of the outer rows that a subquery uses, including those of the value compared with
/// it.
fn used_columns(part: &Expr) -> Result<Vec<Column>> {
    let mut columns: Vec<_> = part.column_refs().into_iter().cloned().collect();
    if let Some(subquery) = subquery_of(part) {
        columns.extend(OuterColumns::of(&subquery.subquery)?.all());
    }
    Ok(columns)
}
