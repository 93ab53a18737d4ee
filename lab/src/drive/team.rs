//! Starts one thread per connection of a load, runs them through the phases, and reads processor
//! time between the phases.
//!
//! Invariants
//! - Every thread waits for an order before each phase and reports after it. A phase ends when all
//!   threads have reported.
//! - A failed thread makes the other threads end their phase. The leader never waits for a thread
//!   that has ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use super::sequence::Sequence;
use super::{
    Bounds, Counters, DriveError, Ending, Frame, LoopKind, MakeTarget, Measured, Run, check, closed, open,
    verify,
};
use crate::clock::SystemClock;
use crate::cpu::CpuSample;
use crate::events::EventCounters;
use crate::target::{Target, TargetError};

/// Runs a load on targets that `make` creates.
///
/// # Errors
/// [`DriveError`] if the run cannot begin. A later failure is in [`Measured::failure`].
pub fn drive(run: &Run<'_>, make: &MakeTarget<'_>) -> Result<Measured, DriveError> {
    check(run)?;
    let failed = AtomicBool::new(false);
    let mut events = run.counts_events.then(EventCounters::open);
    std::thread::scope(|scope| {
        let mut members = Vec::with_capacity(run.connections as usize);
        for connection in 0..run.connections {
            let (orders, for_orders) = channel();
            let (reports, for_reports) = channel();
            let failed = &failed;
            let work = move || member(run, connection, make, failed, (&for_orders, &reports));
            let builder = std::thread::Builder::new().name(format!("lab {connection}"));
            let spawned = builder.spawn_scoped(scope, work);
            spawned.map_err(|source| DriveError::Thread { connection, source })?;
            members.push(Member { orders, reports: for_reports });
        }
        for member in &members {
            if let Ok(Report::Refused(error)) = member.reports.recv() {
                return Err(error);
            }
        }
        Ok(lead(run, &members, events.as_mut()))
    })
}

/// The leader's handle of a connection. Dropping it ends the thread.
struct Member {
    orders: Sender<Order>,
    reports: Receiver<Report>,
}

/// What a connection does next.
#[derive(Debug, Clone, Copy)]
enum Order {
    /// Runs the load; only the measured phase counts its intervals.
    Run { bounds: Bounds, is_measured: bool },
    /// Reads and compares what was written.
    Verify,
}

enum Report {
    Ready,
    Refused(DriveError),
    Ran(Box<Counters>, Option<TargetError>),
}

fn lead(run: &Run<'_>, members: &[Member], mut events: Option<&mut EventCounters>) -> Measured {
    let peer = |pid: Option<u32>| pid.and_then(CpuSample::of);
    let warm_up = Bounds { duration: run.warm_up, count_max: None };
    let warm_up = Order::Run { bounds: warm_up, is_measured: false };
    let failure = if run.warm_up.is_zero() { None } else { phase(members, warm_up).1 };
    let (own_before, peer_before) = (CpuSample::of_this_process(), peer(run.peer));
    if let Some(events) = &mut events {
        events.begin();
    }
    let begun = Instant::now();
    let (counters, failure) = match failure {
        Some(failure) => (Counters::default(), Some(failure)),
        None => phase(members, Order::Run { bounds: run.bounds, is_measured: true }),
    };
    let wall = begun.elapsed();
    let events = events.map(EventCounters::counted);
    let (own_after, peer_after) = (CpuSample::of_this_process(), peer(run.peer));
    let used = |before: Option<CpuSample>, after: Option<CpuSample>| Some(after?.since(&before?));
    let stopped = run.stop.load(Ordering::Relaxed);
    let (mut counters, mut failure) = (counters, failure);
    // Only whole intervals have a rate.
    let ended = run.interval.map_or(0, |interval| super::intervals_of(counters.elapsed, interval));
    counters.intervals.truncate(ended);
    if run.load.verify && failure.is_none() && !stopped {
        let (verified, differs) = phase(members, Order::Verify);
        counters.verified = verified.verified;
        failure = differs;
    }
    let whole = failure.is_none() && !stopped && run.bounds.count_max.is_none();
    Measured {
        iops: rate(&counters, if whole { Some(run.bounds) } else { None }),
        counters,
        own_cpu: used(own_before, own_after).unwrap_or_default(),
        peer_cpu: used(peer_before, peer_after),
        events,
        wall,
        failure,
        stopped,
    }
}

