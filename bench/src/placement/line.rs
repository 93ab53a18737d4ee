//! Collects the runs of a point (one combination of conditions), and summarises all points.
//!
//! Invariants
//! - A line contains every time that counts, and separately the times of the first turn.
//! - The best forced placement is chosen by its median of the same turns. So with few turns, the
//!   ratio of `auto` to it is a little too large, never too small.

use super::{Conditions, ScanQuery};
use crate::Provenance;
use rackscan_engine::ScanFigures;
use rackscan_lab::median;
use rackscan_planner::{Placement, Policy};
use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};

/// The goal for `auto`: at most this many times the time of the best forced placement.
pub(super) const GOAL: f64 = 1.05;

/// One point of the measurement.
#[derive(Clone, Debug, Serialize)]
pub struct PlacementLine {
    /// Source of the figures.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// The query.
    pub query: ScanQuery,
    /// Its SQL.
    pub sql: String,
    /// Intended share of rows that pass.
    pub selectivity: f64,
    /// Actual share of rows that passed.
    pub rows_share: f64,
    /// Rows of the answer.
    pub rows: u64,
    /// See [`Conditions::cpu_share_percent`].
    pub cpu_share_percent: u32,
    /// See [`Conditions::wire_mb_per_s`].
    pub wire_mb_per_s: Option<u32>,
    /// Storage nodes.
    pub nodes: usize,
    /// Threads of the engine.
    pub threads: usize,
    /// Whether the devices are attached to the engine's host.
    pub attached: bool,
    /// Page cache of all nodes together, in bytes.
    pub node_cache_bytes: u64,
    /// Milliseconds of each run that counts, by placement.
    pub ms: BTreeMap<String, Vec<f64>>,
    /// Median milliseconds, by placement.
    pub median_ms: BTreeMap<String, f64>,
    /// Milliseconds of the first run, which does not count.
    pub first_ms: BTreeMap<String, f64>,
    /// The forced placement with the lowest median.
    pub best_forced: String,
    /// The median of `auto` over the median of the best forced placement.
    pub over_best: f64,
    /// The first run of `auto` over the median of the best forced placement.
    pub first_over_best: f64,
    /// Number of segments by where `auto` scanned them, in all runs that count.
    pub auto_segments: BTreeMap<String, u64>,
    /// Bytes on the wire in the last run, by placement.
    pub wire_bytes_of: BTreeMap<String, u64>,
    /// Processor milliseconds of scans in the nodes in the last run, by placement.
    pub node_cpu_ms_of: BTreeMap<String, f64>,
    /// Segments that nodes bounced, in all runs of all placements that count.
    pub bounced: u64,
}

impl PlacementLine {
    /// The limits of this point.
    #[must_use]
    pub fn conditions(&self) -> Conditions {
        let Self { cpu_share_percent, wire_mb_per_s, .. } = *self;
        Conditions { cpu_share_percent, wire_mb_per_s }
    }
}

/// One run.
pub(super) struct Run {
    pub(super) elapsed: Duration,
    pub(super) rows: u64,
    pub(super) figures: ScanFigures,
}

/// The runs of one point.
#[derive(Default)]
pub(super) struct Runs {
    rows: Option<(Policy, u64)>,
    rows_scanned: u64,
    rows_selected: u64,
    ms: BTreeMap<String, Vec<f64>>,
    first_ms: BTreeMap<String, f64>,
    auto_segments: BTreeMap<String, u64>,
    wire_bytes_of: BTreeMap<String, u64>,
    node_cpu_ms_of: BTreeMap<String, f64>,
    bounced: u64,
}

impl Runs {
    /// Adds a run. It is an error if its answer has another number of rows than the others.
    pub(super) fn push(&mut self, policy: Policy, counts: bool, run: Run) -> Result<(), String> {
        let Run { elapsed, rows, figures } = run;
        let (first, expected) = *self.rows.get_or_insert((policy, rows));
        if rows != expected {
            return Err(format!(
                "placement {policy} returned {rows} rows, expected {expected}, which {first} returned"
            ));
        }
        let (name, ms) = (policy.to_string(), rounded(elapsed.as_secs_f64() * 1e3));
        if !counts {
            self.first_ms.insert(name, ms);
            return Ok(());
        }
        self.ms.entry(name.clone()).or_default().push(ms);
        if policy == Policy::Auto {
            for placement in Placement::ALL {
                *self.auto_segments.entry(placement.to_string()).or_default() +=
                    figures.segments.of(placement);
            }
        }
        self.bounced += figures.bounced;
        (self.rows_scanned, self.rows_selected) = (figures.work.rows_scanned, figures.work.rows_selected);
        self.wire_bytes_of.insert(name.clone(), figures.all_work().wire_bytes);
        let node_cpu = Duration::from_micros(figures.all_work().node_cpu_us).as_secs_f64() * 1e3;
        self.node_cpu_ms_of.insert(name, rounded(node_cpu));
        Ok(())
    }

