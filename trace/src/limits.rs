//! Defines all bounds of this crate.

/// Bytes of a file's beginning from which its format and units are determined.
pub const HEAD_BYTES_MAX: usize = 256 << 10;

/// The same for further files of the same trace.
pub const PART_HEAD_BYTES: usize = 4 << 10;

/// Maximum bytes of one line of a text.
pub const LINE_BYTES_MAX: usize = 64 << 10;

// The head must hold complete lines.
const _: () = assert!(LINE_BYTES_MAX * 4 <= HEAD_BYTES_MAX);

/// Maximum bytes of one read or write. No device performs longer ones.
pub const LENGTH_BYTES_MAX: u64 = 1 << 30;

/// The maximum end of an IO: offsets are signed 64-bit numbers in every system call.
pub const OFFSET_BYTES_MAX: u64 = i64::MAX as u64;

/// Maximum seconds from a trace's beginning to its end: ten years. Times of later records are
/// certainly wrong.
pub const TRACE_SECONDS_MAX: u64 = 10 * 366 * 24 * 3600;

/// Maximum number of named devices of one trace.
pub const DEVICES_MAX: usize = 4096;

// Devices are numbered with 16 bits.
const _: () = assert!(DEVICES_MAX <= u16::MAX as usize);

/// Maximum number of refused entries whose description is kept.
pub const DEFECTS_KEPT_MAX: usize = 10;

/// If this many entries are refused before the first record, the file is of another format.
pub const HOPELESS_DEFECTS: u64 = 1000;

/// Rows from which the units of a CSV file are determined.
pub const SAMPLE_ROWS_MAX: usize = 4096;

/// Maximum bytes of a field that an error shows.
pub const SHOWN_BYTES_MAX: usize = 60;

/// Maximum number of files (one per processor) of one binary trace.
pub const PROCESSORS_MAX: usize = 1024;

/// Bytes read at a time from each file of a binary trace.
pub const PART_BUFFER_BYTES: usize = 16 << 10;

// The buffers and heads of all processors fit in 32 MiB.
const _: () = assert!(PROCESSORS_MAX * (PART_BUFFER_BYTES + PART_HEAD_BYTES) <= 32 << 20);

/// Bytes read from or written to a file at a time.
pub const BUFFER_BYTES: usize = 64 << 10;

/// Records that are held to be sorted, where a writer asks for it.
pub const REORDERED_MAX: usize = 1 << 16;

/// Maximum number of distinct names of tables and columns that records share.
pub const NAMES_KEPT_MAX: usize = 4096;
