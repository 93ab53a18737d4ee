//! Defines the limits of this crate: depths of queues, sizes of buffers, times.
//!
//! Invariants
//! - Every queue of this crate has its bound here. No memory grows without bound with what a peer
//!   sends.
//! - Relations between bounds are asserted at compile time, next to the bounds.

use std::time::Duration;

/// Memory is registered in whole pages of this many bytes, so that it can be the target of an
/// O_DIRECT read.
pub const REGION_ALIGNMENT_BYTES: usize = 4096;

/// A huge page of x86-64, and of other processors with pages of 4 KiB, in bytes. Regions of at
/// least this length lie on huge pages where the kernel provides them.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The longest single wait of a thread for its connections. It looks at its deadlines after that.
pub const POLL_TIME_MAX: Duration = Duration::from_secs(3600);

/// The largest region, in bytes.
pub const REGION_BYTES_MAX: usize = 1 << 38;

/// The largest single `write` or `read`, in bytes (its length travels as a `u32`).
pub const TRANSFER_BYTES_MAX: usize = 1 << 30;

/// The largest message of a `send`, in bytes.
pub const SEND_BYTES_MAX: usize = 64 * 1024;

/// The largest message of a `send` from registered memory, in bytes. A receiver may have to hold
/// one such message for each of its senders while it is assembled.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Operations of one connection that are posted and whose completion was not polled yet.
pub const QUEUE_DEPTH_MAX: usize = 256;

/// Regions that one side of one connection may have registered at a time.
pub const REGISTRATIONS_MAX: usize = 1024;

/// Maximum number of events that one call of `poll` returns.
pub const EVENTS_PER_POLL_MAX: usize = 256;

/// The data part of a `shm` message ring, in bytes; a power of two, so that positions wrap by
/// masking. Each client of a node has one for replies, so it is short. Longer messages pass through
/// it in parts.
pub const SHM_RING_BYTES: usize = 64 * 1024;

/// How long `wait` polls a `shm` connection before it sleeps, in microseconds. Every poll that
/// finds nothing yields the processor.
pub const SHM_SPIN_US: u64 = 20;

/// The longest record of a `shm` message ring, in bytes; longer messages are cut, so that the
/// receiver copies one part while the sender writes the next.
pub const SHM_RECORD_BYTES_MAX: usize = 16 * 1024;

/// The unit in which packets occupy an inbox's ring, in bytes.
pub const INBOX_GRANULE_BYTES: usize = 512;

/// The longest ring of an inbox, in bytes.
pub const INBOX_RING_BYTES_MAX: usize = 8 << 20;

/// Rings of one inbox.
pub const INBOX_RINGS_MAX: usize = 1024;

/// Senders of one inbox at a time.
pub const INBOX_SENDERS_MAX: usize = 4096;

/// The owner of an inbox looks beyond entries that are claimed and not published once in so many
/// polls that found nothing.
pub const INBOX_IDLE_POLLS_PER_LOOK: u32 = 256;

/// Maximum number of entries that one call of `next` examines to find one to report.
pub const INBOX_LOOKS_PER_CALL_MAX: usize = 64;

/// How long `wait` polls an inbox before it sleeps, in microseconds: as long as the slowest wire
/// that fills it.
pub const INBOX_SPIN_US: u64 = 50;

/// How long `wait` polls a `tcp` connection, and its responder the socket, before they sleep, in
/// microseconds. Covers a round trip over loopback; waking four sleepers instead takes 75 us on two
/// virtual processors.
pub const TCP_SPIN_US: u64 = 50;

/// Number of polls that found nothing after which the owner of a `tcp` connection, and not its
/// responder, receives from the socket.
pub const TCP_OWNER_POLLS: u32 = 16;

/// How soon the responder of a `tcp` connection checks whether the owner, which receives from the
/// socket, still polls. A peer may have to wait this long for memory of an owner that suddenly does
/// something else.
pub const TCP_NAP_MIN: Duration = Duration::from_millis(2);

/// The same when the owner has been asleep for a while, waiting for the connection. If it still
/// sleeps after this time, the responder sleeps until the owner wakes.
pub const TCP_NAP_MAX: Duration = Duration::from_millis(16);

/// Messages that a `tcp` responder holds for the application before it stops reading from its
/// socket.
pub const TCP_MESSAGES_QUEUED_MAX: usize = 256;

/// Bytes of messages that a `tcp` responder holds for the application before it stops reading; one
/// message may be longer.
pub const TCP_MESSAGE_BYTES_QUEUED_MAX: usize = 512 * 1024;

