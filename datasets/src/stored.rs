//! Converts arrow columns to their stored form.
//!
//! ```text
//! boolean, integers, dates, timestamps, decimals   Int64Array: 0 and 1, values, days, microseconds, unscaled values
//! floats                                           Float64Array
//! text                                             StringArray, LargeStringArray or StringViewArray
//! dictionaries                                     their values
//! ```
//!
//! Invariants
//! - No value changes silently: a value that does not fit is a [`ValueFault`]. There are three
//!   exceptions, conversions that users expect: timestamps with a zone become UTC without one,
//!   nanoseconds are rounded down to microseconds, and floats become doubles.

use std::{ops::RangeInclusive, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, Decimal128Array, Int64Array, StringArray, cast::AsArray, new_empty_array},
    buffer::NullBuffer,
    compute::{CastOptions, cast, cast_with_options},
    datatypes::{
        DECIMAL128_MAX_PRECISION, DataType, Date32Type, Date64Type, Decimal128Type, Field, Float64Type,
        Int64Type, TimeUnit, TimestampMicrosecondType, TimestampNanosecondType,
    },
    error::ArrowError,
    util::display::{ArrayFormatter, FormatOptions},
};
use rackscan_format::{
    limits::DECIMAL_DIGITS_MAX,
    schema::{ColumnDefinition, ColumnType},
};

use crate::{
    LoadError,
    limits::{DAY_MAX, DAY_MIN, SHOWN_CHARACTERS_MAX, TEXT_BYTES_MAX},
};

/// Milliseconds of a day: 64-bit dates of arrow count milliseconds.
const DAY_MILLISECONDS: i64 = 86_400_000;
const DAY_MICROSECONDS: i64 = 1000 * DAY_MILLISECONDS;

/// Rows whose columns are in their stored form.
#[derive(Clone, Debug)]
pub(crate) struct StoredRows {
    /// One array per column of the table.
    pub(crate) columns: Vec<ArrayRef>,
    /// The number of rows.
    pub(crate) rows: usize,
    /// Bytes of all texts.
    pub(crate) text_bytes: usize,
}

impl StoredRows {
    /// Takes columns in their stored form, all of the same length.
    pub(crate) fn new(columns: Vec<ArrayRef>) -> Self {
        let texts = columns.iter().filter(|array| array.data_type().is_string());
        let text_bytes = texts.map(|array| text_lengths(array).sum::<usize>()).sum();
        let rows = columns.first().map_or(0, |array| array.len());
        Self { columns, rows, text_bytes }
    }
}

/// How the columns of a source are converted to those of a table.
#[derive(Clone, Debug)]
pub(crate) struct Conversion {
    columns: Vec<ColumnConversion>,
}

#[derive(Clone, Debug)]
struct ColumnConversion {
    definition: ColumnDefinition,
    /// The arrow types to cast to, one after the other.
    casts: Vec<DataType>,
}

/// A value that does not fit its column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValueFault {
    pub(crate) column: String,
    /// The row within the batch.
    pub(crate) row: usize,
    pub(crate) found: String,
    pub(crate) expected: String,
}

/// Why rows have no stored form.
#[derive(Debug)]
pub(crate) enum ConversionFault {
    /// Some or all values of a column that do not fit it; at least one.
    Values(Vec<ValueFault>),
    Arrow(ArrowError),
}

impl ConversionFault {
    /// The load error for the first of the values. `rows_before` is the number of rows before this
    /// batch.
    pub(crate) fn in_table(self, table: &str, action: &'static str, rows_before: u64) -> LoadError {
        let table = table.to_owned();
        match self {
            Self::Arrow(source) => LoadError::Rows { table, action, source },
            Self::Values(faults) => {
                let ValueFault { column, row, found, expected } = faults[0].clone();
                LoadError::Value { table, row: rows_before + row as u64 + 1, column, found, expected }
            }
        }
    }
}

impl From<ArrowError> for ConversionFault {
    fn from(error: ArrowError) -> Self {
        Self::Arrow(error)
    }
}

