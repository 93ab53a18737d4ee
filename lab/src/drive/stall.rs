//! Tests, in virtual time, that a stall of the target shows in the latency of every IO that it
//! delayed in an open loop, but in only one latency in a closed loop.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::sequence::Sequence;
use super::{Arrivals, Bounds, Counters, Ending, Frame, Load, LoopKind, Region, closed, open};
use crate::clock::Clock;
use crate::target::{Io, IoDone, Target, TargetError, Wait};

/// A clock that advances only when it is moved.
#[derive(Clone)]
struct VirtualClock(Rc<Cell<Instant>>);

impl Clock for VirtualClock {
    fn now(&self) -> Instant {
        self.0.get()
    }

    fn wait_until(&self, moment: Instant) {
        self.0.set(self.0.get().max(moment));
    }
}

const SERVICE: Duration = Duration::from_micros(100);
const STALL: Duration = Duration::from_millis(200);

/// A target that serves one IO after the other, each in [`SERVICE`], and stalls once.
struct Stalling {
    clock: VirtualClock,
    stalls_at: Instant,
    stalled: Cell<bool>,
    queue: RefCell<VecDeque<(u32, Instant)>>,
}

impl Stalling {
    fn ends_of(&self, from: Instant) -> Instant {
        let stalls = from >= self.stalls_at && !self.stalled.replace(true);
        if stalls { from + SERVICE + STALL } else { from + SERVICE }
    }
}

impl Target for Stalling {
    fn depth(&self) -> u32 {
        8
    }

    fn submit(&mut self, io: Io) -> Result<(), TargetError> {
        let mut queue = self.queue.borrow_mut();
        let from = queue.back().map_or(self.clock.now(), |last| last.1.max(self.clock.now()));
        let ends = self.ends_of(from);
        queue.push_back((io.slot, ends));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TargetError> {
        Ok(())
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<IoDone>) -> Result<(), TargetError> {
        let mut queue = self.queue.borrow_mut();
        let next = queue.front().map(|first| first.1);
        match (wait, next) {
            (Wait::Now, _) => self.clock.wait_until(self.clock.now() + Duration::from_micros(1)),
            (Wait::ForOne, next) => self.clock.wait_until(next.unwrap_or(self.clock.now())),
            (Wait::Until(moment), next) => {
                self.clock.wait_until(next.map_or(moment, |next| next.min(moment)))
            }
        }
        while queue.front().is_some_and(|first| first.1 <= self.clock.now()) {
            let Some((slot, _)) = queue.pop_front() else { break };
            done.push(IoDone { slot, outcome: Ok(()), cached: None });
        }
        Ok(())
    }
}

/// Runs two seconds of a load at half of the target's rate; the target stalls in the middle.
fn latencies(loop_kind: LoopKind, bounds: Bounds) -> Counters {
    let load = Load {
        region: Region { device: 0, offset_bytes: 0, length_bytes: 1 << 30 },
        loop_kind,
        seed: 11,
        ..Load::default()
    };
    let clock = VirtualClock(Rc::new(Cell::new(Instant::now())));
    let begun = clock.now();
    let mut target = Stalling {
        clock: clock.clone(),
        stalls_at: begun + Duration::from_secs(1),
        stalled: Cell::new(false),
        queue: RefCell::default(),
    };
    let mut sequence = Sequence::new(&load, 0, 1).unwrap();
    let never = AtomicBool::new(false);
    let frame = Frame { bounds, clock: &clock, ending: Ending { asked: &never, failed: &never } };
    let mut counters = Counters::default();
    let ran = match loop_kind {
        LoopKind::Closed => closed::run(&mut target, &load, &mut sequence, frame, &mut counters),
        LoopKind::Open { rate, arrivals } => {
            let schedule = open::Schedule::new(begun, rate, arrivals, load.seed);
            open::run(&mut target, &load, &mut sequence, schedule, frame, &mut counters)
        }
    };
    ran.unwrap();
    counters
}

const TWO_SECONDS: Bounds = Bounds { duration: Duration::from_secs(2), count_max: None };

#[test]
fn a_closed_loop_hides_a_stall_in_one_latency() {
    let counters = latencies(LoopKind::Closed, TWO_SECONDS);
    let summary = counters.latencies.summary();
    assert!(summary.p999_us < 101.0, "{summary:?}");
    assert!(summary.max_us > 200_000.0, "{summary:?}");
    assert_eq!((counters.late, counters.unissued), (0, 0));
}

#[test]
fn an_open_loop_shows_a_stall_in_every_io_that_it_delayed() {
    for arrivals in [Arrivals::Uniform, Arrivals::Poisson] {
        let counters = latencies(LoopKind::Open { rate: 5000.0, arrivals }, TWO_SECONDS);
        let summary = counters.latencies.summary();
        // 200 ms without service and as long to catch up: a fifth of all IOs.
        assert!(summary.p99_us > 150_000.0, "{arrivals:?} {summary:?}");
        assert!(summary.p50_us < 400.0, "{arrivals:?} {summary:?}");
        assert!((1500..2500).contains(&counters.late), "{arrivals:?} {}", counters.late);
        assert!(
            (9500..10_500).contains(&counters.ios) && counters.unissued < 50,
            "{arrivals:?} {counters:?}"
        );
    }
}

#[test]
fn what_an_overloaded_target_leaves_undone_is_counted() {
    let loop_kind = LoopKind::Open { rate: 20_000.0, arrivals: Arrivals::Uniform };
    let counters = latencies(loop_kind, TWO_SECONDS);
    assert_eq!(counters.ios + counters.unissued, 39_999, "all that was intended before the end");
    assert!((21_000..23_000).contains(&counters.unissued), "{}", counters.unissued);
    assert!(counters.latencies.summary().p50_us > 400_000.0);
}

#[test]
fn a_count_ends_an_open_loop_without_calling_the_rest_unissued() {
    let loop_kind = LoopKind::Open { rate: 5000.0, arrivals: Arrivals::Uniform };
    let counters = latencies(loop_kind, Bounds { count_max: Some(100), ..TWO_SECONDS });
    assert_eq!((counters.ios, counters.unissued), (100, 0));
}
