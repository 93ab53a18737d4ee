//! Wraps window functions that return values without a fixed size, so that the memory of these
//! values is counted.

use datafusion::{
    common::{config::ConfigOptions, tree_node::Transformed},
    error::Result,
    logical_expr::{
        Expr, ExprSchemable, LogicalPlan, WindowFrame, WindowFrameBound, WindowFrameUnits,
        WindowFunctionDefinition, expr::WindowFunction,
    },
    optimizer::AnalyzerRule,
};

use super::expressions::rewritten;
use crate::functions::metered;

/// The rule that wraps such functions in ones that reserve memory for their values.
#[derive(Debug)]
pub(crate) struct MeteredFunctions;

impl AnalyzerRule for MeteredFunctions {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        rewritten(plan, |mut expression, schema| {
            let Expr::WindowFunction(window) = &expression else {
                return Ok(Transformed::no(expression));
            };
            let Some(fun) = metered(&window.fun, &expression.get_type(schema)?, is_constant(window)) else {
                return Ok(Transformed::no(expression));
            };
            if let Expr::WindowFunction(window) = &mut expression {
                window.fun = fun;
            }
            Ok(Transformed::yes(expression))
        })
    }

    fn name(&self) -> &'static str {
        "metered_functions"
    }
}

/// Whether an aggregate has one value for all rows of a partition, which DataFusion makes once.
fn is_constant(window: &WindowFunction) -> bool {
    let WindowFrame { units, start_bound, end_bound, .. } = &window.params.window_frame;
    let all_peers = *units == WindowFrameUnits::Range && window.params.order_by.is_empty();
    let is_wide = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::CurrentRow => all_peers,
        _ => bound.is_unbounded(),
    };
    let is_aggregate = matches!(window.fun, WindowFunctionDefinition::AggregateUDF(_));
    is_aggregate && is_wide(start_bound) && is_wide(end_bound)
}
