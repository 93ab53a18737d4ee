//! How large may a replay become?

use rackscan_trace::limits::LENGTH_BYTES_MAX;

use crate::limits::IO_BYTES_LARGEST;

/// Most devices that a trace is replayed on.
pub const PLACES_MAX: usize = 4096;

/// Most records of a trace; they are in memory before a replay begins, so that reading does not
/// disturb it.
pub const RECORDS_MAX: u64 = 32_000_000;

/// Most requests that the records become when long ones are cut.
pub const REQUESTS_MAX: usize = 64_000_000;

/// Fastest replay, and the inverse of the slowest.
pub const SPEED_MAX: f64 = 1000.0;

// A record's length and place have fields of 32 and 16 bits in memory.
const _: () = assert!(LENGTH_BYTES_MAX <= u32::MAX as u64 && PLACES_MAX <= u16::MAX as usize);
// Even the longest record is cut into few enough pieces.
const _: () = assert!(LENGTH_BYTES_MAX / IO_BYTES_LARGEST as u64 <= REQUESTS_MAX as u64);
