//! Tests whole replays, with threads, targets and reports, including replays of which a part fails.

use std::sync::atomic::AtomicU32;

use rackscan_device::sim::{SimConfig, SimDisk, SimIo};
use rackscan_trace::{Operation, Record};

use super::*;
use crate::target::{Io, IoDone, Local, LocalOptions, Wait};

const DISK_BYTES: usize = 1 << 20;

fn records(count: u64) -> impl Iterator<Item = Result<Record, rackscan_trace::TraceError>> {
    (0..count).map(|at| {
        Ok(Record {
            at: Duration::from_micros(at * 10),
            node: u16::try_from(at % 2).unwrap(),
            device: 0,
            offset_bytes: at * 4096 % DISK_BYTES as u64,
            length_bytes: 4096,
            operation: if at % 5 == 0 { Operation::Write } else { Operation::Read },
            table: None,
            column: None,
            thread: None,
        })
    })
}

fn plan(count: u64) -> Plan {
    let target = |node| TargetDevice {
        node,
        device: 0,
        reads: Area { offset_bytes: 0, length_bytes: DISK_BYTES as u64 },
        writes: Some(Area { offset_bytes: 0, length_bytes: DISK_BYTES as u64 / 2 }),
        align_bytes: 512,
    };
    let device_map = DeviceMap::new(vec![target(0), target(1)], Routing::ByNumber).unwrap();
    let options = PlanOptions { offsets: Offsets::Wrap, strict: false, records_max: None, size_bytes: None };
    Plan::new(records(count), &device_map, options).unwrap()
}

/// An in-memory disk of the calling thread.
fn simulated(connection: Connection) -> Result<Box<dyn Target>, TargetError> {
    let io =
        SimIo::new(SimConfig::seeded(u64::from(connection.number)), vec![SimDisk::of(vec![7; DISK_BYTES])]);
    let options = LocalOptions { depth: connection.depth, slot_bytes: connection.slot_bytes };
    let pool = crate::target::pool(options)?;
    Ok(Box::new(Local::over(io, &pool, options)?))
}

struct Switches {
    stop: AtomicBool,
    ended: AtomicU64,
}

fn run<'a>(plan: &'a Plan, timing: Timing, switches: &'a Switches) -> Replay<'a> {
    Replay {
        plan,
        timing,
        connections: 2,
        depth: 4,
        late_after: Duration::from_millis(1),
        strict: false,
        warm_ups: 0,
        peers: &[],
        stop: &switches.stop,
        ended: &switches.ended,
    }
}

fn switches() -> Switches {
    Switches { stop: AtomicBool::new(false), ended: AtomicU64::new(0) }
}

#[test]
fn every_request_of_every_node_runs_once_over_all_connections() {
    let (plan, switches) = (plan(1000), switches());
    let made = AtomicU32::new(0);
    let make = |connection: Connection| {
        made.fetch_add(1, Ordering::Relaxed);
        simulated(connection)
    };
    let run = run(&plan, Timing::NoStall, &switches);
    let replayed = replay(&run, &make).unwrap();
    assert_eq!(made.load(Ordering::Relaxed), 4);
    assert_eq!((replayed.counters.ended, replayed.cut_short.as_deref()), (1000, None));
    assert_eq!(switches.ended.load(Ordering::Relaxed), 1000);
    assert_eq!((replayed.counters.written_bytes, replayed.counters.read_bytes), (200 * 4096, 800 * 4096));
    assert!(replayed.cpu_own.is_some() && replayed.cpu_nodes.is_none());
    let report = ReplayReport::new(Setting::default(), &run, &replayed);
    let histogram: u64 = report.histogram.iter().map(|bin| bin.count).sum();
    assert_eq!((report.ios, histogram, report.fidelity), (1000, 1000, None));
}

#[test]
fn a_timed_replay_takes_the_traces_time_and_says_how_late_it_was() {
    let (plan, switches) = (plan(1000), switches());
    let run = run(&plan, Timing::AtSpeed(0.5), &switches);
    let replayed = replay(&run, &simulated).unwrap();
    assert!(replayed.counters.elapsed >= Duration::from_nanos(plan.trace_ns() * 2));
    let report = ReplayReport::new(Setting::default(), &run, &replayed);
    let fidelity = report.fidelity.as_ref().unwrap();
    assert_eq!(fidelity.lateness.count, 1000);
    assert!(fidelity.from_intended.p50_us >= report.from_issue.p50_us * 0.99);
    assert!(report.rows().iter().any(|(name, _)| *name == "issued late"));
    let text = serde_json::to_string(&report).unwrap();
    let read: ReplayReport = serde_json::from_str(&text).unwrap();
    assert_eq!((read.rows(), read.ios, read.histogram.len()), (report.rows(), 1000, report.histogram.len()));
}

