//! Implements a function that returns its argument and declares that it may be NULL.
//!
//! DataFusion assumes that a column declared NOT NULL has no NULL, also where a row is missing (for
//! example in an outer join).

use std::sync::Arc;

use datafusion::{
    arrow::datatypes::{DataType, FieldRef},
    common::Result,
    logical_expr::{
        ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    },
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Nullable(Signature);

/// The function.
pub(crate) fn nullable() -> Arc<ScalarUDF> {
    // Volatile, so that it is computed when the query runs: a constant in its place would again be
    // known to be not NULL.
    Arc::new(ScalarUDF::new_from_impl(Nullable(Signature::any(1, Volatility::Volatile))))
}

impl ScalarUDFImpl for Nullable {
    fn name(&self) -> &'static str {
        "nullable"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(arguments[0].clone())
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::new(arguments.arg_fields[0].as_ref().clone().with_nullable(true)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(arguments.args[0].clone())
    }
}
