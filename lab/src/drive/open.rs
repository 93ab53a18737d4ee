//! Runs an open loop: a driver that submits IOs at scheduled times, whether or not earlier ones
//! have ended.
//!
//! Invariants
//! - The schedule is independent of the target: a slow target changes no intended time.
//! - A latency counts from the intended time, so a stall shows in every IO that it delayed.
//! - An IO counts as unissued if its intended time is before the end of the run, but the target
//!   could not accept it before that end.

use std::time::{Duration, Instant};

use az::SaturatingAs;
use fastrand::Rng;

use super::sequence::{Sequence, submit};
use super::{Arrivals, Counters, Frame, Load};
use crate::limits::LATE_AFTER;
use crate::target::{IoDone, IoOperation, Target, TargetError, Wait};

/// A wait shorter than this is spent polling, because a sleeping thread would wake up too late.
const POLL_BELOW: Duration = Duration::from_micros(80);

/// The longest wait without looking whether the run is to end.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// Intended times that are counted one by one; of more, the rest is computed from their mean.
const COUNTED_MAX: u64 = 10_000_000;

/// The intended times of one connection.
pub(super) struct Schedule {
    next: Instant,
    gap: Duration,
    arrivals: Arrivals,
    random: Rng,
}

impl Schedule {
    /// A schedule of `rate` IOs per second that starts at `begun`.
    pub(super) fn new(begun: Instant, rate: f64, arrivals: Arrivals, seed: u64) -> Self {
        let gap = Duration::from_secs_f64(1.0 / rate);
        let mut schedule = Self { next: begun, gap, arrivals, random: Rng::with_seed(seed) };
        schedule.advance();
        schedule
    }

    fn advance(&mut self) {
        self.next += match self.arrivals {
            Arrivals::Uniform => self.gap,
            // 1 - u is above 0, so the logarithm is finite.
            Arrivals::Poisson => self.gap.mul_f64(-(1.0 - self.random.f64()).ln()),
        };
    }
}

/// Runs the schedule to the end of the bounds, or until told to stop.
pub(super) fn run(
    target: &mut dyn Target,
    load: &Load,
    sequence: &mut Sequence,
    mut schedule: Schedule,
    frame: Frame<'_>,
    counters: &mut Counters,
) -> Result<(), TargetError> {
    let Frame { bounds, clock, ending } = frame;
    let depth = load.depth.min(target.depth());
    let begun = clock.now();
    let mut end = begun + bounds.duration;
    let mut free: Vec<u32> = (0..depth).rev().collect();
    let mut intended = vec![(begun, IoOperation::Read); depth as usize];
    let mut done: Vec<IoDone> = Vec::with_capacity(depth as usize);
    let mut left = bounds.count_max.unwrap_or(u64::MAX);
    let mut now = begun;
    loop {
        if ending.has_come() {
            end = end.min(now);
        }
        let mut submitted = false;
        while now < end && left > 0 && schedule.next <= now && !free.is_empty() {
            let Some(slot) = free.pop() else { break };
            let operation = submit(target, load, slot, sequence.next())?;
            intended[slot as usize] = (schedule.next, operation);
            submitted = true;
            // A flush is no IO of the schedule.
            if operation != IoOperation::Fsync {
                counters.late += u64::from(now.saturating_duration_since(schedule.next) > LATE_AFTER);
                schedule.advance();
                left -= 1;
            }
        }
        let idle = free.len() == depth as usize;
        let over = now >= end || left == 0;
        if over && idle {
            counters.unissued += if left == 0 { 0 } else { unissued(&mut schedule, end) };
            return Ok(());
        }
        if submitted {
            target.flush()?;
        }
        let until = schedule.next.min(end);
        if idle {
            // In steps, so that a stop is noticed.
            clock.wait_until(until.min(now + WAIT_MAX));
        } else {
            let left_to_wait = until.saturating_duration_since(now);
            let wait = match () {
                () if over || free.is_empty() => Wait::ForOne,
                () if left_to_wait > POLL_BELOW => Wait::Until(until - POLL_BELOW),
                () => Wait::Now,
            };
            target.reap(wait, &mut done)?;
        }
        now = clock.now();
        counters.elapsed = now.saturating_duration_since(begun);
        for ended in done.drain(..) {
            let (since, operation) = intended[ended.slot as usize];
            let latency = now.saturating_duration_since(since);
            counters.count(load, (&ended, operation), latency, counters.elapsed);
            ended.outcome?;
            counters.in_time += u64::from(now <= end && operation != IoOperation::Fsync);
            free.push(ended.slot);
        }
    }
}

/// The number of intended times before `end` that remain.
fn unissued(schedule: &mut Schedule, end: Instant) -> u64 {
    let mut count = 0;
    while schedule.next < end && count < COUNTED_MAX {
        schedule.advance();
        count += 1;
    }
    let left = end.saturating_duration_since(schedule.next).as_nanos();
    count + (left / schedule.gap.as_nanos().max(1)).saturating_as::<u64>()
}
