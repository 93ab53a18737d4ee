//! Encodes the values of a row to bytes, and decodes them.
//!
//! | bytes | |
//! |---|---|
//! | 0 | version of this layout, 1 |
//! | then, for each column | 0: no value; 1: an integer, 8 bytes; 2: a double, 8 bytes; 3: text, 4 bytes of its length and the text |
//!
//! Integers are stored as in segments: dates as days, decimals unscaled. All numbers are
//! little-endian.
//!
//! Invariant: a decoded row fits its table in the number of columns, their types, missing values,
//! and the digits of decimals. Scans need not check it again.

use az::SaturatingAs;
use rackscan_format::schema::{ColumnDefinition, ColumnType, TableDefinition};

/// The layout's version.
const VERSION: u8 = 1;

/// One value of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum {
    /// No value.
    Null,
    /// A value of any type that is stored as an integer.
    Integer(i64),
    /// A value of `Float64`.
    Float(f64),
    /// A value of `Text`.
    Text(String),
}

impl Datum {
    fn describe(&self) -> &'static str {
        match self {
            Self::Null => "no value",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a double",
            Self::Text(_) => "text",
        }
    }
}

/// A row that does not fit its table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowFault {
    /// Another version of the layout.
    #[error("a row has layout version {found}, expected {VERSION}: perhaps a newer version wrote it")]
    Version {
        /// Its version.
        found: u8,
    },
    /// The row is too short, or too long.
    #[error("a row of table {table:?} has {found}, expected {expected} columns and no bytes behind them")]
    Length {
        /// The table.
        table: String,
        /// What was found.
        found: String,
        /// Columns of the table.
        expected: usize,
    },
    /// A value that its column cannot have.
    #[error("column {column:?} of table {table:?} contains {found}, expected {expected}")]
    Value {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// The value.
        found: String,
        /// What the column allows.
        expected: String,
    },
}

/// The bytes of a row.
///
/// # Errors
/// [`RowFault`] if the values do not fit the table.
pub fn encode(definition: &TableDefinition, row: &[Datum]) -> Result<Vec<u8>, RowFault> {
    if row.len() != definition.columns.len() {
        return Err(length(definition, format!("{} columns", row.len())));
    }
    let mut bytes = vec![VERSION];
    for (column, datum) in definition.columns.iter().zip(row) {
        check(definition, column, datum)?;
        match datum {
            Datum::Null => bytes.push(0),
            Datum::Integer(value) => {
                bytes.push(1);
                bytes.extend_from_slice(&value.to_le_bytes());
            }
            Datum::Float(value) => {
                bytes.push(2);
                bytes.extend_from_slice(&value.to_le_bytes());
            }
            Datum::Text(text) => {
                bytes.push(3);
                // A text that no 32 bits count exceeds every value, so no item takes it.
                bytes.extend_from_slice(&text.len().saturating_as::<u32>().to_le_bytes());
                bytes.extend_from_slice(text.as_bytes());
            }
        }
    }
    Ok(bytes)
}

/// The values of a row.
///
/// # Errors
/// [`RowFault`].
pub fn decode(definition: &TableDefinition, bytes: &[u8]) -> Result<Vec<Datum>, RowFault> {
    let (version, mut rest) =
        bytes.split_first().ok_or_else(|| length(definition, "no bytes at all".to_owned()))?;
    if *version != VERSION {
        return Err(RowFault::Version { found: *version });
    }
    let mut row = Vec::with_capacity(definition.columns.len());
    for column in &definition.columns {
        let datum = datum(&mut rest).ok_or_else(|| length(definition, format!("{} columns", row.len())))?;
        check(definition, column, &datum)?;
        row.push(datum);
    }
    if !rest.is_empty() {
        return Err(length(definition, format!("{} bytes behind its last column", rest.len())));
    }
    Ok(row)
}

fn datum(rest: &mut &[u8]) -> Option<Datum> {
    let (kind, after) = rest.split_first()?;
    let (datum, after) = match kind {
        0 => (Datum::Null, after),
        1 => after
            .split_first_chunk()
            .map(|(word, after)| (Datum::Integer(i64::from_le_bytes(*word)), after))?,
        2 => {
            after.split_first_chunk().map(|(word, after)| (Datum::Float(f64::from_le_bytes(*word)), after))?
        }
        3 => {
            let (length, after) = after.split_first_chunk()?;
            let (text, after) = after.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
            (Datum::Text(std::str::from_utf8(text).ok()?.to_owned()), after)
        }
        _ => return None,
    };
    *rest = after;
    Some(datum)
}

fn length(definition: &TableDefinition, found: String) -> RowFault {
    RowFault::Length { table: definition.name.clone(), found, expected: definition.columns.len() }
}

