//! Defines the bounds of sessions, and of the memory and queues that a peer can make a node use.
//!
//! Invariants
//! - Every queue and table of this crate has its bound here; nothing grows with what a peer sends.
//! - Relations between bounds are asserted at compile time, next to the bounds.

use std::time::Duration;

/// The version of the protocol between clients and nodes, and between nodes.
pub const PROTOCOL: u32 = 4;

/// Cells and slices are multiples of this, so that each can be written, bypassing the page cache,
/// from where it arrived.
pub const SECTOR_BYTES: usize = 4096;

/// The longest slice, in bytes.
pub const SLICE_BYTES_MAX: usize = 4 << 20;

/// The longest cell, in bytes.
pub const CELL_BYTES_MAX: u64 = 1 << 32;

/// The maximum number of slices of a cell: their numbers take three bytes.
pub const SLICES_MAX: u32 = 1 << 20;

/// The maximum number of stripes of a session in progress.
pub const LANES_MAX: usize = 64;

/// The maximum number of slots of a ring.
pub const SLOTS_MAX: usize = 1024;

/// The maximum number of rings of a link: of all transfers of one member to another, over all
/// lanes.
pub const RINGS_MAX: usize = 1 << 14;

/// A receiver grants credit each time that this fraction of the ring has become free.
pub const CREDITS_PER_RING: usize = 4;

/// The longest description of a stripe for a node's store, in bytes.
pub const WHAT_BYTES_MAX: usize = 48 << 10;

/// The longest address in a message, in bytes.
pub const ADDRESS_BYTES_MAX: usize = 256;

/// The longest reason in a message, in bytes.
pub const WHY_BYTES_MAX: usize = 512;

/// Sessions of a node at a time.
pub const SESSIONS_MAX: usize = 64;

/// Connections of a node at a time.
pub const LINKS_MAX: usize = 2048;

/// The default for links of a node that belong to no session: their peers have not said what they
/// are for, or they wait for their session.
pub const EARLY_MAX: usize = 80;

/// Memory that a link takes beside its rings, in bytes: its queue, and the staging buffer, answers
/// and stack of a `tcp` responder, rounded up.
pub const LINK_BYTES: u64 = 384 << 10;

/// Links of a session for each of its members: one incoming, one outgoing, and one whose peer may
/// not have said yet what it is for.
pub const LINKS_PER_MEMBER: u64 = 3;

/// How long a new connection may be silent, and a link may wait for its session.
pub const EARLY_TIME_MAX: Duration = Duration::from_secs(10);

/// How long a node tries to connect to another one when a session opens.
pub const DIAL_TIME_MAX: Duration = Duration::from_secs(5);

/// Threads of a node that connect or hang up, at one time.
pub const CALL_THREADS_MAX: usize = 64;

/// Connections that may wait to be hung up before a node stops accepting others.
pub const HANG_UPS_WAITING_MAX: usize = LINKS_MAX;

/// How long a session may make no progress at a node, while opening, with stripes or without,
/// before the node ends it.
pub const SESSION_IDLE_MAX: Duration = Duration::from_secs(60);

/// How often a sleeping node checks whether a connection was made.
pub const DIAL_LOOK: Duration = Duration::from_millis(1);

/// How long a thread polls for work before it sleeps.
pub const SPIN: Duration = Duration::from_micros(50);

/// The longest sleep of a node or writer before it polls again.
pub const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Operations in flight on a link that move slices. A slice takes up to three: its name, its bytes,
/// and zeros after them.
pub const SLICE_OPERATIONS_MAX: usize = 192;

/// Operations in flight on a link that grant credit; a grant takes up to two.
pub const CREDIT_OPERATIONS_MAX: usize = 32;

/// Messages in flight on a link.
pub const MESSAGE_OPERATIONS_MAX: usize = 24;

/// Messages that wait for a link: a `Begin` or a `Stored` for each lane, and those that open and
/// end a session.
pub const MESSAGES_WAITING_MAX: usize = LANES_MAX + 16;

/// The longest device operation that combines neighbouring slices, in bytes. A longer slice is one
/// operation.
pub const STORE_BYTES_MAX: usize = 1 << 20;

/// The default memory of a node for all of its sessions, in bytes.
pub const MEMORY_BYTES: u64 = 1 << 30;

// The queue of a link has room for all kinds of operations at their bounds, and for one last
// message.
const _: () = assert!(
    SLICE_OPERATIONS_MAX + CREDIT_OPERATIONS_MAX + MESSAGE_OPERATIONS_MAX
        < rackscan_fabric::limits::QUEUE_DEPTH_MAX
);
// In the largest session, all nodes may connect before the client does.
const _: () = assert!(EARLY_MAX > rackscan_stripe::limits::NODES_MAX);
// A message with the longest description, or with all members and their addresses, is one message
// of the fabric.
const _: () = assert!(WHAT_BYTES_MAX + 64 <= rackscan_fabric::limits::SEND_BYTES_MAX);
const _: () = assert!(
    rackscan_stripe::limits::NODES_MAX * (rackscan_fabric::limits::SOCKET_PATH_BYTES_MAX + 300) + 256
        <= rackscan_fabric::limits::SEND_BYTES_MAX
);
// Slices are whole sectors, transfers of the fabric, and writes of a device.
const _: () = assert!(SLICE_BYTES_MAX.is_multiple_of(SECTOR_BYTES));
const _: () = assert!(SLICE_BYTES_MAX <= rackscan_fabric::limits::TRANSFER_BYTES_MAX);
const _: () = assert!(SLICE_BYTES_MAX <= rackscan_device::limits::IO_BYTES_MAX);
const _: () = assert!(STORE_BYTES_MAX <= rackscan_device::limits::IO_BYTES_MAX);
const _: () = assert!(SECTOR_BYTES.is_multiple_of(rackscan_device::limits::IO_ALIGN_BYTES));
// The name of a slice: its number in three bytes, its ring and the stripe in two each.
const _: () = assert!(SLICES_MAX <= 1 << 24 && RINGS_MAX <= 1 << 16 && LANES_MAX <= 256);
