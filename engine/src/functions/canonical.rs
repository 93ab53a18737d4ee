//! Implements `one_nan(x)`, which maps every NaN of a double to one NaN, and `canonical(x)`, which
//! also maps -0.0 to 0.0.
//!
//! Processors compute NaN with a sign (for 0/0, on x86), arrow orders doubles by their bits, and
//! DataFusion's DISTINCT aggregates treat 0.0 and -0.0 as different values. PostgreSQL has one NaN,
//! which is larger than every number, and its two zeros are equal.

use std::sync::Arc;

use datafusion::{
    arrow::{
        array::Float64Array,
        datatypes::{DataType, Float64Type},
    },
    common::{Result, cast::as_float64_array},
    logical_expr::{
        Cast, ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
        Volatility,
    },
};

/// The name of the function that maps all NaN to one.
pub(crate) const ONE_NAN: &str = "one_nan";

#[derive(Debug, PartialEq, Eq, Hash)]
struct Canonical {
    signature: Signature,
    /// Whether -0.0 also becomes 0.0.
    one_zero: bool,
}

/// The function that maps all NaN to one.
pub(crate) fn one_nan() -> Arc<ScalarUDF> {
    function(false)
}

/// The function that maps all NaN to one and -0.0 to 0.0.
pub(crate) fn canonical() -> Arc<ScalarUDF> {
    function(true)
}

fn function(one_zero: bool) -> Arc<ScalarUDF> {
    let signature = Signature::exact(vec![DataType::Float64], Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Canonical { signature, one_zero }))
}

/// Applies one of these functions to an expression, if that is a double.
pub(crate) fn of_double(
    function: &ScalarUDF,
    expression: Expr,
    schema: &dyn datafusion::common::ExprSchema,
) -> Option<Expr> {
    let double = match expression.get_type(schema).ok()? {
        DataType::Float64 => expression,
        DataType::Float16 | DataType::Float32 => {
            Expr::Cast(Cast::new(Box::new(expression), DataType::Float64))
        }
        _ => return None,
    };
    Some(function.call(vec![double]))
}

impl ScalarUDFImpl for Canonical {
    fn name(&self) -> &'static str {
        if self.one_zero { "canonical" } else { ONE_NAN }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let doubles = canonical_values(as_float64_array(&arrays[0])?, self.one_zero);
        Ok(ColumnarValue::Array(Arc::new(doubles)))
    }
}

/// The same doubles with one NaN, and with one zero if that is asked for.
pub(super) fn canonical_values(doubles: &Float64Array, one_zero: bool) -> Float64Array {
    doubles.unary::<_, Float64Type>(|value| {
        if value.is_nan() {
            f64::NAN
        } else if one_zero && value == 0.0 {
            0.0
        } else {
            value
        }
    })
}
