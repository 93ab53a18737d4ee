//! The interface of the ring: submitting, waiting, and delivering completions.
//!
//! A [`Ring`] belongs to one thread (`!Send`, `&mut self`). Submitting only queues a request,
//! unless [`HandOver`] says otherwise. [`DeviceIo::reap`] hands all queued requests to the kernel
//! and waits, in one system call, for devices and watched descriptors alike.
//!
//! Invariants
//! - `in_flight` = transfers in the kernel + completions not yet delivered <= `depth`.
//! - The ring resumes a transfer that was short or transiently refused; the caller sees one
//!   completion.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;

use super::memlock;
use super::uring::{Block, Event, RingMode, Uring};
use super::watches::{Report, Watches, events_of};
use crate::check::{self, Extent, Geometry};
use crate::device::Device;
use crate::error::{ReapError, Refused, RingError, SubmitError};
use crate::fault::Operation;
use crate::io::DeviceIo;
use crate::limits::{DEVICES_PER_RING_MAX, RING_DEPTH_MAX, WATCHES_PER_RING_MAX};
use crate::memory::BufferPool;
use crate::request::{
    Completion, DeviceIndex, Fsync, IoMemory, Read, Repeat, Token, Wait, Watch, WatchId, Write,
};
use crate::settle::{NextAction, settle};
use crate::transfer::Transfer;

/// The configuration of a ring.
#[derive(Debug, Clone, Default)]
pub struct RingConfig {
    /// Maximum number of requests in flight, 1 to [`RING_DEPTH_MAX`].
    pub depth: u32,
    /// Devices, addressed by their index in this list.
    pub devices: Vec<Arc<Device>>,
    /// A pool whose memory is registered with the kernel, which makes transfers cheaper. Buffers of
    /// other pools can be used, too.
    pub buffers: Option<BufferPool>,
    /// When a transfer is handed to the kernel.
    pub hand_over: HandOver,
    /// How the kernel takes requests and notices their end.
    pub mode: RingMode,
}

/// When a transfer is handed to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HandOver {
    /// Together with others, at the next flush or reap: one system call for all, and the kernel
    /// merges adjacent transfers. For batches.
    #[default]
    Together,
    /// When it is submitted: the device begins while the next request is prepared, and does not
    /// become idle when it completes its transfers in batches. For streams of requests that arrive
    /// from outside.
    EachAtOnce,
}

/// Whether the pool's memory could be registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferRegistration {
    /// The configuration has no pool.
    NotAsked,
    /// The whole slab is registered.
    Registered {
        /// Bytes of the slab.
        bytes: usize,
    },
    /// The kernel refused, usually because of RLIMIT_MEMLOCK: transfers work, but each takes a
    /// little more CPU time.
    Refused {
        /// Bytes of the slab.
        needed_bytes: usize,
        /// The limit of locked memory (RLIMIT_MEMLOCK); `None` means unlimited.
        limit_bytes: Option<u64>,
        /// The kernel's answer.
        source: Errno,
    },
}

/// How a ring was set up, for logs and status pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingReport {
    /// Maximum number of requests in flight.
    pub depth: u32,
    /// Whether devices are registered with the kernel.
    pub files_registered: bool,
    /// Whether buffers are registered with the kernel.
    pub buffers: BufferRegistration,
}

/// An io_uring of one thread, with its devices.
///
/// Dropping it waits for the transfers in flight. It cannot be sent to another thread:
///
/// ```compile_fail,E0277
/// fn must_be_send<T: Send>() {}
/// must_be_send::<rackscan_device::Ring>();
/// ```
#[derive(Debug)]
pub struct Ring {
    uring: Uring,
    devices: Vec<Arc<Device>>,
    watches: Watches,
    /// Completions that are not yet delivered.
    settled: VecDeque<Completion>,
    /// How many of `settled` are completions of transfers, not events of watches.
    settled_transfers: u32,
    events: Vec<Event>,
    report: RingReport,
    hand_over: HandOver,
    _of_this_thread: PhantomData<*const ()>,
}

