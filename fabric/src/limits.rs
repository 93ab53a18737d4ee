//! How much may a peer make us hold, and how deep is each queue?
//!
//! Invariants
//! - Every queue of this crate has its bound here; nothing in the crate grows with what a peer sends.
//! - Relations between bounds are asserted at compile time, next to the bounds.

use std::time::Duration;

/// Memory is registered in whole pages of this many bytes, so that it can be the target of an O_DIRECT read.
pub const REGION_ALIGNMENT_BYTES: usize = 4096;

/// The largest region, in bytes.
pub const REGION_BYTES_MAX: usize = 1 << 38;

/// The largest single `write` or `read`, in bytes (its length travels as a `u32`).
pub const TRANSFER_BYTES_MAX: usize = 1 << 30;

/// The largest message of a `send`, in bytes.
pub const SEND_BYTES_MAX: usize = 64 * 1024;

/// Operations of one connection that are posted and whose completion has not been polled yet.
pub const QUEUE_DEPTH_MAX: usize = 256;

/// Regions that one side of one connection may have registered at a time.
pub const REGISTRATIONS_MAX: usize = 1024;

/// Events that one call of `poll` hands out at most.
pub const EVENTS_PER_POLL_MAX: usize = 256;

/// The data part of a `shm` message ring, in bytes; a power of two so that positions wrap by masking.
pub const SHM_RING_BYTES: usize = 256 * 1024;

/// How long `wait` polls a `shm` connection before it sleeps, in microseconds. Every poll that finds nothing yields the
/// processor.
pub const SHM_SPIN_US: u64 = 20;

/// How long `wait` polls a `tcp` connection, and its responder the socket, before they sleep, in microseconds.
/// Covers a round trip over loopback; waking four sleepers instead takes 75 us on two virtual processors.
pub const TCP_SPIN_US: u64 = 50;

/// Messages that a `tcp` responder holds for the application before it stops reading from its socket.
pub const TCP_MESSAGES_QUEUED_MAX: usize = 256;

/// Bytes of messages that a `tcp` responder holds for the application before it stops reading.
pub const TCP_MESSAGE_BYTES_QUEUED_MAX: usize = 512 * 1024;

/// Answers that a `tcp` responder holds for a peer. Each of the peer's operations makes at most an answer
/// and an acknowledgement of those before it, so an honest peer cannot exceed it.
pub const TCP_ANSWERS_QUEUED_MAX: usize = 2 * QUEUE_DEPTH_MAX + 1;

/// Bytes that a `tcp` responder reads at once while it does not know what they are.
pub const TCP_STAGING_BYTES: usize = 16 * 1024;

/// Bytes that a `tcp` responder receives before it sends what waits.
pub const TCP_ROUND_BYTES: usize = 1 << 20;

/// Bytes that are handed to a `tcp` socket under one hold of the outbox's lock, by `post`, which leaves the rest to the
/// responder, or by the responder, so that a `post` never waits longer for the lock than this copy takes.
pub const TCP_INLINE_BYTES_MAX: usize = 256 * 1024;

/// Handshakes that a listener conducts at a time; further callers wait in the socket's backlog.
pub const HANDSHAKES_MAX: usize = 16;

/// Connections (or failed handshakes) that wait for `accept`; further ones are dropped.
pub const ACCEPT_QUEUE_MAX: usize = 64;

/// Callers that the kernel keeps waiting for a listener.
pub const LISTEN_BACKLOG: u32 = 128;

/// How long an accepted peer may take to prove itself.
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(2);

/// How long closing a `tcp` connection may take to hand over what was posted.
pub const CLOSE_TIME_MAX: Duration = Duration::from_millis(500);

/// The longest path of a Unix socket, in bytes (`sun_path` less its terminator).
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

// A message must fit in every place that holds messages, next to one more.
const _: () = assert!(SHM_RING_BYTES.is_power_of_two());
const _: () = assert!(2 * (SEND_BYTES_MAX + 64) <= SHM_RING_BYTES);
const _: () = assert!(SEND_BYTES_MAX <= TCP_MESSAGE_BYTES_QUEUED_MAX);
// Lengths of transfers and messages travel as u32.
const _: () = assert!(TRANSFER_BYTES_MAX <= u32::MAX as usize);
const _: () = assert!(SEND_BYTES_MAX <= TRANSFER_BYTES_MAX);
const _: () = assert!(REGION_ALIGNMENT_BYTES.is_power_of_two());
