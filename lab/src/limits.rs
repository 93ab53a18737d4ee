//! How large may anything in this crate become?

use rackscan_device::limits::{IO_BYTES_MAX, RING_DEPTH_MAX};

/// Deepest target: one thread cannot keep more in flight on its ring.
pub const DEPTH_MAX: u32 = RING_DEPTH_MAX;

/// Largest single IO of a target, in bytes.
pub const IO_BYTES_LARGEST: u32 = 1 << 20;

/// Most memory of one target, in bytes: depth times the largest IO.
pub const TARGET_MEMORY_BYTES_MAX: usize = 8 << 30;

const _: () = assert!(IO_BYTES_LARGEST as usize <= IO_BYTES_MAX);
const _: () = assert!(TARGET_MEMORY_BYTES_MAX >= DEPTH_MAX as usize * IO_BYTES_LARGEST as usize);
