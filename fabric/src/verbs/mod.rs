//! Implements the wire `verbs`: connections through RDMA adapters (InfiniBand, RoCE, iWARP).
//!
//! - [`device`]: which adapter, port and address a connection uses.
//! - [`connect`]: the TCP connection over which two queue pairs are connected, and which stays open
//!   as a sign of life.
//! - [`setup`]: the messages that are exchanged over it.
//! - [`region`]: registrations of our own regions, and windows that open them to the peer.
//! - [`channel`]: sends messages, and [`inlet`]: receives them, each through a ring or a shared
//!   receive queue.
//! - [`ring`]: a ring that the receiver keeps for one sender, which writes messages into it.
//! - [`send`]: turns operations into work requests, and [`flight`]: their record until they
//!   complete.
//! - [`receive`]: turns announcements into messages and immediates.
//! - [`lifeline`]: tells a side that its peer has gone.
//! - [`queue`]: one end of a connection.
//! - [`packet`], [`shared_receive`], [`account`] and [`inbox`]: packets of many senders received
//!   through one queue.
//! - [`sys`]: the calls of libibverbs.

mod account;
mod channel;
mod connect;
mod device;
mod flight;
mod inbox;
mod inlet;
mod lifeline;
mod packet;
mod queue;
mod receive;
mod region;
mod ring;
mod send;
mod setup;
mod shared_receive;
mod sys;

pub(crate) use connect::{bind, call, set_up};