    /// The point's line.
    #[expect(clippy::cast_precision_loss, reason = "a share for people: 53 bits are plenty")]
    pub(super) fn line(self, common: PlacementLine) -> PlacementLine {
        let median_ms: BTreeMap<String, f64> = self
            .ms
            .iter()
            .filter_map(|(name, times)| Some((name.clone(), rounded(median(times.clone())?))))
            .collect();
        let auto = Policy::Auto.to_string();
        let forced = median_ms.iter().filter(|(name, _)| **name != auto);
        let best = forced.min_by(|a, b| a.1.total_cmp(b.1)).map(|(name, ms)| (name.clone(), *ms));
        let (best_forced, best_ms) = best.unwrap_or_default();
        let over = |ms: Option<&f64>| ms.map_or(0.0, |ms| rounded(ms / best_ms.max(f64::MIN_POSITIVE)));
        PlacementLine {
            rows_share: self.rows_selected as f64 / (self.rows_scanned as f64).max(1.0),
            rows: self.rows.map_or(0, |(_, rows)| rows),
            over_best: over(median_ms.get(&auto)),
            first_over_best: over(self.first_ms.get(&auto)),
            ms: self.ms,
            median_ms,
            first_ms: self.first_ms,
            best_forced,
            auto_segments: self.auto_segments,
            wire_bytes_of: self.wire_bytes_of,
            node_cpu_ms_of: self.node_cpu_ms_of,
            bounced: self.bounced,
            ..common
        }
    }
}

/// Summary of all points.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The median of the ratios.
    pub median: f64,
    /// The maximum of the ratios, and the index of its line.
    pub worst: (f64, usize),
    /// The median of the first runs' ratios.
    pub first_median: f64,
    /// The maximum of the first runs' ratios.
    pub first_worst: f64,
    /// Points with a ratio of at most 1.05.
    pub within_goal: usize,
}

/// Summarises all points; `None` without any.
#[must_use]
pub fn summary(lines: &[PlacementLine]) -> Option<Summary> {
    let worst = lines.iter().enumerate().max_by(|a, b| a.1.over_best.total_cmp(&b.1.over_best))?;
    Some(Summary {
        median: median(lines.iter().map(|line| line.over_best).collect())?,
        worst: (worst.1.over_best, worst.0),
        first_median: median(lines.iter().map(|line| line.first_over_best).collect())?,
        first_worst: lines.iter().map(|line| line.first_over_best).fold(0.0, f64::max),
        within_goal: lines.iter().filter(|line| line.over_best <= GOAL).count(),
    })
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn run(ms: u64, rows: u64) -> Run {
        Run { elapsed: Duration::from_millis(ms), rows, figures: ScanFigures::default() }
    }

    /// A line without any results.
    pub(crate) fn blank(query: ScanQuery, selectivity: f64, conditions: Conditions) -> PlacementLine {
        PlacementLine {
            provenance: Provenance::now("placement", 1.0),
            query,
            sql: String::new(),
            selectivity,
            rows_share: selectivity,
            rows: 0,
            cpu_share_percent: conditions.cpu_share_percent,
            wire_mb_per_s: conditions.wire_mb_per_s,
            nodes: 1,
            threads: 1,
            attached: false,
            node_cache_bytes: 0,
            ms: BTreeMap::new(),
            median_ms: BTreeMap::new(),
            first_ms: BTreeMap::new(),
            best_forced: String::new(),
            over_best: 0.0,
            first_over_best: 0.0,
            auto_segments: BTreeMap::new(),
            wire_bytes_of: BTreeMap::new(),
            node_cpu_ms_of: BTreeMap::new(),
            bounced: 0,
        }
    }

    const ALL: Conditions = Conditions { cpu_share_percent: 100, wire_mb_per_s: None };

    #[test]
    fn auto_is_compared_with_the_best_median_and_first_runs_are_kept_apart() {
        let mut runs = Runs::default();
        for (policy, times) in [
            (Policy::RemoteFetch, [90, 20, 22, 24]),
            (Policy::RemoteProcess, [80, 10, 40, 10]),
            (Policy::Auto, [30, 11, 12, 90]),
        ] {
            for (turn, ms) in times.into_iter().enumerate() {
                runs.push(policy, turn > 0, run(ms, 7)).expect("equal rows");
            }
        }
        let line = runs.line(blank(ScanQuery::Rows, 0.5, ALL));
        assert_eq!((line.best_forced.as_str(), line.over_best), ("remote-process", 1.2));
        assert_eq!((line.first_over_best, line.rows), (3.0, 7));
        assert_eq!(line.ms["auto"], [11.0, 12.0, 90.0]);
        let other = PlacementLine { over_best: 1.01, first_over_best: 1.0, ..line.clone() };
        let all = summary(&[other, line]).expect("two lines");
        assert_eq!((all.worst, all.within_goal), ((1.2, 1), 1));
        assert_eq!((all.first_median, all.first_worst), (2.0, 3.0));
        assert_eq!(summary(&[]), None);
    }

    #[test]
    fn answers_of_two_sizes_are_no_times() {
        let mut runs = Runs::default();
        runs.push(Policy::RemoteFetch, false, run(1, 5)).expect("the first");
        let error = runs.push(Policy::Auto, false, run(1, 6)).expect_err("another size");
        assert!(error.contains("auto returned 6 rows, expected 5, which remote-fetch returned"), "{error}");
    }
}
