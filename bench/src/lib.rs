//! Runs benchmarks that need the engine or a cluster, and those of the wires.
//!
//! ```text
//! calibrate   constants of the price model, measured on a cluster
//! tpch        the 22 TPC-H queries under each placement, next to other engines (`peer`)
//! placement   automatic placement next to the best forced one, under limited processors and wires
//! refresh     queries while refresh functions (inserts and deletes of orders) run
//! degraded    queries while nodes are lost
//! fabric      one-sided transfers and round trips of each wire
//! inbox       messages through shared receive memory next to a private ring for each sender
//! cold        drops the kernel's caches
//! ```
//!
//! A benchmark returns serialisable lines that contain command, commit, machine and scale
//! ([`Provenance`]); `rackscan lab` prints them as JSON. No benchmark fails because of a time.
//!
//! An example: a figure as a line of JSON, which says where it comes from.
//!
//! ```
//! use rackscan_bench::{COMMIT, Provenance, fabric::FabricLine};
//!
//! let line = FabricLine {
//!     provenance: Provenance::now("fabric", 0.0),
//!     what: "read",
//!     wire: "shm".to_owned(),
//!     bytes: 4096,
//!     unit: "GB/s",
//!     runs: vec![8.0, 9.0],
//!     best: 9.0,
//!     against: "memcpy",
//!     ratio: 0.75,
//! };
//! let json: serde_json::Value = serde_json::from_str(&serde_json::to_string(&line)?)?;
//! assert_eq!((&json["bench"], &json["wire"]), (&"fabric".into(), &"shm".into()));
//! assert_eq!((&json["commit"], &json["best"]), (&COMMIT.into(), &9.0.into()));
//! assert!(json["machine"].as_str().is_some_and(|machine| machine.contains("cores")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod calibrate;
pub mod cold;
pub mod degraded;
pub mod fabric;
pub mod inbox;
mod peer;
pub mod placement;
pub mod refresh;
pub mod tpch;

pub use peer::{Peer, PeerEngine, PeerError};
pub use rackscan_lab::{COMMIT, Provenance, machine};
