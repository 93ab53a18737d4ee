//! Tests, in virtual time, that a lane of a replay issues its requests at the right times, in order
//! and within its depth, whatever its target does.
//!
//! Waiting advances the clock, and so does the target.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::*;
use crate::limits::IO_BYTES_LARGEST;

/// Virtual time, advanced by waits and by the target.
#[derive(Clone)]
struct VirtualClock(Rc<Cell<Instant>>);

impl VirtualClock {
    fn new() -> Self {
        Self(Rc::new(Cell::new(Instant::now())))
    }

    fn move_to(&self, moment: Instant) {
        self.0.set(self.0.get().max(moment));
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Instant {
        self.0.get()
    }

    fn wait_until(&self, moment: Instant) {
        self.move_to(moment);
    }
}

/// What the target does with its n-th request.
#[derive(Clone, Copy)]
enum Outcome {
    Takes(Duration),
    Refused,
    Lost,
    Never,
}

/// A target of depth `depth` that serves all requests in parallel, each with its outcome.
struct FakeTarget {
    clock: VirtualClock,
    depth: u32,
    outcome: Box<dyn Fn(u64) -> Outcome>,
    issued: Rc<RefCell<Vec<(Instant, u64)>>>,
    under_way: Vec<(u32, Option<Instant>)>,
    lost: bool,
}

fn lost() -> TargetError {
    TargetError::BadShape { depth: 0, slot_bytes: 0 }
}

impl Target for FakeTarget {
    fn depth(&self) -> u32 {
        self.depth
    }

