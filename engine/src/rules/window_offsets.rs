//! Which row does a window function look at?
//!
//! An offset of NULL, and a row before the first, are refused: DataFusion takes them for another
//! one. And which type has the value where there is no such row?

use datafusion::{
    arrow::datatypes::DataType,
    common::{DFSchema, config::ConfigOptions, not_impl_err, plan_err, tree_node::Transformed},
    error::Result,
    logical_expr::{
        Expr, ExprSchemable, LogicalPlan, cast, expr::WindowFunction,
        type_coercion::binary::type_union_resolution,
    },
    optimizer::AnalyzerRule,
    scalar::ScalarValue,
};

use super::expressions::rewritten;

/// Refuses offsets that say nothing.
#[derive(Debug)]
pub(crate) struct WindowOffsets;

impl AnalyzerRule for WindowOffsets {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        rewritten(plan, |mut expression, schema| {
            let Expr::WindowFunction(window) = &mut expression else {
                return Ok(Transformed::no(expression));
            };
            check(window)?;
            let changed = unify_default(window, schema)?;
            Ok(if changed { Transformed::yes(expression) } else { Transformed::no(expression) })
        })
    }

    fn name(&self) -> &'static str {
        "window_offsets"
    }
}

/// Gives the values of `lag()` and `lead()` the type that they have in common with the default:
/// DataFusion would cut the default. Whether that changes them.
fn unify_default(window: &mut WindowFunction, schema: &DFSchema) -> Result<bool> {
    if !matches!(window.fun.name(), "lag" | "lead") {
        return Ok(false);
    }
    let [value, _, Expr::Literal(default, _)] = window.params.args.as_mut_slice() else { return Ok(false) };
    let types = (value.get_type(schema)?, default.data_type());
    let to = match types {
        (_, DataType::Null) => return Ok(false),
        (of, to) if of == to => return Ok(false),
        (of, DataType::Utf8) => of,
        (of, to) => match type_union_resolution(&[of, to]) {
            Some(common) => common,
            None => return Ok(false),
        },
    };
    *default = default.cast_to(&to)?;
    *value = cast(std::mem::take(value), to);
    Ok(true)
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
