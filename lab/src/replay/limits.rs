//! Defines the limits of a replay.

use rackscan_trace::limits::LENGTH_BYTES_MAX;

use crate::limits::IO_BYTES_LARGEST;

/// Maximum devices that a trace is replayed on.
pub const DEVICES_MAX: usize = 4096;

/// Maximum records of a trace; they are read into memory before a replay begins, so that reading
/// does not disturb it.
pub const RECORDS_MAX: u64 = 32_000_000;

/// Maximum requests of a trace, after long records are split.
pub const REQUESTS_MAX: usize = 64_000_000;

/// Maximum speed; the minimum is its inverse.
pub const SPEED_MAX: f64 = 1000.0;

// In memory, a record's length has 32 bits and its target device's index 16 bits.
const _: () = assert!(LENGTH_BYTES_MAX <= u32::MAX as u64 && DEVICES_MAX <= u16::MAX as usize);
// The requests of the longest record are within the limit.
const _: () = assert!(LENGTH_BYTES_MAX / IO_BYTES_LARGEST as u64 <= REQUESTS_MAX as u64);
