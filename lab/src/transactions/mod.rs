//! Measures how many transactions a cluster executes, by algorithm, operations and wire.
//!
//! ```text
//! workload   draws transactions: their operations and keys
//! store      the interface of a store whose transactions are measured; a session of a client
//! driver     runs a thread for each session, in a closed loop
//! counters   rates, latencies, round trips, one-sided reads, failures
//! recorder   the history of what sessions read and wrote, checked by ramp::history
//! load       writes all keys before a run
//! survey     reads all keys while nobody writes
//! cluster    sessions of storage nodes as stores
//! sweep      measures all series (algorithm, operations, wire) under all conditions, alternating
//! line       the result of a series under one condition, as JSON
//! picture    tables and figures of a sweep
//! stress     kills nodes while sessions use few keys, and checks everything
//! ```
//!
//! Invariants
//! - This module does not know wires, nodes or processes: the caller opens sessions and kills
//!   nodes.
//! - Series that are compared take their turns in the same rounds, so that a change of the
//!   machine's speed affects all of them.
//! - The result of a checked run states how much was checked, and counts every violation.

mod cluster;
mod counters;
mod driver;
mod line;
mod load;
mod options;
mod picture;
mod recorder;
mod session;
mod store;
mod stress;
mod survey;
mod sweep;
mod token;
pub mod workload;

#[cfg(test)]
mod nearby;

pub use cluster::ClusterSession;
pub use counters::Counters;
pub use driver::{Measured, RunError, run};
pub use line::{Durability, Operations, Point, Series, TransactionLine};
pub use load::{Load, LoadError, load};
pub use options::RunOptions;
pub use picture::report;
pub use recorder::{Checked, TooManyUnknown};
pub use store::{Failure, OpenSession, ReadDone, TransactionStore, WriteEnd, WriteFailure};
pub use stress::{Chaos, Stress, StressError, StressFailure, StressOutcome, Strike, stress};
pub use survey::SurveyError;
pub use sweep::{Axes, Plan, PlanError, SweepOutcome, TransactionHost, sweep};
