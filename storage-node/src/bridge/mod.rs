//! Moves requests from the wire to the devices, and replies back.
//!
//! Each reactor thread owns some of the connections and has access to the devices. With the bridge
//! `reactor`, the thread has its own io_uring, so a request is read, executed and answered by
//! one-sided writes in the same thread. With `static` and `dynamic`, other threads wait for the
//! devices (`io`), as in the systems that the reactor is compared with; all other code is the same.
//!
//! ```text
//! reactor            the loop of one thread: polls, advances requests, sleeps
//! core               the resources that a request uses
//! links              the connections of a reactor
//! intake             the requests that arrive in the reactor's inbox
//! request_admission  refuses requests beyond the bounds
//! outcome            turns results into replies
//! io                 the device operations of each bridge
//! ```
//!
//! Invariants
//! - A reactor's parts belong to its thread. Other threads communicate with it only through its
//!   message queue.

mod core;
mod intake;
mod io;
mod links;
mod node_parts;
mod outcome;
mod reactor;
mod request_admission;

pub(crate) use self::core::{Core, Submitted};
pub(crate) use intake::Intake;
pub(crate) use io::BridgeIo;
pub(crate) use links::Links;
pub(crate) use node_parts::NodeParts;
pub(crate) use reactor::{Reactor, ReactorParts};
