//! Encodes one column of a batch into buffers, and decodes the column from them.

use super::{
    descriptor::Descriptor,
    lanes,
    lanes::Lanes,
    layout::{Reader, WireError, Writer, malformed},
    text,
};
use arrow::{
    array::{
        Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Decimal128Array, Float64Array,
        PrimitiveArray,
    },
    buffer::{BooleanBuffer, Buffer, NullBuffer},
    datatypes::{
        DataType, Date32Type, Decimal128Type, Float64Type, Int32Type, Int64Type, TimeUnit,
        TimestampMicrosecondType,
    },
    error::ArrowError,
};
use rackscan_format::encoding::integer::Stored;
use std::sync::Arc;

pub(super) fn encode(column: &ArrayRef, writer: &mut Writer<'_>) -> Result<Descriptor, WireError> {
    let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
    if let Some(nulls) = nulls {
        writer.buffer().extend_from_slice(nulls.inner().sliced().as_slice());
    }
    let mut descriptor = Descriptor { nullable: nulls.is_some(), ..Descriptor::default() };
    match column.data_type() {
        DataType::Boolean => {
            let bits = column.as_boolean().values().sliced();
            writer.buffer().extend_from_slice(bits.as_slice());
        }
        DataType::Int32 => descriptor.lanes = encode_integers::<Int32Type>(column, writer),
        DataType::Int64 => descriptor.lanes = encode_integers::<Int64Type>(column, writer),
        DataType::Date32 => descriptor.lanes = encode_integers::<Date32Type>(column, writer),
        DataType::Timestamp(TimeUnit::Microsecond, None) => {
            descriptor.lanes = encode_integers::<TimestampMicrosecondType>(column, writer);
        }
        DataType::Decimal128(_, _) => {
            let values = column.as_primitive::<Decimal128Type>().values();
            descriptor.lanes = lanes::encode_wide(values, nulls, writer.buffer());
        }
        DataType::Float64 => {
            let buffer = writer.buffer();
            for value in column.as_primitive::<Float64Type>().values() {
                buffer.extend_from_slice(&value.to_le_bytes());
            }
        }
        DataType::Utf8View => text::encode(column.as_string_view(), &mut descriptor, writer)?,
        other => return Err(unexpected_type(other).into()),
    }
    Ok(descriptor)
}

fn encode_integers<T>(column: &ArrayRef, writer: &mut Writer<'_>) -> Lanes
where
    T: ArrowPrimitiveType,
    T::Native: Ord + Into<i64>,
{
    lanes::encode(column.as_primitive::<T>().values(), column.nulls(), writer.buffer())
}

pub(super) fn decode(
    descriptor: &Descriptor,
    data_type: &DataType,
    rows: usize,
    reader: &mut Reader<'_>,
) -> Result<ArrayRef, WireError> {
    let nulls = if descriptor.nullable { Some(NullBuffer::new(bits(rows, reader)?)) } else { None };
    let lanes = descriptor.lanes;
    match data_type {
        DataType::Boolean => Ok(Arc::new(BooleanArray::new(bits(rows, reader)?, nulls))),
        DataType::Int32 => integers::<Int32Type>(lanes, rows, nulls, I32_BOUNDS, reader),
        DataType::Date32 => integers::<Date32Type>(lanes, rows, nulls, I32_BOUNDS, reader),
        DataType::Int64 => integers::<Int64Type>(lanes, rows, nulls, I64_BOUNDS, reader),
        DataType::Timestamp(TimeUnit::Microsecond, None) => {
            integers::<TimestampMicrosecondType>(lanes, rows, nulls, I64_BOUNDS, reader)
        }
        DataType::Decimal128(precision, scale) => {
            let values = lanes::decode_wide(lanes, rows, reader)?;
            let array = Decimal128Array::try_new(values.into(), nulls)?;
            Ok(Arc::new(array.with_precision_and_scale(*precision, *scale)?))
        }
        DataType::Float64 => {
            let bytes = reader.buffer(rows * 8)?;
            let values: Vec<f64> =
                bytes.as_chunks::<8>().0.iter().map(|eight| f64::from_le_bytes(*eight)).collect();
            Ok(Arc::new(Float64Array::try_new(values.into(), nulls)?))
        }
        DataType::Utf8View => text::decode(descriptor, rows, nulls, reader),
        other => Err(unexpected_type(other).into()),
    }
}

const I32_BOUNDS: (i128, i128) = (i32::MIN as i128, i32::MAX as i128);
const I64_BOUNDS: (i128, i128) = (i64::MIN as i128, i64::MAX as i128);

/// Decodes integers of a type with these bounds. A value beyond them is refused unless its row is
/// null.
fn integers<T: ArrowPrimitiveType>(
    lanes: Lanes,
    rows: usize,
    nulls: Option<NullBuffer>,
    (low, high): (i128, i128),
    reader: &mut Reader<'_>,
) -> Result<ArrayRef, WireError>
where
    T::Native: Stored,
{
    if (low, high) == I64_BOUNDS || lanes.within(low, high) {
        let values = lanes::decode::<T::Native>(lanes, rows, reader)?;
        return Ok(Arc::new(PrimitiveArray::<T>::try_new(values.into(), nulls)?));
    }
    // The lanes could hold values beyond the type, so each value is checked.
    let wide = lanes::decode::<i64>(lanes, rows, reader)?;
    let is_null = |row: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
    let beyond =
        |(row, value): &(usize, &i64)| !(low..=high).contains(&i128::from(**value)) && !is_null(*row);
    if let Some((row, _)) = wide.iter().enumerate().find(beyond) {
        return malformed("an integer's row", row, format!("a {}", T::DATA_TYPE));
    }
    let values: Vec<T::Native> = wide.into_iter().map(T::Native::from_stored).collect();
    Ok(Arc::new(PrimitiveArray::<T>::try_new(values.into(), nulls)?))
}

fn bits(rows: usize, reader: &mut Reader<'_>) -> Result<BooleanBuffer, WireError> {
    let bytes = reader.buffer(rows.div_ceil(8))?;
    Ok(BooleanBuffer::new(Buffer::from(bytes), 0, rows))
}

fn unexpected_type(data_type: &DataType) -> ArrowError {
    ArrowError::InvalidArgumentError(format!(
        "the batch has a column of type {data_type}, which no scan yields: please report this"
    ))
}
