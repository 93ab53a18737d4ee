//! Moves stripes from a client through storage nodes onto their disks, so that the client sends
//! each byte of data once and nodes compute the parities on the way.
//!
//! The transfers are those of a `rackscan_stripe::Schedule` (or `Rebuild`), carried out on bytes.
//! This crate does not decide where cells lie on disk, and remembers no stripes: that is up to the
//! [`Store`] of each node. Decision 0036 gives the reasons for this design.
//!
//! ```text
//! Writer  --slices of data-->  Node  --slices, as received or summed-->  Node --> ...
//!    ^                          | the same slices, out of the slots where they lie
//!    |                          v
//!    +------- Stored --------  devices, where its Store says
//! ```
//!
//! Cells are transferred in *slices*. A receiver has a *ring* of slots for each incoming transfer
//! of a stripe. A session carries several stripes at once, each in a *lane*. A *link* is a
//! connection within a session.
//!
//! - `shape`, `task`, `plan`: derive, from the parameters of a session, what each place does for a
//!   stripe. `progress`, `ring`, `checksum`: how far it is, how far a sender may go, and the
//!   checksums of sums. All of these are pure.
//! - `message`, `link`, `rings`: the protocol, and slices and credits on a connection.
//! - [`Writer`] (`writer`) and [`Node`] (`node`): the two ends. Each is one thread without locks,
//!   which sleeps only when there is nothing to do.
//! - [`Store`] (`store`): says where a node's cells lie, and records that they are stored.
//! - `error`, `shape_error`: errors. [`limits`]: all bounds. `counters`: statistics.
//!
//! Used by storage nodes (in a thread of their own), by loads, and by measurements.
//!
//! Invariants
//! - With `relay`, a client sends each byte of data once. Nodes copy nothing between receiving,
//!   summing, storing and forwarding.
//! - A stripe is `Stored` when every node that keeps some of it has it on disk, and has compared
//!   its checksum with what the client sent.
//! - Every place that waits for a lost one learns which one it was; nothing waits forever.
//! - Memory, lanes, rings and queues are bounded when a session opens ([`limits`]).

#![forbid(unsafe_code)]

mod checksum;
mod counters;
mod error;
pub mod limits;
mod link;
mod message;
mod node;
mod plan;
mod progress;
mod ring;
mod rings;
mod shape;
mod shape_error;
#[cfg(test)]
mod simulated;
mod store;
mod task;
mod writer;

pub use counters::Counters;
pub use error::{NodeError, SessionEnd, Who, WriteError};
pub use message::Cause;
pub use node::{Answered, Calls, Direct, Node, NodeConfig, Threads};
pub use shape::{Member, Shape};
pub use shape_error::ShapeError;
pub use store::{Area, Beginning, Guard, Nowhere, Place, Places, Refusal, Store, StoredCell, StripeName};
pub use task::{LostMembers, Task};
pub use writer::{Ended, Stripe, Writer};
