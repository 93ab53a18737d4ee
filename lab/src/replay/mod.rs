//! Replays a trace on other devices, of this host or of storage nodes.
//!
//! ```text
//! trace records      what the traced program read and wrote
//!  | device_map, offsets
//! plan               the requests of each node, all in memory
//!  | lane            one thread and one target for each connection to a node
//! counters           what the connections measured
//!  | report, page
//! ReplayReport       figures, and how far the replay deviated from the trace's times
//!  | compare, grid
//! comparison         two reports side by side, or many by their settings
//! ```
//!
//! Connection k of n to a node issues requests k, k + n, k + 2n and so on of that node, in this
//! order. Requests do not wait for each other, because a trace does not say which request depended
//! on which.
//!
//! Invariants
//! - The schedule is independent of the target: a slow target changes no intended time.
//! - A replay that has begun always ends with a report, whatever the target, the nodes or the user
//!   do.

mod compare;
mod device_map;
mod error;
mod grid;
mod lane;
pub mod limits;
mod offsets;
mod page;
mod plan;
mod report;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

pub use compare::{Difference, compared};
pub use device_map::{Area, DeviceMap, Routing, TargetDevice};
pub use error::ReplayError;
pub use grid::{ReplayAxes, ReplayCase, ReplayLine, grid_report};
pub use lane::{Counters, Timing};
pub use offsets::Offsets;
pub use plan::{Changes, Plan, PlanOptions, Request, Skip};
pub use report::{Bin, Fidelity, ReplayReport, Setting};

use self::lane::{Lane, LaneError, Rules, Share};
use self::limits::SPEED_MAX;
use crate::clock::{Clock, SystemClock};
use crate::cpu::CpuSample;
use crate::limits::{CONNECTIONS_MAX, DEPTH_MAX, IO_BYTES_LEAST, LOAD_MEMORY_BYTES_MAX};
use crate::target::{Target, TargetError};

/// Time from the start signal to the first intended time.
const LEAD: Duration = Duration::from_millis(2);

/// A whole replay.
#[derive(Debug, Clone, Copy)]
pub struct Replay<'a> {
    /// The requests to issue.
    pub plan: &'a Plan,
    /// When to issue them.
    pub timing: Timing,
    /// Connections to each node; each has a thread and a target.
    pub connections: u32,
    /// Requests in flight on each connection.
    pub depth: u32,
    /// A request issued this much after its intended time counts as late.
    pub late_after: Duration,
    /// Whether a failed request ends the replay.
    pub strict: bool,
    /// Uncounted warm-up runs of the whole trace on the same connections, as fast as possible.
    pub warm_ups: u32,
    /// Process ids of the nodes, to read their processor time.
    pub peers: &'a [u32],
    /// Set by the caller to end the replay early.
    pub stop: &'a AtomicBool,
    /// Requests that have ended so far, for a progress display.
    pub ended: &'a AtomicU64,
}

/// One connection of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// Number of the node.
    pub node: u16,
    /// Number of the connection to this node.
    pub number: u32,
    /// Requests that the target must take at once.
    pub depth: u32,
    /// Bytes of the longest request.
    pub slot_bytes: u32,
}

/// Creates the target of a connection, on the connection's own thread.
pub type MakeConnection<'a> = dyn Fn(Connection) -> Result<Box<dyn Target>, TargetError> + Sync + 'a;

/// Result of a replay.
#[derive(Debug, Clone, Default)]
pub struct Replayed {
    /// Counters of all connections together.
    pub counters: Counters,
    /// Why it ended before the trace did; the first of several reasons.
    pub cut_short: Option<String>,
    /// Processor time of this process.
    pub cpu_own: Option<Duration>,
    /// Processor time of the nodes.
    pub cpu_nodes: Option<Duration>,
}

/// Replays a plan on targets that `make` creates.
///
/// # Errors
/// [`ReplayError`] if it cannot begin. Later failures are in [`Replayed::cut_short`].
pub fn replay(run: &Replay<'_>, make: &MakeConnection<'_>) -> Result<Replayed, ReplayError> {
    let slot_bytes = run.plan.largest_bytes().max(IO_BYTES_LEAST);
    check(run, slot_bytes)?;
    // Separate from `stop`: a failed lane ends the others, which is not the same as a stop by the
    // user.
    let over = AtomicBool::new(false);
    let rules = Rules {
        timing: run.timing,
        depth: run.depth,
        late_after: run.late_after,
        strict: run.strict,
        stop: run.stop,
        over: &over,
        ended: run.ended,
    };
    std::thread::scope(|scope| {
        let (report, reports) = channel();
        let mut begins = Vec::new();
        for (node, requests) in run.plan.nodes() {
            for number in 0..run.connections {
                let connection = Connection { node: *node, number, depth: run.depth, slot_bytes };
                let share = Share { requests, first: number as usize, step: run.connections as usize };
                let (begin, begun) = channel();
                let (warm_ups, report) = (run.warm_ups, report.clone());
                let member = Member { connection, share, warm_ups, report, begun };
                let builder = std::thread::Builder::new().name(format!("replay {node}.{number}"));
                // On an error, dropping the senders in `begins` ends the threads that wait for
                // them.
                builder
                    .spawn_scoped(scope, move || member.run(make, rules))
                    .map_err(|source| ReplayError::Thread { node: *node, connection: number, source })?;
                begins.push(begin);
            }
        }
        drop(report);
        lead(run, &begins, &reports)
    })
}

