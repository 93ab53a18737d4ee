//! Sessions: atomic reads and writes of keys that lie on several nodes.
//!
//! ```text
//!   read, write
//!      |  leases at all participants of the transaction     once; renewed when a participant was restarted
//!      v
//!   the algorithm's coordinator (rackscan-ramp)  <------- replies, losses, returns
//!      |  messages: one payload for each participant         in front of them: leases moved on, settled transactions
//!      |  GET: read from slots whose places are known       copied, then verified, then: is the node still there?
//!      v
//!   lines to all nodes
//! ```
//!
//! A participant is a node in its part as keeper of keys; names in the code still say
//! `participant`, as [`rackscan_ramp::message::ParticipantId`] does. A session has no thread of its
//! own: a transaction costs its messages and the time of its coordinator.
//!
//! Invariants
//! - A session runs one transaction at a time. Messages of an earlier transaction that are still
//!   under way change nothing in a later one.
//! - A session reads what it wrote: on each connection messages keep their order, and a participant
//!   that is back first learns of transactions that are committed and not known everywhere, before
//!   anything is asked there.
//! - Bytes that were copied out of a node's memory count only if the node was there after the copy.

mod answers;
mod error;
mod follow;
mod follower_event;
mod options;
mod participant;
mod places;
mod run;
mod running;
mod scan;
mod send;
mod session;
mod slots;
mod write;

pub use error::TransactionError;
pub use follow::{CaughtUp, FollowError, Follower, FollowerOptions};
pub use options::{NoSuchOperations, Operations, SessionOptions};
pub use scan::ScanOutcome;
pub use session::{ReadOutcome, Session, Written};
