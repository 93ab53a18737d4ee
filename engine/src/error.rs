//! The errors of queries: what went wrong, and what the user can do about it.

mod kinds;
mod wording;

pub(crate) use wording::in_words_of_users;

use crate::{
    exec::ScanError,
    limits::{TRANSACTION_BYTES_MAX, TRANSACTION_ITEMS_MAX, TRANSACTION_ROWS_MAX},
    memory::is_folder_full,
};
use datafusion::{arrow::error::ArrowError, error::DataFusionError};
use rackscan_client::{ClientError, TransactionError};
use rackscan_format::message::RefusalCode;
use rackscan_planner::{CalibrationError, PlacementError};
use std::{any::Any, error::Error, io::ErrorKind};

/// The message of DataFusion, and of `functions/single_row.rs`, for a scalar subquery with several
/// rows.
const MANY_ROWS: &str = "more than one row";

/// Why a statement failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The text is not SQL.
    #[error("this is not SQL: {0}")]
    Syntax(String),
    /// The statement is longer or nests deeper than is allowed.
    #[error("the statement has {0}")]
    TooDeep(String),
    /// The statement is SQL, but of a kind that is not supported.
    #[error(
        "{found} is not supported, expected a query (SELECT, WITH, VALUES), EXPLAIN, INSERT, UPDATE, DELETE, BEGIN, COMMIT, or CREATE and DROP of an INDEX or a MATERIALIZED VIEW; {way_out}"
    )]
    Statement {
        /// The kind of statement.
        found: String,
        /// What to do instead.
        way_out: &'static str,
    },
    /// The query names something that does not exist, or uses it in a way that it cannot be used.
    #[error("{0}")]
    Plan(String),
    /// A fault of a query, found when it was planned or while it ran, of a kind that has its own
    /// SQLSTATE.
    #[error("{message}")]
    Invalid {
        /// Its SQLSTATE.
        sqlstate: &'static str,
        /// What is wrong.
        message: String,
    },
    /// A part of the statement is SQL, but is not supported.
    #[error("{0}")]
    NotSupported(String),
    /// There is no such table.
    #[error("there is no table {name:?}; {near}")]
    UnknownTable {
        /// The name that was given.
        name: String,
        /// Similar names, or all names.
        near: String,
    },
    /// The forced placement cannot apply.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// A storage node failed, refused or was lost, or a page is wrong.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// The catalog could not be read.
    #[error("the catalog: {0}")]
    Catalog(#[source] rackscan_client::ClientError),
    /// The query needs more memory than the engine may use.
    #[error("not enough memory for this query: {0}; give the engine more memory, or ask for less at a time")]
    Memory(String),
    /// Queries have reached the limit of what they may write to disk.
    #[error(
        "the queries' folder for what does not fit into memory is full: {0}; raise its limit, or ask for less at a time"
    )]
    SpillFull(String),
    /// There is no usable folder for what does not fit into memory.
    #[error("the folder for what does not fit into memory: {0}; name another one")]
    SpillFolder(String),
    /// The constants of the cost model are wrong.
    #[error(transparent)]
    Calibration(#[from] CalibrationError),
    /// The changed rows of tables could not be read.
    #[error("the rows that have changed: {0}")]
    Changes(String),
    /// A transaction could not be committed; the error says what became of it.
    #[error(transparent)]
    Transaction(#[from] Box<TransactionError>),
    /// A table is being flushed into a new version.
    #[error("the table was sealed since the transaction began; nothing of it was written: begin it again")]
    Sealed,
    /// Another transaction has changed a row that this one has read and writes.
    #[error(
        "conflict: another transaction has changed rows of table {table:?} that this one has read and changes; nothing of it was written: run it again"
    )]
    Conflict {
        /// The table's name.
        table: String,
    },
    /// A table of the transaction was dropped.
    #[error(
        "table {table:?} was dropped after the transaction began; nothing of the transaction was written: load the table, or leave it out"
    )]
    Dropped {
        /// Its name.
        table: String,
    },
    /// A table of the transaction was replaced by a load.
    #[error(
        "table {table:?} was replaced by a load after the transaction began; nothing of the transaction was written: run it again over the table that is there now"
    )]
    Replaced {
        /// Its name.
        table: String,
    },
    /// A transaction changes too much.
    #[error(
        "a transaction with {rows} changed rows of {bytes} bytes, expected at most {TRANSACTION_ROWS_MAX} of {TRANSACTION_BYTES_MAX} bytes: divide it"
    )]
    TooMuchChanged {
        /// Rows.
        rows: usize,
        /// Bytes of their values.
        bytes: usize,
    },
    /// The rows of a transaction have too many derived entries.
    #[error(
        "a transaction writes {items} items, of {rows} changed rows of a table and what indexes, foreign keys and views derive from them, expected at most {TRANSACTION_ITEMS_MAX}: divide it"
    )]
    TooMuchDerived {
        /// Rows.
        rows: usize,
        /// Items.
        items: usize,
    },
    /// BEGIN within a transaction.
    #[error("a transaction is open already: end it by COMMIT or ROLLBACK first")]
    InTransaction,
    /// COMMIT or ROLLBACK outside of a transaction.
    #[error("no transaction is open: begin one with BEGIN")]
    NoTransaction,
    /// A number is beyond its type.
    #[error("the query failed: {0}")]
    OutOfRange(String),
    /// A scalar subquery has more than one row.
    #[error("the query failed: more than one row returned by a subquery used as an expression")]
    ManyRows,
    /// A number is divided by zero.
    #[error("the query failed: division by zero")]
    DivisionByZero,
    /// An operator of the query panicked.
    #[error(
        "the query stopped at an internal fault: {0}; other statements go on, please report it with the statement"
    )]
    Internal(String),
    /// The query failed while it ran (a cast that does not fit, an argument of a function).
    #[error("the query failed: {0}")]
    Execution(String),
}