/// Waits until all members are ready, starts them and collects their results.
fn lead(
    run: &Replay<'_>,
    begins: &[Sender<Signal>],
    reports: &Receiver<Report>,
) -> Result<Replayed, ReplayError> {
    for _member in begins {
        match reports.recv() {
            Ok(Report::Ready) => {}
            Ok(Report::Refused(error)) => return Err(*error),
            // A thread has panicked; the thread scope propagates the panic.
            Ok(Report::Over(_) | Report::Gone) | Err(_) => return Ok(Replayed::default()),
        }
    }
    let samples = || -> (Option<CpuSample>, Vec<Option<CpuSample>>) {
        (CpuSample::of_this_process(), run.peers.iter().map(|peer| CpuSample::of(*peer)).collect())
    };
    let (own_before, nodes_before) = samples();
    let begun = Instant::now() + LEAD;
    for begin in begins {
        // A member that has ended is noticed by its missing report.
        let _gone = begin.send(Signal::Begin(begun));
    }
    let mut replayed = Replayed::default();
    for _member in begins {
        // No member ends before all lanes are over, unless its thread has panicked.
        let Ok(Report::Over(over)) = reports.recv() else { break };
        let (counters, failure) = *over;
        replayed.counters.add(&counters);
        if replayed.cut_short.is_none() {
            replayed.cut_short = failure;
        }
    }
    let (own_after, nodes_after) = samples();
    replayed.cpu_own = since(own_before.as_ref(), own_after.as_ref());
    let nodes = nodes_before.iter().zip(&nodes_after);
    let nodes = nodes.map(|(before, after)| since(before.as_ref(), after.as_ref()));
    replayed.cpu_nodes = if run.peers.is_empty() { None } else { nodes.sum() };
    if replayed.cut_short.is_none() && replayed.counters.unissued > 0 {
        replayed.cut_short = Some("it was asked to end".to_owned());
    }
    Ok(replayed)
}

fn since(before: Option<&CpuSample>, after: Option<&CpuSample>) -> Option<Duration> {
    Some(after?.since(before?))
}

fn check(run: &Replay<'_>, slot_bytes: u32) -> Result<(), ReplayError> {
    if let Timing::AtSpeed(speed) = run.timing
        && !(1.0 / SPEED_MAX..=SPEED_MAX).contains(&speed)
    {
        return Err(ReplayError::BadSpeed { speed });
    }
    let Replay { connections, depth, .. } = *run;
    let lanes = run.plan.nodes().len() as u64 * u64::from(connections);
    let memory = u64::from(slot_bytes) * u64::from(depth) * lanes;
    let fits = (1..=u64::from(CONNECTIONS_MAX)).contains(&lanes)
        && (1..=DEPTH_MAX).contains(&depth)
        && memory <= LOAD_MEMORY_BYTES_MAX;
    if fits { Ok(()) } else { Err(ReplayError::BadShape { lanes, depth, slot_bytes }) }
}

/// Messages from the leader to a member.
enum Signal {
    Begin(Instant),
}

/// Messages from a member to the leader.
enum Report {
    Ready,
    Refused(Box<ReplayError>),
    Over(Box<(Counters, Option<String>)>),
    /// The thread has ended, whatever it reported before.
    Gone,
}

/// A thread with a connection.
struct Member<'a> {
    connection: Connection,
    share: Share<'a>,
    warm_ups: u32,
    report: Sender<Report>,
    begun: Receiver<Signal>,
}

impl Drop for Member<'_> {
    /// Reports the end even after a panic, so that the leader does not wait for this member.
    fn drop(&mut self) {
        let _unheard = self.report.send(Report::Gone);
    }
}

impl Member<'_> {
    fn run(self, make: &MakeConnection<'_>, rules: Rules<'_>) {
        let Connection { node, number, .. } = self.connection;
        // A report fails only if the leader has given up the replay; then nobody needs it.
        let mut target = match make(self.connection) {
            Ok(target) => target,
            Err(source) => {
                let error = ReplayError::Target { node, connection: number, source };
                let _unheard = self.report.send(Report::Refused(Box::new(error)));
                return;
            }
        };
        for _ in 0..self.warm_ups {
            // If a warm-up ends early, the replay does so, too, and reports it.
            let uncounted = Rules { timing: Timing::NoStall, ended: &AtomicU64::new(0), ..rules };
            let begun = (&SystemClock as &dyn Clock, Instant::now());
            let _ended =
                Lane::new(target.as_mut(), uncounted, begun, &mut Counters::default()).run(self.share);
        }
        let _unheard = self.report.send(Report::Ready);
        let Ok(Signal::Begin(begun)) = self.begun.recv() else { return };
        SystemClock.wait_until(begun);
        let mut counters = Counters::default();
        let lane = Lane::new(target.as_mut(), rules, (&SystemClock, begun), &mut counters);
        let failure = match lane.run(self.share) {
            Ok(()) => None,
            Err(error) => {
                rules.over.store(true, Ordering::Relaxed);
                Some(self.failure(&error))
            }
        };
        let _unheard = self.report.send(Report::Over(Box::new((counters, failure))));
        // Waits until the leader has read the processor time of all threads.
        let _over = self.begun.recv();
    }

    fn failure(&self, error: &LaneError) -> String {
        let Connection { node, number, .. } = self.connection;
        format!("connection {number} to node {node}: {error}")
    }
}

#[cfg(test)]
mod tests;