    fn submit(&mut self, io: Io) -> Result<(), TargetError> {
        let number = self.issued.borrow().len() as u64;
        self.issued.borrow_mut().push((self.clock.now(), io.offset_bytes));
        let end = match (self.outcome)(number) {
            Outcome::Takes(time) => Some(self.clock.now() + time),
            Outcome::Never => None,
            Outcome::Refused => {
                return Err(TargetError::BadLength { length_bytes: io.length_bytes, slot_bytes: 0 });
            }
            Outcome::Lost => {
                self.lost = true;
                None
            }
        };
        self.under_way.push((io.slot, end));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TargetError> {
        Ok(())
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<IoDone>) -> Result<(), TargetError> {
        if self.lost {
            return Err(lost());
        }
        let first = self.under_way.iter().filter_map(|(_, end)| *end).min();
        match (wait, first) {
            (Wait::Now, _) => self.clock.move_to(self.clock.now() + Duration::from_micros(1)),
            (Wait::ForOne, first) => self.clock.move_to(first.unwrap_or_else(|| self.clock.now())),
            (Wait::Until(moment), first) => {
                self.clock.move_to(first.map_or(moment, |first| first.min(moment)))
            }
        }
        let now = self.clock.now();
        self.under_way.retain(|(slot, end)| {
            let over = end.is_some_and(|end| end <= now);
            if over {
                done.push(IoDone { slot: *slot, outcome: Ok(()), cached: None });
            }
            !over
        });
        Ok(())
    }
}

fn at(at_us: u64) -> Request {
    Request {
        at_ns: at_us * 1000,
        offset_bytes: at_us * 512,
        length_bytes: 512,
        device: 0,
        operation: IoOperation::Read,
    }
}

struct Ran {
    counters: Counters,
    result: Result<(), LaneError>,
    /// When each request reached the target, in microseconds since the beginning, and its offset.
    issued: Vec<(u128, u64)>,
    took: Duration,
}

/// Runs a share of all requests in virtual time, to its end.
fn ran(
    requests: &[Request],
    (timing, depth, strict): (Timing, u32, bool),
    outcome: impl Fn(u64) -> Outcome + 'static,
) -> Ran {
    let share = Share { requests, first: 0, step: 1 };
    ran_share(share, (timing, depth, strict), outcome, &AtomicBool::new(false))
}

fn ran_share(
    share: Share<'_>,
    (timing, depth, strict): (Timing, u32, bool),
    outcome: impl Fn(u64) -> Outcome + 'static,
    stop: &AtomicBool,
) -> Ran {
    let clock = VirtualClock::new();
    let begun = clock.now();
    let issued = Rc::new(RefCell::new(Vec::new()));
    let mut target = FakeTarget {
        clock: clock.clone(),
        depth: 64,
        outcome: Box::new(outcome),
        issued: Rc::clone(&issued),
        under_way: Vec::new(),
        lost: false,
    };
    let (over, ended) = (AtomicBool::new(false), AtomicU64::new(0));
    let late_after = Duration::from_millis(1);
    let rules = Rules { timing, depth, late_after, strict, stop, over: &over, ended: &ended };
    let mut counters = Counters::default();
    let result = Lane::new(&mut target, rules, (&clock, begun), &mut counters).run(share);
    assert_eq!(ended.load(Ordering::Relaxed), counters.ended + counters.failed);
    let issued =
        issued.borrow().iter().map(|(time, offset)| ((*time - begun).as_micros(), *offset)).collect();
    Ran { counters, result, issued, took: clock.now() - begun }
}

fn takes(us: u64) -> impl Fn(u64) -> Outcome {
    move |_| Outcome::Takes(Duration::from_micros(us))
}

fn times(ran: &Ran) -> Vec<u128> {
    ran.issued.iter().map(|(time, _)| *time).collect()
}

#[test]
fn requests_are_issued_at_the_traces_times_and_never_before() {
    let requests = [0, 100, 150, 5_000, 1_000_000].map(at);
    let ran = ran(&requests, (Timing::AtSpeed(1.0), 8, false), takes(30));
    assert!(ran.result.is_ok());
    for (issued, request) in times(&ran).iter().zip(&requests) {
        let intended = u128::from(request.at_ns / 1000);
        assert!((intended..intended + 3).contains(issued), "{issued} instead of {intended}");
    }
    assert_eq!((ran.counters.ended, ran.counters.late, ran.counters.read_bytes), (5, 0, 5 * 512));
}

#[test]
fn a_replay_at_twice_the_speed_takes_half_the_time_and_at_half_the_speed_twice() {
    let requests = [0, 1000, 3000].map(at);
    for (speed, expected) in [(2.0, [0, 500, 1500]), (0.5, [0, 2000, 6000])] {
        let ran = ran(&requests, (Timing::AtSpeed(speed), 8, false), takes(10));
        for (issued, expected) in times(&ran).iter().zip(expected) {
            assert!((expected..expected + 3).contains(issued), "{speed}: {issued} instead of {expected}");
        }
    }
}

#[test]
fn without_stalls_requests_follow_each_other_at_the_depth_asked_for() {
    let requests: Vec<Request> = (0..20).map(|n| at(n * 1_000_000)).collect();
    let ran = ran(&requests, (Timing::NoStall, 4, false), takes(100));
    assert_eq!(ran.took, Duration::from_micros(500));
    assert_eq!(ran.counters.ended, 20);
    assert_eq!((ran.counters.lateness.count(), ran.counters.from_intended.count()), (0, 0));
}

#[test]
fn the_order_of_a_share_is_kept_and_shares_are_every_nth_request() {
    let requests: Vec<Request> = (0..10).map(at).collect();
    let stop = AtomicBool::new(false);
    let share = Share { requests: &requests, first: 1, step: 3 };
    let ran = ran_share(share, (Timing::NoStall, 2, false), takes(10), &stop);
    let offsets: Vec<u64> = ran.issued.iter().map(|(_, offset)| offset / 512).collect();
    assert_eq!(offsets, [1, 4, 7]);
    let empty = Share { requests: &requests, first: 10, step: 3 };
    assert_eq!(ran_share(empty, (Timing::NoStall, 2, false), takes(10), &stop).counters.issued, 0);
}

#[test]
fn a_stall_shows_in_every_request_that_it_delayed_but_only_once_from_the_issue() {
    // A request every 100 us, one at a time; the first takes 10 ms, so a hundred wait for it.
    let requests: Vec<Request> = (0..1000).map(|n| at(n * 100)).collect();
    let stall = |number| {
        Outcome::Takes(if number == 0 { Duration::from_millis(10) } else { Duration::from_micros(20) })
    };
    let ran = ran(&requests, (Timing::AtSpeed(1.0), 1, false), stall);
    let (issue, intended) = (ran.counters.from_issue.summary(), ran.counters.from_intended.summary());
    assert!(issue.p99_us < 30.0, "{issue:?}");
    assert!(intended.p90_us > 1000.0, "{intended:?}");
    // The backlog shrinks by 80 us per request: from 10 ms to 1 ms it takes about 9000 / 80
    // requests.
    assert!((100..=125).contains(&ran.counters.late), "{} late", ran.counters.late);
    // Requests after the backlog are on time again.
    assert!(ran.took < Duration::from_millis(101), "{:?}", ran.took);
}

#[test]
fn a_single_refused_request_is_counted_and_passed_over_unless_that_ends_the_replay() {
    let requests: Vec<Request> = (0..10).map(at).collect();
    let outcome =
        |number| if number == 3 { Outcome::Refused } else { Outcome::Takes(Duration::from_micros(5)) };
    let lenient = ran(&requests, (Timing::NoStall, 4, false), outcome);
    assert!(lenient.result.is_ok());
    assert_eq!((lenient.counters.ended, lenient.counters.failed, lenient.counters.unissued), (9, 1, 0));
    assert!(lenient.counters.first_failure.as_ref().is_some_and(|words| words.contains("512 bytes")));
    let strict = ran(&requests, (Timing::NoStall, 4, true), outcome);
    assert!(matches!(strict.result, Err(LaneError::Target(TargetError::BadLength { .. }))));
    assert!(strict.counters.unissued >= 6);
}

#[test]
fn a_lost_target_ends_the_lane_with_what_was_counted_before() {
    let requests: Vec<Request> = (0..10).map(|n| at(n * 1000)).collect();
    let outcome = |number| if number == 5 { Outcome::Lost } else { Outcome::Takes(Duration::from_micros(5)) };
    let ran = ran(&requests, (Timing::AtSpeed(1.0), 4, false), outcome);
    assert!(matches!(ran.result, Err(LaneError::Target(_))));
    assert_eq!((ran.counters.ended, ran.counters.unissued), (5, 4));
}

#[test]
fn a_target_that_falls_silent_is_given_up_on() {
    let requests: Vec<Request> = (0..4).map(at).collect();
    let outcome =
        |number| if number == 1 { Outcome::Never } else { Outcome::Takes(Duration::from_micros(5)) };
    let ran = ran(&requests, (Timing::NoStall, 1, false), outcome);
    assert!(matches!(ran.result, Err(LaneError::Silent { in_flight: 1, .. })));
    assert!(ran.took >= SILENCE_MAX && ran.took < SILENCE_MAX + Duration::from_secs(1));
}

#[test]
fn a_replay_that_is_told_to_end_issues_nothing_more_and_does_not_wait_for_ever() {
    let requests: Vec<Request> = (0..100).map(|n| at(n * 1000)).collect();
    let stop = std::sync::Arc::new(AtomicBool::new(false));
    let inner = std::sync::Arc::clone(&stop);
    let outcome = move |number| {
        inner.store(number == 9, Ordering::Relaxed);
        if number == 9 { Outcome::Never } else { Outcome::Takes(Duration::from_micros(5)) }
    };
    let share = Share { requests: &requests, first: 0, step: 1 };
    let ran = ran_share(share, (Timing::AtSpeed(1.0), 4, false), outcome, &stop);
    assert!(matches!(ran.result, Err(LaneError::Undrained { in_flight: 1, .. })));
    assert_eq!((ran.counters.ended, ran.counters.unissued), (9, 90));
    assert!(ran.took < DRAIN_MAX + Duration::from_secs(1));
}

#[test]
fn a_gap_of_hours_can_be_left_at_any_time() {
    let requests = [at(0), at(u64::from(IO_BYTES_LARGEST) * 60_000)];
    let stop = std::sync::Arc::new(AtomicBool::new(false));
    let inner = std::sync::Arc::clone(&stop);
    let outcome = move |_| {
        inner.store(true, Ordering::Relaxed);
        Outcome::Takes(Duration::from_micros(5))
    };
    let share = Share { requests: &requests, first: 0, step: 1 };
    let ran = ran_share(share, (Timing::AtSpeed(1.0), 4, false), outcome, &stop);
    assert!(ran.result.is_ok());
    assert_eq!((ran.counters.ended, ran.counters.unissued), (1, 1));
    assert!(ran.took < Duration::from_secs(1));
}

#[test]
fn times_of_any_speed_neither_overflow_nor_lose_nanoseconds() {
    assert_eq!(at_speed(12_345_678_901, 1.0), Duration::from_nanos(12_345_678_901));
    assert_eq!(at_speed(1_000_000, 4.0), Duration::from_micros(250));
    assert!(at_speed(u64::MAX, 0.001) > Duration::from_secs(1 << 40));
}