impl EngineError {
    /// Whether it may be because a table was replaced while the query read it.
    pub(crate) fn may_be_of_another_time(&self) -> bool {
        match self {
            Self::Scan(ScanError::Client(ClientError::Refused { refusal, .. })) => {
                matches!(refusal.code, RefusalCode::NotFound | RefusalCode::Storage)
            }
            // Pages of another table may be there now.
            Self::Scan(ScanError::Scan { .. } | ScanError::Local(_)) => true,
            _ => false,
        }
    }

    /// The SQLSTATE of the error, by which programs tell errors apart. It is stable; the text may
    /// change.
    #[must_use]
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::Syntax(_) => "42601",
            Self::TooDeep(_) => "54001",
            Self::Statement { .. } | Self::NotSupported(_) => "0A000",
            Self::Plan(_) => "42000",
            Self::Invalid { sqlstate, .. } => sqlstate,
            Self::UnknownTable { .. } | Self::Dropped { .. } => "42P01",
            Self::Sealed | Self::Replaced { .. } | Self::Conflict { .. } => "40001",
            Self::Memory(_) => "53200",
            Self::SpillFull(_) => "53100",
            Self::SpillFolder(_) => "58030",
            Self::TooMuchChanged { .. } | Self::TooMuchDerived { .. } => "54000",
            Self::InTransaction => "25001",
            Self::NoTransaction => "25P01",
            Self::OutOfRange(_) => "22003",
            Self::ManyRows => "21000",
            Self::DivisionByZero => "22012",
            Self::Internal(_) => "XX000",
            Self::Execution(_) => "22000",
            Self::Transaction(error) => match error.as_ref() {
                TransactionError::Unknown { .. } => "08007",
                error if error.is_disk_full() => "53100",
                error if error.is_log_full() => "53400",
                TransactionError::Aborted { .. } => "40000",
                _ => "58000",
            },
            Self::Placement(_) | Self::Calibration(_) => "55000",
            Self::Scan(ScanError::Client(error)) | Self::Catalog(error) => error.sqlstate(),
            Self::Scan(error) if error.is_overflow() => "22003",
            Self::Scan(_) | Self::Changes(_) => "58000",
        }
    }

    /// From an IO error of spilling: the only IO that DataFusion does itself.
    fn of_spilling(error: &std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::SpillFull(error.to_string()),
            _ => Self::SpillFolder(error.to_string()),
        }
    }

    fn not_supported(message: &str) -> Self {
        if message.contains("array literal") {
            return Self::NotSupported("arrays are not supported; use rows of VALUES, or IN".to_owned());
        }
        if message.contains("not supported") {
            return Self::NotSupported(message.to_owned());
        }
        Self::NotSupported(format!("not supported: {message}"))
    }

    /// Finds the cause that a user can act on.
    pub(crate) fn from_datafusion(error: DataFusionError) -> Self {
        if let Some(cause) = inner_error::<ScanError>(&error) {
            return match cause {
                ScanError::Placement(error) => Self::Placement(error.clone()),
                other => Self::Scan(other.clone()),
            };
        }
        let text = error.find_root().strip_backtrace();
        if is_folder_full(&text) {
            let limit = text.split("allowable limit of ").nth(1).and_then(|rest| rest.split(". ").next());
            return Self::SpillFull(limit.map_or(text.clone(), |limit| format!("{limit} are written")));
        }
        match error.find_root() {
            DataFusionError::SQL(error, _) => Self::Syntax(error.to_string()),
            DataFusionError::Plan(message) => {
                wording::of_message(&without_report(message)).unwrap_or_else(Self::Plan)
            }
            DataFusionError::SchemaError(error, _) => wording::of_schema(error),
            DataFusionError::NotImplemented(message) => {
                wording::of_message(message).unwrap_or_else(|worded| Self::not_supported(&worded))
            }
            DataFusionError::ExecutionJoin(error) => Self::Internal(error.to_string()),
            DataFusionError::ResourcesExhausted(message) => Self::Memory(message.clone()),
            DataFusionError::ArrowError(error, _) => Self::from_arrow(error),
            DataFusionError::IoError(error) => Self::of_spilling(error),
            DataFusionError::Internal(message) => {
                let message = without_report(message);
                wording::of_message(&message).unwrap_or_else(|worded| Self::not_supported(&worded))
            }
            DataFusionError::Execution(message) if message.contains(MANY_ROWS) => Self::ManyRows,
            DataFusionError::Execution(message) => Self::failed(message),
            other => Self::failed(&without_report(&other.strip_backtrace())),
        }
    }

    /// From the payload of a panic.
    pub(crate) fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Self::Internal(text.unwrap_or("a part of it panicked").to_owned())
    }

    pub(crate) fn invalid(sqlstate: &'static str, message: impl Into<String>) -> Self {
        Self::Invalid { sqlstate, message: message.into() }
    }

    /// The same error, with the column whose values it is about.
    pub(crate) fn of_column(self, column: &str) -> Self {
        match self {
            Self::Invalid { sqlstate, message } => {
                Self::Invalid { sqlstate, message: format!("column {column:?}: {message}") }
            }
            Self::Execution(message) => Self::Execution(format!("column {column:?}: {message}")),
            other => other,
        }
    }

    /// From an error of a computation over values.
    pub(crate) fn from_arrow(error: &ArrowError) -> Self {
        match error {
            ArrowError::ArithmeticOverflow(what) => Self::OutOfRange(what.clone()),
            ArrowError::DivideByZero => Self::DivisionByZero,
            ArrowError::IoError(_, error) => Self::of_spilling(error),
            other => Self::failed(&other.to_string()),
        }
    }

    fn failed(message: &str) -> Self {
        wording::of_message(message).unwrap_or_else(Self::Execution)
    }
}

