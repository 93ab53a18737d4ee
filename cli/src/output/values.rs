//! Formats values that arrow would print wrongly or not at all: times out of range, bytes, and
//! infinite doubles.

use std::{fmt::Write, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, Float64Array, RecordBatch, RecordBatchOptions, StringViewArray, cast::AsArray},
    compute::{cast, max, min},
    datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type, Schema, TimeUnit},
    error::ArrowError,
    json::writer::{Encoder, EncoderFactory, EncoderOptions, NullableEncoder},
};

/// The first and last second that arrow can print, in the years -262143 and 262142. It prints
/// others as an error.
const SECONDS: std::ops::RangeInclusive<i64> = -8_334_601_228_800..=8_210_266_876_799;
const SECONDS_PER_DAY: i64 = 86_400;

/// Refuses times that arrow cannot print.
pub(super) fn check(batch: &RecordBatch) -> Result<(), ArrowError> {
    for (column, field) in batch.columns().iter().zip(batch.schema_ref().fields()) {
        // Units per second, or seconds per unit.
        let (of_second, seconds) = match column.data_type() {
            DataType::Date32 => (1, SECONDS_PER_DAY),
            DataType::Date64 | DataType::Timestamp(TimeUnit::Millisecond, _) => (1_000, 1),
            DataType::Timestamp(TimeUnit::Second, _) => (1, 1),
            DataType::Timestamp(TimeUnit::Microsecond, _) => (1_000_000, 1),
            // All 64-bit values can be printed.
            _ => continue,
        };
        let numbers = cast(column, &DataType::Int64)?;
        let numbers = numbers.as_primitive::<Int64Type>();
        for number in min(numbers).into_iter().chain(max(numbers)) {
            let second = number.div_euclid(of_second).saturating_mul(seconds);
            if !SECONDS.contains(&second) {
                return Err(ArrowError::InvalidArgumentError(format!(
                    "column {:?} has {number} as a {}, expected a time of the years -262143 to 262142",
                    field.name(),
                    column.data_type(),
                )));
            }
        }
    }
    Ok(())
}

/// The batch with its bytes as text in PostgreSQL's notation: `\x6162`.
pub(super) fn with_bytes_as_texts(batch: &RecordBatch) -> Result<Option<RecordBatch>, ArrowError> {
    let schema = batch.schema_ref();
    if !schema.fields().iter().any(|field| field.data_type().is_binary()) {
        return Ok(None);
    }
    let columns = schema.fields().iter().zip(batch.columns()).map(|(field, column)| {
        if !field.data_type().is_binary() {
            return Ok((Arc::clone(field), Arc::clone(column)));
        }
        let bytes = cast(column, &DataType::BinaryView)?;
        let text = |bytes: &[u8]| {
            bytes.iter().fold("\\x".to_owned(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
        };
        let texts: StringViewArray = bytes.as_binary_view().iter().map(|bytes| bytes.map(text)).collect();
        let field = field.as_ref().clone().with_data_type(DataType::Utf8View);
        Ok((Arc::new(field), Arc::new(texts) as ArrayRef))
    });
    let (fields, columns): (Vec<FieldRef>, Vec<ArrayRef>) = columns.collect::<Result<_, ArrowError>>()?;
    let schema = Schema::new_with_metadata(fields, schema.metadata().clone());
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(schema), columns, &options).map(Some)
}

/// Writes doubles that JSON cannot represent as PostgreSQL does: `"NaN"`, `"Infinity"`,
/// `"-Infinity"`.
#[derive(Debug)]
pub(super) struct Doubles;

impl EncoderFactory for Doubles {
    fn make_default_encoder<'a>(
        &self,
        _field: &'a Arc<Field>,
        array: &'a dyn Array,
        _options: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let Some(doubles) = array.as_primitive_opt::<Float64Type>() else { return Ok(None) };
        if doubles.values().iter().all(|value| value.is_finite()) {
            return Ok(None);
        }
        Ok(Some(NullableEncoder::new(Box::new(DoubleEncoder(doubles)), doubles.nulls().cloned())))
    }
}

struct DoubleEncoder<'a>(&'a Float64Array);

impl Encoder for DoubleEncoder<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let value = self.0.value(row);
        let text = match value {
            _ if value.is_nan() => "\"NaN\"".to_owned(),
            f64::INFINITY => "\"Infinity\"".to_owned(),
            f64::NEG_INFINITY => "\"-Infinity\"".to_owned(),
            finite => serde_json::Value::from(finite).to_string(),
        };
        out.extend_from_slice(text.as_bytes());
    }
}
