//! Defines the error of a statement, and maps it to an SQLSTATE.

use crate::{
    exec::ScanError,
    limits::{TRANSACTION_BYTES_MAX, TRANSACTION_ITEMS_MAX, TRANSACTION_ROWS_MAX},
};
use rackscan_client::{ClientError, TransactionError};
use rackscan_format::message::RefusalCode;
use rackscan_planner::{CalibrationError, PlacementError};
use std::any::Any;

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
    #[error("reading or writing tables failed: {0}")]
    Catalog(#[source] rackscan_client::ClientError),
    /// The query needs more memory than the engine may use.
    #[error("not enough memory for this query: {0}; give the engine more memory, or ask for less at a time")]
    Memory(String),
    /// Queries have reached the limit of what they may write to disk.
    #[error(
        "the spill folder, to which queries write data that does not fit into memory, is full: {0}; raise its limit, or ask for less at a time"
    )]
    SpillFull(String),
    /// There is no usable folder for what does not fit into memory.
    #[error(
        "the spill folder, to which queries write data that does not fit into memory, cannot be used: {0}; choose another folder"
    )]
    SpillFolder(String),
    /// The constants of the cost model are wrong.
    #[error(transparent)]
    Calibration(#[from] CalibrationError),
    /// The changed rows of tables could not be read.
    #[error("reading or writing changed rows failed: {0}")]
    Changes(String),
    /// A transaction could not be committed; the error says what became of it.
    #[error(transparent)]
    Transaction(#[from] Box<TransactionError>),
    /// A table is being flushed into a new version.
    #[error(
        "a table of the transaction was flushed after the transaction began; nothing of the transaction was written: begin it again"
    )]
    Flushed,
    /// Another transaction has changed a row that this one has read and writes.
    #[error(
        "conflict: another transaction has changed rows of table {table:?} that this transaction has read and changes; nothing of this transaction was written: run it again"
    )]
    Conflict {
        /// The table's name.
        table: String,
    },
    /// A table of the transaction was dropped.
    #[error(
        "table {table:?} was dropped after the transaction began; nothing of the transaction was written: load the table again, or run the transaction without it"
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
        "the transaction changes {rows} rows, whose values have {bytes} bytes, expected at most {TRANSACTION_ROWS_MAX} rows and {TRANSACTION_BYTES_MAX} bytes: divide it into several transactions"
    )]
    TooMuchChanged {
        /// Rows.
        rows: usize,
        /// Bytes of their values.
        bytes: usize,
    },
    /// The rows of a transaction have too many derived entries.
    #[error(
        "the transaction writes {items} items, for {rows} changed rows of a table and the entries of its indexes, foreign keys and views, expected at most {TRANSACTION_ITEMS_MAX} items: divide it into several transactions"
    )]
    TooMuchDerived {
        /// Rows.
        rows: usize,
        /// Items.
        items: usize,
    },
    /// BEGIN within a transaction.
    #[error(
        "BEGIN failed, because a transaction is already open in this session: end it with COMMIT or ROLLBACK first"
    )]
    InTransaction,
    /// COMMIT or ROLLBACK outside of a transaction.
    #[error("no transaction is open in this session: begin one with BEGIN")]
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
        "the query was stopped by a bug of rackscan: {0}; other statements are not affected; please report this with the text of the statement"
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
            Self::Flushed | Self::Replaced { .. } | Self::Conflict { .. } => "40001",
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_goes_away_by_running_a_transaction_again_says_so_by_its_code() {
        let table = || "t".to_owned();
        assert_eq!(EngineError::Replaced { table: table() }.sqlstate(), "40001");
        assert_eq!(EngineError::Conflict { table: table() }.sqlstate(), "40001");
        assert_eq!(EngineError::Flushed.sqlstate(), "40001");
        for gone in [
            EngineError::Dropped { table: table() },
            EngineError::UnknownTable { name: table(), near: String::new() },
        ] {
            assert_eq!(gone.sqlstate(), "42P01", "{gone}");
        }
    }
}
