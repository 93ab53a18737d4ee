//! How much may anything in a storage node become?
//!
//! Invariants
//! - Every queue, pool and table of this crate has its bound here; relations are asserted at compile time.
//! - Nothing grows with what a peer sends beyond these bounds.

use std::time::Duration;

use rackscan_format::limits::{FETCH_PAGES_MAX, PAGE_BYTES_MAX, SECTOR_BYTES};

/// Reactor threads of a node.
pub const REACTORS_MAX: u16 = 64;
/// Scan workers of a node.
pub const SCAN_WORKERS_MAX: u16 = 256;
/// Scans that wait for a worker.
pub const SCAN_QUEUE_MAX: u16 = 4096;
/// Addresses a node listens at.
pub const LISTENERS_MAX: usize = 16;
/// Reads and writes in flight of one thread.
pub const IO_DEPTH_MAX: u32 = 1024;
/// Bytes of the smallest device: labels and one of the largest pages.
pub const DEVICE_BYTES_MIN: u64 = 8 << 20;

/// Connections of one reactor.
pub const CONNECTIONS_PER_REACTOR_MAX: usize = 256;
/// Memory that one connection takes outside of our pools, in bytes: both message rings of `shm`, or the staging and
/// message queues of `tcp`, rounded up.
pub const CONNECTION_BYTES: u64 = 640 << 10;
/// Requests in progress of one connection; a client that asks for more is told [`Busy`].
///
/// [`Busy`]: rackscan_format::message::RefusalCode::Busy
pub const REQUESTS_PER_CONNECTION_MAX: usize = 128;
/// Replies of one connection that wait because its peer does not read; one more ends the connection.
pub const REPLIES_WAITING_MAX: usize = 2 * REQUESTS_PER_CONNECTION_MAX;
/// Requests in progress of one reactor.
pub const REQUESTS_PER_REACTOR_MAX: usize = 1024;
/// Reads that one fetch has in flight, so that a large fetch leaves the queue to others.
pub const READS_PER_FETCH_MAX: u32 = 32;
/// Bytes of one read made of several neighbouring pages.
pub const COALESCED_BYTES_MAX: u32 = 1 << 20;
/// Pages of one append on their way from the source to the device.
pub const PAGES_PER_APPEND_MAX: usize = 32;
/// Encoded bytes of a segment directory.
pub const DIRECTORY_BYTES_MAX: usize = 4 << 20;
/// Bytes of a catalog that one reply carries.
pub const CATALOG_PART_BYTES_MAX: u64 = 1 << 20;
/// Memory behind the answers to echo, in bytes.
pub const ECHO_BYTES: usize = 256 << 10;
/// Writes of one echo in flight.
pub const ECHO_WRITES_MAX: u32 = 4;
/// Bytes of a scan's result on wires where it is staged here before it travels.
pub const RESULT_STAGED_BYTES_MAX: u64 = 4 << 20;
/// Bytes of a scan's result on wires where it goes straight to the requester.
pub const RESULT_BYTES_MAX: u64 = 64 << 20;
/// Verified programs kept for the next segment of the same scan.
pub const PROGRAMS_KEPT_MAX: usize = 64;
/// Loads in progress.
pub const LOADS_MAX: usize = 64;
/// Catalog changes that wait to be made durable.
pub const PUBLISH_QUEUE_MAX: usize = 256;
/// Messages from other threads that wait for a reactor: finished work (bounded by its requests) and new connections.
pub const MAILBOX_MAX: usize = REQUESTS_PER_REACTOR_MAX + CONNECTIONS_PER_REACTOR_MAX;

/// How long a reactor that has just worked polls before it sleeps in the kernel. Short: on a small host the client that
/// it waits for needs this processor.
pub const REACTOR_SPIN: Duration = Duration::from_micros(10);
/// How long stopping waits for requests in progress.
pub const STOP_TIME_MAX: Duration = Duration::from_secs(5);

/// The largest part of staging memory or of a pool that is asked for at once.
pub const BUFFER_BYTES_MAX: usize = PAGE_BYTES_MAX as usize;

const _: () = assert!(DIRECTORY_BYTES_MAX <= BUFFER_BYTES_MAX);
const _: () = assert!(RESULT_STAGED_BYTES_MAX <= BUFFER_BYTES_MAX as u64);
const _: () = assert!(CATALOG_PART_BYTES_MAX <= BUFFER_BYTES_MAX as u64);
const _: () =
    assert!(COALESCED_BYTES_MAX <= PAGE_BYTES_MAX && COALESCED_BYTES_MAX.is_multiple_of(SECTOR_BYTES));
// Coalesced reads of a fetch are numbered in 32 bits next to a task's number.
const _: () = assert!(FETCH_PAGES_MAX < u32::MAX as usize);
const _: () = assert!(REQUESTS_PER_CONNECTION_MAX <= REQUESTS_PER_REACTOR_MAX);
const _: () = assert!(IO_DEPTH_MAX <= rackscan_device::limits::RING_DEPTH_MAX);
const _: () = assert!(BUFFER_BYTES_MAX <= rackscan_device::limits::BUFFER_BYTES_MAX);
// A reactor watches its connections, its bell and the listeners.
const _: () = assert!(
    CONNECTIONS_PER_REACTOR_MAX + LISTENERS_MAX < rackscan_device::limits::WATCHES_PER_RING_MAX as usize
);
const _: () = assert!(DEVICE_BYTES_MIN > rackscan_format::label::DATA_OFFSET_BYTES + PAGE_BYTES_MAX as u64);
