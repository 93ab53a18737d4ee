//! How do rows get from their source into the nodes?

use std::time::Duration;

/// How far a load is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress<'t> {
    /// The table that is being loaded.
    pub table: &'t str,
    /// Rows read from their source.
    pub rows_read: u64,
    /// Rows stored at the nodes.
    pub rows_stored: u64,
    /// Rows in all, where the source says so before they are read.
    pub rows_total: Option<u64>,
    /// Bytes stored at the nodes.
    pub stored_bytes: u64,
}

/// What is told how far a load is; called by the task that awaits the load.
pub type OnProgress<'p> = &'p (dyn Fn(&Progress<'_>) + Send + Sync);

/// A table that has been loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedTable {
    /// Its name.
    pub name: String,
    /// Its rows.
    pub rows: u64,
    /// Bytes of its pages.
    pub stored_bytes: u64,
}

/// What a load did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadSummary {
    /// Each table, in the order of loading.
    pub tables: Vec<LoadedTable>,
    /// Rows of all tables.
    pub rows: u64,
    /// Bytes of the source: the file, or for TPC-H the `.tbl` files that hold the same rows.
    pub raw_bytes: u64,
    /// Bytes of all pages.
    pub stored_bytes: u64,
    /// From the first row to the last publication.
    pub elapsed: Duration,
}
