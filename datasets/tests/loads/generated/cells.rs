//! One value, independent of the arrow type that contains it, for comparisons.
//!
//! It states the meaning of the product's types independently, in integers: the casts of the
//! product are not used.

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch},
    datatypes::{
        DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Float32Type,
        Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType,
        TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
        UInt32Type, UInt64Type,
    },
};

/// A value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cell {
    Null,
    Boolean(bool),
    Integer(i128),
    /// Its bits; of those that are no number always the same.
    Double(u64),
    /// The unscaled number and the scale.
    Decimal(i128, i8),
    /// Days since 1970.
    Date(i64),
    /// Microseconds since 1970.
    Timestamp(i128),
    Text(String),
}

pub(super) type Row = Vec<Cell>;

impl Cell {
    pub(super) fn double(value: f64) -> Self {
        Self::Double(if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() })
    }

    /// The type that a column of such values has in the cluster.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Boolean(_) => "boolean",
            Self::Integer(_) => "bigint",
            Self::Double(_) => "double",
            Self::Decimal(..) => "decimal",
            Self::Date(_) => "date",
            Self::Timestamp(_) => "timestamp",
            Self::Null | Self::Text(_) => "text",
        }
    }
}

/// The rows of a batch.
pub(super) fn rows_of(batch: &RecordBatch) -> Vec<Row> {
    (0..batch.num_rows()).map(|row| batch.columns().iter().map(|array| cell(array, row)).collect()).collect()
}

fn cell(array: &ArrayRef, row: usize) -> Cell {
    if array.is_null(row) {
        return Cell::Null;
    }
    macro_rules! value {
        ($type:ty) => {
            array.as_primitive::<$type>().value(row)
        };
    }
    match array.data_type() {
        DataType::Boolean => Cell::Boolean(array.as_boolean().value(row)),
        DataType::Int8 => Cell::Integer(value!(Int8Type).into()),
        DataType::Int16 => Cell::Integer(value!(Int16Type).into()),
        DataType::Int32 => Cell::Integer(value!(Int32Type).into()),
        DataType::Int64 => Cell::Integer(value!(Int64Type).into()),
        DataType::UInt8 => Cell::Integer(value!(UInt8Type).into()),
        DataType::UInt16 => Cell::Integer(value!(UInt16Type).into()),
        DataType::UInt32 => Cell::Integer(value!(UInt32Type).into()),
        DataType::UInt64 => Cell::Integer(value!(UInt64Type).into()),
        DataType::Float32 => Cell::double(value!(Float32Type).into()),
        DataType::Float64 => Cell::double(value!(Float64Type)),
        DataType::Decimal32(_, scale) => Cell::Decimal(value!(Decimal32Type).into(), *scale),
        DataType::Decimal64(_, scale) => Cell::Decimal(value!(Decimal64Type).into(), *scale),
        DataType::Decimal128(_, scale) => Cell::Decimal(value!(Decimal128Type), *scale),
        DataType::Date32 => Cell::Date(value!(Date32Type).into()),
        DataType::Date64 => Cell::Date(value!(Date64Type).div_euclid(86_400_000)),
        DataType::Timestamp(unit, _) => Cell::Timestamp(match unit {
            TimeUnit::Second => i128::from(value!(TimestampSecondType)) * 1_000_000,
            TimeUnit::Millisecond => i128::from(value!(TimestampMillisecondType)) * 1000,
            TimeUnit::Microsecond => value!(TimestampMicrosecondType).into(),
            TimeUnit::Nanosecond => i128::from(value!(TimestampNanosecondType)).div_euclid(1000),
        }),
        DataType::Utf8 => Cell::Text(array.as_string::<i32>().value(row).to_owned()),
        DataType::LargeUtf8 => Cell::Text(array.as_string::<i64>().value(row).to_owned()),
        DataType::Utf8View => Cell::Text(array.as_string_view().value(row).to_owned()),
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            cell(dictionary.values(), dictionary.normalized_keys()[row])
        }
        other => panic!("no column has the type {other}"),
    }
}
