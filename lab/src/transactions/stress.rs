//! Checks that a cluster keeps its isolation level while its nodes are killed and restarted.
//!
//! ```text
//! survey     reads all keys before anything else
//! sessions   read and write few keys, so that transactions conflict
//! strikes    meanwhile: kill a node, restart it, kill another one, ...
//! restart    of the node that is down, if any, when the sessions have ended
//! survey     reads all keys again
//! check      of everything that sessions and surveys have read and written
//! ```
//!
//! A strike is the kill or the restart of a node. The caller carries out strikes; their times and
//! nodes follow from the seed. The time between two strikes is a number of transactions, so that a
//! slow machine has as many strikes as a fast one. Sessions are threads, so runs of one seed are
//! similar but not identical.
//!
//! Invariants
//! - Everything is recorded and checked, from the first survey to the last one, including the reads
//!   of the surveys.
//! - At most one node is down at a time, for a limited time, and none when the run ends.
//! - A run ends at its maximum number of transactions, at its maximum duration, when the caller
//!   stops it, or when a session cannot be opened again.
//! - The seed is reported before anything else happens.

use super::driver::{Measured, RunError, run_on};
use super::options::RunOptions;
use super::recorder::{Checked, Ledger, Order, TooManyUnknown};
use super::store::OpenSession;
use super::survey::{SurveyError, survey};
use super::workload::{Choice, Mix, Span, Workload};
use crate::drive::Bounds;
use crate::limits::RECORDED_OPERATIONS_MAX;
use crate::record::Provenance;
use serde::Serialize;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

/// How often to check whether a strike is due.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// What happens to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strike {
    /// It is killed, without a shutdown request.
    Kill {
        /// Number of the node, from 0.
        node: u32,
    },
    /// It is started again, with what is on its disk. Returns when it is reachable.
    Restart {
        /// Number of the node, from 0.
        node: u32,
    },
}

/// Carries out a strike, or says why it could not.
pub type Chaos<'a> = dyn FnMut(Strike) -> Result<(), String> + Send + 'a;

/// One stress run.
#[derive(Clone, Copy, Debug)]
pub struct Stress<'a> {
    /// Number of threads, each with a session.
    pub threads: u32,
    /// Number of keys; few, so that transactions conflict.
    pub keys: u32,
    /// Keys per transaction.
    pub size: Span,
    /// Bytes of each value; a range, so that values outgrow their slots.
    pub value_bytes: Span,
    /// Share of read transactions, from 0 to 1.
    pub read_share: f64,
    /// Distribution of the keys.
    pub choice: Choice,
    /// Nodes that may be killed; 0 for none.
    pub nodes: u32,
    /// Transactions, of all sessions together, between two strikes.
    pub between_strikes: Span,
    /// A node that is down is started again after this time, however few transactions there were.
    pub down_max: Duration,
    /// Transactions of all sessions together.
    pub transactions_max: u64,
    /// Maximum duration.
    pub duration_max: Duration,
    /// Seed of all random choices.
    pub seed: u64,
    /// How long to retry opening a failed session, and the surveys: longer than a node is down.
    pub patience: Duration,
    /// Set by the caller to end the run early.
    pub stop: &'a AtomicBool,
}

/// Result of a stress run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StressOutcome {
    /// The seed, which repeats the run as far as threads allow.
    pub seed: String,
    /// Transactions that succeeded.
    pub transactions: u64,
    /// Keys that they read and wrote.
    pub operations: u64,
    /// Transactions that failed, by kind.
    pub failures: BTreeMap<&'static str, u64>,
    /// Sessions that were opened again.
    pub reopened: u64,
    /// Nodes that were killed.
    pub kills: u64,
    /// Nodes that were started again.
    pub restarts: u64,
    /// Result of the check.
    pub checked: Checked,
    /// Seconds that sessions ran.
    pub seconds: f64,
    /// The failure that ended it early.
    pub failure: Option<String>,
}

/// Why a stress run cannot begin, or why its history is not known.
#[derive(Debug, thiserror::Error)]
pub enum StressError {
    /// It cannot begin.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The current values could not be read.
    #[error(transparent)]
    Survey(#[from] SurveyError),
    /// Too many outcomes are unknown.
    #[error(transparent)]
    Unknown(#[from] TooManyUnknown),
    /// Strikes that are not possible.
    #[error(
        "{least} to {most} transactions between two kills are not possible; expected a minimum of at least 1, and a maximum not below it"
    )]
    Strikes {
        /// The minimum.
        least: u32,
        /// The maximum.
        most: u32,
    },
}

