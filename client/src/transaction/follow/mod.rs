//! Followers: tell a program everything that transactions write under a prefix, in the order of
//! each participant, without requests for it.
//!
//! ```text
//! at first, and when a feed cannot be read on:  every participant is opened, leased, marked; then scanned, page by page    -> begin_anew, scanned
//! catch_up:                                     rounds: every feed is read to its end                                      -> record, round_ended
//! a participant that may be unavailable:        the replica of its log that other nodes keep, from its beginning           -> record   (copies)
//! ```
//!
//! A follower uses a session: connections, participants, leases and long answers are those of the
//! parent module.
//!
//! Invariants
//! - When a call succeeds, everything that was acknowledged before it began was told, and every
//!   feed was read to an end that was read after the call began.
//! - All participants are followed or none: if one was lost, is back, was restarted or has
//!   overwritten what was not read yet, everything begins anew.
//! - The memory of a dead node never makes a call succeed: after bytes were copied out of mapped
//!   memory, the nodes are checked to be there.
//! - Each part of a connection's memory has one user at a time: an attempt that ends before its
//!   reads have ended waits for them, or hangs up.

mod copies;
mod feed;
mod feeds;
mod follower;
mod outcome;
mod unavailable_participant;

pub use follower::{Follower, FollowerOptions};
pub use outcome::{CaughtUp, FollowError};
