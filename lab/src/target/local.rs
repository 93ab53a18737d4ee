//! Implements a target whose IOs this process does by itself, bypassing the kernel's page cache.
//!
//! The target works over any [`DeviceIo`]: an io_uring of this thread, threads that call pread, or
//! this thread calling pread.
//!
//! Invariants
//! - The buffer of a slot (one of the target's places for an IO in flight) is in `memory` if and
//!   only if the slot has no IO in flight.
//! - The token of a device request is the number of its slot.

use std::sync::Arc;

use az::SaturatingAs;
use rackscan_device::{
    BlockingIo, BufferPool, Completion, Device, DeviceIndex, DeviceIo, Fsync, HandOver, IoMemory, PreadPool,
    Read, Ring, RingConfig, RingMode, ThreadedConfig, Token, Wait as DeviceWait, Write,
    limits::IO_ALIGN_BYTES,
};

use super::{Io, IoDone, IoOperation, Target, TargetError, Wait};
use crate::limits;

/// The shape of a local target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalOptions {
    /// Maximum IOs in flight.
    pub depth: u32,
    /// Largest IO, in bytes.
    pub slot_bytes: u32,
}

/// How a ring hands IOs to the kernel, and notices their end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UringShape {
    /// When an IO is handed over.
    pub hand_over: HandOver,
    /// Who takes it, and how its end is noticed.
    pub mode: RingMode,
}

impl UringShape {
    /// Each IO at once, with interrupts.
    pub const USUAL: Self = Self { hand_over: HandOver::EachAtOnce, mode: RingMode::Interrupts };
}

/// A target over devices of this host.
#[derive(Debug)]
pub struct Local<D> {
    io: D,
    /// The devices, for what the ring cannot do.
    devices: Vec<Arc<Device>>,
    slot_bytes: u32,
    memory: Vec<Option<IoMemory>>,
    /// Trims, which end when they are submitted.
    ended: Vec<IoDone>,
}

impl Local<Ring> {
    /// Creates an io_uring of the calling thread over `devices`; its memory is registered if the
    /// system allows that.
    ///
    /// # Errors
    /// [`TargetError`]: a shape outside the limits, no memory, or no io_uring.
    pub fn uring(
        devices: Vec<Arc<Device>>,
        shape: UringShape,
        options: LocalOptions,
    ) -> Result<Self, TargetError> {
        let pool = pool(options)?;
        let UringShape { hand_over, mode } = shape;
        let (depth, buffers) = (options.depth, Some(pool.clone()));
        let config = RingConfig { depth, devices: devices.clone(), buffers, hand_over, mode };
        Ok(Self { devices, ..Self::over(Ring::new(config)?, &pool, options)? })
    }
}

impl Local<PreadPool> {
    /// Starts `threads` blocking reader threads for the calling thread.
    ///
    /// # Errors
    /// [`TargetError`]: a shape outside the limits, no memory, or no threads.
    pub fn pread(
        devices: Vec<Arc<Device>>,
        threads: usize,
        options: LocalOptions,
    ) -> Result<Self, TargetError> {
        let pool = pool(options)?;
        let config = ThreadedConfig {
            depth: options.depth,
            devices: devices.clone(),
            cores: Vec::new(),
            name: "lab io".to_owned(),
        };
        Ok(Self { devices, ..Self::over(PreadPool::new(config, threads)?, &pool, options)? })
    }
}

impl Local<BlockingIo> {
    /// The calling thread reads by itself, one IO after the other, as in the paper.
    ///
    /// # Errors
    /// [`TargetError`]: a shape outside the limits, or no memory.
    pub fn blocking(devices: Vec<Arc<Device>>, options: LocalOptions) -> Result<Self, TargetError> {
        let pool = pool(options)?;
        let config =
            ThreadedConfig { depth: options.depth, devices: devices.clone(), ..ThreadedConfig::default() };
        Ok(Self { devices, ..Self::over(BlockingIo::new(config)?, &pool, options)? })
    }
}

impl<D: DeviceIo> Local<D> {
    /// Creates a target over an implementation of device IO, with memory of `pool`.
    ///
    /// # Errors
    /// [`TargetError::BadShape`] if `io` takes fewer requests in flight, [`TargetError::Take`] if
    /// the pool is too small.
    pub fn over(io: D, pool: &BufferPool, options: LocalOptions) -> Result<Self, TargetError> {
        let LocalOptions { depth, slot_bytes } = options;
        check(options)?;
        if io.depth() < depth {
            return Err(TargetError::BadShape { depth, slot_bytes });
        }
        let mut random = fastrand::Rng::with_seed(u64::from(depth));
        let mut memory = Vec::with_capacity(depth as usize);
        for _slot in 0..depth {
            let mut buffer = pool.take(slot_bytes as usize)?;
            random.fill(&mut buffer);
            memory.push(Some(IoMemory::Buffer(buffer)));
        }
        Ok(Self { io, devices: Vec::new(), slot_bytes, memory, ended: Vec::with_capacity(depth as usize) })
    }

