//! Decides where the scan of each segment runs: in the engine or in the segment's storage node.
//!
//! This crate is the cost model and the decision, nothing else. It does not scan, does no IO, reads
//! no clock, starts no threads and knows no SQL: the engine gathers the inputs, carries out the
//! decision and reports what happened.
//!
//! ```text
//! ScanProfile     what the scan of one segment needs, estimated before a page is read  (profile)
//! ClusterProfile  what the engine and each node can offer at this time                 (profile)
//! Calibration     what a page, a byte and a value cost on these machines               (calibration)
//!      |
//!      v
//! Demand          seconds of each resource that the scan takes                         (demand, cost)
//!      |
//!      v
//! Prices          seconds under each placement, or why a placement cannot apply        (cost)
//!      |
//!      v
//! Decision        one Placement, and the prices it was chosen by                       (placement, decision)
//!      |
//!      v
//! Observed        what the segment did; Feedback corrects the profiles of the scan's
//!                 next segments by it, NodeSpeed the speed of the node                      (feedback, ratio)
//! ```
//!
//! The result depends on the arguments only. [`place`] gives the same decision for the same
//! profile, cluster, calibration and policy; [`Feedback`] and [`NodeSpeed`] also depend on what
//! they observed before, and get the time as an argument. `tests/decisions.rs` holds tables of
//! decisions for single segments, `tests/corrections.rs` what feedback learns.
//! `tests/simulated_sweep.rs` simulates whole scans and compares `auto` with the best forced
//! placement.

#![forbid(unsafe_code)]

mod calibration;
mod cost;
mod decision;
mod demand;
mod feedback;
mod placement;
mod profile;
mod ratio;

pub use calibration::{Calibration, CalibrationError, Constant, CpuCosts, DeviceCosts, WireCosts};
pub use cost::{Price, Prices, WhyNot, demand, price};
pub use decision::{Decision, PlacementError, place};
pub use demand::{Ahead, Demand};
pub use feedback::{
    EXPLORE_EVERY, EXPLORE_LEFT_MIN, EXPLORE_PRICE_MAX, Feedback, KEEP_PRICE_MAX, NodeSpeed, Observed, plan,
    price_all,
};
pub use placement::{Placement, Policy, Reason, UnknownPolicy};
pub use profile::{
    Attachment, ClusterProfile, EngineProfile, Measured, NodeProfile, PageDemand, ScanProfile, SpeedFactors,
};
pub use ratio::{PassingRatio, RATIO_MAX, Ratio};