impl Conversion {
    /// The conversion of a source whose columns have these arrow types.
    pub(crate) fn of<'f>(
        table: &str,
        fields: impl IntoIterator<Item = &'f Field>,
    ) -> Result<Self, LoadError> {
        let column = |field: &Field| {
            let (column_type, casts) =
                stored_type(field.data_type()).ok_or_else(|| unsupported(table, field))?;
            let name = field.name().clone();
            let definition = ColumnDefinition { name, column_type, nullable: field.is_nullable() };
            Ok(ColumnConversion { definition, casts })
        };
        Ok(Self { columns: fields.into_iter().map(column).collect::<Result<_, LoadError>>()? })
    }

    /// The conversion of texts that are to be parsed as these arrow types.
    pub(crate) fn of_texts<'f>(
        table: &str,
        fields: impl IntoIterator<Item = &'f Field>,
    ) -> Result<Self, LoadError> {
        let fields: Vec<&Field> = fields.into_iter().collect();
        let mut parsed = Self::of(table, fields.iter().copied())?;
        for (column, field) in parsed.columns.iter_mut().zip(fields) {
            if column.definition.column_type == ColumnType::Text {
                column.casts.clear();
            } else if column.casts.first() != Some(field.data_type()) {
                column.casts.insert(0, field.data_type().clone());
            }
        }
        Ok(parsed)
    }

    /// The definitions of the table's columns.
    pub(crate) fn definitions(&self) -> Vec<ColumnDefinition> {
        self.columns.iter().map(|column| column.definition.clone()).collect()
    }

    /// The stored form of no rows.
    pub(crate) fn no_rows(&self) -> StoredRows {
        let empty = |column: &ColumnConversion| match column.definition.column_type {
            ColumnType::Float64 => new_empty_array(&DataType::Float64),
            ColumnType::Text => new_empty_array(&DataType::Utf8),
            _ => new_empty_array(&DataType::Int64),
        };
        StoredRows::new(self.columns.iter().map(empty).collect())
    }

    /// Converts rows of the source to their stored form.
    pub(crate) fn stored(&self, columns: &[ArrayRef]) -> Result<StoredRows, ConversionFault> {
        let columns = self.columns.iter().zip(columns).map(|(column, array)| column.stored(array));
        Ok(StoredRows::new(columns.collect::<Result<_, _>>()?))
    }
}

impl ColumnConversion {
    fn stored(&self, array: &ArrayRef) -> Result<ArrayRef, ConversionFault> {
        let options = CastOptions { safe: true, ..CastOptions::default() };
        let mut cast = ArrayRef::clone(array);
        for data_type in &self.casts {
            cast = match (cast.data_type(), data_type) {
                (DataType::Timestamp(TimeUnit::Nanosecond, _), DataType::Timestamp(..)) => {
                    let nanos = cast.as_primitive::<TimestampNanosecondType>();
                    let micros = nanos.unary::<_, TimestampMicrosecondType>(|nanos| nanos.div_euclid(1000));
                    Arc::new(micros)
                }
                (DataType::Date64, DataType::Date32) => {
                    let millis = cast.as_primitive::<Date64Type>();
                    let day = |millis: i64| i32::try_from(millis.div_euclid(DAY_MILLISECONDS)).ok();
                    Arc::new(millis.unary_opt::<_, Date32Type>(day))
                }
                _ => cast_with_options(&cast, data_type, &options)?,
            };
        }
        let lost = lost_rows(array, &cast);
        if !lost.is_empty() {
            return Err(ConversionFault::Values(lost.iter().map(|row| self.fault(array, *row)).collect()));
        }
        match self.definition.column_type {
            ColumnType::Decimal { precision, .. } => {
                let decimals = cast.as_primitive::<Decimal128Type>();
                unscaled(decimals, precision).map_err(|row| {
                    // Shown with all of its digits: arrow drops digits beyond the precision of the
                    // type.
                    let wide =
                        decimals.clone().with_precision_and_scale(DECIMAL128_MAX_PRECISION, decimals.scale());
                    wide.map_or_else(ConversionFault::from, |wide| {
                        ConversionFault::Values(vec![self.fault(&(Arc::new(wide) as ArrayRef), row)])
                    })
                })
            }
            ColumnType::Text => {
                let lengths = text_lengths(&cast).enumerate();
                let too_long = lengths.filter(|(_, bytes)| *bytes > TEXT_BYTES_MAX);
                let faults: Vec<_> = too_long.map(|(row, bytes)| self.text_fault(row, bytes)).collect();
                if faults.is_empty() { Ok(cast) } else { Err(ConversionFault::Values(faults)) }
            }
            ColumnType::Date32 => self.times(cast, DAY_MIN..=DAY_MAX),
            ColumnType::TimestampMicros => {
                let day = DAY_MICROSECONDS;
                self.times(cast, DAY_MIN * day..=DAY_MAX * day + (day - 1))
            }
            _ => Ok(cast),
        }
    }

