//! Defines the reasons why the price model could not be calibrated.

use rackscan_client::{ClientError, LocalError};
use rackscan_scan::ScanError;

/// Why a constant could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// A node failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A device of this host failed.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// A page could not be scanned.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// The table cannot serve as a sample.
    #[error("table {table} cannot serve as a sample: expected {expected}, found {found}")]
    Sample {
        /// Name of the table.
        table: String,
        /// What was found in it.
        found: String,
        /// What is needed.
        expected: &'static str,
    },
}
