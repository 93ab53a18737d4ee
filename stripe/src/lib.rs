//! Where do the cells of a stripe lie, what recovers them, and by which transfers do they get
//! there?
//!
//! ```text
//! Geometry     which cells a stripe over n nodes has, on which nodes, and which of them XOR to nothing  (geometry)
//!      |
//!      +--> Recovery  which survivors give back all lost cells, or the one that a query wants           (recovery, rebuild)
//!      |
//!      +--> Schedule  which transfers bring a stripe from a client to its nodes, and each link's load  (schedule, relay)
//!      |
//!      +--> Rebuild   which transfers bring a lost node's cells to the one that takes its place         (rebuild_relay)
//!      |
//!      +--> Shown     all of that for a person: text, picture, JSON                                     (show)
//! ```
//!
//! All of it is a pure function of the number of nodes and of what protects a stripe ([`Parity`]):
//! no IO, no clock, no threads, and no bytes of cells. What is done with those bytes, wherever they
//! are, is in [`xor`].

#![forbid(unsafe_code)]

mod cell;
mod error;
mod geometry;
pub mod limits;
mod parity;
mod rebuild;
mod rebuild_relay;
mod recovery;
mod relay;
mod schedule;
mod show;
pub mod xor;

pub use cell::{Cell, Column, Lost, Node, Role};
pub use error::StripeError;
pub use geometry::{Direction, Equation, Geometry};
pub use parity::Parity;
pub use rebuild_relay::{Rebuild, RebuildStep, Rebuilt};
pub use recovery::{Degraded, Recovery, Repair};
pub use schedule::{Average, Bound, Kept, Load, Schedule, Sender, Step, StepId, Toward, Use, Way};
pub use show::{Shown, ShownRebuild};
