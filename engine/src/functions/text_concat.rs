//! Implements `||` of texts, with a limit on the length of its results. A NULL operand makes the
//! result NULL.
//!
//! DataFusion's operator reserves no memory: a query whose WITH doubles a text at each step
//! (`s || s`) uses all memory of the host after a few steps. Ours computes the length first.

use std::sync::Arc;

use datafusion::{
    arrow::{
        array::{Array, ArrayRef, AsArray, StringViewBuilder},
        compute::cast,
        datatypes::DataType,
    },
    common::Result,
    logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility},
    scalar::ScalarValue,
};

use super::long_text::{joined_bytes, within_bounds};

#[derive(Debug, PartialEq, Eq, Hash)]
struct TextConcat {
    signature: Signature,
}

/// The function that joins all its arguments to one text.
pub(crate) fn text_concat() -> Arc<ScalarUDF> {
    let signature = Signature::variadic(vec![DataType::Utf8View], Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(TextConcat { signature }))
}

impl ScalarUDFImpl for TextConcat {
    fn name(&self) -> &'static str {
        "text_concat"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { arguments.number_rows };
        within_bounds(joined_bytes(&arguments.args)?, rows, "||")?;
        let texts = texts(&arguments.args, rows)?;
        Ok(if is_constant {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&texts, 0)?)
        } else {
            ColumnarValue::Array(texts)
        })
    }
}

/// The joined text of each row.
fn texts(arguments: &[ColumnarValue], rows: usize) -> Result<ArrayRef> {
    let operands = arguments.iter().map(|argument| match argument {
        ColumnarValue::Scalar(scalar) => Ok((cast(&scalar.to_array()?, &DataType::Utf8View)?, true)),
        ColumnarValue::Array(array) => Ok((cast(array, &DataType::Utf8View)?, false)),
    });
    let operands = operands.collect::<Result<Vec<_>>>()?;
    let operands: Vec<_> =
        operands.iter().map(|(values, is_constant)| (values.as_string_view(), *is_constant)).collect();
    let mut texts = StringViewBuilder::with_capacity(rows);
    let mut text = String::new();
    for row in 0..rows {
        let mut parts = operands.iter().map(|(values, is_constant)| {
            let row = if *is_constant { 0 } else { row };
            values.is_valid(row).then(|| values.value(row))
        });
        text.clear();
        let is_known = parts.all(|part| part.map(|part| text.push_str(part)).is_some());
        texts.append_option(is_known.then_some(text.as_str()));
    }
    Ok(Arc::new(texts.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::StringViewArray;

    #[test]
    fn a_row_with_null_among_its_operands_is_null() {
        let operand = ColumnarValue::Array(Arc::new(StringViewArray::from(vec![Some("a"), None, Some("c")])));
        let constant =
            |text: Option<&str>| ColumnarValue::Scalar(ScalarValue::Utf8View(text.map(Into::into)));
        let of = |constant| texts(&[operand.clone(), constant, operand.clone()], 3).unwrap();
        let found = of(constant(Some("-")));
        assert_eq!(found.as_string_view().iter().collect::<Vec<_>>(), [Some("a-a"), None, Some("c-c")]);
        assert_eq!(of(constant(None)).null_count(), 3);
    }
}
