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
//!
//! An example: a stripe over five nodes loses two of them, and its cells are recovered.
//!
//! ```
//! use rackscan_stripe::{Cell, Geometry, Node, Parity, xor::xor_all};
//! use std::collections::BTreeMap;
//!
//! let geometry = Geometry::with_parity(5, Parity::TwoD)?;
//! let data = geometry.data().iter().zip(1..);
//! let mut cells: BTreeMap<Cell, Vec<u8>> = data.map(|(cell, n)| (*cell, vec![n; 64])).collect();
//! let xor_of = |cells: &BTreeMap<Cell, Vec<u8>>, some: &[Cell]| {
//!     let (mut sum, some) = (vec![0; 64], some.iter().map(|cell| &cells[cell][..]));
//!     xor_all(&mut sum, &some.collect::<Vec<_>>()).map(|()| sum)
//! };
//! for equation in geometry.equations() {
//!     let parity = xor_of(&cells, &equation.data)?;
//!     cells.insert(equation.parity, parity);
//! }
//!
//! let (whole, lost) = (cells.clone(), geometry.lost_with(0, &[Node(1), Node(3)])?);
//! cells.retain(|cell, _| !lost.has(cell.column));
//! assert_eq!(whole.len() - cells.len(), 8);
//! for repair in geometry.recovery(lost).repairs {
//!     let recovered = xor_of(&cells, &repair.from)?;
//!     cells.insert(repair.cell, recovered);
//! }
//! assert_eq!(cells, whole);
//! # Ok::<(), Box<dyn std::error::Error>>(())
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
