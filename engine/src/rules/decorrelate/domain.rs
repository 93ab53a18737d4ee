//! Computes the domain of a correlated subquery: the values of outer columns for which the subquery
//! is computed.
//!
//! The domain contains all combinations that the outer rows have, each once (`D` in Neumann and
//! Kemper, "Unnesting Arbitrary Queries", BTW 2015). A plan with the domain returns, for each
//! combination, the rows that the subquery has for it. Its columns are the subquery's columns and
//! the domain's columns.

use crate::visitors::{PlanTree, Tree};
use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};

use datafusion::{
    common::{
        Column, JoinType, NullEquality, not_impl_err,
        tree_node::{Transformed, TransformedResult, TreeNodeRecursion},
    },
    error::Result,
    logical_expr::{
        Distinct, Expr, Join, LogicalPlan, LogicalPlanBuilder, Operator, Projection, SubqueryAlias,
        logical_plan::JoinConstraint,
        utils::{conjunction, split_conjunction_owned},
    },
};

use super::outer::OuterColumns;
use crate::{limits::DOMAIN_OPERATORS_MAX, rules::shared_rows::SharedRows};

/// Makes names that no user's column has.
#[derive(Debug, Default)]
pub(super) struct Names(Cell<usize>);

impl Names {
    /// A number that was not returned before.
    pub(super) fn number(&self) -> usize {
        self.0.set(self.0.get() + 1);
        self.0.get()
    }

    /// A name that was not returned before.
    pub(super) fn next(&self, what: &str) -> String {
        format!("__{what}_{}", self.number())
    }
}

/// The domain of a subquery: the values that the outer rows have in its outer columns.
#[derive(Debug)]
pub(super) struct Domain<'n> {
    columns: Vec<Column>,
    /// A plan of these columns, each combination once.
    plan: LogicalPlan,
    names: &'n Names,
    /// Shared rows that already have the domain's columns, by their numbers before that.
    shared: RefCell<Vec<(usize, WithDomain)>>,
}

/// A plan with the columns of a domain.
#[derive(Clone, Debug)]
pub(super) struct WithDomain {
    pub(super) plan: LogicalPlan,
    /// The domain's columns, in its order, under their names in `plan`.
    pub(super) columns: Vec<Column>,
}

