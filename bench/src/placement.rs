//! How far is automatic placement from the best forced one, whatever share of rows passes, however
//! little processor time the nodes have and however narrow the wire is?
//!
//! Invariants
//! - The runs of all contenders of a point lie side by side, one turn forth and the next one back;
//!   medians count.
//! - A point's first turn does not count, because with it the engine gets to know new conditions;
//!   what `auto` took in it is kept.
//! - Between two runs nobody does anything for 120 ms: what a run has drawn from a quota of
//!   processor time or a bucket of tokens is no burden of the next.
//! - A contender that answers another number of rows than the first is an error, not a time.
//! - Whatever ends it early, the points that are whole are there.

mod line;
mod page;

pub use line::{PlacementLine, Summary, summary};
pub use page::report;

use crate::Provenance;
use line::Runs;
use rackscan_engine::{Engine, EngineError};
use rackscan_planner::Policy;
use serde::Serialize;
use std::{
    collections::BTreeMap,
    fmt,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

/// How often a running query looks whether it shall end.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// More than a period of a control group's quota, which is 100 ms.
const PAUSE: Duration = Duration::from_millis(120);
/// Keys of parts for each unit of scale; each of them stands in about 30 rows of lineitem, spread
/// evenly.
const PART_KEYS: f64 = 200_000.0;

/// What is asked of lineitem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ScanQuery {
    /// Four columns of the rows that pass.
    Rows,
    /// A sum over the rows that pass.
    Aggregate,
}

impl ScanQuery {
    /// Its text, with a predicate that lets this share of rows pass. Parts are spread evenly over
    /// rows, so zone maps can only help where all rows pass: there nobody reads the predicate's
    /// column.
    #[must_use]
    pub fn sql(self, selectivity: f64, scale: f64) -> String {
        let keys = (PART_KEYS * scale * selectivity).round().max(1.0);
        let wanted = match self {
            Self::Rows => "l_orderkey, l_extendedprice, l_discount, l_shipdate",
            Self::Aggregate => "sum(l_extendedprice * l_discount), count(*)",
        };
        format!("SELECT {wanted} FROM lineitem WHERE l_partkey <= {keys}")
    }
}

impl fmt::Display for ScanQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rows => "rows",
            Self::Aggregate => "aggregate",
        })
    }
}

/// What the nodes and the wire to them are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conditions {
    /// Of the processor time of all cores, for all nodes together.
    pub cpu_share_percent: u32,
    /// Megabytes (10^6) per second of the wire; `None` if it is as wide as it is.
    pub wire_mb_per_s: Option<u32>,
}

/// Who gives it to them.
pub trait Shaping {
    /// Makes it so, until it is called again.
    ///
    /// # Errors
    /// In words for people.
    fn shape(&mut self, conditions: Conditions) -> Result<(), String>;
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct PlacementOptions {
    /// The scale factor of the data that is loaded.
    pub scale: f64,
    /// Which queries.
    pub queries: Vec<ScanQuery>,
    /// Which shares of rows pass.
    pub selectivities: Vec<f64>,
    /// Which shares of processor time.
    pub cpu_shares: Vec<u32>,
    /// Which wires.
    pub wires: Vec<Option<u32>>,
    /// Whether the devices are attached to the engine's host, so that `local` takes part.
    pub attached: bool,
    /// Turns that count.
    pub repeat: u32,
    /// No point begins later than this.
    pub time_max: Duration,
    /// Threads of the engine, for the record.
    pub threads: usize,
}

impl PlacementOptions {
    /// The contenders.
    #[must_use]
    pub fn policies(&self) -> Vec<Policy> {
        Policy::ALL.into_iter().filter(|policy| self.attached || *policy != Policy::Local).collect()
    }

    /// All conditions, in the order in which they are measured: each is set once.
    fn conditions(&self) -> Vec<Conditions> {
        let of_wire = |wire: &Option<u32>| {
            let wire_mb_per_s = *wire;
            self.cpu_shares.iter().map(move |share| Conditions { cpu_share_percent: *share, wire_mb_per_s })
        };
        self.wires.iter().flat_map(of_wire).collect()
    }

    /// Points of the whole grid.
    #[must_use]
    pub fn points(&self) -> usize {
        self.wires.len() * self.cpu_shares.len() * self.queries.len() * self.selectivities.len()
    }
}

/// What is told before each run.
pub struct Step<'a> {
    /// Runs that are over.
    pub done: usize,
    /// All runs.
    pub total: usize,
    /// What is being done.
    pub doing: &'a str,
}

/// What was measured.
#[derive(Debug, Default)]
pub struct PlacementOutcome {
    /// A line for each point.
    pub lines: Vec<PlacementLine>,
    /// Why it ended before all points were measured.
    pub ended: Option<Ended>,
}

/// Why a sweep ended early.
#[derive(Debug)]
pub enum Ended {
    /// The user wanted an end.
    Stopped,
    /// There was no time left.
    NoTime,
    /// Something failed.
    Failed(String),
}

/// Why there is no time of a run.
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
    // The nodes end sooner with all they can have.
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

    /// Runs it and forgets its rows, as an operator above the scan would.
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

    /// Ready when the user wants an end.
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
    fn a_share_of_rows_becomes_a_share_of_parts() {
        let sql = ScanQuery::Aggregate.sql(0.01, 0.1);
        assert!(sql.ends_with("l_partkey <= 200"), "{sql}");
        let sql = ScanQuery::Rows.sql(0.0001, 0.01);
        assert!(sql.ends_with("l_partkey <= 1"), "at least one part: {sql}");
    }

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
