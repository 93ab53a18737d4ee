//! Reads the places that a connection wrote, and compares their bytes with what it wrote.
//!
//! Invariants
//! - No write is in flight: the measured phase is over on all connections.

use super::sequence::Sequence;
use super::{Counters, Load, content};
use crate::target::{Io, IoOperation, Target, TargetError, Wait};

/// Compares all places that were written since the last call.
pub(super) fn run(
    target: &mut dyn Target,
    load: &Load,
    sequence: &mut Sequence,
    counters: &mut Counters,
) -> Result<(), TargetError> {
    let mut places = sequence.take_written().into_iter();
    let depth = load.depth.min(target.depth());
    let mut free: Vec<u32> = (0..depth).collect();
    let mut asked = vec![(0, 0); depth as usize];
    let mut done = Vec::with_capacity(depth as usize);
    let length_bytes = load.length_bytes;
    loop {
        while let Some(slot) = free.pop() {
            let Some((device, offset_bytes)) = places.next() else {
                free.push(slot);
                break;
            };
            asked[slot as usize] = (device, offset_bytes);
            target.submit(Io { slot, operation: IoOperation::Read, device, offset_bytes, length_bytes })?;
        }
        if free.len() == depth as usize {
            return Ok(());
        }
        target.reap(Wait::ForOne, &mut done)?;
        for ended in done.drain(..) {
            ended.outcome?;
            let (device, offset_bytes) = asked[ended.slot as usize];
            let memory =
                target.memory(ended.slot).ok_or(TargetError::Unsupported { what: "verifying writes" })?;
            let bytes = &memory[..length_bytes as usize];
            if let Some(at) = content::first_difference(bytes, device, offset_bytes, load.seed) {
                return Err(TargetError::Differs { device, offset_bytes: at });
            }
            counters.verified += 1;
            free.push(ended.slot);
        }
    }
}
