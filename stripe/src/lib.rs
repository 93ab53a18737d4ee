//! Where do the cells of a stripe lie, what recovers them, and by which transfers do they get there?
//!
//! ```text
//! Geometry     which cells a stripe over n nodes has, on which nodes, and which of them XOR to nothing  (geometry)
//!      |
//!      +--> Recovery  which survivors give back all lost cells, or the one that a query wants           (recovery, rebuild)
//! ```
//!
//! Everything here is a pure function of the number of nodes: no IO, no clock, no threads, and no bytes of cells.

#![forbid(unsafe_code)]

mod cell;
mod error;
mod geometry;
pub mod limits;
mod rebuild;
mod recovery;

pub use cell::{Cell, Column, Lost, Node, Role};
pub use error::StripeError;
pub use geometry::{Direction, Equation, Geometry};
pub use recovery::{Degraded, Recovery, Repair};