/// Why a stress run did not pass.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StressFailure {
    /// The store violated its isolation level.
    #[error(
        "the isolation level was violated: {count} violations with seed {seed}; please report this; the first: {first}"
    )]
    Violated {
        /// Number of violations.
        count: u64,
        /// The seed of the run.
        seed: String,
        /// Description of one violation.
        first: String,
    },
    /// It ended early.
    #[error("the stress run with seed {seed} ended early: {why}")]
    Early {
        /// The seed of the run.
        seed: String,
        /// The cause.
        why: String,
    },
}

/// The line of a stress run.
#[derive(Clone, Debug, Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    provenance: &'a Provenance,
    #[serde(flatten)]
    outcome: &'a StressOutcome,
}

impl StressOutcome {
    /// Checks that the store kept its isolation level until the end.
    ///
    /// # Errors
    /// [`StressFailure`]: a violation takes precedence.
    pub fn verdict(&self) -> Result<(), StressFailure> {
        let seed = || self.seed.clone();
        if self.checked.violated() > 0 {
            let first = self.checked.first.first().cloned().unwrap_or_default();
            return Err(StressFailure::Violated { count: self.checked.violated(), seed: seed(), first });
        }
        self.failure.clone().map_or(Ok(()), |why| Err(StressFailure::Early { seed: seed(), why }))
    }

    /// One line of JSON.
    #[must_use]
    pub fn line(&self, provenance: &Provenance) -> String {
        serde_json::to_string(&Line { provenance, outcome: self }).unwrap_or_default()
    }
}

/// Runs the stress test. `chaos` is called on a thread of its own; `on_step` receives the seed and
/// what happens.
///
/// # Errors
/// [`StressError`]. Violations and early ends are in the outcome; see [`StressOutcome::verdict`].
pub fn stress(
    stress: &Stress<'_>,
    open: &OpenSession<'_>,
    chaos: &mut Chaos<'_>,
    on_step: &mut dyn FnMut(&str),
) -> Result<StressOutcome, StressError> {
    let Stress { between_strikes: Span { least, most }, keys, patience, .. } = *stress;
    if !(1..=most).contains(&least) {
        return Err(StressError::Strikes { least, most });
    }
    stress.run().workload.check().map_err(RunError::from)?;
    let seed = format!("{:#018x}", stress.seed);
    on_step(&format!("seed {seed}"));
    let order = Order::default();
    let ledger = Ledger::on(survey(keys, patience, open, &order)?.into_ground());
    on_step("sessions read and write, nodes are killed");
    let over = AtomicBool::new(false);
    let (ran, struck) = std::thread::scope(|scope| {
        let strikes = Strikes { stress, order: &order, over: &over, done: Struck::default(), down: None };
        let strikes = scope.spawn(|| strikes.run(chaos));
        let ran = run_on(&stress.run(), open, &order, Some(ledger));
        over.store(true, Ordering::Relaxed);
        let gone = |_| Struck {
            failure: Some(
                "the thread that kills and restarts nodes has panicked; please report this".to_owned(),
            ),
            ..Struck::default()
        };
        (ran, strikes.join().unwrap_or_else(gone))
    });
    let (measured, ledger) = ran?;
    let mut ledger = ledger.unwrap_or_default();
    on_step("all nodes are up: reading all keys");
    ledger.check(vec![survey(keys, patience, open, &order)?])?;
    Ok(outcome(seed, &measured, struck, ledger.into_checked()))
}

fn outcome(seed: String, measured: &Measured, struck: Struck, checked: Checked) -> StressOutcome {
    let counters = &measured.counters;
    StressOutcome {
        seed,
        transactions: counters.transactions,
        operations: counters.operations,
        failures: counters.failures.clone(),
        reopened: counters.reopened,
        kills: struck.kills,
        restarts: struck.restarts,
        checked,
        seconds: counters.elapsed.as_secs_f64(),
        failure: struck.failure.or_else(|| measured.failure.clone()),
    }
}

impl<'a> Stress<'a> {
    fn run(&self) -> RunOptions<'a> {
        let mix = Mix::Micro { read_share: self.read_share };
        let Self { choice, keys, size, value_bytes, threads, .. } = *self;
        let count = self.transactions_max.div_ceil(u64::from(threads.max(1)));
        RunOptions {
            workload: Workload { mix, choice, keys, size, value_bytes },
            threads,
            warm_up: Duration::ZERO,
            bounds: Bounds { duration: self.duration_max, count_max: Some(count) },
            seed: self.seed,
            check: true,
            recorded_max: RECORDED_OPERATIONS_MAX,
            peers: &[],
            patience: self.patience,
            stop: self.stop,
        }
    }
}