/// Answers that a `tcp` responder holds for a peer. Each of the peer's operations causes at most an
/// answer and an acknowledgement of those before it, so an honest peer cannot exceed this number.
pub const TCP_ANSWERS_QUEUED_MAX: usize = 2 * QUEUE_DEPTH_MAX + 1;

/// Bytes that a `tcp` responder reads at once while it does not know what they mean.
pub const TCP_STAGING_BYTES: usize = 16 * 1024;

/// Bytes that a `tcp` responder receives before it sends what waits in the outbox.
pub const TCP_ROUND_BYTES: usize = 1 << 20;

/// Bytes that are written to a `tcp` socket while the outbox's lock is held once. `post` leaves the
/// remainder to the responder. The responder releases the lock in between, so that a `post` never
/// waits for the lock longer than one such copy takes.
pub const TCP_INLINE_BYTES_MAX: usize = 256 * 1024;

/// The ring that a `verbs` side keeps for its peer's messages, in bytes.
pub const VERBS_RING_BYTES: usize = 256 * 1024;

/// Every record in that ring occupies a multiple of this, in bytes. There is a receive request for
/// each such unit.
pub const VERBS_RING_UNIT_BYTES: usize = 256;

/// Work requests in the send queue of a `verbs` connection: two per operation, which a write with
/// an immediate needs.
pub const VERBS_SENDS_MAX: u32 = 512;

/// Bytes that a `verbs` work request carries itself, if the adapter can. The adapter fetches longer
/// data from memory.
pub const VERBS_INLINE_BYTES: u32 = 192;

/// Registered memory of a `verbs` connection, in bytes, for data copied at `post` until the adapter
/// has sent it.
pub const VERBS_BOUNCE_BYTES: usize = 256 * 1024;

/// The longest piece of that memory, in bytes. Longer writes of plain bytes get registered memory
/// of their own.
pub const VERBS_BOUNCE_PIECE_BYTES: usize = 64 * 1024;

/// Maximum number of bytes that one `verbs` work request moves. Adapters have limits of their own
/// from 8 MiB on, and after a lost packet the remainder of the request is sent again.
pub const VERBS_TRANSFER_BYTES: usize = 1 << 20;

/// Registrations of our own regions that a `verbs` connection keeps for later operations.
pub const VERBS_REGISTRATIONS_KEPT: usize = 64;

/// Reads and atomics that one side of a `verbs` connection executes for the other at a time.
pub const VERBS_READS_MAX: u8 = 16;

/// Senders that share one receive queue on `verbs`.
pub const VERBS_MEMBERS_MAX: usize = 4096;

/// The shortest packet that a shared receive queue on `verbs` may ask for, in bytes.
pub const VERBS_PACKET_BYTES_MIN: u32 = 64;

/// The longest slot of a shared receive queue on `verbs`, in bytes. A ring of the default size has
/// 32 such slots, so that credit is sent with every 24th short message and not with each. Shorter
/// slots cut long messages into more packets, which costs throughput: with 4 KiB, an emulated
/// adapter moves a tenth less (decision 0010).
pub const VERBS_SLOT_BYTES_MAX: usize = 8 * 1024;

/// How long `wait` polls a `verbs` connection before it sleeps, in microseconds.
pub const VERBS_SPIN_US: u64 = 50;

/// Boxes that one peer may keep for another to write messages into. Each has at most one operation
/// in flight.
pub const POST_BOXES_MAX: usize = QUEUE_DEPTH_MAX;

/// The longest message in a box, in bytes: as long as any other message.
pub const POST_BODY_BYTES_MAX: usize = MESSAGE_BYTES_MAX;

/// Messages that an end of a `sim` connection holds for its owner. Further messages wait at their
/// sender.
pub const SIM_MESSAGES_QUEUED_MAX: usize = 256;

/// Bytes of messages that an end of a `sim` connection holds for its owner; one message may be
/// longer.
pub const SIM_MESSAGE_BYTES_QUEUED_MAX: usize = 512 * 1024;

/// Maximum number of pieces of one write or read on `sim`. If a transfer has more words, the
/// boundaries of its pieces are random.
pub const SIM_PIECES_MAX: usize = 32;

/// Events that a simulated network keeps in its trace. Its digest covers all events.
pub const SIM_TRACE_MAX: usize = 256;

/// Callers of a listener that have sent nothing valid yet, and as many again whose hello is valid
/// so far but that have not proved the cluster key. A further caller pushes out an old one.
pub const STRANGERS_PER_CLASS_MAX: usize = 256;

/// The minimum of the same for a process with few descriptors.
pub const STRANGERS_PER_CLASS_MIN: usize = 8;

/// Each class of callers may use one part in so many of the process's descriptors.
pub const STRANGERS_DESCRIPTOR_SHARE: u64 = 32;

