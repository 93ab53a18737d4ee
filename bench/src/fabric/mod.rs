//! Measures each wire next to a plain copy in memory and a socket of the kernel.
//!
//! There are two processes, so that nothing is shared but what the wire shares: this one measures,
//! and a second one of the same program ([`answer`]) is its partner.
//!
//! Invariants
//! - Things that are compared are measured in alternating turns of one run, so that noise affects
//!   both. All runs are kept, the best counts, ratios are of the best.
//! - Every measured byte really arrives: transfers are read back, messages are checked by their
//!   receiver.

mod answer;
mod ends;
mod one_sided;
mod partner;
mod round_trips;

use serde::Serialize;

pub use answer::answer;
pub use ends::{Ends, Outgoing, Through};
pub use partner::{Partner, Place, Shape, Task};

pub(crate) use partner::{accept, distinct};

use crate::Provenance;

/// What to measure.
#[derive(Clone, Debug)]
pub struct FabricOptions {
    /// The wires, with the addresses that both processes listen at.
    pub places: Vec<Place>,
    /// Repetitions of each figure.
    pub repeat: u32,
    /// Effort per repetition, as a factor of the usual effort (1.0).
    pub effort: f64,
}

/// One figure, as one JSON line.
#[derive(Clone, Debug, Serialize)]
pub struct FabricLine {
    /// Source of the figure.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// `write`, `read` or `round-trip`.
    pub what: &'static str,
    /// The wire, `memcpy` or `unix-socket`.
    pub wire: String,
    /// Bytes of one transfer or message.
    pub bytes: usize,
    /// `GB/s` or `us`.
    pub unit: &'static str,
    /// The figure of every repetition, in order.
    pub runs: Vec<f64>,
    /// The best of them.
    pub best: f64,
    /// What it is compared with: `memcpy` or `unix-socket`.
    pub against: &'static str,
    /// How many times as good as that, from the best of both: bandwidths as this / other, times as
    /// other / this.
    pub ratio: f64,
}

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum FabricBenchError {
    /// Listening at an address failed.
    #[error(transparent)]
    Listen(#[from] rackscan_fabric::ListenError),
    /// The processes could not connect.
    #[error(transparent)]
    Connect(#[from] rackscan_fabric::ConnectError),
    /// Memory could not be allocated.
    #[error(transparent)]
    Region(#[from] rackscan_fabric::RegionError),
    /// Memory could not be registered.
    #[error(transparent)]
    Register(#[from] rackscan_fabric::RegisterError),
    /// An inbox could not be created.
    #[error(transparent)]
    Inbox(#[from] rackscan_fabric::inbox::InboxError),
    /// A sender could not be assigned another ring.
    #[error(transparent)]
    Assign(#[from] rackscan_fabric::inbox::AssignError),
    /// An operation was not accepted.
    #[error(transparent)]
    Post(#[from] rackscan_fabric::PostError),
    /// An operation failed.
    #[error(transparent)]
    Operation(#[from] rackscan_fabric::OperationError),
    /// Access outside of a region.
    #[error(transparent)]
    Bounds(#[from] rackscan_fabric::OutOfBounds),
    /// The other process could not be started, or its pipes failed.
    #[error("the second process of the measurement: {action}: {source}")]
    Process {
        /// What was attempted.
        action: &'static str,
        /// The cause.
        source: std::io::Error,
    },
    /// The other process did not do what was expected.
    #[error("the second process of the measurement: found {found}, expected {expected}")]
    Partner {
        /// What it did.
        found: String,
        /// What was expected.
        expected: &'static str,
    },
}

/// Runs the measurement; `progress` receives what is measured next.
///
/// # Errors
/// The first failure.
pub fn run(
    options: &FabricOptions,
    start: &dyn Fn() -> std::process::Command,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<FabricLine>, FabricBenchError> {
    let mut lines = Vec::new();
    for place in &options.places {
        let mut partner = Partner::start(place, start())?;
        progress(&format!("{}: transfers", place.wire()));
        lines.extend(one_sided::measure(&mut partner, place, options)?);
        progress(&format!("{}: round trips", place.wire()));
        lines.extend(round_trips::measure(&mut partner, place, options)?);
        partner.stop()?;
    }
    Ok(lines)
}

/// The minimum of several runs.
pub(crate) fn least(runs: &[f64]) -> f64 {
    runs.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The maximum of several runs.
pub(crate) fn most(runs: &[f64]) -> f64 {
    runs.iter().copied().fold(0.0, f64::max)
}

/// Scales the usual number of repetitions by the effort; at least 1.
pub(crate) fn times(usual: u32, effort: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count, clamped")]
    let count = (f64::from(usual) * effort).clamp(1.0, 4e9) as u32;
    count
}
