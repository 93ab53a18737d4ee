//! Converts arrow arrays of every type that is stored in 64 bits to plain integers, and back.

use crate::types::{arrow_scale, arrow_type};
use arrow::{array::ArrayRef, error::ArrowError};
use rackscan_format::program::ValueType;

/// The values of an array of any type that is stored in 64 bits; `None` for other types.
pub(super) fn integers_of(array: &ArrayRef) -> Option<Vec<i64>> {
    use arrow::{
        array::{Array, AsArray},
        datatypes::{DataType, Date32Type, Int32Type, Int64Type, TimestampMicrosecondType},
    };
    match array.data_type() {
        DataType::Int32 => {
            Some(array.as_primitive::<Int32Type>().values().iter().map(|value| i64::from(*value)).collect())
        }
        DataType::Date32 => {
            Some(array.as_primitive::<Date32Type>().values().iter().map(|value| i64::from(*value)).collect())
        }
        DataType::Int64 => Some(array.as_primitive::<Int64Type>().values().to_vec()),
        DataType::Timestamp(_, _) => {
            array.as_primitive_opt::<TimestampMicrosecondType>().map(|array| array.values().to_vec())
        }
        DataType::Boolean => {
            let array = array.as_boolean().values();
            Some(array.iter().map(i64::from).collect())
        }
        _ => None,
    }
}

/// An array of the given type with these values.
pub(super) fn integers_to(
    value_type: ValueType,
    values: Vec<i64>,
    nulls: Option<arrow::buffer::NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    use arrow::array::{
        BooleanArray, Date32Array, Decimal128Array, Int32Array, Int64Array, TimestampMicrosecondArray,
    };
    use rackscan_format::encoding::integer::Stored;
    use std::sync::Arc;
    // The values came from arrays of this type, so none is truncated.
    let narrow = |values: Vec<i64>| -> Vec<i32> { values.into_iter().map(i32::from_stored).collect() };
    Ok(match value_type {
        ValueType::Boolean => {
            let bits = values.iter().map(|value| *value != 0).collect();
            Arc::new(BooleanArray::new(bits, nulls))
        }
        ValueType::Int32 => Arc::new(Int32Array::try_new(narrow(values).into(), nulls)?),
        ValueType::Date32 => Arc::new(Date32Array::try_new(narrow(values).into(), nulls)?),
        ValueType::Int64 => Arc::new(Int64Array::try_new(values.into(), nulls)?),
        ValueType::TimestampMicros => Arc::new(TimestampMicrosecondArray::try_new(values.into(), nulls)?),
        ValueType::Decimal { precision, scale } => {
            let values: Vec<i128> = values.into_iter().map(i128::from).collect();
            let array = Decimal128Array::try_new(values.into(), nulls)?;
            Arc::new(array.with_precision_and_scale(precision, arrow_scale(scale))?)
        }
        other => {
            let data_type = arrow_type(other);
            return Err(ArrowError::ComputeError(format!("{data_type} is not held in 64 bits")));
        }
    })
}
