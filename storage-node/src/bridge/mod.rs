//! How do requests get from the wire to the devices and back?
//!
//! By threads that each own a share of the connections and a way to the devices. With the bridge
//! `reactor` that way is a ring of the thread's own, so that a request becomes reads and reads
//! become one-sided writes without a hand-off between threads. With `static` and `dynamic` other
//! threads wait for the devices (`io`), as in the systems that the reactor is measured against; the
//! rest is the same code.
//!
//! Invariants
//! - A reactor's parts belong to its thread; other threads reach it through its message queue only.

mod admission;
mod core;
mod intake;
mod io;
mod links;
mod outcome;
mod reactor;

pub(crate) use self::core::{Core, NodeParts, Submitted};
pub(crate) use intake::Intake;
pub(crate) use io::BridgeIo;
pub(crate) use links::Links;
pub(crate) use reactor::{Reactor, ReactorParts};
