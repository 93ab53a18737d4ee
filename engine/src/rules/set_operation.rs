//! Plans INTERSECT ALL and EXCEPT ALL with the right number of equal rows.
//!
//! INTERSECT ALL returns a row as often as both sides contain it. EXCEPT ALL returns it as often as
//! the left side contains it more than the right side. DataFusion 55.2 plans a semi join and an
//! anti join, which return it as often as the left side contains it, or not at all. Here equal rows
//! are numbered on both sides, and the numbers are part of the join condition.

use crate::visitors::PlanTree;
use std::sync::Arc;

use datafusion::{
    common::{
        Column, NullEquality,
        config::ConfigOptions,
        tree_node::{Transformed, TransformedResult},
    },
    error::Result,
    functions_window::expr_fn::row_number,
    logical_expr::{
        Distinct, Expr, ExprFunctionExt, Join, JoinType, LogicalPlan, LogicalPlanBuilder, ScalarUDF,
    },
    optimizer::AnalyzerRule,
};

use crate::functions::{canonical, of_double};

/// The rule that numbers the rows of both sides.
#[derive(Debug)]
pub(crate) struct SetOperation {
    canonical: Arc<ScalarUDF>,
}

impl Default for SetOperation {
    fn default() -> Self {
        Self { canonical: canonical() }
    }
}

impl AnalyzerRule for SetOperation {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let rewrite = |plan: LogicalPlan| match plan {
            LogicalPlan::Join(join) if is_set_operation(&join) => {
                self.with_numbers(join).map(Transformed::yes)
            }
            other => Ok(Transformed::no(other)),
        };
        plan.transform_queries_up(rewrite).data()
    }

    fn name(&self) -> &'static str {
        "set_operation"
    }
}

/// Only in set operations NULL equals NULL. In DISTINCT ones the left side has each row once.
fn is_set_operation(join: &Join) -> bool {
    join.null_equality == NullEquality::NullEqualsNull
        && matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && !matches!(*join.left, LogicalPlan::Distinct(Distinct::All(_)))
}

impl SetOperation {
    fn with_numbers(&self, join: Join) -> Result<LogicalPlan> {
        let columns: Vec<Expr> = join.schema.columns().into_iter().map(Expr::Column).collect();
        let (left, left_number) = self.numbered(&join.left, "left row number")?;
        let (right, right_number) = self.numbered(&join.right, "right row number")?;
        let mut on = join.on;
        on.push((left_number, right_number));
        let joined = Join::try_new(
            Arc::new(left),
            Arc::new(right),
            on,
            join.filter,
            join.join_type,
            join.join_constraint,
            join.null_equality,
            join.null_aware,
        )?;
        LogicalPlanBuilder::from(LogicalPlan::Join(joined)).project(columns)?.build()
    }

    /// The rows, each with its number among equal rows.
    fn numbered(&self, rows: &LogicalPlan, name: &str) -> Result<(LogicalPlan, Expr)> {
        let columns: Vec<Expr> = rows.schema().columns().into_iter().map(Expr::Column).collect();
        let key = |column: &Expr| {
            of_double(&self.canonical, column.clone(), rows.schema()).unwrap_or_else(|| column.clone())
        };
        let number = row_number().partition_by(columns.iter().map(key).collect()).build()?.alias(name);
        let plan = LogicalPlanBuilder::from(rows.clone()).window([number])?.build()?;
        Ok((plan, Expr::Column(Column::new_unqualified(name))))
    }
}
