//! Runs a closed loop: a driver that submits the next IO when an earlier one has ended.
//!
//! Invariants
//! - The loop keeps as many IOs in flight as the depth allows until the run is over, then waits for
//!   those in flight.
//! - A latency counts from submission, so it does not show how long an IO was delayed by a target
//!   that stalled before (see `open`, which shows this).

use super::sequence::{Sequence, submit};
use super::{Counters, Frame, Load};
use crate::target::{IoDone, IoOperation, Target, TargetError, Wait};

/// Runs to the bounds, or until told to stop.
pub(super) fn run(
    target: &mut dyn Target,
    load: &Load,
    sequence: &mut Sequence,
    frame: Frame<'_>,
    counters: &mut Counters,
) -> Result<(), TargetError> {
    let Frame { bounds, clock, ending } = frame;
    let depth = load.depth.min(target.depth());
    let begun = clock.now();
    let end = begun + bounds.duration;
    let mut free: Vec<u32> = (0..depth).rev().collect();
    let mut submitted = vec![(begun, IoOperation::Read); depth as usize];
    let mut done: Vec<IoDone> = Vec::with_capacity(depth as usize);
    let mut left = bounds.count_max.unwrap_or(u64::MAX);
    let mut now = begun;
    loop {
        if now >= end || ending.has_come() {
            left = 0;
        }
        while left > 0 && !free.is_empty() {
            let Some(slot) = free.pop() else { break };
            let operation = submit(target, load, slot, sequence.next())?;
            submitted[slot as usize] = (now, operation);
            left -= u64::from(operation != IoOperation::Fsync);
        }
        if free.len() == depth as usize {
            return Ok(());
        }
        target.reap(Wait::ForOne, &mut done)?;
        now = clock.now();
        counters.elapsed = now.saturating_duration_since(begun);
        for ended in done.drain(..) {
            let (since, operation) = submitted[ended.slot as usize];
            let latency = now.saturating_duration_since(since);
            counters.count(load, (&ended, operation), latency, counters.elapsed);
            ended.outcome?;
            counters.in_time += u64::from(now <= end && operation != IoOperation::Fsync);
            free.push(ended.slot);
        }
    }
}
