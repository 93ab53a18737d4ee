//! What can be chosen about a load?

use std::path::PathBuf;

use rackscan_format::limits::{PAGE_SIZE_DEFAULT, SEGMENT_ROWS_DEFAULT};

use crate::limits::SORT_MEMORY_BYTES_DEFAULT;

/// How tables are cut and how much of the machine a load uses.
///
/// A load holds, beyond the pieces that its threads read, at most `nodes x segment_rows` rows that wait for their segment to
/// fill, and `threads + APPENDS_MAX` encoded segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    /// Target bytes of a page.
    pub page_size: u32,
    /// Rows of a full segment, a multiple of 1,024.
    pub segment_rows: u32,
    /// Threads that make, deal and encode rows.
    pub threads: usize,
    /// Rows held in memory while a table is sorted, in bytes, for all nodes together; more are spilled.
    pub sort_memory_bytes: usize,
    /// Where sorted rows are spilled, into a folder that is removed in every case.
    pub spill_folder: PathBuf,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            page_size: PAGE_SIZE_DEFAULT,
            segment_rows: SEGMENT_ROWS_DEFAULT,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            sort_memory_bytes: SORT_MEMORY_BYTES_DEFAULT,
            spill_folder: std::env::temp_dir(),
        }
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
