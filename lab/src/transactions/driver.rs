//! Runs transactions on sessions, measures them, and optionally checks what they read.
//!
//! ```text
//! survey            all keys are read; only if the history is checked
//! warm-up           sessions run, nothing is counted
//! measured phase    leg, check, leg, check, ...
//! ```
//!
//! A leg is a part of a phase, after which the history so far is checked. A phase is a single leg,
//! unless its records outgrow their memory. Each session begins its next transaction when the
//! previous one has ended (a closed loop). If the history is checked, everything since the survey
//! is recorded, including the warm-up. The time of checks is not measured, but recording slows the
//! sessions down a little, and lines say that it was on.
//!
//! Invariants
//! - Every session waits for an order before each leg and reports after it, so that no transaction
//!   is in flight while a history is checked.
//! - Samples of processor time enclose exactly the measured legs.
//! - If a run ends early, it returns the results until then.

use az::SaturatingAs;

use super::counters::Counters;
use super::options::RunOptions;
use super::recorder::{Checked, Ledger, Order, Recorder};
use super::session::{Leg, Session, Shared, Went, most_keys};
use super::store::{Failure, OpenSession};
use super::survey::{SurveyError, survey};
use super::workload::{Inserts, WorkloadError, key_name};
use crate::cpu::CpuSample;
use crate::drive::Bounds;
use crate::limits::SESSIONS_MAX;
use std::{
    sync::{
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, Instant},
};

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Counters of all sessions.
    pub counters: Counters,
    /// Transactions per second.
    pub per_s: f64,
    /// Keys read and written per second.
    pub operations_per_s: f64,
    /// Processor time of this process in the measured phase.
    pub own_cpu: Duration,
    /// Processor time of the nodes, unless one of them ended.
    pub peers_cpu: Option<Duration>,
    /// Result of the check, if there was one.
    pub checked: Option<Checked>,
    /// The failure that ended the run early.
    pub failure: Option<String>,
    /// Whether the caller stopped it.
    pub stopped: bool,
}

/// Why a run cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The workload is invalid.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// No sessions, or too many.
    #[error("{found} sessions are not possible; expected 1 to {SESSIONS_MAX}")]
    Sessions {
        /// The number.
        found: u32,
    },
    /// Recorders without space for one transaction of each session.
    #[error(
        "the records of all sessions have room for {found} keys, expected at least {least}: one transaction of each session"
    )]
    Room {
        /// Operations that they may record.
        found: usize,
        /// The minimum.
        least: usize,
    },
    /// A session cannot be opened.
    #[error("the session of thread {thread} could not be opened: {failure}")]
    Session {
        /// Number of the thread.
        thread: u32,
        /// The cause.
        failure: Failure,
    },
    /// A thread could not be started.
    #[error("cannot start the thread of session {thread}: {source}")]
    Thread {
        /// Number of the thread.
        thread: u32,
        /// The system's error.
        source: std::io::Error,
    },
    /// The current values could not be read, which a check needs.
    #[error(transparent)]
    Survey(#[from] SurveyError),
}

/// Runs transactions on sessions that `open` opens. The keys must have been loaded
/// ([`super::load`]).
///
/// # Errors
/// [`RunError`] if it cannot begin. Later failures are in [`Measured::failure`], violations in
/// [`Measured::checked`].
pub fn run(run: &RunOptions<'_>, open: &OpenSession<'_>) -> Result<Measured, RunError> {
    let order = Order::default();
    let ledger = match run.check {
        true => Some(Ledger::on(survey(run.workload.keys, run.patience, open, &order)?.into_ground())),
        false => None,
    };
    let (mut measured, ledger) = run_on(run, open, &order, ledger)?;
    measured.checked = ledger.map(Ledger::into_checked);
    Ok(measured)
}

