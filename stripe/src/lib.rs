//! Computes the geometry of striped parity: where the cells of a stripe lie, how lost cells are
//! recovered, and by which transfers cells get to their nodes.
//!
//! A stripe is a set of cells on several nodes: data cells, and parity cells that are XORs of data
//! cells. Every result is a pure function of the number of nodes and of the [`Parity`]. This crate
//! does no IO, has no clock and no threads, and handles no bytes of cells, except in [`xor`], the
//! XOR kernels. `rackscan_relay` carries the schedules out.
//!
//! ```text
//! Geometry     which cells a stripe over n nodes has, on which nodes, and which of them XOR to zero   (geometry, cell)
//!      |
//!      +--> Recovery  from which surviving cells the lost ones are recovered                          (recovery, rebuild)
//!      |
//!      +--> Schedule  which transfers bring a stripe from a client to its nodes, and how much each place sends and receives  (schedule, step, relay)
//!      |
//!      +--> Rebuild   which transfers bring a lost node's cells to the node that replaces it           (rebuild_relay)
//!      |
//!      +--> Shown     all of these for people: text, picture, JSON                                    (show)
//! ```

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
mod step;
pub mod xor;

pub use cell::{Cell, Column, Lost, Node, Role};
pub use error::StripeError;
pub use geometry::{Direction, Equation, Geometry};
pub use parity::Parity;
pub use rebuild_relay::{Rebuild, RebuildStep, Rebuilt};
pub use recovery::{Degraded, Recovery, Repair};
pub use schedule::{Average, Bound, Load, Schedule};
pub use show::{Shown, ShownRebuild};
pub use step::{Kept, Sender, Step, StepId, Toward, Use, Way};