    /// The device IO.
    #[must_use]
    pub fn io(&self) -> &D {
        &self.io
    }

    /// The bytes of a slot that has nothing in flight.
    #[must_use]
    pub fn bytes(&self, slot: u32) -> Option<&[u8]> {
        match self.memory.get(slot as usize)? {
            Some(IoMemory::Buffer(buffer)) => Some(buffer),
            _ => None,
        }
    }

    fn take(&mut self, io: Io) -> Result<IoMemory, TargetError> {
        let Io { slot, length_bytes, .. } = io;
        let depth = self.depth();
        let place = self.memory.get_mut(slot as usize).ok_or(TargetError::NoSuchSlot { slot, depth })?;
        if length_bytes == 0 || length_bytes > self.slot_bytes {
            return Err(TargetError::BadLength { length_bytes, slot_bytes: self.slot_bytes });
        }
        place.take().ok_or(TargetError::SlotBusy { slot })
    }

    fn trim(&self, io: Io) -> Result<(), TargetError> {
        let Io { device, offset_bytes, length_bytes, .. } = io;
        let device = self.devices.get(usize::from(device));
        let device = device.ok_or(TargetError::Unsupported { what: "trimming" })?;
        device.trim(offset_bytes, length_bytes.into()).map_err(|errno| TargetError::Trim {
            device: device.path().display().to_string(),
            offset_bytes,
            length_bytes,
            source: errno.into(),
        })
    }
}

/// Allocates the memory for the slots of one target.
///
/// # Errors
/// [`TargetError::BadShape`] outside the limits, [`TargetError::Pool`] if the system does not have
/// it.
pub(crate) fn pool(options: LocalOptions) -> Result<BufferPool, TargetError> {
    check(options)?;
    let largest = (options.slot_bytes as usize).next_power_of_two().max(IO_ALIGN_BYTES);
    Ok(BufferPool::new(largest * options.depth as usize, largest)?)
}

fn check(options: LocalOptions) -> Result<(), TargetError> {
    let LocalOptions { depth, slot_bytes } = options;
    let fits =
        (1..=limits::DEPTH_MAX).contains(&depth) && (1..=limits::IO_BYTES_LARGEST).contains(&slot_bytes);
    if fits { Ok(()) } else { Err(TargetError::BadShape { depth, slot_bytes }) }
}

impl<D: DeviceIo> Target for Local<D> {
    fn depth(&self) -> u32 {
        self.memory.len().saturating_as::<u32>()
    }

    fn memory(&mut self, slot: u32) -> Option<&mut [u8]> {
        match self.memory.get_mut(slot as usize)? {
            Some(IoMemory::Buffer(buffer)) => Some(buffer),
            _ => None,
        }
    }

    fn submit(&mut self, io: Io) -> Result<(), TargetError> {
        let memory = self.take(io)?;
        let Io { slot, operation, device, offset_bytes, length_bytes } = io;
        let (device, token) = (DeviceIndex(device), Token(u64::from(slot)));
        let refused = match operation {
            IoOperation::Read => {
                let read = Read { device, offset_bytes, length_bytes, into: memory, token };
                self.io.submit_read(read).err().map(|refused| (refused.request.into, refused.reason))
            }
            IoOperation::Write => {
                let write = Write { device, offset_bytes, length_bytes, from: memory, token };
                self.io.submit_write(write).err().map(|refused| (refused.request.from, refused.reason))
            }
            IoOperation::Trim => {
                self.memory[slot as usize] = Some(memory);
                let outcome = self.trim(io);
                self.ended.push(IoDone { slot, outcome, cached: None });
                return Ok(());
            }
            IoOperation::Fsync => {
                // The slot keeps its memory: a flush has none.
                let refused = self.io.submit_fsync(Fsync { device, token }).err();
                let Some(refused) = refused else {
                    self.memory[slot as usize] = Some(memory);
                    return Ok(());
                };
                Some((memory, refused.reason))
            }
        };
        let Some((memory, reason)) = refused else { return Ok(()) };
        self.memory[slot as usize] = Some(memory);
        Err(reason.into())
    }