    /// The column, if all of its dates or times can be printed.
    fn times(&self, times: ArrayRef, known: RangeInclusive<i64>) -> Result<ArrayRef, ConversionFault> {
        let values = times.as_primitive::<Int64Type>();
        // A fast check that includes values under NULL; if it fails, only valid values are checked.
        if values.values().iter().all(|value| known.contains(value)) {
            return Ok(times);
        }
        let beyond = values.iter().enumerate().filter_map(|(row, value)| Some((row, value?)));
        let beyond = beyond.filter(|(_, value)| !known.contains(value));
        let expected = "a time of the years -262143 to 262142";
        let faults: Vec<_> = beyond
            .map(|(row, value)| self.fault_of(row, format!("the number {value}"), expected.to_owned()))
            .collect();
        if faults.is_empty() { Ok(times) } else { Err(ConversionFault::Values(faults)) }
    }

    fn fault(&self, array: &ArrayRef, row: usize) -> ValueFault {
        let number = || cast(array, &DataType::Int64).and_then(|numbers| text_of(&numbers, row));
        let found = text_of(array, row).or_else(|_| number().map(|number| format!("the number {number}")));
        let found = found.unwrap_or_else(|error| error.to_string());
        let is_long = found.len() > SHOWN_CHARACTERS_MAX;
        let found = if is_long || array.data_type().is_string() { excerpt(&found) } else { found };
        self.fault_of(row, found, format!("a value of type {}", self.definition.column_type))
    }

    fn text_fault(&self, row: usize, bytes: usize) -> ValueFault {
        self.fault_of(row, format!("a text of {bytes} bytes"), format!("at most {TEXT_BYTES_MAX} bytes"))
    }

    fn fault_of(&self, row: usize, found: String, expected: String) -> ValueFault {
        ValueFault { column: self.definition.name.clone(), row, found, expected }
    }
}

/// A value as text.
fn text_of(array: &dyn Array, row: usize) -> Result<String, ArrowError> {
    let options = FormatOptions::new().with_display_error(false);
    ArrayFormatter::try_new(array, &options)?.value(row).try_to_string()
}

/// The column type for an arrow type, and the arrow types to cast through to the stored form. A
/// decimal's last step, to its unscaled integer, is not a cast.
fn stored_type(data_type: &DataType) -> Option<(ColumnType, Vec<DataType>)> {
    use DataType as A;
    let integer = |column_type: ColumnType| (column_type, vec![A::Int64]);
    Some(match data_type {
        A::Boolean => integer(ColumnType::Boolean),
        A::Int8 | A::Int16 | A::Int32 | A::UInt8 | A::UInt16 => integer(ColumnType::Int32),
        A::UInt32 | A::UInt64 => integer(ColumnType::Int64),
        A::Int64 => (ColumnType::Int64, Vec::new()),
        A::Date32 => integer(ColumnType::Date32),
        A::Date64 => (ColumnType::Date32, vec![A::Date32, A::Int64]),
        A::Timestamp(TimeUnit::Microsecond, None) => integer(ColumnType::TimestampMicros),
        A::Timestamp(..) => {
            (ColumnType::TimestampMicros, vec![A::Timestamp(TimeUnit::Microsecond, None), A::Int64])
        }
        A::Decimal32(precision, scale) | A::Decimal64(precision, scale) => {
            (decimal(*precision, *scale)?, vec![A::Decimal128(*precision, *scale)])
        }
        A::Decimal128(precision, scale) => (decimal(*precision, *scale)?, Vec::new()),
        A::Float64 => (ColumnType::Float64, Vec::new()),
        A::Float16 | A::Float32 => (ColumnType::Float64, vec![A::Float64]),
        A::Utf8 | A::LargeUtf8 | A::Utf8View => (ColumnType::Text, Vec::new()),
        // A column with only nulls, as in CSV files.
        A::Null => (ColumnType::Text, vec![A::Utf8]),
        A::Dictionary(_, values) => {
            let (column_type, mut casts) = stored_type(values)?;
            casts.insert(0, values.as_ref().clone());
            (column_type, casts)
        }
        _ => return None,
    })
}

