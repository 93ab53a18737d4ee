//! Runs a query once, and measures its time and the processor time of this process and of the node.
//!
//! Invariants
//! - Threads take segments from one list until it is empty. Each segment is scanned exactly once.
//! - Processor time is read while all threads exist: before the first thread takes a segment, and
//!   after the last thread has finished.
//! - If a thread fails, the others end after their current segment. The caller never waits for a
//!   thread that has ended.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use super::error::SimulationError;
use super::ground::{Ground, runtime};
use super::placement::Placement;
use super::scan::{Counters, Way, Work, scan};
use crate::cpu::{CpuSample, Ticks};

/// Processor time of one process.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Used {
    pub(super) all: Duration,
    /// By mode, as far as the kernel tells.
    pub(super) ticks: Ticks,
}

/// One run of a query.
#[derive(Debug, Clone, Default)]
pub(super) struct Turn {
    pub(super) time: Duration,
    pub(super) counters: Counters,
    pub(super) own: Used,
    pub(super) node: Option<Used>,
    /// Whether it was stopped, so that rows are missing.
    pub(super) short: bool,
}

/// The workers and their work.
pub(super) struct Shift<'a> {
    pub(super) ground: &'a Ground,
    pub(super) work: &'a Work,
    pub(super) placement: Placement,
    pub(super) connections: u32,
    pub(super) threads: u32,
    pub(super) stop: &'a AtomicBool,
}

/// What the threads share.
struct Shared<'a> {
    shift: &'a Shift<'a>,
    next: AtomicUsize,
    failed: AtomicBool,
}

/// The leader's handle of a thread; dropping it ends the thread.
struct Member {
    order: Sender<()>,
    report: Receiver<Result<Counters, SimulationError>>,
}

/// Runs the query once.
pub(super) fn turn(shift: &Shift<'_>) -> Result<Turn, SimulationError> {
    let shared = Shared { shift, next: AtomicUsize::new(0), failed: AtomicBool::new(false) };
    std::thread::scope(|scope| {
        let mut members = Vec::new();
        for worker in 0..shift.connections * shift.threads {
            let ((order, orders), (reports, report)) = (channel(), channel());
            let shared = &shared;
            let work = move || member(shared, worker, &orders, &reports);
            let builder = std::thread::Builder::new().name(format!("query {worker}"));
            builder.spawn_scoped(scope, work).map_err(SimulationError::Thread)?;
            members.push(Member { order, report });
        }
        lead(shift, &members)
    })
}

fn lead(shift: &Shift<'_>, members: &[Member]) -> Result<Turn, SimulationError> {
    for member in members {
        member.report.recv().map_err(|_| SimulationError::Ended)??;
    }
    let samples = || (CpuSample::of_this_process(), shift.ground.pid.and_then(CpuSample::of));
    let before = samples();
    let begun = Instant::now();
    for member in members {
        member.order.send(()).map_err(|_| SimulationError::Ended)?;
    }
    let (mut counters, mut failure) = (Counters::default(), None);
    for member in members {
        match member.report.recv() {
            Ok(Ok(part)) => counters.add(&part),
            Ok(Err(error)) => failure = failure.or(Some(error)),
            Err(_) => failure = failure.or(Some(SimulationError::Ended)),
        }
    }
    let time = begun.elapsed();
    let after = samples();
    if let Some(failure) = failure {
        return Err(failure);
    }
    let used = |before: Option<CpuSample>, after: Option<CpuSample>| {
        let (before, after) = (before?, after?);
        Some(Used { all: after.since(&before), ticks: after.ticks_since(&before) })
    };
    let short = counters.segments < shift.work.segments.len() as u64;
    let own = used(before.0, after.0).unwrap_or_default();
    Ok(Turn { time, counters, own, node: used(before.1, after.1), short })
}

/// Reports that it is ready, waits for the order, works, reports its counts, and stays until the
/// leader has read its processor time.
fn member(
    shared: &Shared<'_>,
    worker: u32,
    orders: &Receiver<()>,
    reports: &Sender<Result<Counters, SimulationError>>,
) {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _told = reports.send(Err(error));
            return;
        }
    };
    let told = reports.send(Ok(Counters::default()));
    if told.is_err() || orders.recv().is_err() {
        return;
    }
    let report = runtime.block_on(segments(shared, worker));
    shared.failed.fetch_or(report.is_err(), Ordering::Relaxed);
    let _told = reports.send(report);
    // Returns when the leader drops its side.
    let _over = orders.recv();
}

async fn segments(shared: &Shared<'_>, worker: u32) -> Result<Counters, SimulationError> {
    let Shift { ground, work, placement, connections, stop, .. } = shared.shift;
    let cluster = ground.clusters.get((worker % connections) as usize).ok_or(SimulationError::Ended)?;
    let way = match placement {
        Placement::Local => Way::Local(&ground.devices),
        Placement::RemoteFetch => Way::Fetch(cluster),
        Placement::RemoteProcess => Way::Process(cluster),
    };
    let mut counters = Counters::default();
    while !stop.load(Ordering::Relaxed) && !shared.failed.load(Ordering::Relaxed) {
        let next = shared.next.fetch_add(1, Ordering::Relaxed);
        let Some(segment) = work.segments.get(next) else { break };
        scan(&way, work, segment, stop, &mut counters).await?;
    }
    Ok(counters)
}
