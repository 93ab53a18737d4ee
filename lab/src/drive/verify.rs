//! Reads the places that a connection wrote, and compares their bytes with what it wrote.
//!
//! Invariants
//! - No write is in flight: the measured phase is over on all connections.

use super::sequence::Sequence;
use super::{Counters, Ending, Load, content};
use crate::target::{Io, IoOperation, Target, TargetError, Wait};

/// Compares all places that were written since the last call.
pub(super) fn run(
    target: &mut dyn Target,
    load: &Load,
    sequence: &mut Sequence,
    ending: Ending<'_>,
    counters: &mut Counters,
) -> Result<(), TargetError> {
    let mut from = 0;
    let depth = load.depth.min(target.depth());
    let mut free: Vec<u32> = (0..depth).collect();
    let mut asked = vec![(0, 0); depth as usize];
    let mut done = Vec::with_capacity(depth as usize);
    let length_bytes = load.length_bytes;
    loop {
        while let Some(slot) = free.pop() {
            let next = if ending.has_come() { None } else { sequence.take_written(&mut from) };
            let Some((device, offset_bytes)) = next else {
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
            if let Some(at) = content::first_difference(bytes, device, offset_bytes, load.content_seed) {
                return Err(TargetError::Differs { device, offset_bytes: at });
            }
            counters.verified += 1;
            free.push(ended.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::drive::{Bounds, Frame, IoMix, Region, closed};
    use crate::target::IoDone;
    use std::collections::HashMap;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    /// A device in memory, which may lose writes.
    struct Device {
        memory: Vec<Vec<u8>>,
        stored: HashMap<(u16, u64), Vec<u8>>,
        loses_writes: bool,
        ended: Vec<u32>,
    }

    impl Target for Device {
        fn depth(&self) -> u32 {
            2
        }

        fn memory(&mut self, slot: u32) -> Option<&mut [u8]> {
            Some(&mut self.memory[slot as usize])
        }

        fn submit(&mut self, io: Io) -> Result<(), TargetError> {
            let memory = &mut self.memory[io.slot as usize];
            let place = (io.device, io.offset_bytes);
            match io.operation {
                IoOperation::Write if self.loses_writes => {}
                IoOperation::Write => drop(self.stored.insert(place, memory.clone())),
                _ => memory.clone_from(&self.stored[&place]),
            }
            self.ended.push(io.slot);
            Ok(())
        }

        fn flush(&mut self) -> Result<(), TargetError> {
            Ok(())
        }

        fn reap(&mut self, _wait: Wait, done: &mut Vec<IoDone>) -> Result<(), TargetError> {
            done.extend(self.ended.drain(..).map(|slot| IoDone { slot, outcome: Ok(()), cached: None }));
            Ok(())
        }
    }

    #[test]
    fn a_write_that_a_later_turn_lost_is_noticed_where_an_earlier_turn_wrote_the_same_places() {
        let never = AtomicBool::new(false);
        let ending = Ending { asked: &never, failed: &never };
        let bounds = Bounds { duration: Duration::from_secs(60), count_max: Some(100) };
        let mut device = Device {
            memory: vec![vec![0; 4096]; 2],
            stored: HashMap::new(),
            loses_writes: false,
            ended: Vec::new(),
        };
        let mut turn = |content_seed, loses_writes| {
            device.loses_writes = loses_writes;
            let load = Load {
                mix: IoMix::Only(IoOperation::Write),
                verify: true,
                region: Region { device: 0, offset_bytes: 0, length_bytes: 16 * 4096 },
                depth: 2,
                content_seed,
                ..Load::default()
            };
            let mut sequence = Sequence::new(&load, 0, 1).unwrap();
            let mut counters = Counters::default();
            let frame = Frame { bounds, clock: &SystemClock, ending };
            closed::run(&mut device, &load, &mut sequence, frame, &mut counters).unwrap();
            run(&mut device, &load, &mut sequence, ending, &mut counters).map(|()| counters.verified)
        };
        assert!(turn(1, false).unwrap() >= 10);
        assert!(matches!(turn(2, true), Err(TargetError::Differs { device: 0, .. })));
        assert!(turn(3, false).is_ok());
    }
}
