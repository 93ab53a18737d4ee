//! Implements a function that returns its first argument. The second argument, the name of its
//! type, makes the name of the expression unique.

use std::sync::Arc;

use datafusion::{
    arrow::datatypes::{DataType, FieldRef},
    common::Result,
    logical_expr::{
        ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
        simplify::{ExprSimplifyResult, SimplifyContext},
    },
};

pub(crate) const NAMED_CAST: &str = "named_cast";

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct NamedCast(Signature);

impl Default for NamedCast {
    fn default() -> Self {
        Self(Signature::any(2, Volatility::Immutable))
    }
}

impl ScalarUDFImpl for NamedCast {
    fn name(&self) -> &'static str {
        NAMED_CAST
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(arguments[0].clone())
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::clone(&arguments.arg_fields[0]))
    }

    fn simplify(&self, arguments: Vec<Expr>, _: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let value = arguments.into_iter().next();
        Ok(value.map_or(ExprSimplifyResult::Original(Vec::new()), ExprSimplifyResult::Simplified))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(arguments.args[0].clone())
    }
}
