//! The simulator: decides when and how each request ends.
//!
//! Time is virtual: a request is due at submission time plus a random latency from the seed, so
//! requests overtake each other. Reads and writes take effect when they are due. `reap(Now)` lets a
//! little virtual time pass, so that pollers make progress; blocking waits jump to the next due
//! request. Watched descriptors are real and are checked with poll(2).

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::disk::{CrashImage, SECTOR_BYTES, SimDisk};
use super::random::Random;
use crate::check::{self, Extent, Geometry};
use crate::device::{Access, Alignment};
use crate::error::{ReapError, Refused, SubmitError};
use crate::fault::{IoFault, Operation, verdict};
use crate::io::DeviceIo;
use crate::limits::WATCHES_PER_RING_MAX;
use crate::request::{
    Completion, DeviceIndex, Fsync, Interest, IoMemory, Read, Readiness, Repeat, Token, Wait, Watch, WatchId,
    Write,
};

/// Maximum virtual microseconds that pass in one `reap(Now)`.
const POLL_US_MAX: u64 = 50;

/// Rates of faults, per million requests of the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultRates {
    /// A read ends with EIO.
    pub read_error: u32,
    /// A read succeeds with the bytes of another offset of the device.
    pub misdirected_read: u32,
    /// A write ends with EIO and changes nothing.
    pub write_error: u32,
    /// A write ends with EIO after writing some of its first sectors.
    pub torn_write: u32,
    /// A flush ends with EIO and covers nothing.
    pub fsync_error: u32,
}

/// The configuration of a simulation.
#[derive(Debug, Clone)]
pub struct SimConfig {
    /// The seed of all random decisions.
    pub seed: u64,
    /// Maximum number of requests in flight.
    pub depth: u32,
    /// Latencies in virtual microseconds.
    pub latency_us: Range<u64>,
    /// Rates of faults.
    pub faults: FaultRates,
}

impl SimConfig {
    /// Depth 64, latencies of 10 to 500 us, no faults.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self { seed, depth: 64, latency_us: 10..500, faults: FaultRates::default() }
    }
}

/// A request in flight.
#[derive(Debug)]
struct Pending {
    due_us: u64,
    /// Order of submission; breaks ties.
    number: u64,
    extent: Extent,
    token: Token,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Read { into: IoMemory },
    Write { from: IoMemory, bytes: Vec<u8> },
    Fsync { covers_writes: u64 },
}

#[derive(Debug)]
struct Watched {
    id: WatchId,
    fd: OwnedFd,
    interest: Interest,
    repeat: Repeat,
    token: Token,
}

/// Devices in memory behind [`DeviceIo`].
#[derive(Debug)]
pub struct SimIo {
    config: SimConfig,
    random: Random,
    disks: Vec<SimDisk>,
    now_us: u64,
    submitted: u64,
    pending: Vec<Pending>,
    watched: Vec<Watched>,
    watches_made: u32,
}

impl SimIo {
    /// A simulation over `disks`, addressed by their index in the list.
    #[must_use]
    pub fn new(config: SimConfig, disks: Vec<SimDisk>) -> Self {
        let random = Random::new(config.seed);
        Self {
            config,
            random,
            disks,
            now_us: 0,
            submitted: 0,
            pending: Vec::new(),
            watched: Vec::new(),
            watches_made: 0,
        }
    }

