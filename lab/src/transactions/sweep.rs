//! Measures all series under all conditions, in an order that makes the series comparable.
//!
//! ```text
//! for each point          a condition: workload, transaction size, read share, threads
//!   for each round
//!     for each series     a turn of an algorithm, operations and wire;
//!                         in reverse order in every second round
//! ```
//!
//! Invariants
//! - All series take their turn of a round before the next round begins, so that other load on the
//!   machine affects all of them.
//! - Before a turn, the keys are as the series itself would have written them: with its algorithm,
//!   in transactions of the point's size.
//! - A failed turn is described in the list of failures, and the other turns are still measured. If
//!   a sweep ends early, its lines contain the results until then.

use super::driver::{Measured, run};
use super::line::{Common, Durability, Operations, Point, Series, TransactionLine, Turns, line};
use super::load::{Load, load};
use super::options::RunOptions;
use super::store::{Failure, TransactionStore};
use super::workload::{Choice, Mix, Span, Workload, WorkloadError};
use crate::drive::Bounds;
use crate::experiment::Step;
use crate::limits::{
    RECORDED_OPERATIONS_MAX, SESSIONS_MAX, SWEEP_POINTS_MAX, SWEEP_ROUNDS_MAX, SWEEP_SERIES_MAX,
    WORDS_KEPT_MAX,
};
use crate::record::Provenance;
use rackscan_fabric::Wire;
use rackscan_ramp::algorithm::Algorithm;
use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// The clusters that a sweep measures on.
pub trait TransactionHost: Sync {
    /// Prepares everything for sessions of this series.
    ///
    /// # Errors
    /// A text: there is no such series here, or its nodes could not be started.
    fn begin(&mut self, series: &Series) -> Result<(), String>;

    /// Name of the keys' location: series with the same name share the keys. The name changes when
    /// nodes were started without them.
    fn place(&self, series: &Series) -> String;

    /// The process ids of its nodes.
    fn processes(&self, series: &Series) -> Vec<u32>;

    /// Opens a session, on the thread that uses it.
    ///
    /// # Errors
    /// It could not be opened.
    fn session(&self, series: &Series, thread: u32) -> Result<Box<dyn TransactionStore + '_>, Failure>;
}

/// The values to combine.
#[derive(Clone, Debug, PartialEq)]
pub struct Axes {
    /// The isolation algorithms.
    pub algorithms: Vec<Algorithm>,
    /// The operations.
    pub operations: Vec<Operations>,
    /// The wires.
    pub wires: Vec<Wire>,
    /// When writes are acknowledged.
    pub durabilities: Vec<Durability>,
    /// The workloads; the read share of `micro` is replaced by those below.
    pub mixes: Vec<Mix>,
    /// Distribution of the keys; `None` for that of the workload.
    pub choice: Option<Choice>,
    /// Keys per transaction.
    pub sizes: Vec<u32>,
    /// Shares of read transactions, for `micro`.
    pub read_shares: Vec<f64>,
    /// Numbers of threads.
    pub threads: Vec<u32>,
    /// Number of loaded keys.
    pub keys: u32,
    /// Bytes of each value.
    pub value_bytes: u32,
}

impl Axes {
    /// The series to compare. Locks work by messages only, so `s2pl` has no GET*.
    #[must_use]
    pub fn series(&self) -> Vec<Series> {
        let mut all = Vec::new();
        for wire in &self.wires {
            for algorithm in &self.algorithms {
                for operations in &self.operations {
                    for durability in &self.durabilities {
                        let (algorithm, operations, wire) = (*algorithm, *operations, *wire);
                        let locks_by_reading =
                            algorithm == Algorithm::Locking && operations == Operations::GetStar;
                        let series = Series { algorithm, operations, wire, durability: *durability };
                        if !locks_by_reading && !all.contains(&series) {
                            all.push(series);
                        }
                    }
                }
            }
        }
        all
    }