impl<'n> Domain<'n> {
    /// The domain of the values that the rows of `outside` have in these columns.
    pub(super) fn new(columns: Vec<Column>, outside: &LogicalPlan, names: &'n Names) -> Result<Self> {
        if columns.is_empty() {
            let plan = LogicalPlanBuilder::empty(true).build()?;
            return Ok(Self { columns, plan, names, shared: RefCell::default() });
        }
        let selected = columns.iter().cloned().map(Expr::Column);
        let plan = LogicalPlanBuilder::from(outside.clone()).project(selected)?.distinct()?.build()?;
        // Several parts of the subquery read it, so it is shared.
        let plan = SharedRows::plan(names.number(), plan);
        Ok(Self { columns, plan, names, shared: RefCell::default() })
    }

    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub(super) fn names(&self) -> &'n Names {
        self.names
    }

    /// The domain as a plan, with column names that no other copy has.
    pub(super) fn copy(&self) -> Result<WithDomain> {
        let name = self.names.next("outer");
        let renamed =
            |(index, column): (usize, &Column)| Expr::Column(column.clone()).alias(format!("{name}_{index}"));
        let renamed: Vec<_> = self.columns.iter().enumerate().map(renamed).collect();
        let plan = LogicalPlan::Projection(Projection::try_new(renamed, Arc::new(self.plan.clone()))?);
        let plan = LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(plan), name)?);
        let columns = plan.schema().columns();
        Ok(WithDomain { plan, columns })
    }

    /// Shared rows with the domain, made once for all readers, with domain columns whose names no
    /// other reader has.
    pub(super) fn shared(
        &self,
        number: usize,
        make: impl FnOnce() -> Result<WithDomain>,
    ) -> Result<WithDomain> {
        let known = self.shared.borrow().iter().find(|(of, _)| *of == number).map(|(_, rows)| rows.clone());
        let rows = match known {
            Some(rows) => rows,
            None => {
                let WithDomain { plan, columns } = make()?;
                let rows = WithDomain { plan: SharedRows::plan(self.names.number(), plan), columns };
                self.shared.borrow_mut().push((number, rows.clone()));
                rows
            }
        };
        let name = self.names.next("outer");
        let columns = rows.plan.schema().columns().into_iter();
        let selected = columns.map(|column| match rows.columns.iter().position(|known| *known == column) {
            Some(index) => {
                Expr::Column(column).alias_qualified(Some(name.as_str()), format!("{name}_{index}"))
            }
            None => Expr::Column(column),
        });
        let plan = Projection::try_new(selected.collect(), Arc::new(rows.plan.clone()))?;
        let named = |index| Column::new(Some(name.as_str()), format!("{name}_{index}"));
        Ok(WithDomain {
            plan: LogicalPlan::Projection(plan),
            columns: (0..self.columns.len()).map(named).collect(),
        })
    }

    /// Whether `plan` uses a column of the domain.
    pub(super) fn is_used(&self, plan: &LogicalPlan) -> Result<bool> {
        self.is_among(&OuterColumns::of(plan)?)
    }

    /// Whether the right side of a join uses a column of the domain.
    pub(super) fn is_used_right(&self, join: &Join) -> Result<bool> {
        self.is_among(&OuterColumns::of_right(join)?)
    }

    fn is_among(&self, used: &OuterColumns) -> Result<bool> {
        let is_known = |column: &&Column| self.columns.contains(column);
        match used.nested.iter().find(is_known) {
            Some(column) => not_impl_err!(
                "column {column} of an outer query is not supported in a subquery within LIMIT, DISTINCT ON or \
                 the ON of LATERAL"
            ),
            None => Ok(used.own.iter().any(|column| is_known(&column))),
        }
    }

    /// The expression with outer columns replaced by the domain's columns, which have the names
    /// `columns`.
    pub(super) fn replaced(&self, expression: Expr, columns: &[Column]) -> Result<Expr> {
        let replaced = expression.transform_up(|part| match part {
            Expr::OuterReferenceColumn(field, column) => {
                match self.columns.iter().position(|known| *known == column) {
                    Some(index) => Ok(Transformed::yes(Expr::Column(columns[index].clone()))),
                    None => Ok(Transformed::no(Expr::OuterReferenceColumn(field, column))),
                }
            }
            other => Ok(Transformed::no(other)),
        });
        replaced.data()
    }

    /// As [`Self::replaced`], with the expression's name kept.
    pub(super) fn replaced_by_name(&self, expression: Expr, columns: &[Column]) -> Result<Expr> {
        let (qualifier, name) = expression.qualified_name();
        let replaced = self.replaced(expression, columns)?;
        if replaced.qualified_name() == (qualifier.clone(), name.clone()) {
            return Ok(replaced);
        }
        Ok(replaced.alias_qualified(qualifier, name))
    }
}

/// Joins rows of both sides for which the condition is true and the domain's columns are equal;
/// NULL equals NULL in them.
pub(super) fn join_by_domain(
    left: LogicalPlan,
    right: LogicalPlan,
    by: &[(Column, Column)],
    of: JoinOf,
) -> Result<LogicalPlan> {
    // DataFusion makes join keys of equations in the filter, and NULL equals NULL in those.
    let mut filter =
        of.filter.and_then(|filter| conjunction(split_conjunction_owned(filter).into_iter().map(strict)));
    let mut add = |condition: Expr| {
        filter = Some(filter.take().map_or(condition.clone(), |filter| filter.and(condition)));
    };
    let mut on = Vec::new();
    for (left, right) in of.on {
        if left.contains_outer() || right.contains_outer() || !is_side(&left, &right, by) {
            add(strict(left.eq(right)));
            continue;
        }
        if of.null_equality == NullEquality::NullEqualsNothing {
            add(left.clone().is_not_null());
        }
        on.push((left, right));
    }
    on.extend(by.iter().map(|(left, right)| (Expr::Column(left.clone()), Expr::Column(right.clone()))));
    let join = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        filter,
        of.join_type,
        JoinConstraint::On,
        NullEquality::NullEqualsNull,
        false,
    )?;
    Ok(LogicalPlan::Join(join))
}

