//! Compares automatic placement with the best forced one, under various selectivities, processor
//! shares of the nodes and bandwidths of the wire.
//!
//! A point is one combination of these conditions. Its contenders are `auto` and each forced
//! placement.
//!
//! Invariants
//! - The runs of all contenders of a point alternate, in reverse order in every second turn.
//!   Medians count.
//! - The first turn of a point does not count, because in it the engine learns the new conditions.
//!   The times of `auto` in it are kept.
//! - There is a pause of 120 ms between two runs, so that what a run has used up of a quota of
//!   processor time or of a token bucket does not slow down the next run.
//! - If a contender answers with another number of rows than the first one, the measurement reports
//!   an error, not a time.
//! - If the measurement ends early, the completed points are kept.

mod conditions;
mod line;
mod page;
mod query;

pub use conditions::{Conditions, Shaping};
pub use line::{PlacementLine, Summary, summary};
pub use page::report;
pub use query::ScanQuery;

use crate::Provenance;
use line::Runs;
use rackscan_engine::{Engine, EngineError};
use rackscan_lab::Step;
use rackscan_planner::Policy;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

/// How often a running query is checked for a stop.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// More than one period of a control group's quota, which is 100 ms.
const PAUSE: Duration = Duration::from_millis(120);

/// The measurement.
#[derive(Clone, Debug)]
pub struct PlacementOptions {
    /// Scale factor of the loaded data.
    pub scale: f64,
    /// The queries.
    pub queries: Vec<ScanQuery>,
    /// The selectivities.
    pub selectivities: Vec<f64>,
    /// The shares of processor time, in percent.
    pub cpu_shares: Vec<u32>,
    /// The bandwidths of the wire, in megabytes (10^6) per second; `None` without a limit.
    pub wires: Vec<Option<u32>>,
    /// Whether the devices are attached to the engine's host, which enables the placement `local`.
    pub attached: bool,
    /// Number of turns that count.
    pub repeat: u32,
    /// No point begins later than this.
    pub time_max: Duration,
    /// Threads of the engine, for the record.
    pub threads: usize,
}

impl PlacementOptions {
    /// The placements to compare.
    #[must_use]
    pub fn policies(&self) -> Vec<Policy> {
        Policy::ALL.into_iter().filter(|policy| self.attached || *policy != Policy::Local).collect()
    }

    /// All limits in the order of measuring: each combination is set once.
    fn conditions(&self) -> Vec<Conditions> {
        let of_wire = |wire: &Option<u32>| {
            let wire_mb_per_s = *wire;
            self.cpu_shares.iter().map(move |share| Conditions { cpu_share_percent: *share, wire_mb_per_s })
        };
        self.wires.iter().flat_map(of_wire).collect()
    }

    /// Number of points of the whole grid.
    #[must_use]
    pub fn points(&self) -> usize {
        self.wires.len() * self.cpu_shares.len() * self.queries.len() * self.selectivities.len()
    }
}

/// Result of the measurement.
#[derive(Debug, Default)]
pub struct PlacementOutcome {
    /// A line for each point.
    pub lines: Vec<PlacementLine>,
    /// Why it ended before all points were measured.
    pub ended: Option<Ended>,
}

/// Why a measurement ended early.
#[derive(Debug)]
pub enum Ended {
    /// The user stopped it.
    Stopped,
    /// The time was over.
    NoTime,
    /// Something failed.
    Failed(String),
}

/// Why a run has no time.
enum NoRun {
    Stopped,
    Failed(String),
}

