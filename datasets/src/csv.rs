//! How does a CSV file become a table?

use std::path::Path;

use rackscan_client::Cluster;

use crate::{LoadError, LoadOptions, LoadSummary, OnProgress, TableSpec};

/// How the file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CsvOptions {
    /// The character between fields.
    pub delimiter: u8,
    /// How many rows are looked at to find the columns' types.
    pub inferred_rows: usize,
}

impl Default for CsvOptions {
    fn default() -> Self {
        Self { delimiter: b',', inferred_rows: 10_000 }
    }
}

/// Loads a CSV file with a header line.
///
/// # Errors
/// See [`LoadError`]; nothing is published then.
pub async fn load(
    cluster: &Cluster,
    file: &Path,
    csv: &CsvOptions,
    table: &TableSpec,
    options: &LoadOptions,
    progress: OnProgress<'_>,
) -> Result<LoadSummary, LoadError> {
    let _ = (cluster, file, csv, table, options, progress);
    Err(LoadError::File { action: "load", path: file.into(), source: std::io::ErrorKind::Unsupported.into() })
}
