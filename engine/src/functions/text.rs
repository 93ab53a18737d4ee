//! Writes timestamps, doubles and booleans as PostgreSQL does: `2024-01-01 00:00:00`, `1e+300`,
//! `Infinity`.
//!
//! DataFusion writes `2024-01-01T00:00:00`, `1e300` and `inf`.

use std::sync::Arc;

use chrono::{DateTime, Datelike};
use datafusion::{
    arrow::{
        array::{Array, ArrayRef, AsArray, StringViewArray},
        compute::cast,
        datatypes::{DataType, Float32Type, Float64Type, TimeUnit, TimestampMicrosecondType},
    },
    common::{Result, exec_err, plan_err},
    logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility},
    scalar::ScalarValue,
};

const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);
/// The powers of ten from which on numbers are written with an exponent, for doubles and for
/// singles.
const EXPONENT_MIN: (i32, i32) = (15, 6);
const EXPONENT_MAX_BELOW_ONE: i32 = -5;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Text {
    signature: Signature,
    is_short: bool,
}

/// The function that converts a value to a text.
pub(crate) fn text() -> Arc<ScalarUDF> {
    function(false)
}

/// The same function, with booleans as one letter.
pub(crate) fn short_text() -> Arc<ScalarUDF> {
    function(true)
}

fn function(is_short: bool) -> Arc<ScalarUDF> {
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(Text { signature, is_short }))
}

impl ScalarUDFImpl for Text {
    fn name(&self) -> &'static str {
        if self.is_short { "short_text" } else { "text_of" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [DataType::Boolean | DataType::Timestamp(_, None)] => Ok(DataType::Utf8View),
            [number] if number.is_floating() => Ok(DataType::Utf8View),
            others => plan_err!("{} of {others:?}", self.name()),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = arguments.args.as_slice() else {
            return exec_err!("{} of {} values", self.name(), arguments.args.len());
        };
        match value {
            ColumnarValue::Scalar(scalar) => {
                let written = self.written(&scalar.to_array()?)?;
                ScalarValue::try_from_array(&written, 0).map(ColumnarValue::Scalar)
            }
            ColumnarValue::Array(array) => self.written(array).map(ColumnarValue::Array),
        }
    }
}

impl Text {
    fn written(&self, values: &ArrayRef) -> Result<ArrayRef> {
        let texts: StringViewArray = match values.data_type() {
            DataType::Boolean => {
                let words = if self.is_short { ("t", "f") } else { ("true", "false") };
                let word = |value| if value { words.0 } else { words.1 };
                values.as_boolean().iter().map(|value| value.map(word)).collect()
            }
            DataType::Float64 => {
                let doubles = values.as_primitive::<Float64Type>().iter();
                doubles.map(|value| value.map(double)).collect()
            }
            DataType::Float32 => {
                let singles = values.as_primitive::<Float32Type>().iter();
                singles.map(|value| value.map(single)).collect()
            }
            DataType::Timestamp(_, None) => {
                let micros = cast(values, &TIMESTAMP)?;
                let micros = micros.as_primitive::<TimestampMicrosecondType>().iter();
                micros.map(|value| value.map(timestamp).transpose()).collect::<Result<_>>()?
            }
            other => return exec_err!("{} of {other}", self.name()),
        };
        Ok(Arc::new(texts))
    }
}

fn double(value: f64) -> String {
    number(value, &format!("{value:e}"), &format!("{value}"), EXPONENT_MIN.0)
}

fn single(value: f32) -> String {
    number(value.into(), &format!("{value:e}"), &format!("{value}"), EXPONENT_MIN.1)
}

/// Rust writes the fewest digits that identify a number, as PostgreSQL does.
fn number(value: f64, scientific: &str, plain: &str, exponent_min: i32) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let Some((digits, exponent)) = scientific.split_once('e') else { return plain.to_owned() };
    let Ok(exponent) = exponent.parse::<i32>() else { return plain.to_owned() };
    if exponent > EXPONENT_MAX_BELOW_ONE && exponent < exponent_min {
        return plain.to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

fn timestamp(micros: i64) -> Result<String> {
    let Some(time) = DateTime::from_timestamp_micros(micros) else {
        return exec_err!(
            "a time of {micros} microseconds since 1970 cannot be written as a text, expected a time of the years -262143 to 262142"
        );
    };
    let (year, era) = if time.year() > 0 { (time.year(), "") } else { (1 - time.year(), " BC") };
    let fraction = time.timestamp_subsec_micros();
    let fraction = if fraction == 0 { String::new() } else { format!(".{fraction:06}") };
    Ok(format!("{year:04}-{}{}{era}", time.format("%m-%d %H:%M:%S"), fraction.trim_end_matches('0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_written_with_an_exponent_where_postgresql_does_so() {
        for (value, text) in [
            (1000.0, "1000"),
            (0.1, "0.1"),
            (-0.0, "-0"),
            (1e14, "100000000000000"),
            (1e15, "1e+15"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(double(value), text);
        }
        assert_eq!((single(1e5).as_str(), single(1e6).as_str()), ("100000", "1e+06"));
    }

    #[test]
    fn timestamps_have_a_blank_and_no_zeros_at_their_end() {
        assert_eq!(timestamp(0).unwrap(), "1970-01-01 00:00:00");
        assert_eq!(timestamp(1_500_000).unwrap(), "1970-01-01 00:00:01.5");
        assert_eq!(timestamp(-1).unwrap(), "1969-12-31 23:59:59.999999");
        assert_eq!(timestamp(-62_135_596_800_000_001).unwrap(), "0001-12-31 23:59:59.999999 BC");
        assert!(timestamp(i64::MAX).is_err());
    }
}
