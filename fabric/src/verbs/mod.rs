//! How does a process use another's memory through RDMA adapters (InfiniBand, RoCE, iWARP)?
//!
//! - [`device`]: which adapter, port and address a connection uses.
//! - [`connect`]: the TCP connection over which two queue pairs are brought together, and which
//!   stays as a sign of life.
//! - [`setup`]: what is exchanged over it.
//! - [`region`]: registrations of our own regions, and windows that open them to the peer.
//! - [`channel`]: where messages go, and [`inlet`]: where they come from.
//! - [`ring`]: messages, written by the sender into a ring that the receiver keeps for it.
//! - [`send`]: operations become work requests, and [`flight`]: what is known of them meanwhile.
//! - [`receive`]: announcements become messages and immediates.
//! - [`lifeline`]: how a side learns that its peer is gone.
//! - [`queue`]: one end of a connection.
//! - [`packet`], [`shared_receive`] and [`inbox`]: packets of many senders received through one
//!   queue.
//! - [`sys`]: the calls of libibverbs.

mod channel;
mod connect;
mod device;
mod flight;
mod inbox;
mod inlet;
mod lifeline;
mod membership;
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