#[expect(clippy::cast_precision_loss, reason = "rates: 53 bits are plenty")]
fn rate(counters: &Counters, bounds: Option<Bounds>) -> f64 {
    let (ios, time) = match bounds {
        Some(bounds) => (counters.in_time, bounds.duration),
        None => (counters.ios, counters.elapsed),
    };
    if time.is_zero() { 0.0 } else { ios as f64 / time.as_secs_f64() }
}

/// Runs one phase on all connections.
fn phase(members: &[Member], order: Order) -> (Counters, Option<TargetError>) {
    let (mut all, mut first) = (Counters::default(), None);
    for member in members {
        // The missing report of an ended thread is noticed below.
        let _sent = member.orders.send(order);
    }
    for member in members {
        if let Ok(Report::Ran(counters, failure)) = member.reports.recv() {
            all.add(&counters);
            first = first.or(failure);
        }
    }
    (all, first)
}

/// The main function of a connection's thread.
fn member(
    run: &Run<'_>,
    connection: u32,
    make: &MakeTarget<'_>,
    failed: &AtomicBool,
    (orders, reports): (&Receiver<Order>, &Sender<Report>),
) {
    let (mut target, mut sequence) = match ready(run, connection, make) {
        Ok(ready) => ready,
        Err(error) => {
            // The leader waits for this report before it does anything else.
            let _sent = reports.send(Report::Refused(error));
            return;
        }
    };
    if reports.send(Report::Ready).is_err() {
        return;
    }
    let load = &run.load;
    for (phase, order) in (0_u64..).zip(orders.iter()) {
        let (bounds, interval) = match order {
            Order::Run { bounds, is_measured } => (bounds, run.interval.filter(|_| is_measured)),
            Order::Verify => (run.bounds, None),
        };
        let mut counters = Counters::of(load, interval, bounds.duration);
        let ending = Ending { asked: run.stop, failed };
        let frame = Frame { bounds, clock: &SystemClock, ending };
        let seed = load.seed ^ (u64::from(connection) << 32) ^ (phase << 60);
        let ran = match (order, load.loop_kind) {
            (Order::Verify, _) => verify::run(&mut *target, load, &mut sequence, ending, &mut counters),
            (_, LoopKind::Closed) => closed::run(&mut *target, load, &mut sequence, frame, &mut counters),
            (_, LoopKind::Open { rate, arrivals }) => {
                let rate = rate / f64::from(run.connections);
                let schedule = open::Schedule::new(Instant::now(), rate, arrivals, seed);
                open::run(&mut *target, load, &mut sequence, schedule, frame, &mut counters)
            }
        };
        if ran.is_err() {
            failed.store(true, Ordering::Relaxed);
        }
        if reports.send(Report::Ran(Box::new(counters), ran.err())).is_err() {
            return;
        }
    }
}

