//! Converts texts to bytes and bytes to texts, as PostgreSQL reads and writes `bytea`: `\x616263`,
//! or plain characters with the escapes `\\` and `\ooo` (PostgreSQL, "Binary Data Types").
//!
//! DataFusion's own cast does not interpret this syntax: it takes the characters of the text as the
//! bytes.

use std::sync::Arc;

use datafusion::{
    arrow::{
        array::{
            Array, ArrayRef, AsArray, BinaryViewBuilder, Int64Array, StringViewArray, StringViewBuilder,
        },
        compute::cast,
        datatypes::DataType,
    },
    common::{DataFusionError, Result, internal_err, plan_err},
    logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility},
    scalar::ScalarValue,
};

use super::long_text::{joined_bytes, within_bounds};

pub(crate) const BYTEA: &str = "bytea";

/// What the function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Made {
    Bytes,
    Text,
    Length,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Bytea {
    signature: Signature,
    made: Made,
}

/// The function that converts a text to bytes, and returns bytes unchanged.
pub(crate) fn bytea() -> Arc<ScalarUDF> {
    function(Made::Bytes)
}

/// The function that converts bytes to a text.
pub(crate) fn bytea_text() -> Arc<ScalarUDF> {
    function(Made::Text)
}

/// The function that counts bytes.
pub(crate) fn bytea_length() -> Arc<ScalarUDF> {
    function(Made::Length)
}

fn function(made: Made) -> Arc<ScalarUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Bytea { signature, made }))
}

impl ScalarUDFImpl for Bytea {
    fn name(&self) -> &'static str {
        match self.made {
            Made::Bytes => BYTEA,
            Made::Text => "bytea_text",
            Made::Length => "bytea_length",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let [found] = arguments else {
            return internal_err!("{} of {} values", self.name(), arguments.len());
        };
        match (self.made, found) {
            (Made::Text, bytes) if bytes.is_binary() => Ok(DataType::Utf8View),
            (Made::Length, bytes) if bytes.is_binary() => Ok(DataType::Int64),
            (Made::Bytes, value) if value.is_binary() || value.is_string() || value.is_null() => {
                Ok(DataType::BinaryView)
            }
            (_, other) => plan_err!("cannot cast type {other} to bytea"),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let made = match self.made {
            Made::Bytes => as_bytes(&arguments.args)?,
            Made::Text => as_text(&arguments.args)?,
            Made::Length => lengths(&arguments.args)?,
        };
        match &arguments.args[0] {
            ColumnarValue::Scalar(_) => ScalarValue::try_from_array(&made, 0).map(ColumnarValue::Scalar),
            ColumnarValue::Array(_) => Ok(ColumnarValue::Array(made)),
        }
    }
}

fn as_bytes(arguments: &[ColumnarValue]) -> Result<ArrayRef> {
    let values = ColumnarValue::values_to_arrays(arguments)?.swap_remove(0);
    if !values.data_type().is_string() {
        return Ok(cast(&values, &DataType::BinaryView)?);
    }
    let texts = cast(&values, &DataType::Utf8View)?;
    let texts = texts.as_string_view();
    if !texts.iter().flatten().any(|text| text.contains('\\')) {
        // No copy is needed: texts and bytes have the same views.
        return Ok(Arc::new(texts.clone().to_binary_view()));
    }
    within_bounds(joined_bytes(arguments)?, texts.len(), "a cast to bytea")?;
    let mut bytes = BinaryViewBuilder::with_capacity(texts.len());
    for text in texts {
        bytes.append_option(text.map(bytes_of).transpose()?);
    }
    Ok(Arc::new(bytes.finish()))
}

fn as_text(arguments: &[ColumnarValue]) -> Result<ArrayRef> {
    let values = ColumnarValue::values_to_arrays(arguments)?.swap_remove(0);
    let values = cast(&values, &DataType::BinaryView)?;
    let values = values.as_binary_view();
    let digits = joined_bytes(arguments)?.saturating_mul(2).saturating_add(2 * values.len() as u64);
    within_bounds(digits, values.len(), "a cast of bytea")?;
    let mut texts = StringViewBuilder::with_capacity(values.len());
    for value in values {
        texts.append_option(value.map(text_of));
    }
    let texts: StringViewArray = texts.finish();
    Ok(Arc::new(texts))
}

fn lengths(arguments: &[ColumnarValue]) -> Result<ArrayRef> {
    let values = ColumnarValue::values_to_arrays(arguments)?.swap_remove(0);
    let values = cast(&values, &DataType::BinaryView)?;
    let length = |bytes: &[u8]| i64::try_from(bytes.len()).expect("a value is shorter than 2^63 bytes");
    let lengths = values.as_binary_view().iter().map(|bytes| bytes.map(length));
    Ok(Arc::new(lengths.collect::<Int64Array>()))
}

fn text_of(bytes: &[u8]) -> String {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("\\x");
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)].into());
        text.push(DIGITS[usize::from(byte & 15)].into());
    }
    text
}

fn bytes_of(text: &str) -> Result<Vec<u8>> {
    match text.strip_prefix("\\x") {
        Some(digits) => bytes_of_digits(digits),
        None => bytes_of_escapes(text.as_bytes()).ok_or_else(|| {
            DataFusionError::Execution(format!("Cannot cast value {text:?} to bytea: invalid input syntax"))
        }),
    }
}

fn bytes_of_digits(digits: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(digits.len() / 2);
    let mut high = None;
    for digit in digits.chars() {
        // Blanks are allowed between bytes.
        if high.is_none() && digit.is_ascii_whitespace() {
            continue;
        }
        let Some(value) = digit.to_digit(16) else {
            return Err(DataFusionError::Execution(format!("invalid hexadecimal digit: {digit:?}")));
        };
        match high.take() {
            None => high = Some(value),
            Some(high) => bytes.push(u8::try_from(high << 4 | value).expect("two digits")),
        }
    }
    match high {
        None => Ok(bytes),
        Some(_) => {
            Err(DataFusionError::Execution("invalid hexadecimal data: odd number of digits".to_owned()))
        }
    }
}

/// `None` if a backslash begins no valid escape.
fn bytes_of_escapes(mut text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    while let Some((first, rest)) = text.split_first() {
        (text, _) = match (first, rest) {
            (b'\\', [b'\\', rest @ ..]) => (rest, bytes.push(b'\\')),
            (b'\\', [high @ b'0'..=b'3', middle @ b'0'..=b'7', low @ b'0'..=b'7', rest @ ..]) => {
                (rest, bytes.push((high - b'0') << 6 | (middle - b'0') << 3 | (low - b'0')))
            }
            (b'\\', _) => return None,
            (other, rest) => (rest, bytes.push(*other)),
        };
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_and_written_as_postgresql_does() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("abc", b"abc"),
            ("\\x", b""),
            ("\\x41fF", &[0x41, 0xff]),
            ("\\x41 42\n43", b"ABC"),
            ("a\\\\b\\101\\000\\377", &[b'a', b'\\', b'b', b'A', 0, 255]),
        ] {
            assert_eq!(bytes_of(text).unwrap(), bytes, "{text:?}");
        }
        for text in ["\\x4", "\\x4 1", "\\xg1", "\\", "\\4", "\\400", "\\08a", "a\\b"] {
            assert!(bytes_of(text).is_err(), "{text:?}");
        }
        assert_eq!(text_of(&[0, 0x1f, 0xab]), "\\x001fab");
    }
}
