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
//!
//! An example: a node is on another host. A selective scan runs in the node; the engine runs a scan
//! that returns everything.
//!
//! ```
//! use rackscan_fabric::Wire;
//! use rackscan_format::{ids::NodeId, message::LoadReport};
//! use rackscan_planner::*;
//!
//! let (node, speed) = (NodeId(3), SpeedFactors::default());
//! let attachment = Attachment::Detached("it is on another host".to_owned());
//! let (wire, load) = (Wire::Tcp, LoadReport { scan_workers: 2, ..LoadReport::default() });
//! let (ahead, cached, lost) = (Ahead::default(), 0.0, false);
//! let profile = NodeProfile { wire, attachment, load, ahead, speed, cached, lost };
//! let engine = EngineProfile { cores: 2, ahead };
//! let cluster = ClusterProfile { engine, nodes: [(node, profile)].into() };
//!
//! let filter = PageDemand { pages: 12, bytes: 1500 << 10 };
//! let empty = ScanProfile { output_row_bytes: 120.0, ..ScanProfile::of_nothing(node) };
//! let selective = ScanProfile { rows: 131_072, filter, output_rows: 1_000.0, ..empty };
//! let everything = ScanProfile { output_rows: 131_072.0, ..selective };
//! let placed = |scan, policy| place(scan, &cluster, &Calibration::default(), policy);
//! assert_eq!(placed(&selective, Policy::Auto)?.placement, Placement::RemoteProcess);
//! assert_eq!(placed(&everything, Policy::Auto)?.placement, Placement::RemoteFetch);
//! let forced = placed(&selective, Policy::Local);
//! assert!(matches!(forced, Err(PlacementError::NotAttached { .. })));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
