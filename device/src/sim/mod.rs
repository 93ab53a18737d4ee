//! How do devices behave on a bad day, repeatably?
//!
//! [`SimIo`] implements [`crate::DeviceIo`] over devices in memory, in virtual time. Everything it
//! decides (latency and so the order of completions, faults, what a crash leaves) comes from one
//! seed: the same seed and the same calls give the same run. Tests of everything above this crate
//! use it and print [`SimIo::seed`] when they fail.

mod disk;
mod io;
mod random;

pub use disk::{CrashImage, SimDisk};
pub use io::{FaultRates, SimConfig, SimIo};
