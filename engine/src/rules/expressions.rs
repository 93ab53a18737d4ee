//! How does a rule change the expressions of a whole plan?

use crate::visitors::{PlanTree, Tree};
use datafusion::{
    common::{
        DFSchema,
        tree_node::{Transformed, TransformedResult},
    },
    error::Result,
    logical_expr::{Expr, LogicalPlan, expr_rewriter::NamePreserver, utils::merge_schema},
};

/// The plan with each expression and each part of one, innermost first, as `rewrite` makes it of
/// the columns that it is over. Columns that come out keep their names.
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
        // Those above see the types that came of it.
        if rewritten.transformed { rewritten.map_data(LogicalPlan::recompute_schema) } else { Ok(rewritten) }
    })
    .data()
}
