//! Maps types and constants between Arrow and scan programs.

use super::Untranslatable;
use datafusion::{
    arrow::datatypes::{DataType, TimeUnit},
    scalar::ScalarValue,
};
use rackscan_format::program::{Literal, ValueType};

/// The program's type for an Arrow type, if it has one. All Arrow types of text are one type to a
/// program.
pub(crate) fn value_type(data_type: &DataType) -> Option<ValueType> {
    Some(match data_type {
        DataType::Boolean => ValueType::Boolean,
        DataType::Int32 => ValueType::Int32,
        DataType::Int64 => ValueType::Int64,
        DataType::Date32 => ValueType::Date32,
        DataType::Timestamp(TimeUnit::Microsecond, None) => ValueType::TimestampMicros,
        DataType::Decimal128(precision, scale) => {
            ValueType::Decimal { precision: *precision, scale: u8::try_from(*scale).ok()? }
        }
        DataType::Float64 => ValueType::Float64,
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 => ValueType::Text,
        _ => return None,
    })
}

/// The Arrow type of a program's values.
pub(crate) fn arrow_type(value_type: ValueType) -> DataType {
    rackscan_scan::arrow_type(value_type)
}

/// A constant of a plan as a program's constant.
pub(super) fn literal(value: &ScalarValue) -> Result<Literal, Untranslatable> {
    let Some(value_type) = value_type(&value.data_type()) else {
        return Untranslatable::because(format!("a constant of type {}", value.data_type()));
    };
    if value.is_null() {
        return Ok(Literal::Null(value_type));
    }
    Ok(match (value, value_type) {
        (ScalarValue::Boolean(Some(value)), _) => Literal::Boolean(*value),
        (ScalarValue::Int32(Some(value)), _) => Literal::Int32(*value),
        (ScalarValue::Int64(Some(value)), _) => Literal::Int64(*value),
        (ScalarValue::Date32(Some(value)), _) => Literal::Date32(*value),
        (ScalarValue::TimestampMicrosecond(Some(value), None), _) => Literal::TimestampMicros(*value),
        (ScalarValue::Decimal128(Some(unscaled), _, _), ValueType::Decimal { precision, scale }) => {
            Literal::Decimal { unscaled: *unscaled, precision, scale }
        }
        (ScalarValue::Float64(Some(value)), _) => Literal::Float64(*value),
        (
            ScalarValue::Utf8(Some(text))
            | ScalarValue::Utf8View(Some(text))
            | ScalarValue::LargeUtf8(Some(text)),
            _,
        ) => Literal::Text(text.clone()),
        (other, _) => return Untranslatable::because(format!("the constant {other}")),
    })
}