fn decimal(precision: u8, scale: i8) -> Option<ColumnType> {
    let scale = u8::try_from(scale).ok()?;
    let fits = (1..=DECIMAL_DIGITS_MAX).contains(&precision) && scale <= precision;
    fits.then_some(ColumnType::Decimal { precision, scale })
}

fn unsupported(table: &str, field: &Field) -> LoadError {
    LoadError::UnsupportedType {
        table: table.to_owned(),
        column: field.name().clone(),
        found: field.data_type().to_string(),
    }
}

/// The unscaled integers of decimals, or the first row with more digits than `precision`.
fn unscaled(decimals: &Decimal128Array, precision: u8) -> Result<ArrayRef, usize> {
    let limit = 10_i64.pow(u32::from(precision.min(DECIMAL_DIGITS_MAX)));
    let fits = |value: i128| i64::try_from(value).ok().filter(|value| -limit < *value && *value < limit);
    let mut values = Vec::with_capacity(decimals.len());
    for (row, value) in decimals.values().iter().enumerate() {
        match fits(*value) {
            Some(value) => values.push(value),
            None if decimals.is_null(row) => values.push(0),
            None => return Err(row),
        }
    }
    Ok(Arc::new(Int64Array::new(values.into(), decimals.nulls().cloned())))
}

/// The rows whose values a cast has lost. A lost value becomes null; a text that is too large for a
/// double becomes infinity.
fn lost_rows(before: &ArrayRef, after: &ArrayRef) -> Vec<usize> {
    let mut lost = Vec::new();
    if after.logical_null_count() > before.logical_null_count() {
        let (before, after) = (before.logical_nulls(), after.logical_nulls());
        let is_valid =
            |nulls: &Option<NullBuffer>, row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        let rows = after.as_ref().map_or(0, NullBuffer::len);
        lost.extend((0..rows).filter(|row| is_valid(&before, *row) && !is_valid(&after, *row)));
    }
    if let (Some(texts), Some(doubles)) =
        (before.as_string_opt::<i32>(), after.as_primitive_opt::<Float64Type>())
    {
        let is_number = |row: usize| texts.value(row).bytes().any(|byte| byte.is_ascii_digit());
        let infinite = doubles.values().iter().enumerate().filter(|(_, value)| value.is_infinite());
        let infinite = infinite.map(|(row, _)| row);
        lost.extend(infinite.filter(|row| doubles.is_valid(*row) && is_number(*row)));
    }
    lost
}

/// A text in quotes; a long text is truncated.
pub(crate) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARACTERS_MAX) {
        Some((end, _)) => format!("{:?} and {} bytes more", &text[..end], text.len() - end),
        None => format!("{text:?}"),
    }
}

