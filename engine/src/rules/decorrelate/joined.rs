//! Joins the value of a subquery to the outer rows, as an additional column.

use crate::visitors::Tree;
use std::sync::Arc;

use datafusion::{
    common::{
        Column, JoinType, not_impl_err, plan_err,
        tree_node::{Transformed, TransformedResult},
    },
    error::Result,
    functions_aggregate::expr_fn::{bool_or, count, first_value},
    logical_expr::{
        Case, Expr, FetchType, Limit, LogicalPlan, LogicalPlanBuilder, Operator, ScalarUDF, SkipType,
        binary_expr,
        expr::{Exists, GroupingSet, InSubquery, SetComparison, SetQuantifier},
        ident, lit, not,
    },
    scalar::ScalarValue,
};

use super::{
    domain::{Domain, JoinOf, Names, WithDomain, join_by_domain, refuse_many, refuse_volatile, repeatable},
    outer::{OuterColumns, subquery_of},
    push::{has_single_row, with_domain},
    supported::{Position, is_supported},
};

/// Joins the subqueries of one statement.
pub(super) struct Joins<'s> {
    pub(super) names: &'s Names,
    pub(super) single_row: &'s Arc<ScalarUDF>,
}

/// The outer rows of subqueries.
pub(super) struct Outside {
    /// The original rows.
    pub(super) rows: LogicalPlan,
    /// The rows with a column for each subquery that was turned into a join.
    pub(super) joined: LogicalPlan,
}

impl Outside {
    pub(super) fn new(rows: LogicalPlan, names: &Names) -> Result<Self> {
        let rows = repeatable(rows, names)?;
        Ok(Self { joined: rows.clone(), rows })
    }
}

impl Joins<'_> {
    /// The expression with subqueries replaced by columns.
    pub(super) fn replaced(
        &self,
        expression: Expr,
        position: Position,
        outside: &mut Outside,
    ) -> Result<Expr> {
        let replaced = expression.transform_up(|part| {
            if subquery_of(&part).is_none() || is_supported(&part, position, outside.rows.schema())? {
                return Ok(Transformed::no(part));
            }
            Ok(Transformed::yes(self.joined(part, outside)?))
        });
        replaced.data()
    }

    /// The replacement of a subquery: columns that are joined to the outer rows.
    fn joined(&self, part: Expr, outside: &mut Outside) -> Result<Expr> {
        match part {
            Expr::ScalarSubquery(subquery) => self.scalar(&subquery.subquery, outside),
            Expr::Exists(Exists { subquery, negated }) => {
                let exists = self.exists(&subquery.subquery, outside)?;
                Ok(if negated { not(exists) } else { exists })
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                let is_in = self.any(*expr, Operator::Eq, &subquery.subquery, outside)?;
                Ok(if negated { not(is_in) } else { is_in })
            }
            Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => match quantifier {
                SetQuantifier::Any => self.any(*expr, op, &subquery.subquery, outside),
                SetQuantifier::All => match op.negate() {
                    Some(op) => Ok(not(self.any(*expr, op, &subquery.subquery, outside)?)),
                    None => not_impl_err!("{op} ALL (subquery) is not supported"),
                },
            },
            other => plan_err!("{other} is not a subquery"),
        }
    }

    /// The domain of a subquery: the values of the outer rows in its outer columns, and in
    /// `others`.
    pub(super) fn domain(
        &self,
        subquery: &LogicalPlan,
        others: &[Column],
        rows: &LogicalPlan,
    ) -> Result<Domain<'_>> {
        let mut columns: Vec<_> = OuterColumns::of(subquery)?.all();
        columns.retain(|column| rows.schema().has_column(column));
        if !columns.is_empty() {
            refuse_volatile(subquery)?;
        }
        for column in others {
            if !columns.contains(column) {
                columns.push(column.clone());
            }
        }
        Domain::new(columns, rows, self.names)
    }

    fn scalar(&self, subquery: &LogicalPlan, outside: &mut Outside) -> Result<Expr> {
        let domain = self.domain(subquery, &[], &outside.rows)?;
        let WithDomain { plan, columns } = with_domain(subquery, &domain)?;
        let Some(value) = subquery.schema().columns().into_iter().next() else {
            return plan_err!("a scalar subquery without a column");
        };
        let (value, name) = (Expr::Column(value), self.names.next("value"));
        let of_domain = columns.iter().cloned().map(Expr::Column);
        let builder = LogicalPlanBuilder::from(plan);
        let plan = if has_single_row(subquery) {
            builder.project(std::iter::once(value.alias(&name)).chain(of_domain))?.build()?
        } else {
            let rows = self.names.next("rows");
            let first = first_value(value, Vec::new()).alias(&name);
            let grouped = builder.aggregate(of_domain.clone(), [first, count(lit(1_i64)).alias(&rows)])?;
            let single = self.single_row.call(vec![ident(&name), ident(rows)]).alias(&name);
            grouped.project(std::iter::once(single).chain(of_domain))?.build()?
        };
        self.join(outside, &domain, plan, &columns)?;
        Ok(ident(name))
    }

    fn exists(&self, subquery: &LogicalPlan, outside: &mut Outside) -> Result<Expr> {
        let subquery = rows_that_exist(subquery);
        if has_total(subquery) {
            return Ok(lit(true));
        }
        let domain = self.domain(subquery, &[], &outside.rows)?;
        let WithDomain { plan, columns } = with_domain(subquery, &domain)?;
        let found = self.names.next("found");
        let builder = LogicalPlanBuilder::from(plan);
        let of_domain: Vec<_> = columns.iter().cloned().map(Expr::Column).collect();
        let each_once = if of_domain.is_empty() {
            builder.limit(0, Some(1))?
        } else {
            builder.project(of_domain.clone())?.distinct()?
        };
        let plan = each_once.project(std::iter::once(lit(true).alias(&found)).chain(of_domain))?.build()?;
        self.join(outside, &domain, plan, &columns)?;
        Ok(ident(found).is_not_null())
    }

    /// `value op ANY (subquery)`: true if it is true for one row; else NULL if it is NULL for one.
    fn any(&self, value: Expr, op: Operator, subquery: &LogicalPlan, outside: &mut Outside) -> Result<Expr> {
        if value.is_volatile() {
            return not_impl_err!(
                "{value} returns another value at each call, and cannot be compared with a subquery here"
            );
        }
        let of_value: Vec<_> = value.column_refs().into_iter().cloned().collect();
        let is_of_rows = of_value.iter().all(|column| outside.rows.schema().has_column(column));
        if !is_of_rows {
            *outside = Outside::new(outside.joined.clone(), self.names)?;
        }
        let domain = self.domain(subquery, &of_value, &outside.rows)?;
        // A subquery without outer columns of its own is compared with each distinct value.
        let compared = with_domain(subquery, &domain)?;
        let WithDomain { plan, columns } = compared;
        let [other] = <[Column; 1]>::try_from(subquery.schema().columns()).or_else(|columns| {
            plan_err!("a comparison with a subquery of {} columns, expected one", columns.len())
        })?;
        let value = value.transform_up(|part| match part {
            Expr::Column(column) => {
                let index = domain.columns().iter().position(|known| *known == column);
                let Some(index) = index else { return plan_err!("column {column} is not known here") };
                Ok(Transformed::yes(Expr::Column(columns[index].clone())))
            }
            other => Ok(Transformed::no(other)),
        });
        let condition = binary_expr(value.data()?, op, Expr::Column(other));
        let (is_true, is_unknown) = (self.names.next("true"), self.names.next("unknown"));
        let aggregates =
            [bool_or(condition.clone()).alias(&is_true), bool_or(condition.is_null()).alias(&is_unknown)];
        let of_domain = columns.iter().cloned().map(Expr::Column);
        let plan = LogicalPlanBuilder::from(plan).aggregate(of_domain, aggregates)?.build()?;
        self.join(outside, &domain, plan, &columns)?;
        let when = |condition: String, then: Expr| (Box::new(ident(condition)), Box::new(then));
        let unknown = lit(ScalarValue::Boolean(None));
        Ok(Expr::Case(Case {
            expr: None,
            when_then_expr: vec![when(is_true, lit(true)), when(is_unknown, unknown)],
            else_expr: Some(Box::new(lit(false))),
        }))
    }

    /// Joins a subquery with its domain to the outer rows.
    fn join(
        &self,
        outside: &mut Outside,
        domain: &Domain<'_>,
        plan: LogicalPlan,
        columns: &[Column],
    ) -> Result<()> {
        let by: Vec<_> = domain.columns().iter().cloned().zip(columns.iter().cloned()).collect();
        let always = by.is_empty().then(|| lit(true));
        let of = JoinOf::new(JoinType::Left, always);
        outside.joined = join_by_domain(outside.joined.clone(), plan, &by, of)?;
        refuse_many(&outside.joined)
    }
}

