//! Which limits hold for traces, and how do they relate?

/// Bytes of a file's beginning from which its format and units are told.
pub const HEAD_BYTES_MAX: usize = 256 << 10;

/// The same of further files of the same trace.
pub const PART_HEAD_BYTES: usize = 4 << 10;

/// Bytes of one line of a text.
pub const LINE_BYTES_MAX: usize = 64 << 10;

// A head that holds no whole line would tell nothing.
const _: () = assert!(LINE_BYTES_MAX * 4 <= HEAD_BYTES_MAX);

/// Bytes of one read or write. Longer ones are no IOs of anybody's device.
pub const LENGTH_BYTES_MAX: u64 = 1 << 30;

/// The first byte that no device has: offsets are signed 64-bit numbers in every system call.
pub const OFFSET_BYTES_MAX: u64 = i64::MAX as u64;

/// Seconds from a trace's beginning to its end: ten years. Later records have times that are wrong.
pub const TRACE_SECONDS_MAX: u64 = 10 * 366 * 24 * 3600;

/// Devices of one trace that have names.
pub const DEVICES_MAX: usize = 4096;

// Devices are numbered with 16 bits.
const _: () = assert!(DEVICES_MAX <= u16::MAX as usize);

/// Refused lines whose text is kept.
pub const DEFECTS_KEPT_MAX: usize = 10;

/// Refused lines without any record before them, after which the file is of another format.
pub const HOPELESS_DEFECTS: u64 = 1000;

/// Rows from which the units of a CSV file are told.
pub const SAMPLE_ROWS_MAX: usize = 4096;

/// Bytes of a field that an error shows.
pub const SHOWN_BYTES_MAX: usize = 60;

/// Files per processor of one binary trace.
pub const PROCESSORS_MAX: usize = 1024;

/// Bytes read at a time from each of the files of one trace.
pub const PART_BUFFER_BYTES: usize = 16 << 10;

// All processors' buffers and heads together.
const _: () = assert!(PROCESSORS_MAX * (PART_BUFFER_BYTES + PART_HEAD_BYTES) <= 32 << 20);

/// Bytes read from or written to a file at a time.
pub const BUFFER_BYTES: usize = 64 << 10;

/// Records that wait to be put in order, where a writer asks for it.
pub const REORDERED_MAX: usize = 1 << 16;

/// Distinct names of tables and columns that are kept once.
pub const NAMES_KEPT_MAX: usize = 4096;
