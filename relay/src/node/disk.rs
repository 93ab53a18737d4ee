//! Submits the reads and writes of a node's stripes to its devices, and flushes devices for several
//! stripes at once.
//!
//! A flush covers the writes of all stripes that have completed when it begins. So a stripe whose
//! writes have all completed asks for the next flush that begins. Stripes that ask while a flush is
//! in progress share the flush after it.
//!
//! Invariants
//! - At most one flush of a device is in progress.
//! - The memory of a read or write belongs to the device until the operation has ended, even if its
//!   stripe is aborted. The guard (a value of the [`Store`](crate::Store) that keeps the stripe's
//!   extents reserved) also lives until then.

use std::collections::BTreeMap;

use rackscan_device::{
    Completion, DeviceIndex, DeviceIo, ExternalMemory, Fsync, Read, SubmitError, Token, Write,
};

use crate::store::Guard;

/// Marks the tokens of watches.
pub(super) const WATCH: u64 = 1 << 63;
/// Marks the tokens of flushes.
const FLUSH: u64 = 1 << 62;

/// A cell of a stripe at this node, by index among the cells that it keeps, or among those that it
/// reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobCell {
    Kept(usize),
    Held(usize),
}

/// A read or a write of a part of a cell.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) session: u64,
    pub(super) lane: usize,
    pub(super) stripe: u64,
    pub(super) cell: JobCell,
    /// The byte of its cell at which it ends.
    pub(super) end_bytes: u64,
    pub(super) _guard: Option<Guard>,
}

/// A completion from a device.
#[derive(Debug)]
pub(super) enum Done {
    Moved(Job, Result<(), String>),
    Flushed(DeviceIndex, Result<(), String>),
    /// A watch has fired.
    Ready(u64),
}

/// Identifies a flush of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flush {
    pub(super) device: DeviceIndex,
    pub(super) number: u64,
}

#[derive(Debug, Default)]
struct Flushes {
    wanted: u64,
    begun: u64,
    ended: u64,
}

/// The operations in progress at the devices.
#[derive(Debug, Default)]
pub(super) struct Disk {
    jobs: Vec<Option<Job>>,
    free: Vec<usize>,
    flushes: BTreeMap<DeviceIndex, Flushes>,
    /// Bytes given to writes, and to reads.
    pub(super) written_bytes: u64,
    pub(super) read_bytes: u64,
}

impl Disk {
    /// Whether a read or a write would be accepted now, with room left for flushes.
    pub(super) fn has_room(&self, io: &dyn DeviceIo) -> bool {
        let flushes =
            u32::try_from(self.flushes.len()).expect("one for each device, whose indices have 16 bits");
        io.in_flight() + 1 + flushes < io.depth() || io.in_flight() == 0
    }

