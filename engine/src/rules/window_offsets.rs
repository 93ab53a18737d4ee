//! Checks the offsets of window functions such as `lag` and `nth_value`.
//!
//! An offset of NULL, and a row number below 1, are refused, because DataFusion would use another
//! offset. The rule also casts the values of `lag` and `lead` and their default to a common type.

use datafusion::{
    arrow::datatypes::DataType,
    common::{DFSchema, config::ConfigOptions, not_impl_err, plan_err, tree_node::Transformed},
    error::Result,
    logical_expr::{Cast, Expr, ExprSchemable, LogicalPlan, cast, expr::WindowFunction},
    optimizer::AnalyzerRule,
    scalar::ScalarValue,
};

use super::{common_types::common_number, expressions::rewritten};

/// The rule that refuses invalid offsets.
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

/// Casts the values of `lag()` and `lead()` to the common type with the default, because DataFusion
/// would truncate the default. Returns whether it did.
fn unify_default(window: &mut WindowFunction, schema: &DFSchema) -> Result<bool> {
    if !matches!(window.fun.name(), "lag" | "lead") {
        return Ok(false);
    }
    let [value, _, default] = window.params.args.as_mut_slice() else { return Ok(false) };
    let Some(constant) = constant(default)? else { return Ok(false) };
    let to = match (value.get_type(schema)?, constant.data_type()) {
        (_, DataType::Null) => return Ok(false),
        (of, DataType::Utf8) => of,
        (of, to) if of == to => of,
        (of, to) if of.is_numeric() && to.is_numeric() => match common_number(&[of, to]) {
            Some(common) => common,
            None => return Ok(false),
        },
        (DataType::Date32, to @ DataType::Timestamp(..)) => to,
        (of, _) => of,
    };
    *default = Expr::Literal(constant.cast_to(&to)?, None);
    if value.get_type(schema)? != to {
        *value = cast(std::mem::take(value), to);
    }
    Ok(true)
}

/// The value of a constant, or of a cast of one.
fn constant(expression: &Expr) -> Result<Option<ScalarValue>> {
    match expression {
        Expr::Literal(value, _) => Ok(Some(value.clone())),
        Expr::Cast(Cast { expr, field }) => match expr.as_ref() {
            Expr::Literal(value, _) => value.cast_to(field.data_type()).map(Some),
            _ => Ok(None),
        },
        _ => Ok(None),
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
