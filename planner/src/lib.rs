//! Where should a scan run?
//!
//! ```text
//! ScanProfile    what one segment's scan needs, as far as zone maps tell before a page is read   (profile)
//! ClusterProfile what the engine and each node have to offer right now                            (profile)
//! Calibration    what a page, a byte, a value cost on these machines                              (calibration)
//!      |
//!      v
//! prices         seconds under each placement, or why a placement cannot apply                    (cost)
//!      |
//!      v
//! Decision       one placement, with the prices it was chosen by                                  (placement)
//!      |
//!      v
//! Observed       what the segment did: it corrects the next one's profile and the node's pace     (course, ratio)
//! ```
//!
//! Everything here is a pure function: no IO, no clock, no threads, no SQL. The same profile,
//! cluster, calibration and policy always give the same decision, which is what the golden tables
//! in `tests/decisions.rs` hold. How good the decisions of a whole scan are is what
//! `tests/simulated_sweep.rs` says. The orders of messages of a transaction and of a stripe belong
//! in this crate too, for the same reason.

#![forbid(unsafe_code)]

mod calibration;
mod cost;
mod feedback;
mod placement;
mod profile;
mod ratio;

pub use calibration::{Calibration, CalibrationError, Constant, CpuCosts, DeviceCosts, WireCosts};
pub use cost::{Demand, Price, Prices, WhyNot, demand, price};
pub use feedback::{
    EXPLORE_EVERY, EXPLORE_LEFT_MIN, EXPLORE_PRICE_MAX, Feedback, KEEP_PRICE_MAX, Observed, Pace, plan,
    price_all,
};
pub use placement::{Decision, Placement, PlacementError, Policy, Reason, UnknownPolicy, place};
pub use profile::{
    Ahead, Attachment, ClusterProfile, EngineProfile, Measured, NodeProfile, PaceFactors, PageDemand,
    ScanProfile, Wire,
};
pub use ratio::{PassingRatio, RATIO_MAX, Ratio};