    /// The points to compare them at.
    #[must_use]
    pub fn points(&self) -> Vec<Point> {
        let mut all = Vec::new();
        for mix in &self.mixes {
            let mixes = match mix {
                Mix::Micro { .. } => {
                    self.read_shares.iter().map(|share| Mix::Micro { read_share: *share }).collect()
                }
                Mix::Ycsb(_) => vec![*mix],
            };
            for mix in mixes {
                for size in &self.sizes {
                    for threads in &self.threads {
                        let usual = if let Mix::Ycsb(core) = mix { core.choice() } else { Choice::Uniform };
                        let (choice, keys) = (self.choice.unwrap_or(usual), self.keys);
                        let (size, value_bytes) = (Span::of(*size), Span::of(self.value_bytes));
                        let workload = Workload { mix, choice, keys, size, value_bytes };
                        let point = Point { workload, threads: *threads };
                        if !all.contains(&point) {
                            all.push(point);
                        }
                    }
                }
            }
        }
        all
    }
}

/// One sweep.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// The series to compare.
    pub series: Vec<Series>,
    /// The points.
    pub points: Vec<Point>,
    /// Baselines that all series are divided by. A baseline that is not among the series gives no
    /// ratios.
    pub baselines: Vec<Series>,
    /// Turns of each series at each point.
    pub rounds: u32,
    /// Warm-up of each turn.
    pub warm_up: Duration,
    /// Bounds of the measured phase of each turn.
    pub bounds: Bounds,
    /// Number of threads that load keys.
    pub load_threads: u32,
    /// Seed of the transactions.
    pub seed: u64,
    /// Whether histories are recorded and checked.
    pub check: bool,
    /// How long to retry failed sessions, and transactions of a load.
    pub patience: Duration,
    /// Source of the figures.
    pub provenance: Provenance,
    /// Set by the caller to end the sweep early.
    pub stop: &'a AtomicBool,
}

/// Why a sweep is not possible.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// Nothing to measure, or too much.
    #[error(
        "a sweep of {series} series at {points} points in {rounds} rounds is not possible; expected 1 to {SWEEP_SERIES_MAX} series, \
         1 to {SWEEP_POINTS_MAX} points and 1 to {SWEEP_ROUNDS_MAX} rounds"
    )]
    Shape {
        /// Number of series.
        series: usize,
        /// Number of points.
        points: usize,
        /// Number of rounds.
        rounds: u32,
    },
    /// No threads, or too many.
    #[error("{found} threads are not possible; expected 1 to {SESSIONS_MAX}")]
    Threads {
        /// The number.
        found: u32,
    },
    /// The workload of a point is invalid.
    #[error("cannot measure {point}: {why}")]
    Workload {
        /// The point, as text.
        point: String,
        /// The cause.
        why: WorkloadError,
    },
}

/// Result of a sweep.
#[derive(Clone, Debug)]
pub struct SweepOutcome {
    /// A line for each series at each point that had a turn.
    pub lines: Vec<TransactionLine>,
    /// Descriptions of the first turns that failed or ended early.
    pub failures: Vec<String>,
    /// Whether the caller stopped it.
    pub stopped: bool,
}

impl SweepOutcome {
    /// Number of violations by algorithms that promise isolation: all but `none`.
    #[must_use]
    pub fn violated(&self) -> u64 {
        let promising = self.lines.iter().filter(|line| line.algorithm != Algorithm::None.name());
        promising.filter_map(|line| line.checked.as_ref()).map(super::Checked::violated).sum()
    }
}