/// A message of DataFusion without its request to report a bug: most of these messages are about
/// statements that it does not support.
fn without_report(message: &str) -> String {
    const BEGIN: &str = "\nThis issue was likely caused by a bug in DataFusion";
    const END: &str = "apache/datafusion/issues.";
    let plain = match message.split_once(BEGIN) {
        Some((before, rest)) => {
            let after = rest.split_once(END).map_or("", |(_, after)| after);
            format!("{before}{after}")
        }
        None => message.to_owned(),
    };
    plain.replace("Internal error: ", "")
}

/// An error of type `E` inside an error of DataFusion, however deep.
pub(crate) fn inner_error<E: Error + 'static>(error: &DataFusionError) -> Option<&E> {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        cause = match error.downcast_ref::<DataFusionError>() {
            Some(DataFusionError::External(inner)) => Some(inner.as_ref()),
            Some(DataFusionError::Shared(inner)) => Some(inner.as_ref()),
            Some(DataFusionError::Context(_, inner)) => Some(inner.as_ref()),
            Some(DataFusionError::ArrowError(inner, _)) => Some(inner.as_ref()),
            _ => match error.downcast_ref::<ArrowError>() {
                Some(ArrowError::ExternalError(inner)) => Some(inner.as_ref()),
                _ => error.source(),
            },
        };
    }
    None
}