/// Measures the grid.
pub async fn run(
    engine: &Engine,
    shaping: &mut dyn Shaping,
    options: &PlacementOptions,
    stop: &AtomicBool,
    progress: &mut (dyn FnMut(&Step<'_>) + Send),
) -> PlacementOutcome {
    let mut outcome = PlacementOutcome::default();
    let sweep = Sweep { engine, options, stop, started: Instant::now() };
    outcome.ended = sweep.run(shaping, &mut outcome.lines, progress).await.err();
    // Without limits, the nodes end sooner.
    let all = Conditions { cpu_share_percent: 100, wire_mb_per_s: None };
    if let Err(text) = shaping.shape(all)
        && outcome.ended.is_none()
    {
        outcome.ended = Some(Ended::Failed(text));
    }
    outcome
}

struct Sweep<'a> {
    engine: &'a Engine,
    options: &'a PlacementOptions,
    stop: &'a AtomicBool,
    started: Instant,
}

impl Sweep<'_> {
    async fn run(
        &self,
        shaping: &mut dyn Shaping,
        lines: &mut Vec<PlacementLine>,
        progress: &mut (dyn FnMut(&Step<'_>) + Send),
    ) -> Result<(), Ended> {
        let Self { options, .. } = self;
        let turns = options.repeat + 1;
        let runs_of_point = options.policies().len() * turns as usize;
        let total = options.points() * runs_of_point;
        for conditions in options.conditions() {
            shaping.shape(conditions).map_err(Ended::Failed)?;
            for query in &options.queries {
                for selectivity in &options.selectivities {
                    if self.started.elapsed() > options.time_max {
                        return Err(Ended::NoTime);
                    }
                    let begun = lines.len() * runs_of_point;
                    let mut on_run = |run: usize, doing: &str| {
                        progress(&Step { done: begun + run, total, doing });
                    };
                    let sql = query.sql(*selectivity, options.scale);
                    let runs = self.point(&sql, turns, &mut on_run).await.map_err(|error| match error {
                        NoRun::Stopped => Ended::Stopped,
                        NoRun::Failed(text) => Ended::Failed(format!("{sql}: {text}")),
                    })?;
                    lines.push(runs.line(self.common(*query, *selectivity, conditions, sql)));
                }
            }
        }
        Ok(())
    }

    async fn point(
        &self,
        sql: &str,
        turns: u32,
        on_run: &mut (dyn FnMut(usize, &str) + Send),
    ) -> Result<Runs, NoRun> {
        let mut policies = self.options.policies();
        let mut runs = Runs::default();
        for turn in 0..turns {
            for (place, policy) in policies.iter().enumerate() {
                on_run(turn as usize * policies.len() + place, &format!("{policy}: {sql}"));
                tokio::time::sleep(PAUSE).await;
                let run = tokio::select! {
                    run = self.once(sql, *policy) => run.map_err(|error| NoRun::Failed(format!("{policy}: {error}"))),
                    () = self.stopped() => Err(NoRun::Stopped),
                }?;
                runs.push(*policy, turn > 0, run).map_err(NoRun::Failed)?;
            }
            policies.reverse();
        }
        Ok(runs)
    }

    /// Runs the query and drops its rows, as an operator above the scan would.
    async fn once(&self, sql: &str, policy: Policy) -> Result<line::Run, EngineError> {
        self.engine.set_policy(policy);
        let mut stream = self.engine.stream(sql).await?;
        let mut rows = 0;
        while let Some(batch) = stream.next().await? {
            rows += batch.num_rows() as u64;
        }
        let report = stream.report();
        Ok(line::Run { elapsed: report.elapsed, rows, figures: report.total })
    }

    /// Completes when the user stops the measurement.
    async fn stopped(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn common(
        &self,
        query: ScanQuery,
        selectivity: f64,
        conditions: Conditions,
        sql: String,
    ) -> PlacementLine {
        let statuses = self.engine.cluster().statuses();
        PlacementLine {
            provenance: Provenance::now("placement", self.options.scale),
            query,
            sql,
            selectivity,
            rows_share: 0.0,
            rows: 0,
            cpu_share_percent: conditions.cpu_share_percent,
            wire_mb_per_s: conditions.wire_mb_per_s,
            nodes: statuses.len(),
            threads: self.options.threads,
            attached: self.options.attached,
            node_cache_bytes: statuses.iter().map(|node| node.cache.budget_bytes).sum(),
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_takes_part_only_where_devices_are_attached() {
        let mut options = PlacementOptions {
            scale: 1.0,
            queries: vec![ScanQuery::Rows, ScanQuery::Aggregate],
            selectivities: vec![0.1, 0.2, 0.3],
            cpu_shares: vec![10, 100],
            wires: vec![Some(50), None],
            attached: false,
            repeat: 1,
            time_max: Duration::from_secs(1),
            threads: 2,
        };
        assert_eq!(options.policies(), [Policy::RemoteFetch, Policy::RemoteProcess, Policy::Auto]);
        options.attached = true;
        assert!(options.policies().contains(&Policy::Local));
        assert_eq!(options.points(), 24);
        assert_eq!(options.conditions().len(), 4);
        assert_eq!(options.conditions()[1], Conditions { cpu_share_percent: 100, wire_mb_per_s: Some(50) });
    }
}
