//! Simulates devices with faults and crashes, repeatably.
//!
//! [`SimIo`] implements [`crate::DeviceIo`] over devices in memory, in virtual time. All its
//! decisions (latency and so the order of completions, faults, what a crash leaves) come from one
//! seed: the same seed and the same calls give the same result. Tests of the crates above use it
//! and print [`SimIo::seed`] when they fail.

mod disk;
mod io;
mod random;

pub use disk::{CrashImage, SimDisk};
pub use io::{FaultRates, SimConfig, SimIo};