/// Names similar to `wanted`, for a message; all names if none is similar and they are few.
pub(crate) fn near_names(wanted: &str, names: &[String]) -> String {
    let wanted = wanted.to_lowercase();
    let mut near: Vec<(usize, &String)> = names
        .iter()
        .map(|name| (edit_distance(&wanted, &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= 1 + name.len() / 3)
        .collect();
    near.sort();
    if !near.is_empty() {
        let near: Vec<&str> = near.iter().take(3).map(|(_, name)| name.as_str()).collect();
        return format!("did you mean {}?", near.join(" or "));
    }
    match names {
        [] => "no table is loaded yet: load one with `rackscan load`".to_owned(),
        [name] => format!("there is {name}"),
        names => format!("there are {}", names.join(", ")),
    }
}

/// The Levenshtein distance of two names: insertions, deletions and replacements of characters.
fn edit_distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, from) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_table_is_answered_with_the_nearest_names() {
        let names = ["lineitem", "orders", "part", "partsupp"].map(str::to_owned);
        assert_eq!(near_names("lineitems", &names), "did you mean lineitem?");
        assert_eq!(near_names("zzz", &names), "there are lineitem, orders, part, partsupp");
        assert_eq!(near_names("x", &[]), "no table is loaded yet: load one with `rackscan load`");
    }

    #[test]
    fn an_error_that_goes_away_by_running_a_transaction_again_says_so_by_its_code() {
        let table = || "t".to_owned();
        assert_eq!(EngineError::Replaced { table: table() }.sqlstate(), "40001");
        assert_eq!(EngineError::Conflict { table: table() }.sqlstate(), "40001");
        assert_eq!(EngineError::Sealed.sqlstate(), "40001");
        for gone in [
            EngineError::Dropped { table: table() },
            EngineError::UnknownTable { name: table(), near: String::new() },
        ] {
            assert_eq!(gone.sqlstate(), "42P01", "{gone}");
        }
    }

    #[test]
    fn a_scan_error_is_found_however_deep_datafusion_buries_it() {
        let error =
            ScanError::Placement(PlacementError::UnknownNode { node: rackscan_format::ids::NodeId(7) });
        let deep = DataFusionError::External(Box::new(error)).context("while joining");
        let deep = DataFusionError::Shared(std::sync::Arc::new(DataFusionError::from(
            ArrowError::ExternalError(Box::new(deep)),
        )));
        assert!(matches!(
            EngineError::from_datafusion(deep),
            EngineError::Placement(PlacementError::UnknownNode { node }) if node.0 == 7
        ));
    }
}