impl Ring {
    /// Creates a ring for the calling thread.
    ///
    /// # Errors
    /// [`RingError`]: a depth or a number of devices outside the limits, or the kernel refuses
    /// io_uring.
    pub fn new(config: RingConfig) -> Result<Self, RingError> {
        let RingConfig { depth, devices, buffers, hand_over, mode } = config;
        if depth == 0 || depth > RING_DEPTH_MAX {
            return Err(RingError::BadDepth { depth });
        }
        let mut uring = Uring::new(depth, mode).map_err(|source| RingError::Refused { source })?;
        let buffers = buffers.map_or(BufferRegistration::NotAsked, |pool| register(&mut uring, &pool));
        let report = RingReport { depth, files_registered: uring.files_registered(), buffers };
        let mut ring = Self {
            uring,
            devices: Vec::new(),
            watches: Watches::default(),
            settled: VecDeque::with_capacity(depth as usize),
            settled_transfers: 0,
            events: Vec::with_capacity(depth as usize),
            report,
            hand_over,
            _of_this_thread: PhantomData,
        };
        for device in devices {
            ring.attach(device)?;
        }
        tracing::debug!(?report, devices = ring.devices.len(), "ring is ready");
        Ok(ring)
    }

    /// Adds a device and returns its index for requests.
    ///
    /// # Errors
    /// [`RingError::TooManyDevices`], or [`RingError::Refused`] if the kernel does not register it.
    pub fn attach(&mut self, device: Arc<Device>) -> Result<DeviceIndex, RingError> {
        let index = u16::try_from(self.devices.len()).ok().filter(|index| *index < DEVICES_PER_RING_MAX);
        let index = index.ok_or(RingError::TooManyDevices { devices: self.devices.len() + 1 })?;
        let registered = self.uring.register_file(DeviceIndex(index), device.as_fd().as_raw_fd());
        registered.map_err(|source| RingError::Refused { source })?;
        self.devices.push(device);
        Ok(DeviceIndex(index))
    }

    /// How the ring was set up.
    #[must_use]
    pub fn report(&self) -> RingReport {
        self.report
    }

    fn geometry(&self, device: DeviceIndex) -> Result<Geometry, SubmitError> {
        check::geometry(&self.devices, device)
    }

    fn check_room(&self) -> Result<(), SubmitError> {
        let (in_flight, depth_max) = (self.in_flight(), self.report.depth);
        if in_flight < depth_max { Ok(()) } else { Err(SubmitError::QueueFull { in_flight, depth_max }) }
    }

    fn begin(&mut self, transfer: Transfer) -> Result<(), (Transfer, Errno)> {
        let fd = self.devices[usize::from(transfer.device.0)].as_fd().as_raw_fd();
        self.uring.begin(transfer, fd)?;
        if self.hand_over == HandOver::EachAtOnce {
            // The transfer is accepted already. If the kernel accepts nothing for a lasting reason,
            // the next wait reports it.
            let _handed_over = self.uring.enter(Block::Never);
        }
        Ok(())
    }

    /// Checks and starts a read or write, or returns the memory.
    fn start(
        &mut self,
        operation: Operation,
        extent: Extent,
        memory: IoMemory,
        token: Token,
    ) -> Result<(), (IoMemory, SubmitError)> {
        let checked = self.check_room().and_then(|()| {
            let geometry = self.geometry(extent.device)?;
            check::transfer(geometry, operation, extent, &memory)
        });
        if let Err(reason) = checked {
            return Err((memory, reason));
        }
        self.begin(Transfer::new(operation, extent, Some(memory), token)).map_err(|(transfer, source)| {
            let memory = transfer.memory.expect("it was given with its memory");
            (memory, SubmitError::Enter { source })
        })
    }

    /// Moves everything the kernel has completed to `settled`.
    fn collect(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        self.uring.drain(&mut events);
        for event in events.drain(..) {
            match event {
                Event::Ended { transfer, result } => self.ended(transfer, result),
                Event::Fired { watch, result, more_to_come } => self.fired(watch, result, more_to_come),
            }
        }
        self.events = events;
    }