#[derive(Debug, Default)]
struct Struck {
    kills: u64,
    restarts: u64,
    failure: Option<String>,
}

/// Strikes nodes while sessions run.
struct Strikes<'s> {
    stress: &'s Stress<'s>,
    order: &'s Order,
    /// Whether sessions have ended.
    over: &'s AtomicBool,
    done: Struck,
    /// The node that is down, and since when.
    down: Option<(u32, Instant)>,
}

impl Strikes<'_> {
    fn run(mut self, chaos: &mut Chaos<'_>) -> Struck {
        let mut random = fastrand::Rng::with_seed(self.stress.seed ^ 0xC4A0_5C4A_05C4_A05C);
        while self.stress.nodes > 0 && self.done.failure.is_none() && self.wait(&mut random) {
            match self.down.take() {
                Some((node, _)) => self.restart(node, chaos),
                None => {
                    let node = random.u32(..self.stress.nodes);
                    match chaos(Strike::Kill { node }) {
                        Ok(()) => self.done.kills += 1,
                        Err(why) => self.failed("killed", node, &why),
                    }
                    self.down = Some((node, Instant::now()));
                }
            }
        }
        if let Some((node, _)) = self.down.take() {
            self.restart(node, chaos);
        }
        self.done
    }

    fn restart(&mut self, node: u32, chaos: &mut Chaos<'_>) {
        match chaos(Strike::Restart { node }) {
            Ok(()) => self.done.restarts += 1,
            Err(why) => self.failed("started again", node, &why),
        }
    }

    fn failed(&mut self, what: &str, node: u32, why: &str) {
        let words = format!("node {node} could not be {what}: {why}");
        self.done.failure.get_or_insert(words);
    }

    /// Waits until the next strike is due. Returns whether there is one.
    fn wait(&self, random: &mut fastrand::Rng) -> bool {
        let moments = 2 * u64::from(self.stress.between_strikes.draw(random));
        let due = self.order.taken() + moments;
        loop {
            if self.over.load(Ordering::Relaxed) {
                return false;
            }
            let long_down = self.down.is_some_and(|(_, since)| since.elapsed() >= self.stress.down_max);
            if self.order.taken() >= due || long_down {
                return true;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        nearby::Nearby,
        store::{Failure, ReadDone, TransactionStore, WriteFailure},
    };
    use super::*;
    use rackscan_ramp::{
        algorithm::Algorithm,
        item::{Key, Value},
        timestamp::Timestamp,
    };
    use std::sync::Mutex;

    fn a_stress(seed: u64, stop: &AtomicBool) -> Stress<'_> {
        Stress {
            threads: 4,
            keys: 16,
            size: Span { least: 1, most: 6 },
            value_bytes: Span { least: 8, most: 700 },
            read_share: 0.5,
            choice: Choice::Uniform,
            nodes: 3,
            between_strikes: Span { least: 20, most: 200 },
            down_max: Duration::from_millis(20),
            transactions_max: 1500,
            duration_max: Duration::from_secs(300),
            seed,
            patience: Duration::from_secs(60),
            stop,
        }
    }

    fn strike(nearby: &Nearby, strike: Strike) {
        match strike {
            Strike::Kill { node } => nearby.kill(node as usize),
            Strike::Restart { node } => nearby.start(node as usize),
        }
    }

    #[test]
    fn nodes_that_are_killed_and_started_again_break_no_promise_of_ramp_or_locking() {
        // The number of strikes, and what they hit, depends on how often each thread gets a
        // processor, so it is counted over all four runs.
        let (mut kills, mut failures, mut reopened) = (0, 0, 0);
        for algorithm in [Algorithm::Fast, Algorithm::Small, Algorithm::Hybrid, Algorithm::Locking] {
            let (nearby, stop, strikes) =
                (Nearby::new(algorithm, 3), AtomicBool::new(false), Mutex::new(Vec::new()));
            let mut chaos = |what| {
                strike(&nearby, what);
                strikes.lock().unwrap().push(what);
                Ok(())
            };
            let mut steps = Vec::new();
            let of = a_stress(0x5eed, &stop);
            let open = |thread| Ok(Box::new(nearby.session(thread)) as Box<dyn TransactionStore + '_>);
            let outcome = stress(&of, &open, &mut chaos, &mut |step| steps.push(step.to_owned())).unwrap();
            assert_eq!(outcome.verdict(), Ok(()), "{algorithm}: {outcome:?}");
            assert_eq!(steps[0], "seed 0x0000000000005eed");
            assert_eq!(outcome.kills, outcome.restarts, "{outcome:?}");
            assert!(
                outcome.transactions > 100 && outcome.checked.operations > outcome.operations,
                "{outcome:?}"
            );
            kills += outcome.kills;
            failures += outcome.failures.values().sum::<u64>();
            reopened += outcome.reopened;
            for pair in strikes.lock().unwrap().chunks(2) {
                let (Strike::Kill { node }, Strike::Restart { node: again }) = (pair[0], pair[1]) else {
                    panic!("{pair:?}");
                };
                assert_eq!(node, again, "one node is down at a time");
            }
        }
        assert!(
            kills >= 4 && failures > 0 && reopened > 0,
            "{kills} deaths are felt: {failures}, {reopened}"
        );
    }

    #[test]
    fn a_store_without_concurrency_control_fails_and_the_seed_is_named() {
        let failed = (0..20).find_map(|seed| {
            let (nearby, stop) = (Nearby::new(Algorithm::None, 3), AtomicBool::new(false));
            let of = Stress { nodes: 0, keys: 12, ..a_stress(seed, &stop) };
            let open = |thread| Ok(Box::new(nearby.session(thread)) as Box<dyn TransactionStore + '_>);
            stress(&of, &open, &mut |_| unreachable!(), &mut |_| ()).unwrap().verdict().err()
        });
        let failed = failed.unwrap().to_string();
        // Without isolation, reads see partial transactions, and parts of attempts that were
        // repeated with a newer timestamp.
        let is_expected = ["fractured: read", "intermediate: read"].iter().any(|kind| failed.contains(kind));
        assert!(failed.contains("violations with seed 0x") && is_expected, "{failed}");
    }

    /// A session that drops a write and reports it as acknowledged.
    struct Forgetful<'n>(super::super::nearby::Session<'n>, u32);

    impl TransactionStore for Forgetful<'_> {
        fn read(&mut self, keys: &[Key]) -> Result<ReadDone, Failure> {
            self.0.read(keys)
        }

        fn write(&mut self, items: Vec<(Key, Value)>) -> Result<Timestamp, WriteFailure> {
            self.1 += 1;
            match self.1 {
                // Far in the future, so that no newer write hides it.
                7 => Ok(Timestamp { time: u64::MAX >> 4, client: rackscan_ramp::timestamp::ClientId(7) }),
                _ => self.0.write(items),
            }
        }
    }

    #[test]
    fn an_acknowledged_write_that_is_gone_at_the_end_is_a_violation() {
        let (nearby, stop) = (Nearby::new(Algorithm::Fast, 3), AtomicBool::new(false));
        let of = Stress { nodes: 0, threads: 1, transactions_max: 10, read_share: 0.0, ..a_stress(1, &stop) };
        let open =
            |thread| Ok(Box::new(Forgetful(nearby.session(thread), 0)) as Box<dyn TransactionStore + '_>);
        let outcome = stress(&of, &open, &mut |_| unreachable!(), &mut |_| ()).unwrap();
        assert!(
            outcome.checked.violations.contains_key("lost"),
            "only the last look can see it: {outcome:?}"
        );
    }

    #[test]
    fn a_node_that_does_not_come_back_fails_the_run_however_little_was_violated() {
        let (nearby, stop) = (Nearby::new(Algorithm::Fast, 3), AtomicBool::new(false));
        let of = a_stress(2, &stop);
        let open = |thread| Ok(Box::new(nearby.session(thread)) as Box<dyn TransactionStore + '_>);
        let mut chaos = |what| {
            strike(&nearby, what);
            match what {
                Strike::Kill { .. } => Ok(()),
                Strike::Restart { .. } => Err("its port is taken".to_owned()),
            }
        };
        let outcome = stress(&of, &open, &mut chaos, &mut |_| ()).unwrap();
        let failed = outcome.verdict().unwrap_err().to_string();
        assert!(failed.contains("could not be started again: its port is taken"), "{failed}");
        assert_eq!(outcome.kills, 1, "no further node was killed");
        let text = outcome.line(&Provenance::now("ramp-stress", 0.0));
        assert!(text.starts_with("{\"bench\":\"ramp-stress\"") && text.contains("\"kills\":1"), "{text}");
    }

    #[test]
    fn strikes_that_are_never_due_are_refused() {
        let stop = AtomicBool::new(false);
        let of = Stress { between_strikes: Span { least: 0, most: 5 }, ..a_stress(1, &stop) };
        let refused = stress(&of, &|_| unreachable!(), &mut |_| Ok(()), &mut |_| ()).unwrap_err();
        assert!(matches!(refused, StressError::Strikes { least: 0, most: 5 }));
    }
}
