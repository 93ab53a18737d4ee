//! Applies a function to all expressions of a plan.

use crate::visitors::{PlanTree, Tree};
use datafusion::{
    common::{
        DFSchema,
        tree_node::{Transformed, TransformedResult},
    },
    error::Result,
    logical_expr::{Expr, LogicalPlan, expr_rewriter::NamePreserver, utils::merge_schema},
};

/// Applies `rewrite` to every expression of the plan and every part of one, innermost first, with
/// the schema of its input. Names of output columns are kept.
pub(super) fn rewritten(
    plan: LogicalPlan,
    rewrite: impl Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<LogicalPlan> {
    plan.transform_queries_up(|plan| {
        let schema = merge_schema(&plan.inputs());
        let names = NamePreserver::new(&plan);
        let rewritten = plan.transform_expressions(|expression| {
            let name = names.save(&expression);
            let rewritten = expression.transform_up(|expression| rewrite(expression, &schema))?;
            Ok(rewritten.update_data(|expression| name.restore(expression)))
        })?;
        // The operators above see the new types.
        if rewritten.transformed { rewritten.map_data(LogicalPlan::recompute_schema) } else { Ok(rewritten) }
    })
    .data()
}
