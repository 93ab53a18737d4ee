//! Implements inboxes. An *inbox* receives messages of many senders on one thread, in memory that
//! does not grow with their number.
//!
//! This is the receive mechanism of Kitamura et al., "Implementation and evaluation of packet
//! receiving mechanism supporting for message passing model on DIMMnet-2" (IPUSH), in software.
//! With PUSH, every sender has a ring of its own at the receiver and keeps its address, as on a
//! [`crate::Connection`] without an inbox. With IPUSH the receiver decides where messages go:
//!
//! - The **address management table** (section 3.1) maps a sender to a ring. The receiver may
//!   change it at any time. A sender looks its ring up at the start of each message, so a move
//!   needs no agreement. Some rings are private to one sender; all other senders share the others
//!   (section 3.2), which saves memory. [`Assignment`] decides from measured traffic.
//! - The **status ring** records all arrivals in one order over all senders, per message or per
//!   packet as the sender asks. So the receiver polls one place, and messages of one sender stay in
//!   order across a move.
//! - A message longer than a packet is cut into packets. Packets of several senders interleave in a
//!   shared ring; the entries of the status ring say which message each belongs to.
//! - A full ring **stalls** the sender or **refuses** the message, as the inbox is configured
//!   ([`WhenFull`]). Nothing is ever overwritten.
//!
//! Differences from the paper's hardware:
//! - There, one network controller executes all arrivals. Here, each sender's processor (or
//!   responder thread) writes into the rings itself, at the same time as others, and may be killed
//!   in the middle. So every ring is multi-producer ("private" is only an assignment), and space is
//!   allocated by claims that name their owner.
//! - The paper writes payload, then tail pointer, then status. Here no separate tail is stored.
//! - Messages of up to 56 bytes travel in the status entry, so that a small message moves one cache
//!   line.
//! - On `tcp` a message of more than half a ring that its sender wants reported whole is assembled
//!   by the responder and handed over, one at a time per sender, because a ring would cost one more
//!   copy.
//!
//! # Who does what
//!
//! The owner of an inbox takes arrivals by [`Inbox::next`] or [`Inbox::wait`]. It must still poll
//! the connections that were accepted into the inbox: completions arrive there, and on `shm`
//! polling notices the end of a peer, which the inbox then reports as [`ArrivalKind::Left`].
//! (Either report may come first.) Space that a sender could still be writing to stays claimed
//! until its process has closed the connection, too.
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
//! # Files
//!
//! ```text
//! memory    layout      offsets and words        claim      rings divided by claims
//! sender    sender      writes messages
//! shared    seats       the table of senders     handle     joining; dealing callers to inboxes
//! owner     state       the inbox                receive    next, wait, arm
//!           status      reads the status ring    space      frees granules
//!           arrive      entries to arrivals      leave      departures
//!           manage      moves, statistics        assignment which senders to move
//! adapters  supply      the interface            entrance   makes a queue     supplied  arrivals
//! public    config  arrival  statistics
//! ```
//!
//! # Trust
//!
//! On `shm` a sender maps the inbox, after it has proved the cluster key. Words that no honest
//! sender writes are detected and never acted on:
//! - A bad entry ends its sender's connection with [`crate::Ending::Violation`].
//! - Damaged claims cannot be attributed to a sender. All connections into the inbox end with a
//!   violation, only departures arrive from then on, and callers are turned away until the last
//!   sender has left.
//! - When the last sender has left, the inbox is cleared, whatever happened before.
//! - A process that is killed, at any instruction, costs nothing: its claims are given back when
//!   its socket hangs up. A process that is stopped but alive keeps its claims.
//!
//! # Adapters
//!
//! On `verbs` an inbox is a shared receive queue: the adapter puts each packet into the next free
//! slot, from whichever sender it comes. An inbox has one such queue for each adapter of its
//! listeners, made when the first of them is bound. A packet occupies a whole slot, so the queue
//! has at least as many slots as a ring holds packets, and its slots may be shorter than the
//! inbox's packets. The inbox takes arrivals from its rings and these queues in turn, so listeners
//! on several wires may share an inbox. The table shows one ring for all senders of an adapter, and
//! none of them can be moved, because the adapter chooses the slot.
//!
//! For the owner two things are different. Free space is announced to senders when the accepted
//! connection is polled, for which its owner is woken ([`crate::Connection::arm`]). And senders
//! report their stalls and refusals with their next packet.
//!
//! With [`WhenFull::Stall`] one sender may fill all slots, and the adapters make senders wait when
//! others have filled them. With [`WhenFull::Refuse`] each sender has slots of its own, so that it
//! knows by itself whether there is room: the queue then has at least `senders_max` slots.

mod arrival;
mod arrive;
mod assignment;
mod claim;
mod config;
#[cfg_attr(not(feature = "verbs"), expect(dead_code, reason = "only adapters have a shared receive queue"))]
mod entrance;
mod handle;
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
mod state;
mod statistics;
mod status;
mod supplied;
#[cfg_attr(
    not(feature = "verbs"),
    expect(dead_code, reason = "only adapters supply, and without one nobody makes one")
)]
mod supply;

pub use arrival::{Arrival, ArrivalKind, Ring, SenderId};
pub use assignment::{Assignment, AssignmentConfig, Move};
pub use config::{InboxConfig, InboxError, WhenFull};
pub use handle::InboxHandle;
pub use manage::AssignError;
pub use state::Inbox;
pub use statistics::{InboxCounters, InboxMemory, SenderTraffic};

pub(crate) use handle::Inboxes;
#[cfg(feature = "verbs")]
pub(crate) use handle::JoinError;
pub(crate) use layout::{INLINE_BYTES_MAX, SenderWord};
pub(crate) use seats::Membership;
pub(crate) use sender::{
    Entry, InboxFault, InboxSender, Progress, Sent, Space, handover_entry, immediate_entry, inline_entry,
    packet_entry,
};
#[cfg(feature = "verbs")]
pub(crate) use supply::{Content, SuppliedPacket, Supply, SupplyEvent, SupplySize};
