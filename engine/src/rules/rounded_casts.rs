//! Rounds numbers that are cast to integers, which DataFusion truncates.
//!
//! A decimal halfway between two integers is rounded away from zero, a double to the even integer.

use std::sync::Arc;

use datafusion::{
    arrow::datatypes::{DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType},
    common::{DFSchema, config::ConfigOptions, tree_node::Transformed},
    error::Result,
    logical_expr::{Cast, Expr, ExprSchemable, LogicalPlan, ScalarUDF, TryCast},
    optimizer::AnalyzerRule,
};

use super::expressions::rewritten;
use crate::functions::rounded;

/// The rule that rounds numbers which become integers.
#[derive(Debug)]
pub(crate) struct RoundedCasts {
    rounded: Arc<ScalarUDF>,
}

impl Default for RoundedCasts {
    fn default() -> Self {
        Self { rounded: rounded() }
    }
}

impl AnalyzerRule for RoundedCasts {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        rewritten(plan, |mut expression, schema| {
            let changed = match &mut expression {
                Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field })
                    if field.data_type().is_integer() =>
                {
                    self.round(expr, schema)
                }
                _ => false,
            };
            Ok(if changed { Transformed::yes(expression) } else { Transformed::no(expression) })
        })
    }

    fn name(&self) -> &'static str {
        "rounded_casts"
    }
}

impl RoundedCasts {
    /// Rounds a number if it may have a fraction. Returns whether it did.
    fn round(&self, number: &mut Expr, schema: &DFSchema) -> bool {
        let whole = match number.get_type(schema) {
            Ok(DataType::Decimal128(_, scale)) if scale > 0 => {
                DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0)
            }
            Ok(DataType::Decimal256(_, scale)) if scale > 0 => {
                DataType::Decimal256(DECIMAL256_MAX_PRECISION, 0)
            }
            Ok(DataType::Float64 | DataType::Float32) => {
                let double = Expr::Cast(Cast::new(Box::new(std::mem::take(number)), DataType::Float64));
                *number = self.rounded.call(vec![double]);
                return true;
            }
            _ => return false,
        };
        *number = Expr::Cast(Cast::new(Box::new(std::mem::take(number)), whole));
        true
    }
}
