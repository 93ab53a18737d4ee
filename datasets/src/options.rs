//! Defines the settings of a load.

use std::path::PathBuf;

use rackscan_format::{
    limits::{PAGE_SIZE_DEFAULT, SEGMENT_ROWS_DEFAULT},
    schema::Protection,
};

use crate::{
    LoadError,
    limits::{
        APPENDS_MAX, MADE_QUEUE_MAX, MEMORY_BYTES_DEFAULT, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN,
        SORT_MEMORY_BYTES_DEFAULT, SORT_MEMORY_PART, THREADS_MAX,
    },
};

/// How tables are cut into segments, and how much of the machine a load uses.
///
/// Whatever the size of the table, a load holds in memory
/// - for each node, the rows that wait for their segment to fill, decoded (8 bytes for a number,
///   texts unchanged; about 160 bytes for a row of TPC-H's lineitem),
/// - for each thread, a piece as it was read, a full segment that is being encoded, and its pages,
/// - 12 encoded segments in flight, and the client's own memory for transfers,
/// - `sort_memory_bytes` instead of the first item while a table is sorted.
///
/// Segments are closed early if these would exceed `memory_bytes`. The generator of TPC-H keeps
/// another 0.3 GB of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    /// Target bytes of a page, a multiple of 4 KiB.
    pub page_size: u32,
    /// Rows of a full segment, a multiple of 1,024.
    pub segment_rows: u32,
    /// Threads that make, distribute and encode rows.
    pub threads: usize,
    /// Bytes of rows and pages held in memory, over all nodes and threads.
    pub memory_bytes: usize,
    /// Bytes of rows held in memory while a table is sorted, over all nodes; more rows are spilled.
    pub sort_memory_bytes: usize,
    /// How the part of a lost node can be rebuilt; `None` if it cannot.
    pub protection: Option<Protection>,
    /// The folder where sorted rows are spilled, to files without names, which disappear with the
    /// load however it ends.
    pub spill_folder: PathBuf,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            page_size: PAGE_SIZE_DEFAULT,
            segment_rows: SEGMENT_ROWS_DEFAULT,
            threads: std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX),
            memory_bytes: MEMORY_BYTES_DEFAULT,
            sort_memory_bytes: SORT_MEMORY_BYTES_DEFAULT,
            protection: None,
            spill_folder: std::env::temp_dir(),
        }
    }
}

impl LoadOptions {
    /// The options of a load that may hold this many bytes in memory.
    #[must_use]
    pub fn with_memory(bytes: usize) -> Self {
        let sort_memory_bytes = SORT_MEMORY_BYTES_DEFAULT.min(bytes / SORT_MEMORY_PART);
        Self { memory_bytes: bytes, sort_memory_bytes, ..Self::default() }
    }

    /// The maximum bytes of the rows of a segment, decoded, in a load into `nodes` nodes.
    pub(crate) fn segment_bytes(&self, nodes: usize) -> usize {
        // Rows take up to twice their bytes while their segment fills. Rows that a thread encodes
        // are held together with their pages.
        let segments = 2 * nodes + 3 * self.threads + MADE_QUEUE_MAX + APPENDS_MAX;
        (self.memory_bytes / segments).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
    }

    /// Checks the options that the table's definition does not check.
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

/// How a file is loaded as a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSpec {
    /// The name of the table; an existing table of that name is replaced.
    pub name: String,
    /// The column whose hash decides the node of a row.
    pub partition_by: String,
    /// The column to sort by within each node.
    pub sort_by: Option<String>,
}
