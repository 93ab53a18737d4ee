//! How fast is each part, next to its limit?
//!
//! A benchmark returns serialisable lines that carry command, commit, machine and scale
//! ([`Provenance`]); `rackscan lab` prints them as JSON. Nothing here asserts a time.

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
