//! Runs a closed loop: a driver that submits the next IO when an earlier one has ended.
//!
//! Invariants
//! - The loop keeps as many IOs in flight as the depth allows until the run is over, then waits for
//!   those in flight.
//! - A latency counts from submission, so it does not show how long an IO was delayed by a target
//!   that stalled before (see `open`, which shows this).

use super::places::Places;
use super::{Counters, Frame, Load};
use crate::target::{Io, IoDone, Target, TargetError, Wait};

/// Runs to the bounds, or until told to stop.
pub(super) fn run(
    target: &mut dyn Target,
    load: &Load,
    places: &mut Places,
    frame: Frame<'_>,
    counters: &mut Counters,
) -> Result<(), TargetError> {
    let Frame { bounds, clock, ending } = frame;
    let depth = load.depth.min(target.depth());
    let begun = clock.now();
    let end = begun + bounds.duration;
    let mut free: Vec<u32> = (0..depth).rev().collect();
    let mut submitted = vec![begun; depth as usize];
    let mut done: Vec<IoDone> = Vec::with_capacity(depth as usize);
    let mut left = bounds.count_max.unwrap_or(u64::MAX);
    let mut now = begun;
    loop {
        if now >= end || ending.has_come() {
            left = 0;
        }
        while left > 0 && !free.is_empty() {
            let Some(slot) = free.pop() else { break };
            let offset_bytes = places.next();
            let Load { operation, length_bytes, region, .. } = *load;
            target.submit(Io { slot, operation, device: region.device, offset_bytes, length_bytes })?;
            submitted[slot as usize] = now;
            left -= 1;
        }
        if free.len() == depth as usize {
            return Ok(());
        }
        target.reap(Wait::ForOne, &mut done)?;
        now = clock.now();
        counters.elapsed = now.saturating_duration_since(begun);
        for ended in done.drain(..) {
            counters.count(load, &ended, now.saturating_duration_since(submitted[ended.slot as usize]));
            ended.outcome?;
            counters.in_time += u64::from(now <= end);
            free.push(ended.slot);
        }
    }
}
