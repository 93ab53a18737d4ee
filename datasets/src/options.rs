//! What can be chosen about a load?

use std::path::PathBuf;

use rackscan_format::{
    limits::{PAGE_SIZE_DEFAULT, SEGMENT_ROWS_DEFAULT},
    schema::Protection,
};

use crate::{
    LoadError,
    limits::{SORT_MEMORY_BYTES_DEFAULT, THREADS_MAX},
};

/// How tables are cut and how much of the machine a load uses.
///
/// A load of one table holds in memory, whatever the table's size
/// - `nodes x segment_rows` rows that wait for their segment to fill, decoded (8 bytes per number, texts as they are; TPC-H's
///   lineitem: about 160 bytes per row, so 80 MiB with four nodes and the default segment),
/// - per thread a piece of 16,384 rows as it was read, a full segment that is being encoded, and its pages,
/// - 12 encoded segments on their way (lineitem: 4 MiB each), and the client's own memory for transfers,
/// - while a table is sorted `sort_memory_bytes` instead of the first.
///
/// Measured for TPC-H at scale 4 with four nodes, two threads and no sorting: 0.5 GB more than before the load, the allocator's
/// own share included; its generator keeps 0.3 GB of text besides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    /// Target bytes of a page, a multiple of 4 KiB.
    pub page_size: u32,
    /// Rows of a full segment, a multiple of 1,024.
    pub segment_rows: u32,
    /// Threads that make, deal and encode rows.
    pub threads: usize,
    /// Rows held in memory while a table is sorted, in bytes, for all nodes together; more are spilled.
    pub sort_memory_bytes: usize,
    /// What gives back the part of a lost node; `None` if nothing does.
    pub protection: Option<Protection>,
    /// Where sorted rows are spilled, into files without names that are gone when the load ends, however it ends.
    pub spill_folder: PathBuf,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            page_size: PAGE_SIZE_DEFAULT,
            segment_rows: SEGMENT_ROWS_DEFAULT,
            threads: std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX),
            sort_memory_bytes: SORT_MEMORY_BYTES_DEFAULT,
            protection: None,
            spill_folder: std::env::temp_dir(),
        }
    }
}

impl LoadOptions {
    /// Checks what the table's definition does not.
    pub(crate) fn check(&self) -> Result<(), LoadError> {
        if (1..=THREADS_MAX).contains(&self.threads) {
            return Ok(());
        }
        Err(LoadError::Option {
            what: "the number of threads",
            found: self.threads.to_string(),
            expected: format!("1 to {THREADS_MAX}"),
        })
    }
}

/// How a file becomes a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSpec {
    /// The table's name; a table of that name is replaced.
    pub name: String,
    /// The column whose hash decides the node of a row.
    pub partition_by: String,
    /// The column to sort by within each node.
    pub sort_by: Option<String>,
}
