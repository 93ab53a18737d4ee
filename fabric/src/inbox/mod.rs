//! How does one thread receive from many senders, in memory that does not grow with their number?
//!
//! The receive mechanism of Kitamura et al., "Implementation and evaluation of packet receiving
//! mechanism supporting for message passing model on DIMMnet-2" (IPUSH), in software. With PUSH,
//! every sender has a ring of its own at the receiver and keeps its address; a
//! [`crate::Connection`] without an inbox is that. With IPUSH the receiver says where messages go:
//!
//! - The **address management table** (section 3.1) maps a sender to a ring. The receiver changes
//!   it at any time; a sender looks it up at the start of each message, so a move needs no
//!   agreement. Some rings are private to one sender, the others are shared by all the rest
//!   (section 3.2), which is what saves memory. [`Assignment`] decides from measured traffic.
//! - The **status ring** records what has arrived in one order over all senders, per message or per
//!   packet as the sender asks. So the receiver looks at one place, and messages of one sender stay
//!   in order across a move.
//! - Messages longer than a packet are cut; packets of several senders interleave in a shared ring
//!   and are put together by what the status ring says of each.
//! - A full ring **stalls** the sender or **refuses** the message, chosen per inbox ([`WhenFull`]).
//!   Nothing is ever overwritten.
//!
//! What differs from the paper's hardware, and why. There, one network controller executes all
//! arrivals; here, each sender's processor (or responder thread) writes into the rings itself, at
//! the same time as others, and may be killed in the middle. So every ring is multi-producer,
//! "private" being only an assignment, and space is taken by claims that name their owner. The
//! paper writes payload, then tail pointer, then status; here the tail needs no store of its own.
//! And messages of up to 56 bytes travel in the status entry, so that a small message moves one
//! cache line. On `tcp` a message of more than half a ring, which its sender wants reported whole,
//! is put together by the responder itself and handed over, one at a time per sender: through the
//! ring it would be copied once more.
//!
//! # Who does what
//!
//! The owner of an inbox takes arrivals by [`Inbox::next`] or [`Inbox::wait`], and still polls the
//! connections that were accepted into it: completions come there, and on `shm` it is by polling
//! that the end of a peer is noticed, which then arrives here as [`ArrivalKind::Left`]. (Which of
//! the two reports comes first is not promised.) Whatever a sender could still be writing to stays
//! claimed until its process has closed the connection too.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use rackscan_fabric::{Address, ClusterKey, Listener, Operation, connect};
//! use rackscan_fabric::inbox::{ArrivalKind, Inbox, InboxConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let soon = Instant::now() + Duration::from_secs(5);
//! let key = ClusterKey::generate()?;
//! let mut inbox = Inbox::new(InboxConfig::default())?;
//! let mut listener = Listener::bind_inboxes(&"tcp:127.0.0.1:0".parse()?, &key, vec![inbox.handle()])?;
//! let mut caller = connect(listener.address(), &key, soon)?;
//! let accepted = listener.accept_until(soon)?.ok_or("nobody called")?;
//!
//! caller.post(1, Operation::Send { bytes: b"hello" })?;
//! let mut bytes = Vec::new();
//! let arrival = inbox.wait(&mut bytes, soon).ok_or("nothing has arrived")?;
//! assert_eq!((arrival.message, arrival.kind, bytes.as_slice()), (0, ArrivalKind::Message, &b"hello"[..]));
//! assert_eq!(accepted.inbox(), Some((0, arrival.sender)));
//! inbox.make_private(arrival.sender)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Trust
//!
//! On `shm` a sender maps the inbox, after it has proved the cluster key. Words that no honest
//! sender writes are found and never obeyed: a bad entry ends its sender's connection with
//! [`crate::Ending::Violation`]. If claims are damaged, nobody can tell whose they are: all
//! connections into the inbox end with a violation, nothing but their leaving arrives any more, and
//! callers are turned away until the last has left. An inbox that its last sender has left is
//! cleared, whatever happened before. A process that is killed, at any instruction, costs nothing:
//! what it had claimed is given back when its socket hangs up. A process that is stopped, but
//! alive, keeps what it has claimed.
//!
//! # Adapters
//!
//! On `verbs` an inbox is a shared receive queue: the adapter puts each packet into the next free
//! slot, from whichever sender it comes. An inbox has one such queue for each adapter of its
//! listeners, made when the first of them is bound, with as many slots as one of its rings holds
//! packets, or more and shorter ones: a packet takes a whole slot. It is heard in turn with the
//! rings, so listeners on several wires may share an inbox. The table has one ring for all senders
//! of an adapter and nobody is moved, because the adapter chooses the slot. Two things are
//! different for the owner. Word of room goes out when the accepted connection is polled, for which
//! its owner is woken ([`crate::Connection::arm`]); and senders tell of their stalls and refusals
//! with their next packet. With [`WhenFull::Stall`] a sender may fill all slots, and if others
//! have, the adapters make it wait as well. With [`WhenFull::Refuse`] each sender has slots that no
//! other takes, so that it knows itself whether there is room: the queue then has at least
//! `senders_max` slots.

