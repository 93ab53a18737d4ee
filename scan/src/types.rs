//! Maps the types of a program's values and output to arrow types.

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use az::SaturatingAs;
use rackscan_format::program::{ValueType, VerifiedProgram};
use std::sync::Arc;

/// The arrow type of a value. Text is `Utf8View`, because dictionary and FSST pages yield views
/// without copies.
#[must_use]
pub fn arrow_type(value_type: ValueType) -> DataType {
    match value_type {
        ValueType::Boolean => DataType::Boolean,
        ValueType::Int32 => DataType::Int32,
        ValueType::Int64 => DataType::Int64,
        ValueType::Date32 => DataType::Date32,
        ValueType::TimestampMicros => DataType::Timestamp(TimeUnit::Microsecond, None),
        ValueType::Decimal { precision, scale } => DataType::Decimal128(precision, arrow_scale(scale)),
        ValueType::Float64 => DataType::Float64,
        ValueType::Text => DataType::Utf8View,
    }
}

/// The scale of a decimal as arrow counts it. The scale of a verified type is at most its
/// precision, at most 38. A larger one, of a type that nobody has verified, stays larger than every
/// precision, so arrow refuses it with an error.
pub(crate) fn arrow_scale(scale: u8) -> i8 {
    scale.saturating_as::<i8>()
}

/// The schema of a program's batches: columns named by position (`0`, `1`, ...), all nullable.
#[must_use]
pub fn output_schema(program: &VerifiedProgram) -> SchemaRef {
    let types = program.output_types().iter().enumerate();
    let fields: Vec<Field> = types
        .map(|(position, value_type)| Field::new(position.to_string(), arrow_type(*value_type), true))
        .collect();
    Arc::new(Schema::new(fields))
}