/// Whether the plan ends with an order of rows or a number of repetitions.
pub(super) fn has_order(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => has_order(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_order(&alias.input),
        LogicalPlan::Sort(_) | LogicalPlan::Distinct(_) => true,
        LogicalPlan::Limit(limit) => keeps_first(limit),
        _ => false,
    }
}

/// The plan without operators that do not change whether it has rows.
pub(super) fn rows_that_exist(plan: &LogicalPlan) -> &LogicalPlan {
    match plan {
        LogicalPlan::Projection(projection) => rows_that_exist(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => rows_that_exist(&alias.input),
        LogicalPlan::Sort(sort) => rows_that_exist(&sort.input),
        LogicalPlan::Distinct(_) => plan.inputs().into_iter().next().map_or(plan, rows_that_exist),
        LogicalPlan::Limit(limit) if keeps_first(limit) => rows_that_exist(&limit.input),
        other => other,
    }
}

/// Whether a LIMIT keeps a row if there is one before it.
fn keeps_first(limit: &Limit) -> bool {
    let (Ok(skip), Ok(fetch)) = (limit.get_skip_type(), limit.get_fetch_type()) else { return false };
    matches!(skip, SkipType::Literal(0)) && matches!(fetch, FetchType::Literal(fetch) if fetch != Some(0))
}

/// Whether the plan always has a row: an aggregate over all rows, even over none.
fn has_total(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Aggregate(aggregate) = plan else { return false };
    aggregate.group_expr.iter().all(|group| match group {
        Expr::GroupingSet(GroupingSet::Rollup(_) | GroupingSet::Cube(_)) => true,
        Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => sets.iter().any(Vec::is_empty),
        _ => false,
    })
}
