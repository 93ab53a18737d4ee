//! How do requests get from the wire to the devices and back?
//!
//! The `reactor` bridge: static threads, each owning a ring and a share of the connections, so that a request becomes
//! reads and reads become one-sided writes without a hand-off between threads.
//!
//! Invariants
//! - A reactor's parts belong to its thread; other threads reach it through its mailbox only.

mod core;
mod intake;
mod outcome;
mod reactor;

pub(crate) use self::core::{Core, NodeParts, Submitted};
pub(crate) use intake::Intake;
pub(crate) use reactor::{Reactor, ReactorParts};
