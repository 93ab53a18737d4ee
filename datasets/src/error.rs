//! Defines the errors of a load. After any of them, no row of the load is visible: nothing was
//! published.

use std::{io::ErrorKind, path::PathBuf};

use arrow::error::ArrowError;
use rackscan_client::ClientError;
use rackscan_format::chunk::ChunkError;

/// The arrow types that have a stored form.
const SUPPORTED_TYPES: &str = "boolean, integers, floats, dates, timestamps, decimals of up to 18 digits and no negative \
                               scale, text, and dictionaries of these";

/// What is wrong with a row of a CSV file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}{}: {reason}", column.as_ref().map(|name| format!(", column {name:?}")).unwrap_or_default())]
pub struct CsvFault {
    /// The line on which the row begins, or on which a quote opens, counted from 1, the header
    /// included.
    pub line: u64,
    /// The column, if the fault belongs to one.
    pub column: Option<String>,
    /// What was found, and what was expected.
    pub reason: String,
}

/// Why a load failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A request to the cluster failed.
    #[error(transparent)]
    Cluster(#[from] ClientError),
    /// An option has an invalid value.
    #[error("{what} is {found}, expected {expected}")]
    Option {
        /// The option.
        what: &'static str,
        /// Its value.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// The table has no column to partition or sort by.
    #[error("table {table:?} cannot be {role} by {column:?}: no such column; its columns are {columns}")]
    UnknownColumn {
        /// The table.
        table: String,
        /// What the column was for.
        role: &'static str,
        /// The column asked for.
        column: String,
        /// The columns of the table.
        columns: String,
    },
    /// A column's type has no stored form.
    #[error("table {table:?}: column {column:?} has type {found}, expected one of: {SUPPORTED_TYPES}")]
    UnsupportedType {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// Its type.
        found: String,
    },
    /// A value does not fit its column.
    #[error("table {table:?}: row {row}, column {column:?}: found {found}, expected {expected}")]
    Value {
        /// The table.
        table: String,
        /// The row, counted from 1 in the source.
        row: u64,
        /// The column.
        column: String,
        /// The value.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// A row of a CSV file does not parse.
    #[error("{file}: {fault}", file = file.display())]
    Csv {
        /// The file.
        file: PathBuf,
        /// The line, the column and the reason.
        fault: Box<CsvFault>,
    },
    /// A file does not have the expected format.
    #[error("{file}: {problem}; expected {expected}", file = file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The error of the reader.
        problem: String,
        /// What was expected.
        expected: &'static str,
    },
    /// A segment could not be encoded.
    #[error("table {table:?}, column {column:?}: {source}")]
    Chunk {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// The reason.
        source: ChunkError,
    },
    /// Rows could not be parsed, generated, sorted or merged.
    #[error("table {table:?}: could not {action}: {source}")]
    Rows {
        /// The table.
        table: String,
        /// What was attempted.
        action: &'static str,
        /// The reason.
        source: ArrowError,
    },
    /// An operation on a file failed.
    #[error("could not {action} {path}: {source}", path = path.display())]
    File {
        /// What was attempted.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The system could not provide random numbers.
    #[error(
        "cannot choose a table id, because the operating system's random number generator failed: {reason}"
    )]
    Random {
        /// The error of the system.
        reason: String,
    },
    /// More segments than a table may have.
    #[error("table {table:?} would have more than {} segments: make the segments larger", u32::MAX)]
    Segments {
        /// The table.
        table: String,
    },
    /// A defect: a thread of the load panicked, or lost rows.
    #[error("table {table:?}: loading stopped unexpectedly: {problem}; please report this")]
    Defect {
        /// The table.
        table: String,
        /// What happened.
        problem: String,
    },
}

impl LoadError {
    /// The SQLSTATE of the error, by which programs distinguish errors. Unlike the text, it does
    /// not change.
    #[must_use]
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::Option { .. } => "22023",
            Self::UnknownColumn { .. } => "42703",
            Self::UnsupportedType { .. } => "0A000",
            Self::Value { .. } | Self::Rows { .. } => "22000",
            Self::Csv { .. } | Self::Malformed { .. } => "22P04",
            Self::Segments { .. } | Self::Chunk { .. } => "54000",
            Self::File { source, .. } => match source.kind() {
                ErrorKind::NotFound => "58P01",
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "53100",
                _ => "58030",
            },
            Self::Cluster(error) => error.sqlstate(),
            Self::Random { .. } => "58000",
            Self::Defect { .. } => "XX000",
        }
    }
}
