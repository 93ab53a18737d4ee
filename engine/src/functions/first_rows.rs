//! Casts the values of the first rows of WITH RECURSIVE to the type that the column has in all
//! rows.
//!
//! A decimal gets the maximum number of digits, like PostgreSQL's `numeric`: `0.5` alone would have
//! one digit, and the next row of `n + 1` two. NULL becomes a text.

use std::sync::Arc;

use datafusion::{
    arrow::datatypes::{DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, FieldRef},
    common::{Result, internal_err},
    logical_expr::{
        Cast, ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
        simplify::{ExprSimplifyResult, SimplifyContext},
    },
};

pub(crate) const FIRST_ROWS: &str = "first_rows";

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct FirstRows(Signature);

impl Default for FirstRows {
    fn default() -> Self {
        Self(Signature::any(1, Volatility::Immutable))
    }
}

fn type_of_column(first: &DataType) -> DataType {
    match first {
        DataType::Decimal128(_, scale) => DataType::Decimal128(DECIMAL128_MAX_PRECISION, *scale),
        DataType::Decimal256(_, scale) => DataType::Decimal256(DECIMAL256_MAX_PRECISION, *scale),
        DataType::Null => DataType::Utf8View,
        other => other.clone(),
    }
}

impl ScalarUDFImpl for FirstRows {
    fn name(&self) -> &'static str {
        FIRST_ROWS
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(type_of_column(&arguments[0]))
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let first = arguments.arg_fields[0].as_ref().clone();
        let data_type = type_of_column(first.data_type());
        Ok(Arc::new(first.with_data_type(data_type)))
    }

    fn simplify(&self, mut arguments: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let Some(first) = arguments.pop() else { return internal_err!("{FIRST_ROWS} of nothing") };
        let found = context.get_data_type(&first)?;
        let data_type = type_of_column(&found);
        Ok(ExprSimplifyResult::Simplified(match data_type == found {
            true => first,
            false => Expr::Cast(Cast::new(Box::new(first), data_type)),
        }))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        arguments.args[0].cast_to(arguments.return_type(), None)
    }
}
