//! Defines followers. A *follower* passes to a program everything that transactions write under a
//! key prefix, in the order of each participant. It reads the feeds of participants one-sidedly, so
//! following needs no requests. A *feed* is registered memory in which a participant publishes its
//! latest records.
//!
//! ```text
//! begins anew       at first, and when a feed was overwritten before it was read: opens every participant, obtains its lease,
//!                   notes the end of its feed, and scans its keys page by page               -> begin_anew, scanned
//! catch_up          in rounds, each of which reads every feed to its end                     -> record, round_ended
//! unavailable       for a participant that may be unavailable: reads the replica of its log
//!                   that another node has, from its beginning                                -> record   (copies)
//! ```
//!
//! On the right: the methods of the program's `Follow` that are called. A follower uses a session:
//! connections, participants, leases and long answers are those of the parent module.
//!
//! Invariants
//! - When a call succeeds, everything that was acknowledged before it began was passed on, and
//!   every feed was read to an end that was read after the call began.
//! - All participants are followed or none: if one was lost, has returned, was restarted or has
//!   overwritten records that were not read yet, everything begins anew.
//! - A call never succeeds with bytes of a dead node: after bytes were copied out of mapped memory,
//!   a system call checks that the nodes are alive.
//! - Each part of a connection's memory has one user at a time: an attempt that stops before its
//!   reads have ended waits for them, or closes the connection.

mod copies;
mod feed;
mod feeds;
mod follower;
mod outcome;
mod unavailable_participant;

pub use follower::{Follower, FollowerOptions};
pub use outcome::{CaughtUp, FollowError};
