//! Measures and draws the paper's figures 4.2 to 4.18.
//!
//! The paper measures on two servers with 44 cores each; the same axes are cut to what one host can
//! do. The paper's `local` uses threads that read and wait; the figures add one thread with as many
//! reads in flight.
//!
//! Invariants
//! - Figures depend on the lines alone: the same lines give the same figures.
//! - A figure without points is left out, and the page says so.

mod cases;
mod picture;

pub use cases::{SweepPlan, sweep};
pub use picture::sweep_report;
