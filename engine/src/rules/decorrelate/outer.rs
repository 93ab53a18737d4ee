//! Finds the columns of outer queries that a plan uses.

use crate::visitors::{PlanTree, Tree};
use std::sync::Arc;

use datafusion::{
    common::{Column, DFSchema, not_impl_err, tree_node::TreeNodeRecursion},
    error::Result,
    logical_expr::{
        Expr, Join, LogicalPlan, Subquery,
        expr::{Exists, InSubquery, SetComparison},
        utils::merge_schema,
    },
};

/// The columns of outer queries that a plan uses.
#[derive(Debug, Default)]
pub(super) struct OuterColumns {
    /// Those that its own operators use.
    pub(super) own: Vec<Column>,
    /// Those that nested subqueries use, unless a query between has them.
    pub(super) nested: Vec<Column>,
}

impl OuterColumns {
    /// The columns of outer queries that `plan` uses.
    pub(super) fn of(plan: &LogicalPlan) -> Result<Self> {
        let mut found = Self::default();
        found.collect(plan, &mut Scopes::default(), false)?;
        Ok(found)
    }

    /// The same for a join's right side: columns of the left side, which LATERAL uses, are not
    /// outer columns.
    pub(super) fn of_right(join: &Join) -> Result<Self> {
        let mut found = Self::default();
        let mut scopes = Scopes { before: vec![join.left.schema().as_ref().clone()], ..Scopes::default() };
        found.collect(&join.right, &mut scopes, false)?;
        Ok(found)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.own.is_empty() && self.nested.is_empty()
    }

    /// All of them, each once.
    pub(super) fn all(self) -> Vec<Column> {
        let Self { mut own, nested } = self;
        own.extend(nested);
        let mut unique: Vec<Column> = Vec::new();
        own.into_iter().for_each(|column| add(&mut unique, column));
        unique
    }

    fn collect(&mut self, plan: &LogicalPlan, scopes: &mut Scopes, is_nested: bool) -> Result<()> {
        let mut subqueries = Vec::new();
        plan.each_expression(|expression| {
            expression.apply(|part| {
                if let Expr::OuterReferenceColumn(_, column) = part
                    && !scopes.between.iter().any(|schema| schema.has_column(column))
                {
                    add(if is_nested { &mut self.nested } else { &mut self.own }, column.clone());
                }
                subqueries.extend(subquery_of(part).map(|subquery| Arc::clone(&subquery.subquery)));
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        if !subqueries.is_empty() {
            scopes.between.push(merge_schema(&plan.inputs()));
            for subquery in subqueries {
                self.collect(&subquery, scopes, true)?;
            }
            scopes.between.pop();
        }
        match plan {
            LogicalPlan::Join(join) => {
                self.collect(&join.left, scopes, is_nested)?;
                scopes.before.push(join.left.schema().as_ref().clone());
                self.collect(&join.right, scopes, is_nested)?;
                scopes.before.pop();
                Ok(())
            }
            LogicalPlan::Subquery(lateral) => {
                let known = scopes.between.len();
                scopes.between.extend(scopes.before.iter().cloned());
                self.collect(&lateral.subquery, scopes, is_nested)?;
                scopes.between.truncate(known);
                Ok(())
            }
            other => other.inputs().into_iter().try_for_each(|input| self.collect(input, scopes, is_nested)),
        }
    }
}

/// Schemas whose columns are not outer columns.
#[derive(Debug, Default)]
struct Scopes {
    /// Of the queries between the plan and the subquery being visited.
    between: Vec<DFSchema>,
    /// Of the left sides of joins, which LATERAL on their right sides may use.
    before: Vec<DFSchema>,
}

fn add(columns: &mut Vec<Column>, column: Column) {
    if !columns.contains(&column) {
        columns.push(column);
    }
}

/// The subquery in this part of an expression, if it is one.
pub(super) fn subquery_of(part: &Expr) -> Option<&Subquery> {
    match part {
        Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. }) => Some(subquery),
        _ => None,
    }
}

/// Whether the right side of a join is LATERAL and uses columns of the left side.
///
/// # Errors
/// Columns of a table of an outer query that has the same name as one on the left side.
pub(super) fn is_lateral(join: &Join) -> Result<bool> {
    let is_left = |column: &&Column| join.left.schema().has_column(column);
    let all = OuterColumns::of(&join.right)?;
    let beyond = OuterColumns::of_right(join)?;
    let uses_left = all.own.iter().any(|column| is_left(&column) && !beyond.own.contains(column));
    match beyond.own.iter().find(is_left) {
        Some(column) if uses_left => not_impl_err!(
            "column {column} is of two tables here, of which LATERAL uses one; give them other names"
        ),
        _ => Ok(uses_left),
    }
}