/// The condition made false or NULL for NULLs, also where NULL equals NULL.
fn strict(condition: Expr) -> Expr {
    match &condition {
        Expr::BinaryExpr(binary) if binary.op == Operator::Eq => {
            let known = binary.left.as_ref().clone().is_not_null();
            condition.and(known)
        }
        _ => condition,
    }
}

/// The properties of a join before a domain was added.
#[derive(Debug)]
pub(super) struct JoinOf {
    pub(super) join_type: JoinType,
    pub(super) on: Vec<(Expr, Expr)>,
    pub(super) filter: Option<Expr>,
    pub(super) null_equality: NullEquality,
}

impl JoinOf {
    /// A join by the domain alone.
    pub(super) fn new(join_type: JoinType, filter: Option<Expr>) -> Self {
        Self { join_type, on: Vec::new(), filter, null_equality: NullEquality::NullEqualsNull }
    }
}

/// Whether each key is of one side: domain columns in place of outer ones may be of the other side.
fn is_side(left: &Expr, right: &Expr, by: &[(Column, Column)]) -> bool {
    let (of_left, of_right) = (left.column_refs(), right.column_refs());
    !by.iter().any(|(left, right)| of_right.contains(left) || of_left.contains(right))
}

/// The outer rows, which are computed twice: for the domain and for themselves. They are shared
/// where they might differ the second time, or have correlated subqueries themselves.
///
/// # Errors
/// Too many operators.
pub(super) fn repeatable(rows: LogicalPlan, names: &Names) -> Result<LogicalPlan> {
    refuse_many(&rows)?;
    Ok(if is_always_same(&rows)? { rows } else { SharedRows::plan(names.number(), rows) })
}

/// Whether a plan gives the same rows each time it is computed, in any order.
pub(in crate::rules) fn is_always_same(plan: &LogicalPlan) -> Result<bool> {
    let mut is_same = true;
    plan.apply_queries(|plan| {
        is_same &= is_repeatable(plan)?;
        Ok(if is_same { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(is_same)
}

/// Refuses plans that have become too large: nested domains double them.
pub(super) fn refuse_many(plan: &LogicalPlan) -> Result<()> {
    let mut operators = 0;
    plan.apply_queries(|_| {
        operators += 1;
        let is_enough = operators > DOMAIN_OPERATORS_MAX;
        Ok(if is_enough { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if operators > DOMAIN_OPERATORS_MAX {
        return not_impl_err!(
            "the correlated subqueries need a plan of more than {DOMAIN_OPERATORS_MAX} operators; write them as joins"
        );
    }
    Ok(())
}

/// Refuses volatile subqueries: they would have to be computed for each outer row, not for each
/// distinct value.
pub(super) fn refuse_volatile(subquery: &LogicalPlan) -> Result<()> {
    let mut is_volatile = false;
    subquery.apply_queries(|plan| {
        plan.each_expression(|expression| {
            is_volatile |= expression.is_volatile();
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    if is_volatile {
        return not_impl_err!(
            "a correlated subquery with a function that returns another value at each call is not supported"
        );
    }
    Ok(())
}

/// Whether an operator gives the same rows each time it has the same input, in any order.
fn is_repeatable(plan: &LogicalPlan) -> Result<bool> {
    let is_same = match plan {
        LogicalPlan::Limit(_) | LogicalPlan::Window(_) | LogicalPlan::Distinct(Distinct::On(_)) => false,
        LogicalPlan::Aggregate(aggregate) => {
            let fields = aggregate.schema.fields();
            let is_double = fields.iter().any(|field| field.data_type().is_floating());
            !is_double && aggregate.aggr_expr.iter().all(ignores_order)
        }
        LogicalPlan::TableScan(_)
        | LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Values(_)
        | LogicalPlan::EmptyRelation(_)
        | LogicalPlan::Distinct(Distinct::All(_)) => true,
        _ => false,
    };
    let mut is_volatile = false;
    plan.each_expression(|expression| {
        is_volatile |= expression.is_volatile();
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(is_same && !is_volatile)
}

fn ignores_order(aggregate: &Expr) -> bool {
    match aggregate {
        Expr::Alias(alias) => ignores_order(&alias.expr),
        Expr::AggregateFunction(aggregate) => {
            matches!(aggregate.func.name(), "avg" | "bool_and" | "bool_or" | "count" | "max" | "min" | "sum")
        }
        _ => false,
    }
}
