//! Converts the columns of a record batch into the row values that the delta store keeps.

use crate::{
    error::EngineError,
    functions::whole_numbers,
    rules::{cannot_be_assigned, is_assignable},
};
use datafusion::arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch},
    compute::{CastOptions, cast_with_options},
    datatypes::{
        DataType, Date32Type, Decimal128Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType,
    },
};
use rackscan_delta::row::{Datum, encode};
use rackscan_format::schema::{ColumnDefinition, ColumnType, TableDefinition};
use std::sync::Arc;

/// The rows of a batch as encoded bytes. Its columns are those of the table, of types that can be
/// cast to theirs.
///
/// # Errors
/// A value that its column cannot hold.
pub(crate) fn encoded(
    definition: &TableDefinition,
    types: &[DataType],
    batch: &RecordBatch,
) -> Result<Vec<Vec<u8>>, EngineError> {
    let encode = |values: Vec<Datum>| {
        encode(definition, &values).map_err(|fault| EngineError::Execution(fault.to_string()))
    };
    rows_of(definition, types, batch)?.into_iter().map(encode).collect()
}

/// The rows of a batch as values.
///
/// # Errors
/// As [`encoded`].
pub(crate) fn rows_of(
    definition: &TableDefinition,
    types: &[DataType],
    batch: &RecordBatch,
) -> Result<Vec<Vec<Datum>>, EngineError> {
    let columns = definition.columns.iter().zip(types).zip(batch.columns());
    let columns = columns.map(|((column, to), array)| cast(column, to, array));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let row = |row: usize| {
        let values = definition.columns.iter().zip(&columns);
        values.map(|(column, array)| datum(column, array, row)).collect()
    };
    (0..batch.num_rows()).map(row).collect()
}

fn cast(column: &ColumnDefinition, to: &DataType, array: &ArrayRef) -> Result<ArrayRef, EngineError> {
    // A value that does not fit is an error, not NULL.
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let found = array.data_type();
    if !is_assignable(found, to) {
        return Err(cannot_be_assigned(&column.name, to, found));
    }
    let whole = if to.is_integer() { whole_numbers(array) } else { Ok(Arc::clone(array)) };
    whole
        .and_then(|array| cast_with_options(&array, to, &options))
        .map_err(|error| EngineError::from_arrow(&error).of_column(&column.name))
}

fn datum(column: &ColumnDefinition, array: &ArrayRef, row: usize) -> Result<Datum, EngineError> {
    if array.is_null(row) {
        return Ok(Datum::Null);
    }
    Ok(match column.column_type {
        ColumnType::Boolean => Datum::Integer(array.as_boolean().value(row).into()),
        ColumnType::Int32 => Datum::Integer(array.as_primitive::<Int32Type>().value(row).into()),
        ColumnType::Int64 => Datum::Integer(array.as_primitive::<Int64Type>().value(row)),
        ColumnType::Date32 => Datum::Integer(array.as_primitive::<Date32Type>().value(row).into()),
        ColumnType::TimestampMicros => {
            Datum::Integer(array.as_primitive::<TimestampMicrosecondType>().value(row))
        }
        ColumnType::Decimal { .. } => {
            let value = array.as_primitive::<Decimal128Type>().value(row);
            Datum::Integer(i64::try_from(value).map_err(|_| {
                EngineError::Execution(format!("column {:?}: {value} has too many digits", column.name))
            })?)
        }
        ColumnType::Float64 => {
            let value = array.as_primitive::<Float64Type>().value(row);
            // Only one NaN is stored, as arrow orders NaN by their bits.
            Datum::Float(if value.is_nan() { f64::NAN } else { value })
        }
        ColumnType::Text => Datum::Text(array.as_string_view().value(row).to_owned()),
    })
}