    fn ended(&mut self, mut transfer: Transfer, result: i32) {
        let device = &self.devices[usize::from(transfer.device.0)];
        let name = || device.path().display().to_string();
        let outcome = match settle(&transfer, result, device.alignment().offset_bytes, &name) {
            NextAction::Done => Ok(()),
            NextAction::Fault(fault) => Err(fault),
            NextAction::Again { done_bytes, retries } => {
                transfer.done_bytes = done_bytes;
                transfer.retries = retries;
                match self.begin(transfer) {
                    Ok(()) => return,
                    Err((refused, source)) => {
                        transfer = refused;
                        let device = &self.devices[usize::from(transfer.device.0)];
                        Err(Box::new(transfer.os_fault(device.path().display().to_string(), source)))
                    }
                }
            }
        };
        self.settled_transfers += 1;
        self.settled.push_back(transfer.into_completion(outcome));
    }

    fn fired(&mut self, watch: u32, result: i32, more_to_come: bool) {
        let (token, mut readiness) = match self.watches.completed(watch, result, more_to_come) {
            Report::Silent => return,
            Report::Ready { token, readiness } => (token, readiness),
            Report::ReadyAndRearm { token, mut readiness, index } => {
                if self.rearm(index).is_err() {
                    self.watches.forget(index);
                    readiness.failed = true;
                }
                (token, readiness)
            }
        };
        readiness.failed |= result < 0;
        self.settled.push_back(Completion::Ready { token, readiness });
    }

    fn rearm(&mut self, index: u32) -> Result<(), Errno> {
        let Some((fd, interest)) = self.watches.rearm(index) else { return Ok(()) };
        self.uring.watch(index, fd.as_raw_fd(), events_of(interest), true)
    }

    fn deliver(&mut self, on_completion: &mut dyn FnMut(Completion)) -> usize {
        let mut delivered = 0;
        while let Some(completion) = self.settled.pop_front() {
            if !matches!(completion, Completion::Ready { .. }) {
                self.settled_transfers -= 1;
            }
            delivered += 1;
            on_completion(completion);
        }
        delivered
    }

    /// How long the next system call may block, or `None` if there is nothing to wait for.
    fn block_for(&self, wait: Wait) -> Option<Block> {
        let nothing_outstanding = self.uring.busy() == 0 && self.watches.armed() == 0;
        match wait {
            Wait::Now => None,
            Wait::ForOne if nothing_outstanding => None,
            Wait::ForOne => Some(Block::UntilOne),
            // Sleeps until the instant even if nothing is outstanding, so that a reactor's loop
            // does not spin.
            Wait::Until(instant) => match instant.saturating_duration_since(Instant::now()) {
                left if left.is_zero() => None,
                left => Some(Block::AtMost(left)),
            },
        }
    }
}

impl DeviceIo for Ring {
    fn submit_read(&mut self, read: Read) -> Result<(), Refused<Read>> {
        let Read { device, offset_bytes, length_bytes, into, token } = read;
        let extent = Extent { device, offset_bytes, length_bytes };
        let started = self.start(Operation::Read, extent, into, token);
        started.map_err(|(into, reason)| Refused {
            request: Read { device, offset_bytes, length_bytes, into, token },
            reason,
        })
    }

    fn submit_write(&mut self, write: Write) -> Result<(), Refused<Write>> {
        let Write { device, offset_bytes, length_bytes, from, token } = write;
        let extent = Extent { device, offset_bytes, length_bytes };
        let started = self.start(Operation::Write, extent, from, token);
        started.map_err(|(from, reason)| Refused {
            request: Write { device, offset_bytes, length_bytes, from, token },
            reason,
        })
    }