fn ready(
    run: &Run<'_>,
    connection: u32,
    make: &MakeTarget<'_>,
) -> Result<(Box<dyn Target>, Sequence), DriveError> {
    if !run.cores.is_empty() {
        rackscan_device::pin_current_thread(run.cores[connection as usize % run.cores.len()])?;
    }
    let sequence = Sequence::new(&run.load, connection, run.connections)?;
    let target = make(connection).map_err(|source| DriveError::Target { connection, source })?;
    Ok((target, sequence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::{IoMix, Load, Region};
    use crate::target::{Io, IoDone, IoOperation, Wait};
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    /// A target that ends every IO at once, and fails the one with number `fails_at`.
    struct Prompt<'a> {
        held: Vec<u32>,
        ios: &'a AtomicU64,
        fails_at: u64,
    }

    impl Target for Prompt<'_> {
        fn depth(&self) -> u32 {
            4
        }

        fn submit(&mut self, io: Io) -> Result<(), TargetError> {
            assert!(!self.held.contains(&io.slot));
            self.held.push(io.slot);
            Ok(())
        }

        fn flush(&mut self) -> Result<(), TargetError> {
            Ok(())
        }

        fn reap(&mut self, _wait: Wait, done: &mut Vec<IoDone>) -> Result<(), TargetError> {
            for slot in self.held.drain(..) {
                let number = self.ios.fetch_add(1, Ordering::Relaxed);
                let failure = TargetError::SlotBusy { slot };
                let outcome = if number == self.fails_at { Err(failure) } else { Ok(()) };
                done.push(IoDone { slot, outcome, cached: None });
            }
            Ok(())
        }
    }

    fn a_run(stop: &AtomicBool, bounds: Bounds) -> Run<'_> {
        Run {
            load: Load {
                mix: IoMix::Only(IoOperation::Read),
                region: Region { device: 0, offset_bytes: 0, length_bytes: 1 << 20 },
                length_bytes: 4096,
                depth: 3,
                ..Load::default()
            },
            connections: 3,
            warm_up: Duration::ZERO,
            bounds,
            peer: Some(std::process::id()),
            cores: &[],
            interval: None,
            counts_events: false,
            stop,
        }
    }

    const LONG: Bounds = Bounds { duration: Duration::from_secs(60), count_max: None };

    fn prompt(
        ios: &'static AtomicU64,
        fails_at: u64,
    ) -> impl Fn(u32) -> Result<Box<dyn Target>, TargetError> {
        move |_connection| Ok(Box::new(Prompt { held: Vec::new(), ios, fails_at }))
    }

    static IOS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

    #[test]
    fn every_connection_does_its_count_of_ios() {
        let stop = AtomicBool::new(false);
        let run = a_run(&stop, Bounds { count_max: Some(1000), ..LONG });
        let measured = drive(&run, &prompt(&IOS[0], u64::MAX)).unwrap();
        assert_eq!((measured.counters.ios, measured.counters.latencies.count()), (3000, 3000));
        assert_eq!(measured.counters.bytes, 3000 * 4096);
        assert!(measured.iops > 0.0 && measured.failure.is_none() && measured.peer_cpu.is_some());
    }

    #[test]
    fn one_failure_ends_all_connections_and_keeps_what_was_measured() {
        let stop = AtomicBool::new(false);
        let measured = drive(&a_run(&stop, LONG), &prompt(&IOS[1], 5000)).unwrap();
        assert!(matches!(measured.failure, Some(TargetError::SlotBusy { .. })));
        assert!(measured.counters.ios >= 4000, "{}", measured.counters.ios);
    }

    #[test]
    fn a_run_that_is_told_to_stop_returns_what_it_has() {
        let stop = AtomicBool::new(false);
        let measured = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                stop.store(true, Ordering::Relaxed);
            });
            drive(&a_run(&stop, LONG), &prompt(&IOS[2], u64::MAX)).unwrap()
        });
        assert!(measured.stopped && measured.counters.ios > 0 && measured.iops > 0.0);
        assert!(measured.counters.elapsed < Duration::from_secs(30));
    }

    #[test]
    fn a_target_that_cannot_be_made_names_its_connection_and_ends_the_others() {
        let stop = AtomicBool::new(false);
        let make = |connection| match connection {
            1 => Err(TargetError::NoSuchSlot { slot: 0, depth: 0 }),
            _ => prompt(&IOS[3], u64::MAX)(connection),
        };
        let refused = drive(&a_run(&stop, LONG), &make).unwrap_err();
        assert!(matches!(refused, DriveError::Target { connection: 1, .. }), "{refused}");
    }

    #[test]
    fn impossible_loads_are_refused_with_their_numbers() {
        let stop = AtomicBool::new(false);
        let run = a_run(&stop, LONG);
        let bad = [
            Run { connections: 0, ..run },
            Run { connections: 100_000, ..run },
            Run { load: Load { depth: 0, ..run.load }, ..run },
            Run { load: Load { length_bytes: u32::MAX, ..run.load }, ..run },
            Run { connections: 1024, load: Load { depth: 4096, length_bytes: 1 << 20, ..run.load }, ..run },
        ];
        for run in bad {
            assert!(matches!(drive(&run, &|_| unreachable!()), Err(DriveError::BadShape { .. })));
        }
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let loop_kind = LoopKind::Open { rate, arrivals: crate::drive::Arrivals::Poisson };
            let run = Run { load: Load { loop_kind, ..run.load }, ..run };
            assert!(matches!(drive(&run, &|_| unreachable!()), Err(DriveError::BadRate { .. })));
        }
    }
}
