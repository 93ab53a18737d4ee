//! Converts values of other types to texts, as PostgreSQL does.
//!
//! DataFusion writes timestamps and doubles differently (`functions/text.rs`). The operands of `||`
//! and `concat` are converted, too. A chain of `||` becomes one call of a function that checks the
//! lengths of its operands first (`functions/text_concat.rs`).

use crate::visitors::PlanTree;
use std::sync::Arc;

use datafusion::{
    arrow::datatypes::DataType,
    common::{
        DFSchema,
        config::ConfigOptions,
        not_impl_err,
        tree_node::{Transformed, TransformedResult},
    },
    error::Result,
    logical_expr::{
        BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF, TryCast, cast,
        expr::ScalarFunction, expr_rewriter::coerce_plan_expr_for_schema,
    },
    optimizer::AnalyzerRule,
};

use super::{expressions::rewritten, recursion::check_final_types};
use crate::functions::{bytea_length, bytea_text, short_text, text, text_concat};

/// The rule that writes values as PostgreSQL does.
#[derive(Debug)]
pub(crate) struct Texts {
    text: Arc<ScalarUDF>,
    /// The function that writes booleans as one letter.
    short: Arc<ScalarUDF>,
    concat: Arc<ScalarUDF>,
    bytea: Arc<ScalarUDF>,
    bytea_length: Arc<ScalarUDF>,
}

impl Default for Texts {
    fn default() -> Self {
        Self {
            text: text(),
            short: short_text(),
            concat: text_concat(),
            bytea: bytea_text(),
            bytea_length: bytea_length(),
        }
    }
}

impl AnalyzerRule for Texts {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = rewritten(plan, |mut expression, schema| {
            let changed = match &mut expression {
                Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field })
                    if field.data_type().is_string() =>
                {
                    if is_binary(expr, schema) {
                        **expr = self.bytea.call(vec![std::mem::take(expr)]);
                        true
                    } else {
                        written(expr, &self.text, false, schema)
                    }
                }
                Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field })
                    if field.data_type().is_nested()
                        && expr.get_type(schema).is_ok_and(|found| found.is_string()) =>
                {
                    return not_impl_err!("a text as an array is not supported");
                }
                Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) => {
                    let is_left_written = written(left, &self.text, false, schema);
                    let is_written = written(right, &self.text, false, schema) || is_left_written;
                    match self.concat_of(left, right, schema)? {
                        Some(call) => {
                            expression = call;
                            true
                        }
                        None => is_written,
                    }
                }
                Expr::ScalarFunction(function)
                    if matches!(function.name(), "length" | "character_length")
                        && matches!(function.args.as_slice(), [bytes] if is_binary(bytes, schema)) =>
                {
                    expression = self.bytea_length.call(std::mem::take(&mut function.args));
                    true
                }
                Expr::ScalarFunction(function) if matches!(function.name(), "concat" | "concat_ws") => {
                    let mut changed = false;
                    for part in &mut function.args {
                        changed |= written(part, &self.short, true, schema);
                    }
                    changed
                }
                _ => false,
            };
            Ok(if changed { Transformed::yes(expression) } else { Transformed::no(expression) })
        })?;
        plan.transform_queries_up(recursion_of_one_type).data()
    }

    fn name(&self) -> &'static str {
        "texts"
    }
}

/// Casts the rows of a step of WITH RECURSIVE to the types of the first rows.
fn recursion_of_one_type(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::RecursiveQuery(mut query) => {
            check_final_types(&query)?;
            let step = Arc::unwrap_or_clone(query.recursive_term);
            query.recursive_term = Arc::new(coerce_plan_expr_for_schema(step, &query.schema)?);
            Ok(Transformed::yes(LogicalPlan::RecursiveQuery(query)))
        }
        other => Ok(Transformed::no(other)),
    }
}

impl Texts {
    /// One call for the two operands of `||` if one of them is a text. Operands of nested `||`
    /// become operands of the call.
    fn concat_of(&self, left: &mut Expr, right: &mut Expr, schema: &DFSchema) -> Result<Option<Expr>> {
        let [of_left, of_right] = [&*left, &*right].map(|operand| match operand {
            Expr::ScalarFunction(call) if call.func == self.concat => Some(DataType::Utf8View),
            other => other.get_type(schema).ok(),
        });
        let (Some(of_left), Some(of_right)) = (of_left, of_right) else { return Ok(None) };
        if of_left.is_nested() || of_right.is_nested() {
            return not_impl_err!("arrays are not supported by ||");
        }
        let is_value = |found: &DataType| {
            found.is_string() || found.is_null() || found.is_primitive() || *found == DataType::Boolean
        };
        let is_text =
            (of_left.is_string() || of_right.is_string()) && is_value(&of_left) && is_value(&of_right);
        if !is_text {
            return Ok(None);
        }
        let mut operands = self.operands(left, &of_left);
        operands.append(&mut self.operands(right, &of_right));
        Ok(Some(self.concat.call(operands)))
    }

    /// The texts of an operand of `||`.
    fn operands(&self, operand: &mut Expr, found: &DataType) -> Vec<Expr> {
        match std::mem::take(operand) {
            Expr::ScalarFunction(ScalarFunction { func, args }) if func == self.concat => args,
            text if found.is_string() => vec![text],
            value => vec![cast(value, DataType::Utf8View)],
        }
    }
}

fn is_binary(value: &Expr, schema: &DFSchema) -> bool {
    value.get_type(schema).is_ok_and(|found| found.is_binary())
}

/// Converts a value to a text if DataFusion would write it differently. Returns whether it did.
fn written(value: &mut Expr, text: &ScalarUDF, is_short: bool, schema: &DFSchema) -> bool {
    let is_ours = match value.get_type(schema) {
        Ok(DataType::Boolean) => is_short,
        Ok(data_type) => data_type.is_floating() || matches!(data_type, DataType::Timestamp(_, None)),
        Err(_) => false,
    };
    if is_ours {
        *value = text.call(vec![std::mem::take(value)]);
    }
    is_ours
}
