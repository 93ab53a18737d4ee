//! How does a Parquet file become a table?

use std::path::Path;

use rackscan_client::Cluster;

use crate::{LoadError, LoadOptions, LoadSummary, OnProgress, TableSpec};

/// Loads a Parquet file.
///
/// # Errors
/// See [`LoadError`]; nothing is published then.
pub async fn load(
    cluster: &Cluster,
    file: &Path,
    table: &TableSpec,
    options: &LoadOptions,
    progress: OnProgress<'_>,
) -> Result<LoadSummary, LoadError> {
    let _ = (cluster, file, table, options, progress);
    Err(not_yet(file))
}

fn not_yet(file: &Path) -> LoadError {
    LoadError::File { action: "load", path: file.into(), source: std::io::ErrorKind::Unsupported.into() }
}
