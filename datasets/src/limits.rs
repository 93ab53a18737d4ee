//! How much may a load hold and keep in flight?
//!
//! Invariants
//! - Every queue and buffer of this crate has its bound here; relations are asserted at compile
//!   time.

use rackscan_format::limits::{CLUSTER_NODES_MAX, PAGE_BYTES_MAX, SEGMENT_ROWS_MAX};

/// Threads of a load.
pub const THREADS_MAX: usize = 256;
/// Rows of a piece: what a thread makes, deals and hands on at a time. Small, so that rows that are
/// neighbours in the source stay neighbours in a segment although several threads deal them.
pub const PIECE_ROWS: usize = 16 * 1024;
/// Bytes of a piece as it is in its file, all columns together; a row may go beyond.
pub const PIECE_BYTES: usize = 8 << 20;
/// Bytes of a row of a CSV file, as text: what is held while a quote is not closed.
pub const CSV_RECORD_BYTES_MAX: usize = 16 << 20;
/// Bytes read from a file at a time.
pub const INPUT_BYTES: usize = 256 << 10;
/// Bytes at the beginning of a file by which its compression and encoding are recognised.
pub const INPUT_HEAD_BYTES: u64 = 4096;
/// Memory of the decoder of a file compressed with xz; its highest level needs 65 MiB.
pub const XZ_MEMORY_BYTES_MAX: u64 = 256 << 20;
/// Characters of a value that a message shows.
pub const SHOWN_CHARACTERS_MAX: usize = 200;
/// Encoded segments on their way to the nodes.
pub const APPENDS_MAX: usize = 8;
/// Encoded segments and reports of progress that wait for the task that awaits the load.
pub const MADE_QUEUE_MAX: usize = 4;
/// Memory of a load unless it asks for another amount.
pub const MEMORY_BYTES_DEFAULT: usize = 1 << 30;
/// Bytes of the rows of a segment, decoded, all columns together; a segment is closed early beyond.
pub const SEGMENT_BYTES_MAX: usize = 64 << 20;
/// The same where a load has little memory.
pub const SEGMENT_BYTES_MIN: usize = 1 << 20;
/// Bytes of one text: it must fit a page.
pub const TEXT_BYTES_MAX: usize = PAGE_BYTES_MAX as usize - 4096;
/// Memory for sorting unless the load asks for another amount.
pub const SORT_MEMORY_BYTES_DEFAULT: usize = 256 << 20;
/// The part of a load's memory that sorting takes at most.
pub const SORT_MEMORY_PART: usize = 4;
/// Rows of a batch that is spilled or merged.
pub const MERGE_ROWS: usize = 4096;
/// Sorted runs merged at once: each holds one batch in memory and perhaps an open file.
pub const MERGE_RUNS_MAX: usize = 64;
/// Sorted runs in files, of all nodes together: each is an open file.
pub const SPILLED_RUNS_MAX: usize = 512;
/// The first day, counted from 1970 on, that can be printed: one of the year -262143.
pub const DAY_MIN: i64 = -96_465_292;
/// The last one, of the year 262142.
pub const DAY_MAX: i64 = 95_026_236;
/// The smallest scale factor of TPC-H: below, tables have fewer rows than the others' keys need.
pub const TPCH_SCALE_MIN: f64 = 0.001;
/// The largest scale factor of TPC-H: the specification's own.
pub const TPCH_SCALE_MAX: f64 = 100_000.0;
/// Streams of refreshes of one load: each deletes a thousandth of the loaded orders, and dbgen's
/// keys of the thousandth stream are of another kind.
pub const REFRESH_STREAMS_MAX: u32 = 999;

// Text offsets of a segment are 32 bits, also when the last text makes it full.
const _: () = assert!(SEGMENT_BYTES_MAX + TEXT_BYTES_MAX <= u32::MAX as usize);
const _: () = assert!(TEXT_BYTES_MAX < SEGMENT_BYTES_MAX && SEGMENT_BYTES_MIN <= SEGMENT_BYTES_MAX);
// Text offsets of a piece are 32 bits, and signed; the fields of a row have at most its bytes.
const _: () = assert!(PIECE_BYTES + CSV_RECORD_BYTES_MAX <= i32::MAX as usize);
// A field that no page holds is told as one, not as a row that is too long.
const _: () = assert!(CSV_RECORD_BYTES_MAX > TEXT_BYTES_MAX);
// Clients have room for the pages of a segment, also if these are larger than its rows.
const _: () = assert!(2 * SEGMENT_BYTES_MAX <= rackscan_client::limits::MEMORY_BYTES_DEFAULT);
// Row numbers of a piece and of a segment are 32 bits.
const _: () = assert!(PIECE_ROWS < SEGMENT_ROWS_MAX as usize);
// Every node may have two runs, which is what a merge needs.
const _: () = assert!(SPILLED_RUNS_MAX >= 2 * CLUSTER_NODES_MAX && MERGE_RUNS_MAX >= 2);
const _: () = assert!(MERGE_ROWS >= 1 && APPENDS_MAX >= 1 && MADE_QUEUE_MAX >= 1);