    fn flush(&mut self) -> Result<(), TargetError> {
        Ok(self.io.flush()?)
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<IoDone>) -> Result<(), TargetError> {
        let Self { io, memory: places, ended, .. } = self;
        let wait = match wait {
            _ if !ended.is_empty() => DeviceWait::Now,
            Wait::Now => DeviceWait::Now,
            Wait::ForOne => DeviceWait::ForOne,
            Wait::Until(moment) => DeviceWait::Until(moment),
        };
        done.append(ended);
        io.reap(wait, &mut |completion| {
            let (token, memory, outcome) = match completion {
                Completion::Read { token, memory, outcome }
                | Completion::Write { token, memory, outcome } => (token, Some(memory), outcome),
                Completion::Fsync { token, outcome } => (token, None, outcome),
                Completion::Ready { .. } => return,
            };
            let slot = u32::try_from(token.0).expect("tokens are numbers of slots");
            if let Some(memory) = memory {
                places[slot as usize] = Some(memory);
            }
            done.push(IoDone { slot, outcome: outcome.map_err(TargetError::Fault), cached: None });
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackscan_device::sim::{SimConfig, SimDisk, SimIo};

    const OPTIONS: LocalOptions = LocalOptions { depth: 4, slot_bytes: 8192 };

    fn contents() -> Vec<u8> {
        (0..1_u32 << 18).flat_map(|word| word.to_le_bytes()).collect()
    }

    fn simulated() -> Local<SimIo> {
        let disks = vec![SimDisk::of(contents())];
        let io = SimIo::new(SimConfig::seeded(7), disks);
        Local::over(io, &pool(OPTIONS).unwrap(), OPTIONS).unwrap()
    }

    fn io(slot: u32, operation: IoOperation, offset_bytes: u64, length_bytes: u32) -> Io {
        Io { slot, operation, device: 0, offset_bytes, length_bytes }
    }

    fn ends(target: &mut impl Target, count: usize) -> Vec<IoDone> {
        let mut done = Vec::new();
        while done.len() < count {
            target.reap(Wait::ForOne, &mut done).unwrap();
        }
        done
    }

    #[test]
    fn every_slot_ends_once_with_the_bytes_of_its_own_place() {
        let mut target = simulated();
        for slot in 0..4 {
            target.submit(io(slot, IoOperation::Read, u64::from(slot) * 12_288, 8192)).unwrap();
        }
        let mut slots: Vec<u32> = ends(&mut target, 4).iter().map(|done| done.slot).collect();
        slots.sort_unstable();
        assert_eq!(slots, [0, 1, 2, 3]);
        let contents = contents();
        for slot in 0..4 {
            let at = slot as usize * 12_288;
            assert_eq!(target.bytes(slot).unwrap(), &contents[at..at + 8192]);
        }
    }

    #[test]
    fn a_written_place_reads_back_as_the_slots_bytes() {
        let mut target = simulated();
        let written = target.bytes(1).unwrap().to_vec();
        assert!(written.iter().any(|byte| *byte != written[0]), "what is written is not one repeated byte");
        target.submit(io(1, IoOperation::Write, 4096, 8192)).unwrap();
        ends(&mut target, 1).pop().unwrap().outcome.unwrap();
        target.submit(io(2, IoOperation::Read, 4096, 8192)).unwrap();
        ends(&mut target, 1).pop().unwrap().outcome.unwrap();
        assert_eq!(target.bytes(2).unwrap(), written);
    }

    #[test]
    fn impossible_ios_are_refused_and_leave_the_slot_free() {
        let mut target = simulated();
        let read = |slot, offset, length| io(slot, IoOperation::Read, offset, length);
        let no_slot = target.submit(read(4, 0, 4096)).unwrap_err();
        assert!(matches!(no_slot, TargetError::NoSuchSlot { slot: 4, depth: 4 }));
        assert!(matches!(target.submit(read(0, 0, 0)), Err(TargetError::BadLength { .. })));
        assert!(matches!(target.submit(read(0, 0, 12_288)), Err(TargetError::BadLength { .. })));
        assert!(matches!(target.submit(read(0, 77, 4096)), Err(TargetError::Refused(_))));
        assert!(matches!(target.submit(read(0, u64::MAX - 4095, 4096)), Err(TargetError::Refused(_))));
        target.submit(read(0, 0, 4096)).unwrap();
        let busy = target.submit(read(0, 0, 4096)).unwrap_err();
        assert!(matches!(busy, TargetError::SlotBusy { slot: 0 }) && !busy.ends_the_target());
        assert_eq!(ends(&mut target, 1).len(), 1);
    }

    #[test]
    fn shapes_outside_the_limits_are_refused_with_the_numbers() {
        for (depth, slot_bytes) in [(0, 4096), (limits::DEPTH_MAX + 1, 512), (1, 0), (1, 1 << 21)] {
            let refused =
                Local::uring(Vec::new(), UringShape::USUAL, LocalOptions { depth, slot_bytes }).unwrap_err();
            assert!(refused.to_string().contains(&depth.to_string()), "{refused}");
        }
    }
}
