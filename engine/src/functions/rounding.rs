//! Rounds a double to the nearest integer, ties to even: `round()` of one argument, and casts to
//! integers.
//!
//! DataFusion's `round` rounds ties away from zero. It still computes `round` with two arguments
//! and of decimals, where it agrees with PostgreSQL.

use std::sync::Arc;

use datafusion::{
    arrow::{
        array::{ArrayRef, AsArray},
        compute::cast,
        datatypes::{DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, FieldRef, Float64Type},
        error::ArrowError,
    },
    common::Result,
    functions::math::round::RoundFunc,
    logical_expr::{
        ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
        Signature, Volatility,
        sort_properties::{ExprProperties, SortProperties},
    },
};

use crate::forward::forward;

#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Round(RoundFunc);

impl ScalarUDFImpl for Round {
    forward! { 0 =>
        fn name(&self) -> &str;
        fn signature(&self) -> &Signature;
        fn return_type(&self, arguments: &[DataType]) -> Result<DataType>;
        fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef>;
        fn output_ordering(&self, input: &[ExprProperties]) -> Result<SortProperties>;
        fn documentation(&self) -> Option<&Documentation>;
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.as_slice() {
            [value] if value.data_type() == DataType::Float64 => to_even(value, arguments.number_rows),
            _ => self.0.invoke_with_args(arguments),
        }
    }
}

/// Rounds a double before it becomes an integer.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Rounded(Signature);

/// The function that rounds doubles before they become integers.
pub(crate) fn rounded() -> Arc<ScalarUDF> {
    let signature = Signature::exact(vec![DataType::Float64], Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Rounded(signature)))
}

impl ScalarUDFImpl for Rounded {
    fn name(&self) -> &'static str {
        "rounded"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        to_even(&arguments.args[0], arguments.number_rows)
    }
}

/// The numbers as a column of integers stores them: rounded to whole numbers.
///
/// # Errors
/// A decimal with more digits than the integer type allows.
pub(crate) fn whole_numbers(numbers: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match numbers.data_type() {
        DataType::Float64 | DataType::Float32 => {
            let doubles = cast(numbers, &DataType::Float64)?;
            let doubles = doubles.as_primitive::<Float64Type>();
            Ok(Arc::new(doubles.unary::<_, Float64Type>(f64::round_ties_even)))
        }
        DataType::Decimal128(_, scale) if *scale > 0 => {
            cast(numbers, &DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0))
        }
        DataType::Decimal256(_, scale) if *scale > 0 => {
            cast(numbers, &DataType::Decimal256(DECIMAL256_MAX_PRECISION, 0))
        }
        _ => Ok(Arc::clone(numbers)),
    }
}

fn to_even(value: &ColumnarValue, rows: usize) -> Result<ColumnarValue> {
    let array = value.to_array(rows)?;
    let doubles = array.as_primitive::<Float64Type>().unary::<_, Float64Type>(f64::round_ties_even);
    Ok(ColumnarValue::Array(Arc::new(doubles)))
}