/// Like [`run`], with a history that began before and may continue afterwards.
pub(super) fn run_on(
    run: &RunOptions<'_>,
    open: &OpenSession<'_>,
    order: &Order,
    ledger: Option<Ledger>,
) -> Result<(Measured, Option<Ledger>), RunError> {
    run.workload.check()?;
    if !(1..=SESSIONS_MAX).contains(&run.threads) {
        return Err(RunError::Sessions { found: run.threads });
    }
    let least = most_keys(&run.workload).saturating_mul(run.threads.saturating_as::<usize>());
    if run.check && run.recorded_max < least {
        return Err(RunError::Room { found: run.recorded_max, least });
    }
    let shared = Shared::new(run, open, order);
    std::thread::scope(|scope| {
        let mut team = Vec::new();
        for thread in 0..run.threads {
            let (orders, for_orders) = channel();
            let (reports, for_reports) = channel();
            let shared = &shared;
            let work = move || member(shared, thread, &for_orders, &reports);
            let builder = std::thread::Builder::new().name(format!("session {thread}"));
            builder.spawn_scoped(scope, work).map_err(|source| RunError::Thread { thread, source })?;
            team.push(Member { orders, reports: for_reports });
        }
        for (thread, member) in (0..).zip(&team) {
            if let Ok(Report::Refused(failure)) = member.reports.recv() {
                return Err(RunError::Session { thread, failure });
            }
        }
        let mut lead = Lead { shared: &shared, team, ledger };
        let measured = lead.measure();
        Ok((measured, lead.ledger))
    })
}

/// Counts the runs of this process, so that each has tokens of its own.
static EPOCHS: AtomicU32 = AtomicU32::new(1);

/// A number that no other run of this process has.
pub(super) fn epoch() -> u32 {
    EPOCHS.fetch_add(1, Ordering::Relaxed)
}

impl<'r, 'a> Shared<'r, 'a> {
    fn new(run: &'r RunOptions<'r>, open: &'r OpenSession<'a>, order: &'r Order) -> Self {
        let workload = run.workload;
        let mut in_order: Vec<u32> = Vec::new();
        if workload.mix.scans() {
            in_order.extend(0..workload.keys);
            in_order.sort_by_cached_key(|number| key_name(*number));
        }
        let mut place_of = vec![0; in_order.len()];
        for (place, number) in (0..).zip(&in_order) {
            if let Some(of) = usize::try_from(*number).ok().and_then(|number| place_of.get_mut(number)) {
                *of = place;
            }
        }
        let inserts = Inserts::after(workload.keys, run.threads);
        Self { run, open, order, inserts, epoch: epoch(), over: AtomicBool::new(false), in_order, place_of }
    }
}

/// The leader's handle of a session. Dropping it ends the thread.
struct Member {
    orders: Sender<Leg>,
    reports: Receiver<Report>,
}

enum Report {
    Ready,
    Refused(Failure),
    Went(Box<Went>),
}

/// The main function of a session's thread.
fn member(shared: &Shared<'_, '_>, thread: u32, orders: &Receiver<Leg>, reports: &Sender<Report>) {
    let mut session = match Session::open(shared, thread) {
        Ok(session) => session,
        Err(failure) => {
            // The leader waits for this before it does anything else.
            let _sent = reports.send(Report::Refused(failure));
            return;
        }
    };
    if reports.send(Report::Ready).is_err() {
        return;
    }
    for leg in orders {
        if reports.send(Report::Went(Box::new(session.leg(leg)))).is_err() {
            return;
        }
    }
}

struct Lead<'s, 'r, 'a> {
    shared: &'s Shared<'r, 'a>,
    team: Vec<Member>,
    ledger: Option<Ledger>,
}

#[derive(Default)]
struct Phase {
    counters: Counters,
    legs: u32,
    own_cpu: Duration,
    peers_cpu: Option<Duration>,
    failure: Option<String>,
}

