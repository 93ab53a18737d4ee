//! Issues one connection's share of a trace, and measures each request. A lane is such a
//! connection: a thread with a target of its own.
//!
//! Invariants
//! - A lane issues its requests in their order, each at most once and none before its time.
//! - A late request does not delay later ones: the intended times depend only on the trace and the
//!   start of the replay.
//! - A lane records two latencies of each request: from its issue, and from its intended time. A
//!   stall shows in the second latency of every request that it delayed.
//! - A lane always ends: it waits only a limited time for requests in flight, whatever the target
//!   does.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::plan::Request;
use crate::clock::Clock;
use crate::latency::Latencies;
use crate::target::{CacheHits, Cached, Io, IoDone, IoOperation, Target, TargetError, Wait};

/// A wait shorter than this is spent polling, because a sleeping thread would wake up too late.
const POLL_BELOW: Duration = Duration::from_micros(80);

/// A wait is interrupted after this time to check whether the replay should end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A target that ends no request for this time, with requests in flight, counts as lost.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(30);

/// How long a replay that was stopped waits for requests in flight.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// When requests are issued.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Timing {
    /// At the trace's times, divided by this speed.
    AtSpeed(f64),
    /// As fast as the target takes them.
    NoStall,
}

/// The requests of one connection: every `step`-th from `first` on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share<'a> {
    pub(super) requests: &'a [Request],
    pub(super) first: usize,
    pub(super) step: usize,
}

impl<'a> Share<'a> {
    fn iter(self) -> impl ExactSizeIterator<Item = &'a Request> {
        self.requests.get(self.first..).unwrap_or_default().iter().step_by(self.step.max(1))
    }
}

/// What all lanes of a replay share.
#[derive(Clone, Copy)]
pub(super) struct Rules<'a> {
    pub(super) timing: Timing,
    pub(super) depth: u32,
    /// A request issued this much after its intended time counts as late.
    pub(super) late_after: Duration,
    /// Whether a failed request ends the replay.
    pub(super) strict: bool,
    /// Set by the caller to end the replay.
    pub(super) stop: &'a AtomicBool,
    /// Set when another lane has failed.
    pub(super) over: &'a AtomicBool,
    /// Requests that have ended, over all lanes.
    pub(super) ended: &'a AtomicU64,
}

/// Counters of one lane, or of all together.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// From the issue to the end.
    pub from_issue: Latencies,
    /// From the intended time to the end; empty without stalls.
    pub from_intended: Latencies,
    /// From the intended time to the issue; empty without stalls.
    pub lateness: Latencies,
    /// Requests issued later than the limit.
    pub late: u64,
    /// Requests handed to the target.
    pub issued: u64,
    /// Requests that succeeded.
    pub ended: u64,
    /// Requests that the target refused or that failed.
    pub failed: u64,
    /// The first failure of a single request.
    pub first_failure: Option<String>,
    /// Of the succeeded requests, those from a node's page cache.
    pub cached: CacheHits,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Requests that were not issued because the replay ended early.
    pub unissued: u64,
    /// Time until the last request ended.
    pub elapsed: Duration,
}

impl Counters {
    pub(super) fn add(&mut self, other: &Self) {
        self.from_issue.add(&other.from_issue);
        self.from_intended.add(&other.from_intended);
        self.lateness.add(&other.lateness);
        self.late += other.late;
        self.issued += other.issued;
        self.ended += other.ended;
        self.failed += other.failed;
        self.cached.add(other.cached);
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.unissued += other.unissued;
        self.elapsed = self.elapsed.max(other.elapsed);
        if self.first_failure.is_none() {
            self.first_failure.clone_from(&other.first_failure);
        }
    }

    fn fail(&mut self, error: &TargetError) {
        self.failed += 1;
        self.first_failure.get_or_insert_with(|| error.to_string());
    }
}

/// Why a lane ended before its last request.
#[derive(Debug, thiserror::Error)]
pub(super) enum LaneError {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(
        "no request has ended for {seconds} s, with {in_flight} requests in flight: the node or device hangs"
    )]
    Silent { seconds: u64, in_flight: usize },
    #[error("{in_flight} requests were still in flight {seconds} s after the replay should have ended")]
    Undrained { seconds: u64, in_flight: usize },
}

/// The request in flight in a slot.
#[derive(Debug, Clone, Copy)]
struct Flight {
    intended: Option<Instant>,
    issued: Instant,
    length_bytes: u32,
    operation: IoOperation,
}

/// A running lane.
pub(super) struct Lane<'a> {
    target: &'a mut dyn Target,
    rules: Rules<'a>,
    clock: &'a dyn Clock,
    begun: Instant,
    counters: &'a mut Counters,
    free: Vec<u32>,
    flights: Vec<Option<Flight>>,
    done: Vec<IoDone>,
    /// When a request last ended, or was issued while nothing was in flight.
    lively: Instant,
    stopped: Option<Instant>,
}