/// Bytes of each text.
pub(crate) fn text_lengths(array: &ArrayRef) -> Box<dyn Iterator<Item = usize> + '_> {
    let lengths = |pair: &[i64]| usize::try_from(pair[1] - pair[0]).expect("arrow's offsets ascend");
    match array.data_type() {
        DataType::Utf8View => {
            Box::new(array.as_string_view().views().iter().map(|view| {
                // The low 32 bits of a view are the length.
                usize::try_from(*view & u128::from(u32::MAX))
                    .expect("the length of a text: 32 bits of its view")
            }))
        }
        DataType::LargeUtf8 => Box::new(array.as_string::<i64>().offsets().windows(2).map(lengths)),
        _ => {
            let texts: &StringArray = array.as_string();
            Box::new(texts.offsets().windows(2).map(move |pair| lengths(&[pair[0].into(), pair[1].into()])))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        Date32Array, LargeStringArray, StringViewArray, TimestampMicrosecondArray, TimestampMillisecondArray,
    };

    fn fault_of(array: ArrayRef) -> ValueFault {
        let field = Field::new("c", array.data_type().clone(), true);
        let conversion = Conversion::of("t", [&field]).unwrap();
        match conversion.stored(&[array]) {
            Err(ConversionFault::Values(faults)) => faults[0].clone(),
            other => panic!("expected a fault, found {other:?}"),
        }
    }

    #[test]
    fn a_decimal_of_more_digits_than_its_type_is_a_fault() {
        let decimals = vec![Some(999), None, Some(-999), Some(1000)];
        let decimals = Decimal128Array::from(decimals).with_precision_and_scale(3, 1).unwrap();
        let fault = fault_of(Arc::new(decimals));
        assert_eq!((fault.row, fault.found.as_str()), (3, "100.0"));
        assert_eq!(fault.expected, "a value of type decimal(3,1)");
        let huge =
            Decimal128Array::from(vec![i128::from(i64::MAX) + 1]).with_precision_and_scale(18, 0).unwrap();
        assert_eq!(fault_of(Arc::new(huge)).row, 0);
    }

    #[test]
    fn a_null_decimal_may_hide_anything() {
        let nulls = Some(vec![false, true].into());
        let decimals =
            Decimal128Array::new(vec![i128::MAX, 5].into(), nulls).with_precision_and_scale(3, 1).unwrap();
        let stored = unscaled(&decimals, 3).unwrap();
        assert!(stored.is_null(0) && stored.as_primitive::<arrow::datatypes::Int64Type>().value(1) == 5);
    }

    #[test]
    fn a_text_that_no_page_holds_is_a_fault_in_every_layout() {
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        let texts = vec!["", long.as_str()];
        let layouts: [ArrayRef; 3] = [
            Arc::new(StringArray::from(texts.clone())),
            Arc::new(LargeStringArray::from(texts.clone())),
            Arc::new(StringViewArray::from(texts)),
        ];
        for texts in layouts {
            let fault = fault_of(texts);
            assert_eq!((fault.row, fault.found), (1, format!("a text of {} bytes", TEXT_BYTES_MAX + 1)));
        }
    }

    #[test]
    fn a_time_that_cannot_be_printed_is_a_fault() {
        let (first, last) = (i32::try_from(DAY_MIN).unwrap(), i32::try_from(DAY_MAX).unwrap());
        let days = |days: Vec<i32>| Arc::new(Date32Array::from(days)) as ArrayRef;
        let column = |array: &ArrayRef| {
            let field = Field::new("d", array.data_type().clone(), true);
            Conversion::of("t", [&field]).unwrap().stored(std::slice::from_ref(array))
        };
        let known = days(vec![first, 0, last]);
        column(&known).unwrap();
        for row in 0..3 {
            text_of(&known, row).unwrap();
        }
        for beyond in [first - 1, last + 1, i32::MIN, i32::MAX] {
            let fault = fault_of(days(vec![0, beyond]));
            assert_eq!((fault.row, fault.found), (1, format!("the number {beyond}")));
        }
        let micros = |micros: i64| Arc::new(TimestampMicrosecondArray::from(vec![micros])) as ArrayRef;
        for known in [DAY_MIN * DAY_MICROSECONDS, DAY_MAX * DAY_MICROSECONDS + DAY_MICROSECONDS - 1] {
            text_of(&micros(known), 0).unwrap();
            column(&micros(known)).unwrap();
        }
        assert_eq!(fault_of(micros(i64::MAX)).found, format!("the number {}", i64::MAX));
        let millis = Arc::new(TimestampMillisecondArray::from(vec![1 << 62]));
        assert_eq!(fault_of(millis).found, "the number 4611686018427387904");
    }
}
