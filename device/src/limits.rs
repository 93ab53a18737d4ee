//! All bounds of this crate.
//!
//! Each bound is stated with its reason, and the relations between bounds are asserted at compile
//! time.

use std::time::Duration;

/// Granularity of pool buffers and the largest direct-IO alignment accepted from a device, in
/// bytes.
///
/// 4 KiB is the memory page of x86-64 and the largest logical block of NVMe devices in use.
pub const IO_ALIGN_BYTES: usize = 4096;

/// Maximum bytes of a single read or write. Callers split longer transfers, so that no request
/// occupies a device for more than a few milliseconds.
pub const IO_BYTES_MAX: usize = 16 << 20;

/// Largest buffer a pool hands out, in bytes: a buffer never needs to exceed one transfer.
pub const BUFFER_BYTES_MAX: usize = IO_BYTES_MAX;

/// Largest slab of one pool, in bytes. Pool pages are numbered by `u32`.
pub const POOL_BYTES_MAX: usize = 1 << 40;

/// Maximum depth of a ring. Beyond this the completion ring alone takes megabytes and no device
/// becomes faster.
pub const RING_DEPTH_MAX: u32 = 4096;

/// Maximum number of devices of one ring; the registered file table has this many entries.
pub const DEVICES_PER_RING_MAX: u16 = 64;

/// Maximum number of file descriptors that one ring watches: connections of one reactor, and a few
/// event descriptors.
pub const WATCHES_PER_RING_MAX: u32 = 4096;

/// How long the kernel's thread of a ring looks for requests before it sleeps, in milliseconds.
pub const SUBMISSION_THREAD_IDLE_MS: u32 = 50;

/// Maximum number of threads of one [`crate::PreadPool`].
pub const IO_THREADS_MAX: usize = 512;

/// Stack size of a thread that reads devices: it makes one system call, and on a fault it formats
/// an error.
pub const IO_THREAD_STACK_BYTES: usize = 128 << 10;

/// How often one request is submitted again after a transient refusal before it fails.
pub const RETRIES_MAX: u8 = 8;

/// Size of a registered buffer in bytes. The kernel refuses more than 1 GiB per entry, so a slab is
/// registered in pieces of this size.
pub const REGISTERED_PIECE_BYTES: usize = 1 << 30;

/// Maximum number of registered pieces, which bounds the registered part of a slab; the index is a
/// `u16`.
pub const REGISTERED_PIECES_MAX: usize = POOL_BYTES_MAX / REGISTERED_PIECE_BYTES;

/// How long opening for writing waits for the lock. The lock of a killed process may stay taken for
/// some milliseconds, until the kernel has taken down its rings; a restart must not fail because of
/// that.
pub const LOCK_WAIT_MAX: Duration = Duration::from_millis(500);

/// Time between attempts to take the lock.
pub const LOCK_POLL: Duration = Duration::from_millis(10);

const _: () = assert!(LOCK_POLL.as_nanos() < LOCK_WAIT_MAX.as_nanos());
const _: () = assert!(IO_ALIGN_BYTES.is_power_of_two());
const _: () = assert!(BUFFER_BYTES_MAX.is_power_of_two() && BUFFER_BYTES_MAX.is_multiple_of(IO_ALIGN_BYTES));
// The kernel cuts transfers at 2 GiB minus one page; transfers of this crate must be shorter.
const _: () = assert!(IO_BYTES_MAX < (1 << 31) - 4096);
// No buffer may straddle two registered pieces: pool blocks are aligned to at most the largest
// buffer.
const _: () = assert!(REGISTERED_PIECE_BYTES.is_multiple_of(BUFFER_BYTES_MAX));
const _: () = assert!(POOL_BYTES_MAX / IO_ALIGN_BYTES < u32::MAX as usize);
const _: () = assert!(REGISTERED_PIECES_MAX <= u16::MAX as usize);
// Tags of slots and watches share a 64-bit word with two flag bits.
const _: () = assert!((RING_DEPTH_MAX as u64) < (1 << 32) && (WATCHES_PER_RING_MAX as u64) < (1 << 32));
