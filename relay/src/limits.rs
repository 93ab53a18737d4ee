//! How much may a session take, and how much may a peer make us hold?
//!
//! Invariants
//! - Every queue and table of this crate has its bound here; nothing grows with what a peer sends.
//! - Relations between bounds are asserted at compile time, next to the bounds.

use std::time::Duration;

/// The protocol between clients and nodes, and between nodes.
pub const PROTOCOL: u32 = 4;

/// Cells and slices are whole multiples of this many bytes, so that each can be written past the
/// page cache out of the place where it arrived.
pub const SECTOR_BYTES: usize = 4096;

/// The longest slice, in bytes.
pub const SLICE_BYTES_MAX: usize = 4 << 20;

/// The longest cell, in bytes.
pub const CELL_BYTES_MAX: u64 = 1 << 32;

/// The most slices of a cell: their numbers take three bytes.
pub const SLICES_MAX: u32 = 1 << 20;

/// The most stripes of a session that are under way at once.
pub const LANES_MAX: usize = 64;

/// The most slots of a ring.
pub const SLOTS_MAX: usize = 1024;

/// The most rings of a link: what one member sends to another, over all lanes.
pub const RINGS_MAX: usize = 1 << 14;

/// A receiver tells how far a sender may go each time that this part of the ring has become free.
pub const CREDITS_PER_RING: usize = 4;

/// The longest description of a stripe for a node's store, in bytes.
pub const WHAT_BYTES_MAX: usize = 48 << 10;

/// The longest reason that travels, in bytes.
pub const WHY_BYTES_MAX: usize = 512;

/// Sessions of a node at a time.
pub const SESSIONS_MAX: usize = 64;

/// Connections of a node at a time.
pub const LINKS_MAX: usize = 2048;

/// Links of a node that belong to no session, if its owner says nothing else: they have not said
/// what they are for, or wait for their session.
pub const EARLY_MAX: usize = 80;

/// Memory that a link takes beside its rings, in bytes: its queue, and the staging, answers and
/// stack of a `tcp` responder, rounded up.
pub const LINK_BYTES: u64 = 384 << 10;

/// Links of a session for each of its members: one comes, one goes, and one may not have said yet
/// what it is for.
pub const LINKS_PER_MEMBER: u64 = 3;

/// How long a connection may be silent before it says what it is for, and a link may wait for its
/// session.
pub const EARLY_TIME_MAX: Duration = Duration::from_secs(10);

/// How long a node tries to reach another when a session is opened.
pub const DIAL_TIME_MAX: Duration = Duration::from_secs(5);

/// Threads of a node that reach others or hang up, at once.
pub const CALL_THREADS_MAX: usize = 64;

/// Connections of a node that wait to be hung up on, before it accepts no others.
pub const HANG_UPS_WAITING_MAX: usize = LINKS_MAX;

/// How long a session may do nothing at a node, whether it opens, has stripes or has none, before
/// the node ends it.
pub const SESSION_IDLE_MAX: Duration = Duration::from_secs(60);

/// How often a sleeping node looks whether another was reached.
pub const DIAL_LOOK: Duration = Duration::from_millis(1);

/// How long a thread looks for work before it sleeps.
pub const SPIN: Duration = Duration::from_micros(50);

/// How long a node or writer sleeps at most before it looks around.
pub const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Operations on a link that move slices, in flight at once. A slice takes up to three: its name,
/// its bytes, and zeros behind them.
pub const SLICE_OPERATIONS_MAX: usize = 192;

/// Operations on a link that tell how far its sender may go, in flight at once: up to two each.
pub const CREDIT_OPERATIONS_MAX: usize = 32;

/// Messages on a link, in flight at once.
pub const MESSAGE_OPERATIONS_MAX: usize = 24;

/// Messages that wait for a link: a begin or an end for each lane, and what opens and ends a
/// session.
pub const MESSAGES_WAITING_MAX: usize = LANES_MAX + 16;

/// The longest write or read of a device that is made of neighbouring slices, in bytes; a longer
/// slice is written or read at once.
pub const STORE_BYTES_MAX: usize = 1 << 20;

/// Memory of a node for all of its sessions, in bytes, if its owner says nothing else.
pub const MEMORY_BYTES: u64 = 1 << 30;

// All operations of a link find room in its queue, whatever is in flight of the others, and the
// last word behind them.
const _: () = assert!(
    SLICE_OPERATIONS_MAX + CREDIT_OPERATIONS_MAX + MESSAGE_OPERATIONS_MAX
        < rackscan_fabric::limits::QUEUE_DEPTH_MAX
);
// Links of other nodes that come before the client does find room, for the largest session.
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
