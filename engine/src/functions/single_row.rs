//! Implements a function that returns the value of a scalar subquery's row, and fails if the
//! subquery has a second row.

use datafusion::{
    arrow::{
        array::{Array, AsArray},
        datatypes::{DataType, Int64Type},
    },
    common::{Result, exec_err},
    logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility},
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct SingleRow(Signature);

/// `single_row(value, rows)`: the value, or an error if `rows` is more than one.
pub(crate) fn single_row() -> ScalarUDF {
    ScalarUDF::from(SingleRow(Signature::any(2, Volatility::Immutable)))
}

impl ScalarUDFImpl for SingleRow {
    fn name(&self) -> &'static str {
        "single_row"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(arguments[0].clone())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value, rows] = arguments.args.as_slice() else {
            return exec_err!("single_row takes two arguments, found {}", arguments.args.len());
        };
        let rows = rows.to_array(arguments.number_rows)?;
        let rows = rows.as_primitive::<Int64Type>();
        if (0..rows.len()).any(|row| rows.is_valid(row) && rows.value(row) > 1) {
            return exec_err!("more than one row returned by a subquery used as an expression");
        }
        Ok(value.clone())
    }
}
