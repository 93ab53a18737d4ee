//! What text do other values become?
//!
//! PostgreSQL's (`functions/text.rs`): timestamps and doubles look otherwise in DataFusion. In
//! `||` and `concat` values of other types become texts, too.

use std::sync::Arc;

use datafusion::{
    arrow::datatypes::DataType,
    common::{DFSchema, config::ConfigOptions, tree_node::Transformed},
    error::Result,
    logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF, TryCast},
    optimizer::AnalyzerRule,
};

use super::expressions::rewritten;
use crate::functions::{short_text, text};

/// Writes values as PostgreSQL does.
#[derive(Debug)]
pub(crate) struct Texts {
    text: Arc<ScalarUDF>,
    /// Of booleans one letter.
    short: Arc<ScalarUDF>,
}

impl Default for Texts {
    fn default() -> Self {
        Self { text: text(), short: short_text() }
    }
}

impl AnalyzerRule for Texts {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        rewritten(plan, |mut expression, schema| {
            let changed = match &mut expression {
                Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field })
                    if field.data_type().is_string() =>
                {
                    written(expr, &self.text, false, schema)
                }
                Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) => {
                    let left = written(left, &self.text, false, schema);
                    written(right, &self.text, false, schema) || left
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
        })
    }

    fn name(&self) -> &'static str {
        "texts"
    }
}

/// Makes a text of a value that DataFusion would write in another way; whether it would.
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
