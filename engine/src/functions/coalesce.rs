//! Implements `coalesce()` of dates, times or booleans together with constant texts:
//! `coalesce(d, '2024-01-31')`.
//!
//! DataFusion's version finds no common type for them. `rules/operand_types.rs` has already refused
//! texts that are not constants.

use datafusion::{
    arrow::datatypes::{DataType, FieldRef},
    common::Result,
    functions::core::coalesce::CoalesceFunc,
    logical_expr::{
        ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature,
        simplify::{ExprSimplifyResult, SimplifyContext},
    },
};

use crate::forward::forward;

#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Coalesce(CoalesceFunc);

impl ScalarUDFImpl for Coalesce {
    forward! { 0 =>
        fn name(&self) -> &str;
        fn signature(&self) -> &Signature;
        fn return_type(&self, arguments: &[DataType]) -> Result<DataType>;
        fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef>;
        fn simplify(&self, arguments: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult>;
        fn short_circuits(&self) -> bool;
        fn documentation(&self) -> Option<&Documentation>;
        fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue>;
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let is_text = |found: &DataType| {
            matches!(found, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null)
        };
        let mut others = arguments.iter().filter(|found| !is_text(found));
        match others.next() {
            Some(first) if !first.is_numeric() && others.all(|other| other == first) => {
                Ok(vec![first.clone(); arguments.len()])
            }
            _ => self.0.coerce_types(arguments),
        }
    }

    fn conditional_arguments<'a>(&self, arguments: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.0.conditional_arguments(arguments)
    }
}
