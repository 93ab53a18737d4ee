//! Which measurements are behind the paper's figures 4.2 to 4.18, and how are they drawn?
//!
//! The paper measures on two servers with 44 cores each; the same axes are cut to what one host can
//! do. Its `local` is threads that read and wait; ours beside it is one thread with as many reads
//! in flight.
//!
//! Invariants
//! - What is drawn is taken from the lines alone: the same lines give the same figures.
//! - A figure without points is left out, and the page says so.

mod cases;
mod picture;

pub use cases::{SweepPlan, sweep};
pub use picture::sweep_report;