    /// Submits a write out of this memory, or a read into it, as the job says.
    pub(super) fn submit(
        &mut self,
        io: &mut dyn DeviceIo,
        job: Job,
        (device, offset_bytes): (DeviceIndex, u64),
        memory: ExternalMemory,
    ) -> Result<(), SubmitError> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.jobs.push(None);
            self.jobs.len() - 1
        });
        let bytes = memory.len() as u64;
        let length_bytes =
            u32::try_from(memory.len()).expect("an operation has at most SLICE_BYTES_MAX bytes");
        let (token, memory) = (Token(index as u64), memory.into());
        let submitted = match job.cell {
            JobCell::Kept(_) => {
                let write = Write { device, offset_bytes, length_bytes, from: memory, token };
                io.submit_write(write).map_err(|refused| refused.reason)
            }
            JobCell::Held(_) => {
                let read = Read { device, offset_bytes, length_bytes, into: memory, token };
                io.submit_read(read).map_err(|refused| refused.reason)
            }
        };
        if let Err(reason) = submitted {
            self.free.push(index);
            return Err(reason);
        }
        match job.cell {
            JobCell::Kept(_) => self.written_bytes += bytes,
            JobCell::Held(_) => self.read_bytes += bytes,
        }
        self.jobs[index] = Some(job);
        Ok(())
    }

    /// Requests the flush of a device that covers everything that has completed by now.
    pub(super) fn want(&mut self, device: DeviceIndex) -> Flush {
        let flushes = self.flushes.entry(device).or_default();
        flushes.wanted = flushes.begun + 1;
        Flush { device, number: flushes.wanted }
    }

    /// Whether a flush has ended.
    pub(super) fn is_flushed(&self, flush: Flush) -> bool {
        self.flushes.get(&flush.device).is_some_and(|flushes| flushes.ended >= flush.number)
    }

    /// Begins requested flushes. Returns whether any began.
    pub(super) fn pump(&mut self, io: &mut dyn DeviceIo) -> Result<bool, (DeviceIndex, SubmitError)> {
        let mut any = false;
        for (device, flushes) in &mut self.flushes {
            if flushes.wanted == flushes.begun || flushes.begun > flushes.ended {
                continue;
            }
            let token = Token(FLUSH | u64::from(device.0));
            match io.submit_fsync(Fsync { device: *device, token }) {
                Ok(()) => {
                    flushes.begun += 1;
                    any = true;
                }
                Err(refused) if matches!(refused.reason, SubmitError::QueueFull { .. }) => {}
                Err(refused) => {
                    // The stripes that wait for it are told, so the request is withdrawn.
                    flushes.wanted = flushes.begun;
                    return Err((*device, refused.reason));
                }
            }
        }
        Ok(any)
    }

    /// Translates a completion; `None` if it belongs to no operation of this node.
    pub(super) fn ended(&mut self, completion: Completion) -> Option<Done> {
        match completion {
            Completion::Write { token, outcome, .. } | Completion::Read { token, outcome, .. } => {
                let index = usize::try_from(token.0).ok()?;
                let job = self.jobs.get_mut(index)?.take()?;
                self.free.push(index);
                Some(Done::Moved(job, outcome.map_err(|fault| fault.to_string())))
            }
            Completion::Fsync { token, outcome } => {
                let device = DeviceIndex(u16::try_from(token.0 & !FLUSH).ok()?);
                let flushes = self.flushes.get_mut(&device)?;
                flushes.ended = flushes.begun;
                Some(Done::Flushed(device, outcome.map_err(|fault| fault.to_string())))
            }
            Completion::Ready { token, .. } => Some(Done::Ready(token.0 & !WATCH)),
        }
    }
}

#[cfg(test)]
mod tests {
    use rackscan_device::{
        Wait,
        sim::{SimConfig, SimDisk, SimIo},
    };

    use super::*;

    fn reap(disk: &mut Disk, io: &mut SimIo) -> usize {
        let mut completions = Vec::new();
        io.reap(Wait::ForOne, &mut |completion| completions.push(completion)).unwrap();
        completions.into_iter().filter_map(|completion| disk.ended(completion)).count()
    }

    #[test]
    fn who_asks_during_a_flush_shares_the_next_one() {
        let mut io = SimIo::new(SimConfig::seeded(1), vec![SimDisk::zeroed(8192)]);
        let mut disk = Disk::default();
        let device = DeviceIndex(0);
        let first = disk.want(device);
        assert_eq!(disk.pump(&mut io).ok(), Some(true));
        let (second, third) = (disk.want(device), disk.want(device));
        assert_eq!((first.number, second.number, third.number), (1, 2, 2));
        assert_eq!(disk.pump(&mut io).ok(), Some(false), "one at a time");
        assert_eq!(reap(&mut disk, &mut io), 1);
        assert!(disk.is_flushed(first) && !disk.is_flushed(second));
        assert_eq!(disk.pump(&mut io).ok(), Some(true));
        assert_eq!(reap(&mut disk, &mut io), 1);
        assert!(disk.is_flushed(third));
        assert_eq!(disk.pump(&mut io).ok(), Some(false), "nobody wants one");
    }
}
