//! Defines the bounds of a load: the memory that it uses, and how much is in flight.
//!
//! Invariants
//! - Every queue and buffer of this crate has its bound here; relations between bounds are asserted
//!   at compile time.

use rackscan_format::limits::{CLUSTER_NODES_MAX, PAGE_BYTES_MAX, SEGMENT_ROWS_MAX};

/// The maximum number of threads of a load.
pub const THREADS_MAX: usize = 256;
/// The maximum rows of a piece: what a thread makes and distributes at a time. Small, so that
/// neighbouring rows of the source stay close in a segment although several threads distribute
/// them.
pub const PIECE_ROWS: usize = 16 * 1024;
/// The maximum bytes of a piece as it is in its file, all columns together. A single row may exceed
/// it.
pub const PIECE_BYTES: usize = 8 << 20;
/// The maximum bytes of a row of a CSV file, as text: what is held while a quote is not closed.
pub const CSV_RECORD_BYTES_MAX: usize = 16 << 20;
/// Bytes read from a file at a time.
pub const INPUT_BYTES: usize = 256 << 10;
/// Bytes at the beginning of a file from which its compression and encoding are recognised.
pub const INPUT_HEAD_BYTES: u64 = 4096;
/// The maximum memory of the xz decoder; its highest level needs 65 MiB.
pub const XZ_MEMORY_BYTES_MAX: u64 = 256 << 20;
/// The maximum characters of a value in a message.
pub const SHOWN_CHARACTERS_MAX: usize = 200;
/// The maximum number of encoded segments in flight to the nodes.
pub const APPENDS_MAX: usize = 8;
/// The maximum number of encoded segments and progress reports that wait for the task that awaits
/// the load.
pub const MADE_QUEUE_MAX: usize = 4;
/// Memory of a load unless it asks for another amount.
pub const MEMORY_BYTES_DEFAULT: usize = 1 << 30;
/// The maximum bytes of the rows of a segment, decoded, all columns together. A segment is closed
/// early beyond it.
pub const SEGMENT_BYTES_MAX: usize = 64 << 20;
/// The smallest value of that bound, for loads with little memory.
pub const SEGMENT_BYTES_MIN: usize = 1 << 20;
/// The maximum bytes of one text: it must fit a page.
pub const TEXT_BYTES_MAX: usize = PAGE_BYTES_MAX as usize - 4096;
/// Memory for sorting unless the load asks for another amount.
pub const SORT_MEMORY_BYTES_DEFAULT: usize = 256 << 20;
/// Sorting takes at most one part in this many of a load's memory.
pub const SORT_MEMORY_PART: usize = 4;
/// Rows of a batch that is spilled or merged.
pub const MERGE_ROWS: usize = 4096;
/// Sorted runs merged at once: each holds one batch in memory and perhaps an open file.
pub const MERGE_RUNS_MAX: usize = 64;
/// The maximum number of sorted runs in files, over all nodes: each is an open file.
pub const SPILLED_RUNS_MAX: usize = 512;
/// The first day, counted from 1970 on, that can be printed: one of the year -262143.
pub const DAY_MIN: i64 = -96_465_292;
/// The last day that can be printed, of the year 262142.
pub const DAY_MAX: i64 = 95_026_236;
/// The smallest scale factor of TPC-H: below it, some tables have fewer rows than the keys of the
/// others need.
pub const TPCH_SCALE_MIN: f64 = 0.001;
/// The largest scale factor of TPC-H, from the specification.
pub const TPCH_SCALE_MAX: f64 = 100_000.0;
/// The maximum number of refresh streams of one load: each deletes a thousandth of the loaded
/// orders, and from the thousandth stream on dbgen builds keys differently.
pub const REFRESH_STREAMS_MAX: u32 = 999;

// Text offsets of a segment have 32 bits, even with the text that exceeds the segment's bound.
const _: () = assert!(SEGMENT_BYTES_MAX + TEXT_BYTES_MAX <= u32::MAX as usize);
const _: () = assert!(TEXT_BYTES_MAX < SEGMENT_BYTES_MAX && SEGMENT_BYTES_MIN <= SEGMENT_BYTES_MAX);
// Text offsets of a piece are signed and have 32 bits; a piece may exceed its bound by one row.
const _: () = assert!(PIECE_BYTES + CSV_RECORD_BYTES_MAX <= i32::MAX as usize);
// A field that fits no page is reported as such, not as a row that is too long.
const _: () = assert!(CSV_RECORD_BYTES_MAX > TEXT_BYTES_MAX);
// The client's memory can hold the pages of a segment, even if they are larger than its rows.
const _: () = assert!(2 * SEGMENT_BYTES_MAX <= rackscan_client::limits::MEMORY_BYTES_DEFAULT);
// Row numbers of a piece and of a segment are 32 bits.
const _: () = assert!(PIECE_ROWS < SEGMENT_ROWS_MAX as usize);
// Every node may have two runs, the minimum for a merge.
const _: () = assert!(SPILLED_RUNS_MAX >= 2 * CLUSTER_NODES_MAX && MERGE_RUNS_MAX >= 2);
const _: () = assert!(MERGE_ROWS >= 1 && APPENDS_MAX >= 1 && MADE_QUEUE_MAX >= 1);