impl Lead<'_, '_, '_> {
    fn measure(&mut self) -> Measured {
        let run = self.shared.run;
        let mut failure = None;
        if !run.warm_up.is_zero() {
            failure = self.phase(Bounds { duration: run.warm_up, count_max: None }).failure;
        }
        let mut phase = match failure {
            Some(failure) => Phase { failure: Some(failure), ..Phase::default() },
            None => self.phase(run.bounds),
        };
        let stopped = run.stop.load(Ordering::Relaxed);
        let whole = phase.legs == 1 && phase.failure.is_none() && !stopped && run.bounds.count_max.is_none();
        let (counted, time) = match whole {
            true => (phase.counters.in_time, run.bounds.duration),
            false => (phase.counters.transactions, phase.counters.elapsed),
        };
        let per_s = rate(counted, time);
        let operations_per_s = per_s * rate(phase.counters.operations, Duration::from_secs(1))
            / rate(phase.counters.transactions.max(1), Duration::from_secs(1));
        Measured {
            per_s,
            operations_per_s,
            own_cpu: phase.own_cpu,
            peers_cpu: phase.peers_cpu,
            checked: None,
            failure: phase.failure.take(),
            stopped,
            counters: phase.counters,
        }
    }

    /// Runs as many legs as the phase needs.
    fn phase(&mut self, bounds: Bounds) -> Phase {
        let run = self.shared.run;
        let room = run.recorded_max / self.team.len().max(1);
        let mut phase = Phase { peers_cpu: Some(Duration::ZERO), ..Phase::default() };
        loop {
            self.shared.over.store(false, Ordering::Relaxed);
            let duration = bounds.duration.saturating_sub(phase.counters.elapsed);
            let bounds = Bounds { duration, ..bounds };
            let leg = Leg { bounds, first: phase.legs == 0, room: run.check.then_some(room) };
            let before = cpu(run.peers);
            let (went, gone) = self.leg(leg);
            let after = cpu(run.peers);
            phase.own_cpu += used(&before[..1], &after[..1]).unwrap_or_default();
            phase.peers_cpu =
                phase.peers_cpu.zip(used(&before[1..], &after[1..])).map(|(sum, more)| sum + more);
            phase.legs += 1;
            let finished = self.count(went, &mut phase);
            if gone {
                phase.failure.get_or_insert_with(|| {
                    "the thread of a session has panicked; please report this".to_owned()
                });
            }
            if finished || phase.failure.is_some() || run.stop.load(Ordering::Relaxed) {
                return phase;
            }
        }
    }

    /// Runs one leg on all sessions. Also returns whether a session's thread has ended.
    fn leg(&self, leg: Leg) -> (Vec<Went>, bool) {
        for member in &self.team {
            // The missing report of an ended thread is noticed below.
            let _sent = member.orders.send(leg);
        }
        let went: Vec<Went> = self
            .team
            .iter()
            .filter_map(|member| match member.reports.recv() {
                Ok(Report::Went(went)) => Some(*went),
                _ => None,
            })
            .collect();
        let gone = went.len() < self.team.len();
        (went, gone)
    }

    /// Adds the counters. Returns whether all sessions have reached the bounds of the phase.
    fn count(&mut self, went: Vec<Went>, phase: &mut Phase) -> bool {
        let (mut counters, mut recorders, mut finished) = (Counters::default(), Vec::new(), true);
        for went in went {
            counters.add(&went.counters);
            recorders.extend(went.recorder);
            finished &= went.finished;
            if let Some(failure) = went.broken {
                phase.failure.get_or_insert(failure.why);
            }
        }
        phase.counters.follow(&counters);
        if let Err(error) = self.checked(recorders) {
            phase.failure.get_or_insert(error);
        }
        finished
    }

    fn checked(&mut self, recorders: Vec<Recorder>) -> Result<(), String> {
        let Some(ledger) = &mut self.ledger else { return Ok(()) };
        ledger.check(recorders).map_err(|error| error.to_string())
    }
}

/// Samples of this process, then of the nodes.
fn cpu(peers: &[u32]) -> Vec<Option<CpuSample>> {
    let peers = peers.iter().map(|pid| CpuSample::of(*pid));
    std::iter::once(CpuSample::of_this_process()).chain(peers).collect()
}

fn used(before: &[Option<CpuSample>], after: &[Option<CpuSample>]) -> Option<Duration> {
    before.iter().zip(after).map(|(before, after)| Some(after.as_ref()?.since(before.as_ref()?))).sum()
}

#[expect(clippy::cast_precision_loss, reason = "rates: 53 bits are plenty")]
fn rate(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

/// Whether a wait that started at `begun` should end.
pub(super) fn out_of_patience(begun: Instant, patience: Duration, stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed) || begun.elapsed() >= patience
}

#[cfg(test)]
mod tests;
