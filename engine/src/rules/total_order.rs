//! Corrects a top-k that orders by doubles: it orders by integers instead.
//!
//! The integers have the order in which a sort puts the doubles, IEEE 754's total order: -0.0 comes
//! before 0.0. DataFusion 55.2 uses that order for the rows of a top-k, too, but rules rows out by
//! a comparison for which both zeros are equal. So it loses rows with 0.0 once the last row that it
//! keeps has -0.0. Integers have only one order.
//!
//! A sort without a limit rules no rows out and stays unchanged.

use datafusion::{
    arrow::datatypes::{DataType, Int64Type},
    common::{cast::as_float64_array, tree_node::Transformed},
    error::Result,
    logical_expr::{
        Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
        Signature, Volatility,
    },
    optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule},
};
use std::sync::Arc;

/// The rule that orders a top-k by the positions of doubles instead of the doubles.
#[derive(Debug)]
pub(crate) struct TotalOrderRule {
    place: Arc<ScalarUDF>,
}

impl Default for TotalOrderRule {
    fn default() -> Self {
        let signature = Signature::exact(vec![DataType::Float64], Volatility::Immutable);
        Self { place: Arc::new(ScalarUDF::new_from_impl(Place { signature })) }
    }
}

impl OptimizerRule for TotalOrderRule {
    fn name(&self) -> &'static str {
        "total_order"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Sort(mut sort) = plan else { return Ok(Transformed::no(plan)) };
        if sort.fetch.is_none() {
            return Ok(Transformed::no(LogicalPlan::Sort(sort)));
        }
        let mut is_changed = false;
        for key in &mut sort.expr {
            let found = key.expr.get_type(sort.input.schema())?;
            if !found.is_floating() {
                continue;
            }
            let value = key.expr.clone();
            let is_double = found == DataType::Float64;
            let double =
                if is_double { value } else { Expr::Cast(Cast::new(Box::new(value), DataType::Float64)) };
            key.expr = self.place.call(vec![double]);
            is_changed = true;
        }
        let sort = LogicalPlan::Sort(sort);
        Ok(if is_changed { Transformed::yes(sort) } else { Transformed::no(sort) })
    }
}

/// The function that returns the position of a double among all doubles.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Place {
    signature: Signature,
}

impl ScalarUDFImpl for Place {
    fn name(&self) -> &'static str {
        "total_order"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let places = as_float64_array(&arrays[0])?.unary::<_, Int64Type>(place);
        Ok(ColumnarValue::Array(Arc::new(places)))
    }
}

/// The same order as `f64::total_cmp`.
fn place(value: f64) -> i64 {
    let bits = value.to_bits().cast_signed();
    bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn places_lie_in_the_total_order_of_doubles() {
        let mut values = [
            -f64::NAN,
            f64::NEG_INFINITY,
            f64::MIN,
            -1.5,
            -5e-324,
            -0.0,
            0.0,
            5e-324,
            1.5,
            f64::MAX,
            f64::INFINITY,
            f64::NAN,
        ];
        values.sort_unstable_by(f64::total_cmp);
        assert!(values.is_sorted_by(|one, two| place(*one) < place(*two)));
    }
}
