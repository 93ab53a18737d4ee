//! Defines sessions, which read and write keys on several nodes atomically.
//!
//! ```text
//!   read, write
//!      |  leases at all participants of the transaction      obtained once; again when a participant was restarted
//!      v
//!   the algorithm's coordinator (rackscan-ramp)  <------- replies; participants that are lost or connected again
//!      |  messages: one payload for each participant         before them in the payload: new epochs of leases, settled transactions
//!      |  GET: read from slots whose places are known        copied, then verified; then the node is checked to be alive
//!      v
//!   lines to all nodes
//! ```
//!
//! A participant is a node in its part as keeper of keys. A *lease* makes it keep the versions that
//! this session may still read. A *slot* is registered memory with the newest committed version of
//! a key. A session has no thread of its own: a transaction costs its messages and the time of its
//! coordinator.
//!
//! Invariants
//! - A session runs one transaction at a time. Messages of an earlier transaction that arrive late
//!   change nothing in a later one.
//! - A session reads what it wrote. On each connection messages keep their order, and a participant
//!   that is connected again first gets the transactions that are committed but not yet known
//!   everywhere, before any request.
//! - Bytes that were copied out of a node's memory count only if the node was alive after the copy.

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
