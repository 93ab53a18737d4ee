//! Defines a column: its name, its type, and whether it may contain nulls.

use serde::{Deserialize, Serialize};
use std::fmt;

#[cfg(doc)]
use crate::limits::DECIMAL_DIGITS_MAX;

/// The type of a stored column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ColumnType {
    /// False is 0, true is 1.
    Boolean,
    /// A signed 32-bit integer.
    Int32,
    /// A signed 64-bit integer.
    Int64,
    /// Days since 1970-01-01.
    Date32,
    /// Microseconds since 1970-01-01T00:00:00, without a time zone.
    TimestampMicros,
    /// An exact decimal: the stored integer is the value times `10^scale`.
    Decimal {
        /// All digits, at most [`DECIMAL_DIGITS_MAX`].
        precision: u8,
        /// Digits after the point, at most `precision`.
        scale: u8,
    },
    /// An IEEE 754 double.
    Float64,
    /// UTF-8 text.
    Text,
}

impl ColumnType {
    /// Whether values are stored as 64-bit integers.
    #[must_use]
    pub fn is_integer(self) -> bool {
        !matches!(self, Self::Float64 | Self::Text)
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean => f.write_str("boolean"),
            Self::Int32 => f.write_str("int"),
            Self::Int64 => f.write_str("bigint"),
            Self::Date32 => f.write_str("date"),
            Self::TimestampMicros => f.write_str("timestamp"),
            Self::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            Self::Float64 => f.write_str("double"),
            Self::Text => f.write_str("text"),
        }
    }
}

/// One column of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnDefinition {
    /// Its name, as SQL sees it.
    pub name: String,
    /// Its type.
    pub column_type: ColumnType,
    /// Whether values may be missing.
    pub nullable: bool,
}