    /// The seed, for tests to print when they fail.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.config.seed
    }

    /// Virtual microseconds since the start.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// The disks as they are now.
    #[must_use]
    pub fn disks(&self) -> &[SimDisk] {
        &self.disks
    }

    /// Loses power now and returns the disks after the crash. Requests in flight never complete;
    /// their writes are treated like unsynced ones under [`CrashImage::AnySectors`].
    #[must_use]
    pub fn crash(mut self, image: CrashImage) -> Vec<SimDisk> {
        let mut pending = std::mem::take(&mut self.pending);
        pending.sort_by_key(|request| (request.due_us, request.number));
        for request in pending {
            if let Work::Write { bytes, .. } = request.work {
                self.disks[usize::from(request.extent.device.0)]
                    .write(place(request.extent.offset_bytes), bytes);
            }
        }
        let random = &mut self.random;
        self.disks.iter().map(|disk| disk.crashed(image, random)).collect()
    }

    fn geometry(&self, device: DeviceIndex) -> Result<Geometry, SubmitError> {
        let unknown = SubmitError::UnknownDevice { device, devices: self.disks.len() };
        let disk = self.disks.get(usize::from(device.0)).ok_or(unknown)?;
        let sector = u32::try_from(SECTOR_BYTES).expect("512 fits");
        let alignment = Alignment { memory_bytes: 1, offset_bytes: sector };
        Ok(Geometry { bytes: disk.len(), access: Access::ReadWrite, alignment })
    }

    fn check_room(&self) -> Result<(), SubmitError> {
        let (in_flight, depth_max) = (self.in_flight(), self.config.depth);
        if in_flight < depth_max { Ok(()) } else { Err(SubmitError::QueueFull { in_flight, depth_max }) }
    }

    fn check(&self, operation: Operation, extent: Extent, memory: &IoMemory) -> Result<(), SubmitError> {
        self.check_room()?;
        check::transfer(self.geometry(extent.device)?, operation, extent, memory)
    }

    fn accept(&mut self, extent: Extent, token: Token, work: Work) {
        let Range { start, end } = self.config.latency_us;
        let due_us = self.now_us + start + self.random.below(end.saturating_sub(start).max(1));
        self.submitted += 1;
        self.pending.push(Pending { due_us, number: self.submitted, extent, token, work });
    }

    /// Removes and returns the request that is due first, if it is due by `until_us`.
    fn next_due(&mut self, until_us: u64) -> Option<Pending> {
        let (index, request) =
            self.pending.iter().enumerate().min_by_key(|(_, request)| (request.due_us, request.number))?;
        (request.due_us <= until_us).then(|| self.pending.swap_remove(index))
    }

    fn end(&mut self, request: Pending) -> Completion {
        let Pending { due_us, extent, token, work, .. } = request;
        self.now_us = self.now_us.max(due_us);
        match work {
            Work::Read { into: memory } => {
                let (memory, outcome) = match self.end_read(extent) {
                    Ok(bytes) => (stored(memory, &bytes), Ok(())),
                    Err(fault) => (memory, Err(fault)),
                };
                Completion::Read { token, memory, outcome }
            }
            Work::Write { from, bytes } => {
                let outcome = self.end_write(extent, bytes);
                Completion::Write { token, memory: from, outcome }
            }
            Work::Fsync { covers_writes } => {
                let failed = self.random.happens(self.config.faults.fsync_error);
                let outcome = if failed { Err(io_error(Operation::Fsync, extent)) } else { Ok(()) };
                if outcome.is_ok() {
                    self.disks[usize::from(extent.device.0)].sync(covers_writes);
                }
                Completion::Fsync { token, outcome }
            }
        }
    }

    fn end_read(&mut self, extent: Extent) -> Result<Vec<u8>, Box<IoFault>> {
        if self.random.happens(self.config.faults.read_error) {
            return Err(io_error(Operation::Read, extent));
        }
        let disk = &self.disks[usize::from(extent.device.0)];
        let length = extent.length_bytes as usize;
        let mut start = place(extent.offset_bytes);
        if self.random.happens(self.config.faults.misdirected_read) {
            let places = (disk.contents().len() - length) / SECTOR_BYTES + 1;
            start = place(self.random.below(places as u64)) * SECTOR_BYTES;
        }
        Ok(disk.contents()[start..start + length].to_vec())
    }

    fn end_write(&mut self, extent: Extent, mut bytes: Vec<u8>) -> Result<(), Box<IoFault>> {
        if self.random.happens(self.config.faults.write_error) {
            return Err(io_error(Operation::Write, extent));
        }
        let torn = self.random.happens(self.config.faults.torn_write);
        if torn {
            let sectors = bytes.len().div_ceil(SECTOR_BYTES);
            bytes.truncate(place(self.random.below(sectors as u64)) * SECTOR_BYTES);
        }
        self.disks[usize::from(extent.device.0)].write(place(extent.offset_bytes), bytes);
        if torn { Err(io_error(Operation::Write, extent)) } else { Ok(()) }
    }

    /// Reports watched descriptors that are ready; waits for one until `deadline` (`None`: without
    /// limit).
    fn poll_watched(
        &mut self,
        deadline: Option<Instant>,
        on_completion: &mut dyn FnMut(Completion),
    ) -> Result<usize, Errno> {
        if self.watched.is_empty() && deadline.is_none() {
            return Ok(0);
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut descriptors: Vec<PollFd<'_>> =
            self.watched.iter().map(|watched| PollFd::new(&watched.fd, flags_of(watched.interest))).collect();
        match poll(&mut descriptors, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let reported: Vec<PollFlags> = descriptors.iter().map(PollFd::revents).collect();
        let mut ready = 0;
        let mut reports = reported.into_iter();
        self.watched.retain(|watched| {
            let Some(flags) = reports.next().filter(|flags| !flags.is_empty()) else { return true };
            ready += 1;
            on_completion(Completion::Ready { token: watched.token, readiness: readiness_of(flags) });
            watched.repeat == Repeat::EveryChange
        });
        Ok(ready)
    }
}

impl DeviceIo for SimIo {
    fn submit_read(&mut self, read: Read) -> Result<(), Refused<Read>> {
        let extent =
            Extent { device: read.device, offset_bytes: read.offset_bytes, length_bytes: read.length_bytes };
        if let Err(reason) = self.check(Operation::Read, extent, &read.into) {
            return Err(Refused { request: read, reason });
        }
        self.accept(extent, read.token, Work::Read { into: read.into });
        Ok(())
    }

    fn submit_write(&mut self, write: Write) -> Result<(), Refused<Write>> {
        let extent = Extent {
            device: write.device,
            offset_bytes: write.offset_bytes,
            length_bytes: write.length_bytes,
        };
        if let Err(reason) = self.check(Operation::Write, extent, &write.from) {
            return Err(Refused { request: write, reason });
        }
        let bytes = loaded(&write.from, write.length_bytes as usize);
        self.accept(extent, write.token, Work::Write { from: write.from, bytes });
        Ok(())
    }

    fn submit_fsync(&mut self, fsync: Fsync) -> Result<(), Refused<Fsync>> {
        let refused = |reason| Refused { request: fsync, reason };
        self.check_room().map_err(refused)?;
        self.geometry(fsync.device).map_err(refused)?;
        let covers_writes = self.disks[usize::from(fsync.device.0)].writes();
        let extent = Extent { device: fsync.device, offset_bytes: 0, length_bytes: 0 };
        self.accept(extent, fsync.token, Work::Fsync { covers_writes });
        Ok(())
    }

    fn watch(&mut self, watch: Watch<'_>) -> Result<WatchId, SubmitError> {
        if self.watched.len() >= WATCHES_PER_RING_MAX as usize {
            return Err(SubmitError::WatchesFull { watches_max: WATCHES_PER_RING_MAX });
        }
        let fd =
            rustix::io::fcntl_dupfd_cloexec(watch.fd, 0).map_err(|source| SubmitError::Enter { source })?;
        let id = WatchId { index: self.watches_made, generation: 0 };
        self.watches_made = self.watches_made.wrapping_add(1);
        let Watch { interest, repeat, token, .. } = watch;
        self.watched.push(Watched { id, fd, interest, repeat, token });
        Ok(id)
    }

    fn unwatch(&mut self, watch: WatchId) -> Result<(), SubmitError> {
        self.watched.retain(|watched| watched.id != watch);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SubmitError> {
        Ok(())
    }

    fn reap(&mut self, wait: Wait, on_completion: &mut dyn FnMut(Completion)) -> Result<usize, ReapError> {
        let failed = |source| ReapError { source };
        let until_us = match wait {
            Wait::Now => self.now_us + self.random.below(POLL_US_MAX),
            Wait::ForOne | Wait::Until(_) => {
                self.pending.iter().map(|request| request.due_us).min().unwrap_or(self.now_us)
            }
        };
        let mut delivered = 0;
        while let Some(request) = self.next_due(until_us) {
            let completion = self.end(request);
            delivered += 1;
            on_completion(completion);
        }
        self.now_us = self.now_us.max(until_us);
        let deadline = match wait {
            Wait::ForOne if delivered == 0 => None,
            Wait::Until(deadline) if delivered == 0 => Some(deadline),
            _ => Some(Instant::now()),
        };
        Ok(delivered + self.poll_watched(deadline, on_completion).map_err(failed)?)
    }

    fn in_flight(&self) -> u32 {
        u32::try_from(self.pending.len()).expect("at most `depth` requests")
    }

    fn depth(&self) -> u32 {
        self.config.depth
    }

    fn watches(&self) -> u32 {
        u32::try_from(self.watched.len()).expect("at most WATCHES_PER_RING_MAX watches")
    }

    fn device_bytes(&self, device: DeviceIndex) -> Option<u64> {
        self.disks.get(usize::from(device.0)).map(SimDisk::len)
    }
}

/// Offsets of accepted requests lie inside a `Vec`, so they fit.
fn place(offset_bytes: u64) -> usize {
    usize::try_from(offset_bytes).expect("checked against the disk's length at submission")
}

fn stored(memory: IoMemory, bytes: &[u8]) -> IoMemory {
    match memory {
        IoMemory::Buffer(mut buffer) => {
            buffer[..bytes.len()].copy_from_slice(bytes);
            IoMemory::Buffer(buffer)
        }
        IoMemory::External(external) => {
            external.store(bytes);
            IoMemory::External(external)
        }
    }
}

fn loaded(memory: &IoMemory, length: usize) -> Vec<u8> {
    match memory {
        IoMemory::Buffer(buffer) => buffer[..length].to_vec(),
        IoMemory::External(external) => {
            let mut bytes = vec![0; length];
            external.load(&mut bytes);
            bytes
        }
    }
}

fn io_error(operation: Operation, extent: Extent) -> Box<IoFault> {
    Box::new(IoFault::Os {
        operation,
        device: format!("simulated device {}", extent.device),
        offset_bytes: extent.offset_bytes,
        length_bytes: extent.length_bytes,
        source: Errno::IO,
        verdict: verdict(operation, Errno::IO),
    })
}

fn flags_of(interest: Interest) -> PollFlags {
    match interest {
        Interest::Readable => PollFlags::IN | PollFlags::RDHUP,
        Interest::Writable => PollFlags::OUT,
    }
}

fn readiness_of(flags: PollFlags) -> Readiness {
    Readiness {
        readable: flags.contains(PollFlags::IN),
        writable: flags.contains(PollFlags::OUT),
        hung_up: flags.intersects(PollFlags::HUP | PollFlags::RDHUP),
        failed: flags.intersects(PollFlags::ERR | PollFlags::NVAL),
    }
}