    fn submit_fsync(&mut self, fsync: Fsync) -> Result<(), Refused<Fsync>> {
        let Fsync { device, token } = fsync;
        let refused = |reason| Refused { request: fsync, reason };
        self.check_room().map_err(refused)?;
        let geometry = self.geometry(device).map_err(refused)?;
        check::writable(geometry, Operation::Fsync, device).map_err(refused)?;
        let extent = Extent { device, offset_bytes: 0, length_bytes: 0 };
        let begun = self.begin(Transfer::new(Operation::Fsync, extent, None, token));
        begun.map_err(|(_, source)| refused(SubmitError::Enter { source }))
    }

    fn watch(&mut self, watch: Watch<'_>) -> Result<WatchId, SubmitError> {
        let Watch { fd, interest, repeat, token } = watch;
        let enter = |source| SubmitError::Enter { source };
        let again = match repeat {
            Repeat::Once => None,
            // A duplicate of the descriptor, to arm the watch again if the kernel drops it.
            Repeat::EveryChange => Some(rustix::io::fcntl_dupfd_cloexec(fd, 0).map_err(enter)?),
        };
        let full = SubmitError::WatchesFull { watches_max: WATCHES_PER_RING_MAX };
        let id = self.watches.arm(token, interest, again).ok_or(full)?;
        let armed =
            self.uring.watch(id.index, fd.as_raw_fd(), events_of(interest), repeat == Repeat::EveryChange);
        armed.map_err(|source| {
            self.watches.forget(id.index);
            enter(source)
        })?;
        Ok(id)
    }

    fn unwatch(&mut self, watch: WatchId) -> Result<(), SubmitError> {
        if !self.watches.leave(watch) {
            return Ok(());
        }
        self.uring.unwatch(watch.index).map_err(|source| SubmitError::Enter { source })
    }

    fn flush(&mut self) -> Result<(), SubmitError> {
        self.uring.enter(Block::Never).map_err(|source| SubmitError::Enter { source })
    }

    fn reap(&mut self, wait: Wait, on_completion: &mut dyn FnMut(Completion)) -> Result<usize, ReapError> {
        let enter = |source| ReapError { source };
        // If something has ended already, this does not sleep; new requests are handed over in any
        // case.
        self.collect();
        if !self.settled.is_empty() {
            self.uring.enter(Block::Never).map_err(enter)?;
            self.collect();
            return Ok(self.deliver(on_completion));
        }
        self.uring.enter(self.block_for(wait).unwrap_or(Block::Never)).map_err(enter)?;
        self.collect();
        while self.settled.is_empty() {
            let Some(block) = self.block_for(wait) else { break };
            self.uring.enter(block).map_err(enter)?;
            self.collect();
        }
        Ok(self.deliver(on_completion))
    }

    fn in_flight(&self) -> u32 {
        u32::try_from(self.uring.busy()).expect("at most `depth` transfers") + self.settled_transfers
    }

    fn depth(&self) -> u32 {
        self.report.depth
    }

    fn watches(&self) -> u32 {
        self.watches.armed()
    }

    fn device_bytes(&self, device: DeviceIndex) -> Option<u64> {
        self.devices.get(usize::from(device.0)).map(|device| device.bytes())
    }
}

/// Registers the pool; if that fails for lack of lockable memory, raises the limit and tries once
/// more.
fn register(uring: &mut Uring, pool: &BufferPool) -> BufferRegistration {
    let bytes = pool.total_bytes();
    let mut registered = uring.register_pool(pool);
    if registered == Err(Errno::NOMEM) && memlock::raise_limit() {
        registered = uring.register_pool(pool);
    }
    let Err(source) = registered else { return BufferRegistration::Registered { bytes } };
    let limit_bytes = memlock::limit_bytes();
    tracing::info!(
        needed_bytes = bytes,
        ?limit_bytes,
        %source,
        "IO buffers are not registered with the kernel; each transfer pins its pages, which costs some CPU; raise \
         RLIMIT_MEMLOCK (ulimit -l) to avoid it"
    );
    BufferRegistration::Refused { needed_bytes: bytes, limit_bytes, source }
}
