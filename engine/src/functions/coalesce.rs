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

#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Coalesce(CoalesceFunc);

impl ScalarUDFImpl for Coalesce {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
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

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.0.return_type(arguments)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.0.return_field_from_args(arguments)
    }

    fn simplify(&self, arguments: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.0.simplify(arguments, context)
    }

    fn conditional_arguments<'a>(&self, arguments: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.0.conditional_arguments(arguments)
    }

    fn short_circuits(&self) -> bool {
        self.0.short_circuits()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.0.invoke_with_args(arguments)
    }
}
