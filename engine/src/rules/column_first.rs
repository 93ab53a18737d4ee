//! Swaps the sides of an equation in a filter so that its column is on the left.
//!
//! `DataFusion` 55.2 gives both sides of a filter's equation the name of the left one. With
//! `f(x) = x` it names `x` `f(x)`, then `f(f(x))`, and no longer recognises that rows sorted by `x`
//! are sorted by it. It refused such plans when a scan computed the projection itself, because then
//! only the filter is below the sort.

use crate::visitors::{PlanTree, Tree};
use datafusion::{
    common::{
        config::ConfigOptions,
        tree_node::{Transformed, TransformedResult},
    },
    error::Result,
    logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator},
    optimizer::AnalyzerRule,
};

/// The rule that turns `f(x) = y` around in filters.
#[derive(Debug)]
pub(crate) struct ColumnFirst;

impl AnalyzerRule for ColumnFirst {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_queries_up(|plan| match plan {
            LogicalPlan::Filter(_) => {
                plan.transform_expressions(|filter| filter.transform_up(|part| Ok(turned(part))))
            }
            other => Ok(Transformed::no(other)),
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "column_first"
    }
}

fn turned(expression: Expr) -> Transformed<Expr> {
    match expression {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right })
            if matches!(*right, Expr::Column(_)) && !matches!(*left, Expr::Column(_)) =>
        {
            Transformed::yes(Expr::BinaryExpr(BinaryExpr { left: right, op: Operator::Eq, right: left }))
        }
        other => Transformed::no(other),
    }
}
