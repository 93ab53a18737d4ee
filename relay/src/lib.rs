//! How does a stripe get from a client through its nodes onto their disks, each byte of data sent
//! once by the client?
//!
//! ```text
//! Writer  --slices of data-->  Node  --slices, as they came or summed-->  Node --> ...        a rackscan_stripe::Schedule, carried out on bytes
//!    ^                          | the same slices, out of the slots where they lie
//!    |                          v
//!    +------- Stored --------  devices, where its Store says
//! ```
//!
//! - `plan`, `progress`, `ring`, `checksum`: what a place does for a stripe, how far it is, how far
//!   a sender may go, and what sums add up to. Pure.
//! - `message`, `link`, `rings`: what is said, and how slices and credits travel over a connection.
//! - [`Node`] and [`Writer`]: the two ends. Each is one thread, without locks, and waits for nobody
//!   but when there is nothing to do.
//! - [`Store`]: where a node's cells lie, and who remembers it.
//!
//! Users: storage nodes (a thread of their own), loads, and measurements. Decision 0036 says why it
//! is like this.
//!
//! Invariants
//! - A client sends each byte of data once with `relay`; nodes copy nothing between receiving,
//!   summing, storing and sending on.
//! - A stripe is `Stored` when every node that keeps some of it has it on disk, checksummed there
//!   against what the client sent.
//! - Whoever waits for somebody who is gone learns who that was; nothing waits for ever.
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
#[cfg(test)]
mod simulated;
mod store;
mod task;
mod writer;

pub use counters::Counters;
pub use error::{NodeError, SessionEnd, ShapeError, Who, WriteError};
pub use message::Cause;
pub use node::{Answered, Calls, Direct, Node, NodeConfig, Threads};
pub use shape::{Member, Shape};
pub use store::{Area, Beginning, Guard, Nowhere, Place, Places, Refusal, Store, StoredCell, StripeName};
pub use task::{LostMembers, Task};
pub use writer::{Ended, Stripe, Writer};
