//! Implements `nullif()` of doubles, where the two zeros are equal, and all NaN are equal.
//!
//! DataFusion's version compares bits. It is still used for all other types.

use datafusion::{
    arrow::{
        compute::kernels::{cmp::eq, nullif::nullif},
        datatypes::{DataType, FieldRef},
    },
    common::{Result, cast::as_float64_array},
    functions::core::nullif::NullIfFunc,
    logical_expr::{
        ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature,
    },
};

use super::canonical::canonical_values;
use crate::forward::forward;

#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct NullIf(NullIfFunc);

impl ScalarUDFImpl for NullIf {
    forward! { 0 =>
        fn name(&self) -> &str;
        fn signature(&self) -> &Signature;
        fn return_type(&self, arguments: &[DataType]) -> Result<DataType>;
        fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef>;
        fn documentation(&self) -> Option<&Documentation>;
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if arguments.args.iter().any(|value| value.data_type() != DataType::Float64) {
            return self.0.invoke_with_args(arguments);
        }
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let values = as_float64_array(&arrays[0])?;
        let others = as_float64_array(&arrays[1])?;
        let equal = eq(&canonical_values(values, true), &canonical_values(others, true))?;
        Ok(ColumnarValue::Array(nullif(values, &equal)?))
    }
}
