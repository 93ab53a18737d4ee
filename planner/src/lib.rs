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
//! ```
//!
//! Everything here is a pure function: no IO, no clock, no threads, no SQL. The same profile, cluster, calibration and
//! policy always give the same decision, which is what the golden tables in `tests/decisions.rs` hold.
//! The orders of messages of a transaction and of a stripe belong in this crate too, for the same reason.

#![forbid(unsafe_code)]

mod calibration;
mod cost;
mod placement;
mod profile;

pub use calibration::{Calibration, CalibrationError, Constant, CpuCosts, DeviceCosts, WireCosts};
pub use cost::{Price, Prices, WhyNot, price};
pub use placement::{Decision, Placement, PlacementError, Policy, UnknownPolicy, place};
pub use profile::{Attachment, ClusterProfile, EngineProfile, NodeProfile, PageDemand, ScanProfile, Wire};
