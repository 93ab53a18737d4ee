//! Defines the options of a wire measurement, and its figures as lines of JSON.

use serde::Serialize;

use super::Place;
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
