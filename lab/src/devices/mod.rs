//! Measures devices of this host under a grid of loads: reads, writes, mixes and trims.
//!
//! ```text
//! for each round, until the rule says that it is enough
//!   for each case        workload, pattern, size, threads, depth, engine
//!     one turn           drive, over targets of this process; or fio
//! ```
//!
//! Invariants
//! - A device that holds something is not overwritten ([`check_writable`]).
//! - If a measurement ends early, its results contain what was measured until then.

mod experiment;
mod grid;
pub mod job;
mod line;
mod page;
mod run;
mod stop;
mod writable;

pub use experiment::DeviceExperiment;
pub use grid::{DeviceAxes, DeviceCase, IoEngine, pattern};
pub use line::{DeviceLine, IntervalLine, Measurement, best_below};
pub use page::report;
pub use run::DeviceOutcome;
pub use stop::{Judgement, StopRule, WINDOW};
pub use writable::{NotWritable, check_writable};
