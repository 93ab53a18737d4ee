//! Plans joins with USING or NATURAL.
//!
//! Such a join becomes a join with an equation, and a projection in which each merged column comes
//! once, from the side whose rows are always returned. The merged column keeps that side's
//! qualifier. If rows of both sides may be missing, it gets a qualifier of its own, because
//! DataFusion treats a column without a qualifier as ambiguous beside others of its name.
//! [`crate::rewrite`] marks the joins.

use std::sync::Arc;

use datafusion::{
    common::{Column, JoinType, NullEquality, not_impl_err, plan_err},
    error::Result,
    functions::expr_fn::coalesce,
    logical_expr::{
        Expr, Join, LogicalPlan, LogicalPlanBuilder, lit,
        logical_plan::JoinConstraint as PlannedConstraint,
        planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning},
    },
    sql::sqlparser::ast::{JoinConstraint, JoinOperator, TableAlias, TableFactor, TableWithJoins},
};

use crate::rewrite::{MARK, own_column};

/// The qualifier of columns that are merged from both sides. No table has this name.
const MERGED: &str = "merged columns";

/// The rule that plans marked joins.
#[derive(Debug)]
pub(crate) struct MergedColumns;

impl RelationPlanner for MergedColumns {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        match relation {
            TableFactor::NestedJoin { table_with_joins, alias: Some(alias) } if alias.name.value == MARK => {
                let plan = planned(*table_with_joins, &alias, context)?;
                Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, None))))
            }
            other => Ok(RelationPlanning::Original(Box::new(other))),
        }
    }
}

fn planned(
    mut tables: TableWithJoins,
    mark: &TableAlias,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let Some(join) = tables.joins.pop() else { return plan_err!("a nested join without a join") };
    let left = context.plan(if tables.joins.is_empty() {
        tables.relation
    } else {
        TableFactor::NestedJoin { table_with_joins: Box::new(tables), alias: None }
    })?;
    let right = context.plan(join.relation)?;
    let (kind, by) = match join.join_operator {
        JoinOperator::Join(by) | JoinOperator::Inner(by) => (JoinType::Inner, by),
        JoinOperator::Left(by) | JoinOperator::LeftOuter(by) => (JoinType::Left, by),
        JoinOperator::Right(by) | JoinOperator::RightOuter(by) => (JoinType::Right, by),
        JoinOperator::FullOuter(by) => (JoinType::Full, by),
        other => return not_impl_err!("{other:?} with USING"),
    };
    let names = names(by, &left, &right, context)?;
    let find = |side: &LogicalPlan, name: &str| {
        side.schema().qualified_field_with_unqualified_name(name).map(Column::from)
    };
    let of_left = names.iter().map(|name| find(&left, name)).collect::<Result<Vec<_>>>()?;
    let of_right = names.iter().map(|name| find(&right, name)).collect::<Result<Vec<_>>>()?;
    let merged = of_left.iter().zip(&of_right).map(|(left, right)| match kind {
        JoinType::Right => Expr::Column(right.clone()),
        JoinType::Full => coalesce(vec![Expr::Column(left.clone()), Expr::Column(right.clone())])
            .alias_qualified(Some(MERGED), left.name.clone()),
        _ => Expr::Column(left.clone()),
    });
    let rest = |side: &LogicalPlan, merged: &[Column]| {
        let columns = side.schema().columns().into_iter();
        columns.filter(|column| !merged.contains(column)).map(Expr::Column).collect::<Vec<_>>()
    };
    let mut columns: Vec<Expr> = merged.chain(rest(&left, &of_left)).chain(rest(&right, &of_right)).collect();
    // A column that an earlier join already added is not added again.
    let has = |columns: &[Expr], name: &str| {
        columns.iter().any(|column| matches!(column, Expr::Column(column) if column.name == name))
    };
    for column in left.schema().columns().iter().chain(&right.schema().columns()) {
        let Some(table) = column.relation.as_ref() else { continue };
        let name = own_column(table.table(), &column.name);
        if mark.columns.iter().any(|wanted| wanted.name.value == name) && !has(&columns, &name) {
            columns.push(Expr::Column(column.clone()).alias(name));
        }
    }
    let on = of_left.into_iter().zip(of_right);
    let on = on.map(|(left, right)| (Expr::Column(left), Expr::Column(right))).collect::<Vec<_>>();
    // NATURAL between tables without a common column joins every row with every row.
    let filter = on.is_empty().then(|| lit(true));
    let joined = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        filter,
        kind,
        PlannedConstraint::On,
        NullEquality::NullEqualsNothing,
        false,
    )?;
    LogicalPlanBuilder::from(LogicalPlan::Join(joined)).project(columns)?.build()
}

/// The merged columns, in order.
fn names(
    by: JoinConstraint,
    left: &LogicalPlan,
    right: &LogicalPlan,
    context: &dyn RelationPlannerContext,
) -> Result<Vec<String>> {
    match by {
        JoinConstraint::Using(names) => names
            .into_iter()
            .map(|name| match name.0.as_slice() {
                [part] if part.as_ident().is_some() => Ok(part
                    .as_ident()
                    .map(|ident| context.normalize_ident(ident.clone()))
                    .unwrap_or_default()),
                _ => plan_err!("USING ({name}), expected names of columns"),
            })
            .collect(),
        JoinConstraint::Natural => {
            let common = |name: &String| right.schema().has_column_with_unqualified_name(name);
            let names = left.schema().fields().iter().map(|field| field.name().clone());
            Ok(names.filter(common).collect())
        }
        other => plan_err!("a join by {other:?} that merges columns"),
    }
}
