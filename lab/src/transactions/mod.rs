//! Measures how many transactions a cluster executes, by algorithm, operations and wire.
//!
//! ```text
//! workload: keys, and the operations on them -----+
//! store: a session of a client -------------------+--> driver: a thread for each session, in a closed loop
//!                                                        |-> counters: rates, latencies, rounds, one-sided keys, failures
//!                                                        '-> recorder: the history, checked by ramp::history
//! load: writes keys before a run          survey: reads all keys while nobody writes
//!
//! cluster: sessions of storage nodes as stores
//! sweep: points x series, alternating --> line: one JSON object each --> picture: tables and figures
//! stress: few keys, nodes that are killed, everything checked
//! ```
//!
//! Invariants
//! - Nothing here knows wires, nodes or processes: the caller opens sessions and kills nodes.
//! - Series that are compared are measured in turns of one round, so that a machine that changes
//!   its speed affects all of them.
//! - A run that was checked says how much was checked, and every violation is counted.

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
pub use line::{Operations, Point, Series, TransactionLine};
pub use load::{Load, LoadError, load};
pub use options::RunOptions;
pub use picture::report;
pub use recorder::{Checked, TooManyUnknown};
pub use store::{Failure, OpenSession, ReadDone, TransactionStore, WriteEnd, WriteFailure};
pub use stress::{Chaos, Stress, StressError, StressFailure, StressOutcome, Strike, stress};
pub use survey::SurveyError;
pub use sweep::{Axes, Plan, PlanError, Step, SweepOutcome, TransactionHost, sweep};