/// Callers that a listener accepts before it reads from those that it has.
pub const ACCEPTS_PER_TURN_MAX: usize = 32;

/// How long a listener stops accepting when the process has no descriptors and no unproven caller
/// can be dropped.
pub const ACCEPT_REST: Duration = Duration::from_millis(50);

/// Threads of a listener that set up connections of callers that have proved the cluster key.
pub const SETUPS_MAX: usize = 32;

/// Callers that have proved the cluster key and wait for such a thread.
pub const SETUPS_WAITING_MAX: usize = 1024;

/// Connections that wait for `accept`; further ones are dropped.
pub const ACCEPT_QUEUE_MAX: usize = 1024;

/// Refusals of callers that wait to be returned by `accept`; further ones are dropped.
pub const REFUSALS_TOLD_MAX: usize = 64;

/// Log lines about single callers that were turned away, in each [`COMPLAINTS_PERIOD`].
pub const COMPLAINTS_MAX: u32 = 8;

/// At the end of each such period the log says how many callers were turned away without a line of
/// their own.
pub const COMPLAINTS_PERIOD: Duration = Duration::from_secs(10);

/// Callers that the kernel keeps waiting for a listener.
pub const LISTEN_BACKLOG: u32 = 1024;

/// How long an accepted peer may take to prove the cluster key, whatever it sends meanwhile.
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(2);

/// How long a peer that has proved the key may take for the set-up of its wire.
pub const SETUP_TIME_MAX: Duration = Duration::from_secs(2);

/// How long closing a `tcp` connection may take to send what was posted.
pub const CLOSE_TIME_MAX: Duration = Duration::from_millis(500);

/// The longest path of a Unix socket, in bytes (`sun_path` less its terminator).
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

// A class of callers with the minimum size still holds callers of several origins. As many callers
// can wait as there are set-up threads, and all of them fit into the queue of `accept`.
const _: () = assert!(STRANGERS_PER_CLASS_MIN > 1 && STRANGERS_PER_CLASS_MIN <= STRANGERS_PER_CLASS_MAX);
const _: () = assert!(SETUPS_MAX <= SETUPS_WAITING_MAX && SETUPS_WAITING_MAX <= ACCEPT_QUEUE_MAX);
// Two of the longest records must fit into the ring together.
const _: () = assert!(SHM_RING_BYTES.is_power_of_two());
const _: () = assert!(2 * (SHM_RECORD_BYTES_MAX + 64) <= SHM_RING_BYTES);
// A claim has 15 bits for the number of granules, and 16 bits for its sender.
const _: () = assert!(INBOX_RING_BYTES_MAX / INBOX_GRANULE_BYTES < 1 << 15);
const _: () = assert!(INBOX_SENDERS_MAX < 1 << 16 && INBOX_RINGS_MAX < 1 << 16);
// Rings are whole pages of whole granules.
const _: () = assert!(
    REGION_ALIGNMENT_BYTES.is_multiple_of(INBOX_GRANULE_BYTES) && INBOX_RING_BYTES_MAX.is_power_of_two()
);
const _: () = assert!(SEND_BYTES_MAX <= TCP_MESSAGE_BYTES_QUEUED_MAX);
// A piece must fit into an empty ring or pool wherever the tail is.
const _: () = assert!(2 * SEND_BYTES_MAX <= VERBS_RING_BYTES && SEND_BYTES_MAX <= VERBS_BOUNCE_PIECE_BYTES);
const _: () = assert!(2 * VERBS_BOUNCE_PIECE_BYTES <= VERBS_BOUNCE_BYTES);
const _: () = assert!(VERBS_PACKET_BYTES_MIN as usize <= VERBS_SLOT_BYTES_MAX);
const _: () = assert!(2 * QUEUE_DEPTH_MAX <= VERBS_SENDS_MAX as usize);
const _: () = assert!(SEND_BYTES_MAX <= SIM_MESSAGE_BYTES_QUEUED_MAX);
// Lengths of transfers and messages travel as u32.
const _: () = assert!(TRANSFER_BYTES_MAX <= u32::MAX as usize);
const _: () = assert!(SEND_BYTES_MAX <= MESSAGE_BYTES_MAX && MESSAGE_BYTES_MAX <= TRANSFER_BYTES_MAX);
const _: () = assert!(REGION_ALIGNMENT_BYTES.is_power_of_two());
// A message in a box is one transfer, with its header and indicators, and the length of its body is
// a u32.
const _: () = assert!(POST_BODY_BYTES_MAX + 64 <= TRANSFER_BYTES_MAX);
const _: () = assert!(POST_BOXES_MAX * (POST_BODY_BYTES_MAX + 64) <= REGION_BYTES_MAX);