mod arrive;
mod assignment;
mod claim;
#[cfg(test)]
mod hostile;
mod layout;
mod leave;
mod manage;
#[cfg(test)]
mod model;
mod receive;
mod seats;
mod sender;
mod space;
mod status;
#[cfg_attr(
    not(feature = "verbs"),
    expect(dead_code, reason = "only adapters supply, and without one nobody makes one")
)]
mod supply;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

pub use assignment::{Assignment, AssignmentConfig, Move};
pub use receive::Inbox;
pub use seats::SenderId;

pub(crate) use layout::{INLINE_BYTES_MAX, Line};
pub(crate) use seats::{JoinError, Membership};
pub(crate) use sender::{
    Entry, InboxFault, InboxSender, Progress, Sent, Space, handed, immediate, inline, packet,
};
#[cfg(feature = "verbs")]
pub(crate) use supply::{Content, Supplied, SuppliedPacket, Supply, SupplySize};

use crate::{error::RegionError, limits::MESSAGE_BYTES_MAX};

/// What a sender meets when there is no room for its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// Its operation stays in flight until there is room.
    Stall,
    /// Its operation fails with [`crate::OperationError::InboxFull`], unless a part of the message
    /// has arrived already.
    Refuse,
}

/// The size of an inbox, fixed when it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InboxConfig {
    /// Bytes of each ring, a power of two.
    pub ring_bytes: usize,
    /// Rings that are assigned to one sender each.
    pub private_rings: u16,
    /// Rings that all other senders share. New senders begin there; without any, they need a free
    /// private ring.
    pub shared_rings: u16,
    /// Longer messages are cut.
    pub packet_bytes: usize,
    /// A message that is put together here and is longer ends its sender's connection with a
    /// violation. At most [`MESSAGE_BYTES_MAX`], and no less than
    /// [`crate::limits::SEND_BYTES_MAX`].
    pub message_bytes_max: usize,
    /// Connections at a time.
    pub senders_max: u16,
    /// What a full ring does.
    pub when_full: WhenFull,
}

impl Default for InboxConfig {
    fn default() -> Self {
        Self {
            ring_bytes: 256 * 1024,
            private_rings: 4,
            shared_rings: 1,
            packet_bytes: 32 * 1024,
            message_bytes_max: MESSAGE_BYTES_MAX,
            senders_max: 256,
            when_full: WhenFull::Stall,
        }
    }
}

impl InboxConfig {
    /// The memory that such an inbox takes when it is made, in bytes: rings, status ring and
    /// tables, but not the buffers in which messages that were cut are put together, nor the shared
    /// receive queues of adapters.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        layout::Layout::new(layout::Shape::of(self)).bytes as u64
    }
}

/// Why an inbox could not be made.
#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    /// The sizes do not go together.
    #[error("an inbox cannot be made with {problem}")]
    Config {
        /// What was asked for.
        config: InboxConfig,
        /// What is wrong with it.
        problem: String,
    },
    /// Its memory could not be had.
    #[error("could not make the memory of an inbox: {0}")]
    Memory(#[from] RegionError),
    /// The kernel refused something else.
    #[error("could not {action} for an inbox: {source}")]
    Os {
        /// What was attempted.
        action: &'static str,
        /// The kernel's answer.
        source: std::io::Error,
    },
}

/// Why a sender was not given another ring.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssignError {
    /// It is not (or no longer) a sender of this inbox.
    #[error("there is no sender {0}")]
    NoSuchSender(SenderId),
    /// All private rings are assigned.
    #[error("all {private_rings} private rings are assigned; make one of their senders share first")]
    NoneFree {
        /// How many there are.
        private_rings: u16,
    },
    /// The inbox has no shared ring.
    #[error("the inbox has no shared ring")]
    NoneShared,
    /// The sender calls over `verbs`, where the adapter chooses the place of each packet: all
    /// senders of an adapter share one queue, and the table has one ring for them.
    #[error("sender {0} shares the receive queue of an adapter, which gives nobody a ring of its own")]
    SharesAdapter(SenderId),
}