/// Measures everything, until it is done or stopped.
///
/// # Errors
/// [`PlanError`]; nothing was measured.
pub fn sweep(
    plan: &Plan<'_>,
    host: &mut dyn TransactionHost,
    on_step: &mut dyn FnMut(&Step<'_>),
) -> Result<SweepOutcome, PlanError> {
    plan.check()?;
    let total = plan.points.len() * plan.series.len() * plan.rounds as usize;
    let mut this = Sweep { plan, host, loaded: HashMap::new(), failures: Vec::new(), done: 0, total };
    let mut lines = Vec::new();
    for point in &plan.points {
        let turns = this.point(point, on_step);
        let common = Common {
            provenance: &plan.provenance,
            seconds: plan.bounds.duration.as_secs_f64(),
            rounds: plan.rounds,
            partial: "turns are missing: some failed, or the sweep was asked to stop",
            baselines: &plan.baselines,
        };
        lines.extend(turns.iter().filter_map(|of| line(point, of, &turns, &common)));
    }
    let stopped = plan.stop.load(Ordering::Relaxed);
    Ok(SweepOutcome { lines, failures: this.failures, stopped })
}

impl Plan<'_> {
    fn check(&self) -> Result<(), PlanError> {
        let (series, points, rounds) = (self.series.len(), self.points.len(), self.rounds);
        let possible = (1..=SWEEP_SERIES_MAX).contains(&series)
            && (1..=SWEEP_POINTS_MAX).contains(&points)
            && (1..=SWEEP_ROUNDS_MAX).contains(&rounds);
        if !possible {
            return Err(PlanError::Shape { series, points, rounds });
        }
        for point in &self.points {
            let why = point.workload.check();
            why.map_err(|why| PlanError::Workload { point: point.to_string(), why })?;
        }
        let mut threads = self.points.iter().map(|point| point.threads).chain([self.load_threads]);
        let wrong = threads.find(|threads| !(1..=SESSIONS_MAX).contains(threads));
        wrong.map_or(Ok(()), |found| Err(PlanError::Threads { found }))
    }
}

/// The state of the keys of a place: which series wrote them, and in transactions of which size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ground {
    algorithm: Algorithm,
    size: Span,
    keys: u32,
    value_bytes: Span,
}

struct Sweep<'p, 'h> {
    plan: &'p Plan<'p>,
    host: &'h mut dyn TransactionHost,
    loaded: HashMap<String, Ground>,
    failures: Vec<String>,
    done: usize,
    total: usize,
}

