//! How fast is each wire, next to a plain copy in memory and a socket of the kernel?
//!
//! Two processes, so that nothing is shared but what the wire shares: this one measures, a second
//! one of the same program ([`answer`]) plays its part.
//!
//! Invariants
//! - What is compared is measured in turns in one run, so that a noisy moment meets both sides; all
//!   runs are kept, the best counts, ratios are of the best.
//! - Every byte that is measured really arrives: transfers are read back, messages are checked by
//!   their receiver.

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
    /// Turns of each figure.
    pub repeat: u32,
    /// The part of the usual effort (1.0) that is spent on each turn.
    pub effort: f64,
}

/// One figure, as one JSON line.
#[derive(Clone, Debug, Serialize)]
pub struct FabricLine {
    /// Where the figure comes from.
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
    /// The figure of every turn, in order.
    pub runs: Vec<f64>,
    /// The best of them.
    pub best: f64,
    /// What it is held against: `memcpy` or `unix-socket`.
    pub against: &'static str,
    /// How many times as good as that it is, from the best of both: bandwidths as ours / theirs,
    /// times as theirs / ours.
    pub ratio: f64,
}

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum FabricBenchError {
    /// An address cannot be listened at.
    #[error(transparent)]
    Listen(#[from] rackscan_fabric::ListenError),
    /// The processes did not meet.
    #[error(transparent)]
    Connect(#[from] rackscan_fabric::ConnectError),
    /// Memory could not be taken.
    #[error(transparent)]
    Region(#[from] rackscan_fabric::RegionError),
    /// Memory could not be shared.
    #[error(transparent)]
    Register(#[from] rackscan_fabric::RegisterError),
    /// An inbox could not be made.
    #[error(transparent)]
    Inbox(#[from] rackscan_fabric::inbox::InboxError),
    /// A sender could not be given another ring.
    #[error(transparent)]
    Assign(#[from] rackscan_fabric::inbox::AssignError),
    /// An operation was not accepted.
    #[error(transparent)]
    Post(#[from] rackscan_fabric::PostError),
    /// An operation failed.
    #[error(transparent)]
    Operation(#[from] rackscan_fabric::OperationError),
    /// A part of a region that is not there.
    #[error(transparent)]
    Bounds(#[from] rackscan_fabric::OutOfBounds),
    /// The other process could not be started or spoken to.
    #[error("the second process of the measurement: {action}: {source}")]
    Process {
        /// What was attempted.
        action: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The other process said or did something else than it should.
    #[error("the second process of the measurement: found {found}, expected {expected}")]
    Partner {
        /// What it did.
        found: String,
        /// What it should have done.
        expected: &'static str,
    },
}

/// Measures; `progress` is told what comes next.
///
/// # Errors
/// The first thing that is in the way.
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

/// The best of some runs, and how it compares.
pub(crate) fn least(runs: &[f64]) -> f64 {
    runs.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The greatest of some runs.
pub(crate) fn most(runs: &[f64]) -> f64 {
    runs.iter().copied().fold(0.0, f64::max)
}

/// How often something is done when `usual` times is usual.
pub(crate) fn times(usual: u32, effort: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count, clamped")]
    let count = (f64::from(usual) * effort).clamp(1.0, 4e9) as u32;
    count
}