#[test]
fn a_connection_that_cannot_be_made_ends_the_replay_before_it_begins() {
    let (plan, switches) = (plan(100), switches());
    let make = |connection: Connection| {
        if (connection.node, connection.number) == (1, 1) {
            return Err(TargetError::BadShape { depth: 0, slot_bytes: 0 });
        }
        simulated(connection)
    };
    let error = replay(&run(&plan, Timing::NoStall, &switches), &make).unwrap_err();
    assert!(matches!(error, ReplayError::Target { node: 1, connection: 1, .. }));
    assert_eq!(switches.ended.load(Ordering::Relaxed), 0);
}

/// A target that fails for good at its n-th request.
struct Mortal {
    inner: Box<dyn Target>,
    left: u32,
}

impl Target for Mortal {
    fn depth(&self) -> u32 {
        self.inner.depth()
    }

    fn submit(&mut self, io: Io) -> Result<(), TargetError> {
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None => return Err(TargetError::BadShape { depth: 7, slot_bytes: 7 }),
        }
        self.inner.submit(io)
    }

    fn flush(&mut self) -> Result<(), TargetError> {
        self.inner.flush()
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<IoDone>) -> Result<(), TargetError> {
        self.inner.reap(wait, done)
    }
}

#[test]
fn a_node_that_dies_ends_the_replay_everywhere_with_a_partial_report() {
    // Two seconds of trace: the others end because of the failure, not because they have nothing to
    // do.
    let (plan, switches) = (plan(200_000), switches());
    let make = |connection: Connection| -> Result<Box<dyn Target>, TargetError> {
        let left = if connection.node == 1 { 50 } else { u32::MAX };
        Ok(Box::new(Mortal { inner: simulated(connection)?, left }))
    };
    let run = run(&plan, Timing::AtSpeed(1.0), &switches);
    let replayed = replay(&run, &make).unwrap();
    let why = replayed.cut_short.clone().unwrap();
    assert!(why.contains("to node 1") && why.contains("depth 7"), "{why}");
    assert!(
        replayed.counters.ended > 0 && replayed.counters.unissued > 100_000,
        "{:?}",
        replayed.counters.unissued
    );
    let report = ReplayReport::new(Setting::default(), &run, &replayed);
    let page = report.page(None, Vec::new());
    assert!(page.sections[0].text[0].contains("not complete"));
}

#[test]
fn a_replay_that_is_asked_to_end_says_so() {
    let (plan, switches) = (plan(200_000), switches());
    switches.stop.store(true, Ordering::Relaxed);
    let replayed = replay(&run(&plan, Timing::AtSpeed(1.0), &switches), &simulated).unwrap();
    assert_eq!(replayed.cut_short.as_deref(), Some("it was asked to end"));
    assert_eq!((replayed.counters.issued, replayed.counters.unissued), (0, 200_000));
}

#[test]
fn impossible_speeds_and_shapes_are_refused() {
    let (plan, switches) = (plan(10), switches());
    let base = run(&plan, Timing::NoStall, &switches);
    for speed in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e4] {
        let bad = Replay { timing: Timing::AtSpeed(speed), ..base };
        assert!(matches!(replay(&bad, &simulated), Err(ReplayError::BadSpeed { .. })), "{speed}");
    }
    for (connections, depth) in [(0, 1), (1, 0), (1, DEPTH_MAX + 1), (CONNECTIONS_MAX, 1)] {
        let bad = Replay { connections, depth, ..base };
        assert!(
            matches!(replay(&bad, &simulated), Err(ReplayError::BadShape { .. })),
            "{connections} {depth}"
        );
    }
}

#[test]
fn two_reports_are_compared_by_ratios_and_by_the_words_that_differ() {
    let (plan, switches) = (plan(100), switches());
    let run = run(&plan, Timing::NoStall, &switches);
    let replayed = replay(&run, &simulated).unwrap();
    let setting = |mode: &str| Setting { mode: mode.to_owned(), ..Setting::default() };
    let local = ReplayReport::new(setting("local"), &run, &replayed);
    let mut remote = ReplayReport { setting: setting("remote"), ..local.clone() };
    remote.seconds = local.seconds * 1.5;
    let rows = compared(&local, &remote);
    let row = |what: &str| rows.iter().find(|row| row.what == what);
    assert_eq!(row("mode").map(|row| (row.a.as_str(), row.b.as_str())), Some(("local", "remote")));
    assert!(row("depth").is_none());
    let ratio = row("time").and_then(|row| row.ratio).unwrap();
    assert!((ratio - 1.5).abs() < 1e-9);
    assert_eq!(row("not issued").map(|row| row.ratio), Some(None), "0 has no ratio");
    let page = remote.page(Some(&local), Vec::new());
    let folder = tempfile::tempdir().unwrap();
    let index = page.write(folder.path()).unwrap();
    let html = std::fs::read_to_string(index).unwrap();
    assert!(html.contains("Comparison") && html.contains("1.500") && html.contains("earlier, from issue"));
    assert_eq!(page.points.len(), 2);
}
