//! Defines the result of one contender (a placement, or another engine) as a line of JSON: its
//! times of each query.

use crate::Provenance;
use rackscan_planner::Policy;
use serde::Serialize;
use std::{collections::BTreeMap, fmt};

/// The state of caches when a run starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Caches {
    /// As previous runs left them.
    Warm,
    /// No page of a table is cached: peers open their files anew, then the kernel's caches are
    /// dropped; nodes have no page cache and bypass the kernel's.
    Cold,
}

impl fmt::Display for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Warm => "warm",
            Self::Cold => "cold",
        })
    }
}

/// One contender's times, as one JSON line.
#[derive(Clone, Debug, Serialize)]
pub struct TpchLine {
    /// Source of the figures.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// `rackscan`, or a peer's name and version.
    pub engine: String,
    /// The requested placement, or what the peer reads.
    pub placement: String,
    /// Its name in comparisons.
    pub name: String,
    /// See [`TpchOptions::wire`](super::TpchOptions::wire).
    pub wire: String,
    /// See [`TpchOptions::threads`](super::TpchOptions::threads).
    pub threads: usize,
    /// See [`TpchOptions::caches`](super::TpchOptions::caches).
    pub caches: Caches,
    /// Page cache of all nodes together, in bytes.
    pub node_cache_bytes: u64,
    /// See [`TpchOptions::warm_up`](super::TpchOptions::warm_up).
    pub warm_up: u32,
    /// See [`TpchOptions::repeat`](super::TpchOptions::repeat).
    pub runs: u32,
    /// Milliseconds of every run of each query, in order.
    pub ms: BTreeMap<String, Vec<f64>>,
    /// The best time of each query.
    pub best_ms: BTreeMap<String, f64>,
    /// The median of each query.
    pub median_ms: BTreeMap<String, f64>,
    /// The sum of the best times.
    pub total_best_ms: f64,
    /// The sum of the medians.
    pub total_median_ms: f64,
    /// Medians relative to those of each peer, by the peer's name; empty for peers.
    pub over: BTreeMap<String, Over>,
    /// For the placement `auto`: medians relative to those of the best forced placement of each
    /// query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_best_forced: Option<OverBest>,
    /// Number of segments by where they were actually scanned, over all runs that count.
    pub segments: BTreeMap<String, u64>,
    /// Bytes read from devices, over all runs that count.
    pub disk_bytes: u64,
    /// Bytes that crossed the wire, over all runs that count.
    pub wire_bytes: u64,
    /// Bytes that each query read from devices in its last run.
    pub disk_bytes_of: BTreeMap<String, u64>,
    /// Bytes of each query that crossed the wire in its last run.
    pub wire_bytes_of: BTreeMap<String, u64>,
    #[serde(skip)]
    pub(super) is_ours: bool,
    #[serde(skip)]
    pub(super) policy: Option<Policy>,
}

impl TpchLine {
    /// Whether it is a placement of this engine, not a peer.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.is_ours
    }
}

/// A contender's times relative to another one's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Over {
    /// By query.
    pub of: BTreeMap<String, f64>,
    /// The geometric mean of these.
    pub geometric_mean: f64,
    /// The sum of its times over the sum of the other one's.
    pub of_totals: f64,
}

/// The times of `auto` relative to those of the best forced placement of each query.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OverBest {
    /// By query.
    pub of: BTreeMap<String, f64>,
    /// The best placement, by query.
    pub best: BTreeMap<String, String>,
    /// The geometric mean of the ratios.
    pub geometric_mean: f64,
    /// The maximum of the ratios.
    pub worst: f64,
    /// Query of the maximum.
    pub worst_query: String,
}

/// Rounds to three digits after the point.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