/// A ring of an inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ring {
    /// One sender's.
    Private(u16),
    /// Several senders'. The numbers after those of the shared rings are shared receive queues, one
    /// per adapter (`verbs`).
    Shared(u16),
}

/// Something that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Who sent it.
    pub sender: SenderId,
    /// The number of the message among this sender's messages, from 0. For what is no message: the
    /// number of the next.
    pub message: u64,
    /// What it is.
    pub kind: ArrivalKind,
}

/// What has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrivalKind {
    /// A whole message.
    Message,
    /// A packet of a message that its sender wants reported packet by packet.
    Packet {
        /// First byte, in the message.
        offset: u64,
        /// Length of the message.
        message_bytes: u64,
        /// Nothing of the message follows.
        last: bool,
    },
    /// The sender wrote into our memory and tells us this word.
    Immediate {
        /// Its word.
        immediate: u32,
        /// How many bytes it wrote.
        bytes: u64,
    },
    /// The sender's connection has ended; nothing of it follows.
    Left,
}

/// What a sender has sent so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderTraffic {
    /// Who.
    pub sender: SenderId,
    /// Its ring.
    pub ring: Ring,
    /// Messages that have arrived whole.
    pub messages: u64,
    /// Bytes that have arrived.
    pub bytes: u64,
    /// Packets that have arrived; a message that was not cut is one.
    pub packets: u64,
    /// Whether it can be given another ring; a sender that shares the receive queue of an adapter
    /// cannot.
    pub can_move: bool,
}

/// Totals of an inbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InboxCounters {
    /// Messages that have arrived whole.
    pub messages: u64,
    /// Packets that have arrived.
    pub packets: u64,
    /// Bytes that have arrived.
    pub bytes: u64,
    /// Messages that had to wait for room, as their senders say.
    pub stalls: u64,
    /// Messages that were refused, as their senders say.
    pub refusals: u64,
    /// Times that a sender was given another ring.
    pub moves: u64,
    /// Times that `wait` went to sleep in the kernel.
    pub sleeps: u64,
}

/// What an inbox holds, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InboxMemory {
    /// Its rings.
    pub ring_bytes: usize,
    /// Of those, what holds packets that were not taken yet, as far as the receiver has seen.
    pub ring_bytes_in_use: usize,
    /// The slots of its shared receive queues (`verbs`), one queue for each adapter of its
    /// listeners.
    pub adapter_bytes: usize,
    /// Of those, what holds packets that were not taken yet, as far as the receiver has seen.
    pub adapter_bytes_in_use: usize,
    /// The status ring.
    pub status_bytes: usize,
    /// The address management table, the rings' positions and their claims.
    pub table_bytes: usize,
    /// Buffers in which messages that were cut are put together now.
    pub assembly_bytes: usize,
    /// What those can come to: a longest message per sender, and a few spare ones.
    pub assembly_bytes_max: usize,
}

/// What a listener needs of an inbox.
#[derive(Clone)]
pub struct InboxHandle {
    pub(self) shared: Arc<seats::Shared>,
}

impl fmt::Debug for InboxHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxHandle").field("layout", &self.shared.map.layout).finish()
    }
}

/// The inboxes of a listener, among which its callers are dealt.
#[derive(Debug, Default)]
pub(crate) struct Inboxes {
    handles: Vec<InboxHandle>,
    next: AtomicUsize,
}

impl Inboxes {
    pub(crate) fn new(handles: Vec<InboxHandle>) -> Self {
        Self { handles, next: AtomicUsize::new(0) }
    }

    /// Finds a place for a caller, where the fewest others have one and in turn where as many have:
    /// `None` if there are no inboxes, an error if none has a place.
    pub(crate) fn seat(
        &self,
        mut join: impl FnMut(&InboxHandle) -> Result<Membership, JoinError>,
    ) -> Option<Result<(usize, Membership), JoinError>> {
        let count = self.handles.len();
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let mut refusal = None;
        let mut order: Vec<usize> = (0..count).map(|step| (first + step) % count).collect();
        // The order of those with as many is kept.
        order.sort_by_key(|which| self.handles[*which].members());
        for which in order {
            match join(&self.handles[which]) {
                Ok(membership) => return Some(Ok((which, membership))),
                Err(error) => refusal = Some(Err(error)),
            }
        }
        refusal
    }
}