impl<'a> Lane<'a> {
    pub(super) fn new(
        target: &'a mut dyn Target,
        rules: Rules<'a>,
        (clock, begun): (&'a dyn Clock, Instant),
        counters: &'a mut Counters,
    ) -> Self {
        let depth = rules.depth.min(target.depth());
        Self {
            target,
            rules,
            clock,
            begun,
            counters,
            free: (0..depth).rev().collect(),
            flights: vec![None; depth as usize],
            done: Vec::with_capacity(depth as usize),
            lively: begun,
            stopped: None,
        }
    }

    /// Issues the share and waits for its end.
    pub(super) fn run(mut self, share: Share<'_>) -> Result<(), LaneError> {
        let mut left = share.iter().peekable();
        let result = loop {
            if self.stopped.is_none() && self.shall_end() {
                self.stopped = Some(self.clock.now());
            }
            let next = if self.stopped.is_some() { None } else { left.peek().copied() };
            let due = next.map(|request| self.intended(request));
            match self.issue_if_due(next, due.flatten()) {
                Ok(true) => {
                    left.next();
                    continue;
                }
                Ok(false) => {}
                Err(error) => break Err(error),
            }
            if next.is_none() && self.in_flight() == 0 {
                break Ok(());
            }
            if let Err(error) = self.wait(next.is_some(), due.flatten()) {
                break Err(error);
            }
        };
        self.counters.unissued += left.len() as u64;
        self.counters.elapsed = self.clock.now().saturating_duration_since(self.begun);
        result
    }

    fn shall_end(&self) -> bool {
        self.rules.stop.load(Ordering::Relaxed) || self.rules.over.load(Ordering::Relaxed)
    }

    fn in_flight(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// When a request should be issued; `None` for at once.
    fn intended(&self, request: &Request) -> Option<Instant> {
        match self.rules.timing {
            Timing::NoStall => None,
            Timing::AtSpeed(speed) => Some(self.begun + at_speed(request.at_ns, speed)),
        }
    }

    /// Hands the request to the target if it is due and a slot is free. Returns whether it did.
    fn issue_if_due(&mut self, next: Option<&Request>, intended: Option<Instant>) -> Result<bool, LaneError> {
        let (Some(request), Some(&slot)) = (next, self.free.last()) else { return Ok(false) };
        let now = self.clock.now();
        if intended.is_some_and(|intended| now < intended) {
            return Ok(false);
        }
        let Request { offset_bytes, length_bytes, device, operation, .. } = *request;
        match self.target.submit(Io { slot, operation, device, offset_bytes, length_bytes }) {
            Ok(()) => {}
            Err(error) if error.ends_the_target() || self.rules.strict => return Err(error.into()),
            Err(error) => {
                self.counters.fail(&error);
                self.rules.ended.fetch_add(1, Ordering::Relaxed);
                return Ok(true);
            }
        }
        if self.in_flight() == 0 {
            self.lively = now;
        }
        self.free.pop();
        self.flights[slot as usize] = Some(Flight { intended, issued: now, length_bytes, operation });
        self.counters.issued += 1;
        if let Some(intended) = intended {
            let lateness = now.saturating_duration_since(intended);
            self.counters.lateness.record(lateness);
            self.counters.late += u64::from(lateness > self.rules.late_after);
        }
        Ok(true)
    }

    /// Flushes accepted requests, and waits for the next intended time, for the end of a request,
    /// or for the next check.
    fn wait(&mut self, more: bool, intended: Option<Instant>) -> Result<(), LaneError> {
        let now = self.clock.now();
        let look = now + LOOK_EVERY;
        // Without a free slot, wait for a request to end, not for the intended time.
        let until = if self.free.is_empty() { None } else { intended.filter(|_| more) };
        if self.in_flight() == 0 {
            self.target.flush()?;
            self.clock.wait_until(until.map_or(look, |until| until.min(look)));
            return Ok(());
        }
        let wait = match until {
            Some(until) if until.saturating_duration_since(now) <= POLL_BELOW => Wait::Now,
            Some(until) => Wait::Until((until - POLL_BELOW).min(look)),
            None => Wait::Until(look),
        };
        self.target.reap(wait, &mut self.done)?;
        self.settle()
    }

    /// Counts the requests that have ended.
    fn settle(&mut self) -> Result<(), LaneError> {
        let now = self.clock.now();
        let ended = self.done.len() as u64;
        let mut failed = None;
        for end in self.done.drain(..) {
            let Some(flight) = self.flights.get_mut(end.slot as usize).and_then(Option::take) else {
                continue;
            };
            self.free.push(end.slot);
            match end.outcome {
                Ok(()) => count(self.counters, flight, now, end.cached),
                Err(error) => {
                    self.counters.fail(&error);
                    if error.ends_the_target() || self.rules.strict {
                        failed.get_or_insert(error);
                    }
                }
            }
        }
        if ended > 0 {
            self.rules.ended.fetch_add(ended, Ordering::Relaxed);
            self.lively = now;
        }
        if let Some(error) = failed {
            return Err(error.into());
        }
        let in_flight = self.in_flight();
        let silent = now.saturating_duration_since(self.lively);
        if in_flight > 0 && silent >= SILENCE_MAX {
            return Err(LaneError::Silent { seconds: silent.as_secs(), in_flight });
        }
        let draining = self.stopped.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        if in_flight > 0 && draining >= DRAIN_MAX {
            return Err(LaneError::Undrained { seconds: draining.as_secs(), in_flight });
        }
        Ok(())
    }
}

fn count(counters: &mut Counters, flight: Flight, now: Instant, cached: Option<Cached>) {
    counters.from_issue.record(now.saturating_duration_since(flight.issued));
    if let Some(intended) = flight.intended {
        counters.from_intended.record(now.saturating_duration_since(intended));
    }
    counters.ended += 1;
    counters.cached.count(cached);
    let bytes = u64::from(flight.length_bytes);
    match flight.operation {
        IoOperation::Read => counters.read_bytes += bytes,
        IoOperation::Write => counters.written_bytes += bytes,
        IoOperation::Trim | IoOperation::Fsync => unreachable!("traces hold reads and writes"),
    }
}

/// The time of a record in a replay of this speed.
pub(super) fn at_speed(at_ns: u64, speed: f64) -> Duration {
    if speed == 1.0 {
        return Duration::from_nanos(at_ns);
    }
    Duration::try_from_secs_f64(Duration::from_nanos(at_ns).as_secs_f64() / speed).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests;