impl Sweep<'_, '_> {
    fn point(&mut self, point: &Point, on_step: &mut dyn FnMut(&Step<'_>)) -> Vec<(Series, Turns)> {
        let mut all: Vec<(Series, Turns)> =
            self.plan.series.iter().map(|series| (*series, Vec::new())).collect();
        for round in 0..self.plan.rounds {
            if round % 2 == 1 {
                all.reverse();
            }
            for (series, turns) in &mut all {
                if self.plan.stop.load(Ordering::Relaxed) {
                    break;
                }
                match self.turn(point, series, round, on_step) {
                    Ok(measured) => {
                        if let Some(why) = &measured.failure {
                            self.failed(point, series, why);
                        }
                        turns.push((round, measured));
                    }
                    Err(why) => self.failed(point, series, &why),
                }
                self.done += 1;
            }
            if round % 2 == 1 {
                all.reverse();
            }
        }
        all
    }

    fn failed(&mut self, point: &Point, series: &Series, why: &str) {
        if self.failures.len() < WORDS_KEPT_MAX {
            self.failures.push(format!("{series}, {point}: {why}"));
        }
    }

    fn turn(
        &mut self,
        point: &Point,
        series: &Series,
        round: u32,
        on_step: &mut dyn FnMut(&Step<'_>),
    ) -> Result<Measured, String> {
        let (done, total, plan) = (self.done, self.total, self.plan);
        on_step(&Step { done, total, doing: &format!("{series}: getting ready") });
        self.host.begin(series)?;
        self.ground(point, series, on_step)?;
        on_step(&Step { done, total, doing: &format!("{series}, {point}") });
        let processes = self.host.processes(series);
        let of = RunOptions {
            workload: point.workload,
            threads: point.threads,
            warm_up: plan.warm_up,
            bounds: plan.bounds,
            // All series of a round get the same transactions.
            seed: plan.seed.wrapping_add(u64::from(round) << 32),
            check: plan.check,
            recorded_max: RECORDED_OPERATIONS_MAX,
            peers: &processes,
            patience: plan.patience,
            stop: plan.stop,
        };
        let host = &*self.host;
        run(&of, &|thread| host.session(series, thread)).map_err(|error| error.to_string())
    }

    /// Loads the keys, unless they are as this series would have written them.
    fn ground(
        &mut self,
        point: &Point,
        series: &Series,
        on_step: &mut dyn FnMut(&Step<'_>),
    ) -> Result<(), String> {
        let Workload { keys, size, value_bytes, .. } = point.workload;
        let ground = Ground { algorithm: series.algorithm, size, keys, value_bytes };
        let place = self.host.place(series);
        if self.loaded.get(&place) == Some(&ground) {
            return Ok(());
        }
        // If the load fails, the state of the keys is unknown.
        self.loaded.remove(&place);
        let (done, total, plan) = (self.done, self.total, self.plan);
        let of = Load {
            keys,
            value_bytes,
            per_transaction: size.most,
            threads: plan.load_threads,
            seed: plan.seed,
            patience: plan.patience,
            stop: plan.stop,
        };
        let mut hundredths = 0;
        let mut on_progress = |loaded: u64, of: u64| {
            if loaded * 100 / of.max(1) > hundredths {
                hundredths = loaded * 100 / of.max(1);
                let doing = format!("{series}: {loaded} of {of} keys are loaded");
                on_step(&Step { done, total, doing: &doing });
            }
        };
        let host = &*self.host;
        load(&of, &|thread| host.session(series, thread), &mut on_progress)
            .map_err(|error| error.to_string())?;
        self.loaded.insert(place, ground);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::nearby::Nearby;
    use super::super::workload::Core;
    use super::*;

    /// One cluster for each algorithm and wire; there is no `verbs`.
    #[derive(Default)]
    struct Clusters {
        clusters: HashMap<String, Nearby>,
        turns: Vec<String>,
    }

    impl TransactionHost for Clusters {
        fn begin(&mut self, series: &Series) -> Result<(), String> {
            if series.wire == Wire::Verbs {
                return Err("no adapter".to_owned());
            }
            self.turns.push(series.to_string());
            let new = || Nearby::new(series.algorithm, 2);
            self.clusters.entry(self.place(series)).or_insert_with(new);
            Ok(())
        }

        fn place(&self, series: &Series) -> String {
            format!("{} {}", series.algorithm, series.wire)
        }

        fn processes(&self, _series: &Series) -> Vec<u32> {
            vec![std::process::id()]
        }

        fn session(&self, series: &Series, thread: u32) -> Result<Box<dyn TransactionStore + '_>, Failure> {
            let cluster = self.clusters.get(&self.place(series)).unwrap();
            Ok(Box::new(cluster.session(thread)))
        }
    }

    fn axes() -> Axes {
        Axes {
            algorithms: vec![Algorithm::Fast, Algorithm::Locking],
            operations: vec![Operations::Get, Operations::GetStar],
            durabilities: vec![Durability::Replicas],
            wires: vec![Wire::Shm],
            mixes: vec![Mix::Micro { read_share: 0.0 }, Mix::Ycsb(Core::A)],
            choice: None,
            sizes: vec![2, 4],
            read_shares: vec![0.5, 1.0],
            threads: vec![2],
            keys: 40,
            value_bytes: 100,
        }
    }

    fn plan<'a>(axes: &Axes, stop: &'a AtomicBool) -> Plan<'a> {
        Plan {
            series: axes.series(),
            points: axes.points(),
            baselines: axes.series()[..1].to_vec(),
            rounds: 2,
            warm_up: Duration::ZERO,
            bounds: Bounds { duration: Duration::from_secs(300), count_max: Some(20) },
            load_threads: 2,
            seed: 5,
            check: true,
            patience: Duration::from_secs(10),
            provenance: Provenance::now("ramp", 0.0),
            stop,
        }
    }

    #[test]
    fn axes_are_combined_once_each_and_locks_are_not_read_one_sidedly() {
        let axes = axes();
        let series: Vec<String> = axes.series().iter().map(Series::to_string).collect();
        assert_eq!(series, ["ramp-fast get shm", "ramp-fast get* shm", "s2pl get shm"]);
        let points: Vec<String> = axes.points().iter().map(Point::to_string).collect();
        assert_eq!(points.len(), 6, "two shares and a core workload at two sizes: {points:?}");
        assert_eq!(points[0], "micro 50 % reads, uniform, 2 keys each, 2 threads");
        assert_eq!(points[5], "ycsb-a, zipfian, 4 keys each, 2 threads");
    }

    #[test]
    fn every_series_has_its_turn_of_a_round_before_the_next_round_begins() {
        let (stop, mut host) = (AtomicBool::new(false), Clusters::default());
        let axes = Axes { sizes: vec![2], read_shares: vec![0.5], ..axes() };
        let plan = plan(&axes, &stop);
        let mut steps = Vec::new();
        let outcome = sweep(&plan, &mut host, &mut |step| steps.push(step.doing.to_owned())).unwrap();
        let names: Vec<String> = plan.series.iter().map(Series::to_string).collect();
        let there: Vec<&String> = names.iter().chain(names.iter().rev()).collect();
        assert_eq!(host.turns.iter().collect::<Vec<_>>(), [there.clone(), there].concat());
        assert_eq!((outcome.lines.len(), outcome.failures.len(), outcome.violated()), (6, 0, 0));
        for line in &outcome.lines {
            assert_eq!((line.per_s.len(), line.absent, line.partial.as_ref()), (2, 0, None), "{line:?}");
            assert!(line.over["ramp-fast get shm"] > 0.0 && line.checked.is_some());
            assert_eq!(line.latency.count, 80);
        }
        let own = outcome.lines.iter().find(|line| line.series() == plan.baselines[0].to_string()).unwrap();
        assert!((own.over["ramp-fast get shm"] - 1.0).abs() < 1e-9);
        let loads = steps.iter().filter(|step| step.contains("40 of 40 keys"));
        assert_eq!(loads.count(), 2, "once for each cluster, because the size stays the same");
    }

    #[test]
    fn a_series_that_is_not_possible_is_named_and_the_others_are_measured() {
        let (stop, mut host) = (AtomicBool::new(false), Clusters::default());
        let wires = vec![Wire::Shm, Wire::Verbs];
        let axes = Axes { wires, mixes: vec![Mix::Ycsb(Core::C)], sizes: vec![2], ..axes() };
        let outcome = sweep(&plan(&axes, &stop), &mut host, &mut |_| ()).unwrap();
        assert_eq!(outcome.lines.len(), 3);
        assert_eq!(outcome.failures.len(), 6);
        assert!(outcome.failures[0].contains("verbs, ycsb-c") && outcome.failures[0].ends_with("no adapter"));
        stop.store(true, Ordering::Relaxed);
        let outcome = sweep(&plan(&axes, &stop), &mut host, &mut |_| ()).unwrap();
        assert!(outcome.stopped && outcome.lines.is_empty());
    }

    #[test]
    fn violations_of_none_are_counted_and_held_against_nobody() {
        let (stop, mut host) = (AtomicBool::new(false), Clusters::default());
        let axes = Axes { algorithms: vec![Algorithm::None], operations: vec![Operations::Get], ..axes() };
        let axes =
            Axes { mixes: axes.mixes[..1].to_vec(), keys: 16, sizes: vec![8], threads: vec![4], ..axes };
        let bounds = Bounds { duration: Duration::from_secs(300), count_max: Some(2000) };
        let of = Plan { bounds, rounds: 5, points: axes.points()[..1].to_vec(), ..plan(&axes, &stop) };
        let outcome = sweep(&of, &mut host, &mut |_| ()).unwrap();
        let counted = outcome
            .lines
            .iter()
            .filter_map(|line| line.checked.as_ref())
            .map(super::super::Checked::violated);
        assert!(counted.sum::<u64>() > 0 && outcome.violated() == 0);
    }

    #[test]
    fn impossible_sweeps_are_refused_with_their_numbers() {
        let (stop, mut host) = (AtomicBool::new(false), Clusters::default());
        let (axes, good) = (axes(), plan(&axes(), &stop));
        let shape = Plan { rounds: 0, ..good.clone() };
        assert_eq!(
            sweep(&shape, &mut host, &mut |_| ()).unwrap_err(),
            PlanError::Shape { series: 3, points: 6, rounds: 0 }
        );
        let threads = Plan { load_threads: 0, ..good.clone() };
        assert_eq!(sweep(&threads, &mut host, &mut |_| ()).unwrap_err(), PlanError::Threads { found: 0 });
        let points = Axes { sizes: vec![21], ..axes }.points();
        let why = sweep(&Plan { points, ..good }, &mut host, &mut |_| ()).unwrap_err().to_string();
        assert!(why.contains("21 keys each") && why.contains("out of 40"), "{why}");
    }
}
