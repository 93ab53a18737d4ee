//! Which row does a window function look at?
//!
//! An offset of NULL, and a row before the first, are refused: DataFusion takes them for another
//! one.

use datafusion::{
    common::{config::ConfigOptions, not_impl_err, plan_err, tree_node::Transformed},
    error::Result,
    logical_expr::{Expr, LogicalPlan, expr::WindowFunction},
    optimizer::AnalyzerRule,
    scalar::ScalarValue,
};

use super::expressions::rewritten;

/// Refuses offsets that say nothing.
#[derive(Debug)]
pub(crate) struct WindowOffsets;

impl AnalyzerRule for WindowOffsets {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        rewritten(plan, |expression, _| {
            if let Expr::WindowFunction(window) = &expression {
                check(window)?;
            }
            Ok(Transformed::no(expression))
        })
    }

    fn name(&self) -> &'static str {
        "window_offsets"
    }
}

fn check(window: &WindowFunction) -> Result<()> {
    let Some(Expr::Literal(offset, _)) = window.params.args.get(1) else { return Ok(()) };
    match window.fun.name() {
        name @ ("lag" | "lead") if offset.is_null() => {
            not_impl_err!("{name}() with an offset of NULL is not supported, expected a number of rows")
        }
        "nth_value" if matches!(offset, ScalarValue::Int64(Some(row)) if *row <= 0) || offset.is_null() => {
            plan_err!("nth_value() of row {offset}, expected one from 1 on")
        }
        _ => Ok(()),
    }
}
