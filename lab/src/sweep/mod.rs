//! Measures and draws the paper's figures 4.2 to 4.18: random reads by size, connections and
//! threads.
//!
//! The paper measures on two servers with 44 cores each. The axes here are the same, but end where
//! one host ends. In the paper, `local` means threads that each read and wait; the figures here add
//! one thread that keeps as many reads in flight, and several such threads.
//!
//! Invariants
//! - Figures depend on the lines alone: the same lines give the same figures.
//! - A figure without points is left out, and the page says so.

mod cases;
mod picture;

pub use cases::{SweepPlan, sweep};
pub use picture::sweep_report;
