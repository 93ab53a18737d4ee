//! Returns NULL for a scalar subquery without a row, whatever it selects.
//!
//! DataFusion assumes that a constant in the select list is never NULL.

use crate::visitors::{PlanTree, Tree};
use std::sync::Arc;

use datafusion::{
    common::{
        Column, Result,
        config::ConfigOptions,
        tree_node::{Transformed, TransformedResult},
    },
    logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, ScalarUDF, Subquery},
    optimizer::AnalyzerRule,
};

use crate::functions::nullable;

/// The rule that makes scalar subqueries NULL where they have no row.
#[derive(Debug)]
pub(crate) struct ScalarSubqueries {
    nullable: Arc<ScalarUDF>,
}

impl Default for ScalarSubqueries {
    fn default() -> Self {
        Self { nullable: nullable() }
    }
}

impl AnalyzerRule for ScalarSubqueries {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_queries_up(|plan| {
            plan.transform_expressions(|expression| {
                expression.transform_up(|expression| self.rewrite(expression))
            })
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "scalar_subqueries"
    }
}

impl ScalarSubqueries {
    fn rewrite(&self, expression: Expr) -> Result<Transformed<Expr>> {
        let Expr::ScalarSubquery(subquery) = expression else { return Ok(Transformed::no(expression)) };
        Ok(match self.with_null(&subquery)? {
            Some(subquery) => Transformed::yes(Expr::ScalarSubquery(subquery)),
            None => Transformed::no(Expr::ScalarSubquery(subquery)),
        })
    }

    /// The subquery with a column that may be NULL, unless it already has one.
    fn with_null(&self, subquery: &Subquery) -> Result<Option<Subquery>> {
        let plan = &subquery.subquery;
        let (qualifier, field) = plan.schema().qualified_field(0);
        if field.is_nullable() || matches!(plan.as_ref(), LogicalPlan::Aggregate(_)) || is_total(plan) {
            return Ok(None);
        }
        let value = Expr::Column(Column::from((qualifier, field)));
        let value = self.nullable.call(vec![value]).alias(field.name());
        let plan = LogicalPlanBuilder::from(plan.as_ref().clone()).project(vec![value])?.build()?;
        Ok(Some(Subquery { subquery: Arc::new(plan), ..subquery.clone() }))
    }
}

/// Whether the plan always has a row.
fn is_total(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => is_total(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_total(&alias.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        _ => false,
    }
}