/// Checks whether a column can have a value.
fn check(definition: &TableDefinition, column: &ColumnDefinition, datum: &Datum) -> Result<(), RowFault> {
    let fits = match (datum, column.column_type) {
        (Datum::Null, _) => column.nullable,
        (Datum::Integer(value), ColumnType::Boolean) => (0..=1).contains(value),
        (Datum::Integer(value), ColumnType::Int32 | ColumnType::Date32) => i32::try_from(*value).is_ok(),
        (Datum::Integer(value), ColumnType::Decimal { precision, .. }) => {
            value.unsigned_abs() < 10_u64.saturating_pow(precision.into())
        }
        (Datum::Integer(_), ColumnType::Int64 | ColumnType::TimestampMicros)
        | (Datum::Float(_), ColumnType::Float64)
        | (Datum::Text(_), ColumnType::Text) => true,
        _ => false,
    };
    if fits {
        return Ok(());
    }
    let found = match datum {
        Datum::Integer(value) => value.to_string(),
        other => other.describe().to_owned(),
    };
    let missing = if column.nullable { "" } else { " that is not missing" };
    Err(RowFault::Value {
        table: definition.name.clone(),
        column: column.name.clone(),
        found,
        expected: format!("a {}{missing}", column.column_type),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rackscan_format::ids::{ColumnId, NodeId, TableId};

    fn table() -> TableDefinition {
        let column = |name: &str, column_type, nullable| ColumnDefinition {
            name: name.to_owned(),
            column_type,
            nullable,
        };
        TableDefinition {
            id: TableId(7),
            name: "t".to_owned(),
            columns: vec![
                column("key", ColumnType::Int64, false),
                column("price", ColumnType::Decimal { precision: 4, scale: 2 }, true),
                column("ratio", ColumnType::Float64, true),
                column("name", ColumnType::Text, true),
                column("day", ColumnType::Date32, true),
                column("flag", ColumnType::Boolean, true),
            ],
            partition_key: ColumnId(0),
            sorted_by: None,
            page_size: 4096,
            segment_rows: 1024,
            nodes: vec![NodeId(0)],
            rows: 0,
            source: "a test".to_owned(),
            succeeds: None,
            derived: Vec::new(),
            protection: None,
        }
    }

    fn row() -> impl Strategy<Value = Vec<Datum>> {
        let or_null = |strategy: BoxedStrategy<Datum>| prop_oneof![Just(Datum::Null), strategy];
        (
            any::<i64>().prop_map(Datum::Integer),
            or_null((-9999_i64..=9999).prop_map(Datum::Integer).boxed()),
            or_null(prop::num::f64::NORMAL.prop_map(Datum::Float).boxed()),
            or_null(".{0,20}".prop_map(Datum::Text).boxed()),
            or_null(any::<i32>().prop_map(|day| Datum::Integer(day.into())).boxed()),
            or_null((0_i64..=1).prop_map(Datum::Integer).boxed()),
        )
            .prop_map(|(a, b, c, d, e, f)| vec![a, b, c, d, e, f])
    }

    proptest! {
        #[test]
        fn a_row_survives_its_bytes(row in row()) {
            let bytes = encode(&table(), &row).unwrap();
            prop_assert_eq!(decode(&table(), &bytes), Ok(row));
        }

        #[test]
        fn no_bytes_make_a_row_that_does_not_fit(
            row in row(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = encode(&table(), &row).unwrap();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes.truncate(cut.index(bytes.len()) + 1);
            if let Ok(row) = decode(&table(), &bytes) {
                prop_assert_eq!(encode(&table(), &row), Ok(bytes), "what is read can be written, and is the same");
            }
        }
    }

    #[test]
    fn values_that_a_column_cannot_have_are_named() {
        let good =
            || vec![Datum::Integer(1), Datum::Null, Datum::Null, Datum::Null, Datum::Null, Datum::Null];
        assert!(encode(&table(), &good()).is_ok());
        let wrong = [
            (
                0,
                Datum::Null,
                "column \"key\" of table \"t\" contains no value, expected a bigint that is not missing",
            ),
            (
                1,
                Datum::Integer(10_000),
                "column \"price\" of table \"t\" contains 10000, expected a decimal(4,2)",
            ),
            (2, Datum::Integer(1), "column \"ratio\" of table \"t\" contains 1, expected a double"),
            (3, Datum::Float(1.0), "column \"name\" of table \"t\" contains a double, expected a text"),
            (
                4,
                Datum::Integer(1 << 40),
                "column \"day\" of table \"t\" contains 1099511627776, expected a date",
            ),
            (5, Datum::Integer(2), "column \"flag\" of table \"t\" contains 2, expected a boolean"),
        ];
        for (column, datum, expected) in wrong {
            let mut row = good();
            row[column] = datum;
            assert_eq!(encode(&table(), &row).unwrap_err().to_string(), expected);
        }
        let error = encode(&table(), &good()[1..]).unwrap_err().to_string();
        assert!(error.contains("5 columns, expected 6"), "{error}");
        assert_eq!(decode(&table(), &[9]), Err(RowFault::Version { found: 9 }));
    }
}
