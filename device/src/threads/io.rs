//! The interface of [`DeviceIo`] over threads: submitting, waiting, and delivering completions.
//!
//! [`ThreadedIo`] keeps the promises of [`crate::Ring`] with threads that block in `pread` and
//! `pwrite`: [`PreadPool`] has a fixed number of them, [`ThreadPerRequest`] creates one for each
//! request. They are the baseline that the ring is compared with, and they read devices where
//! io_uring is not allowed. With [`BlockingIo`] the submitting thread itself blocks.
//!
//! Invariants
//! - `in_flight` = transfers at the workers + completions not yet delivered <= `depth`.
//! - A submitted request is started at once, so `flush` does nothing.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::completion_queue::{CompletionQueue, Ended};
use super::watches::Watches;
use super::workers::{CallingThread, FixedThreads, FreshThreads, Job, Workers};
use crate::check::{self, Extent};
use crate::device::Device;
use crate::error::{ReapError, Refused, RingError, SubmitError};
use crate::fault::Operation;
use crate::io::DeviceIo;
use crate::limits::{DEVICES_PER_RING_MAX, RING_DEPTH_MAX};
use crate::request::{Completion, DeviceIndex, Fsync, IoMemory, Read, Token, Wait, Watch, WatchId, Write};
use crate::transfer::Transfer;

/// [`DeviceIo`] over a fixed number of threads.
pub type PreadPool = ThreadedIo<FixedThreads>;

/// [`DeviceIo`] with a new thread for each request.
pub type ThreadPerRequest = ThreadedIo<FreshThreads>;

/// [`DeviceIo`] by the submitting thread itself: a request has ended when it is submitted.
pub type BlockingIo = ThreadedIo<CallingThread>;

/// The configuration of a [`PreadPool`], [`ThreadPerRequest`] or [`BlockingIo`].
#[derive(Debug, Clone, Default)]
pub struct ThreadedConfig {
    /// Maximum number of requests in flight, 1 to [`RING_DEPTH_MAX`].
    pub depth: u32,
    /// Devices, addressed by their index in this list.
    pub devices: Vec<Arc<Device>>,
    /// Cores to which the threads are pinned in turn. If empty, the threads may run on the cores of
    /// their creator.
    pub cores: Vec<usize>,
    /// The prefix of the threads' names.
    pub name: String,
}

/// Devices that other threads read and write for this thread.
///
/// Dropping it waits for the transfers in flight. Like a ring it cannot be sent to another thread.
#[derive(Debug)]
pub struct ThreadedIo<W: Workers> {
    workers: W,
    devices: Vec<Arc<Device>>,
    depth: u32,
    in_flight: u32,
    done: Arc<CompletionQueue>,
    watches: Watches,
    /// Completions that are not yet delivered.
    settled: VecDeque<Completion>,
    /// Memory for the transfers taken from `done`, empty between calls.
    taken: Vec<Ended>,
    _of_this_thread: PhantomData<*const ()>,
}

impl PreadPool {
    /// Creates `threads` threads that serve the calling thread.
    ///
    /// # Errors
    /// [`RingError`]: a depth, a number of devices or of threads outside the limits, a core that
    /// may not be used, or an error of the system.
    pub fn new(config: ThreadedConfig, threads: usize) -> Result<Self, RingError> {
        Self::over(config, |config, done| FixedThreads::new(threads, &config.cores, &config.name, done))
    }
}

impl ThreadPerRequest {
    /// Creates no thread yet.
    ///
    /// # Errors
    /// As [`PreadPool::new`].
    pub fn new(config: ThreadedConfig) -> Result<Self, RingError> {
        Self::over(config, |config, done| FreshThreads::new(&config.cores, &config.name, done))
    }
}

impl BlockingIo {
    /// Creates no thread. Names and cores of threads in the configuration have no effect.
    ///
    /// # Errors
    /// As [`PreadPool::new`].
    pub fn new(config: ThreadedConfig) -> Result<Self, RingError> {
        Self::over(config, |_, done| Ok(CallingThread::new(done)))
    }
}

impl<W: Workers> ThreadedIo<W> {
    fn over(
        config: ThreadedConfig,
        workers: impl FnOnce(&ThreadedConfig, &Arc<CompletionQueue>) -> Result<W, RingError>,
    ) -> Result<Self, RingError> {
        if config.depth == 0 || config.depth > RING_DEPTH_MAX {
            return Err(RingError::BadDepth { depth: config.depth });
        }
        if config.devices.len() > usize::from(DEVICES_PER_RING_MAX) {
            return Err(RingError::TooManyDevices { devices: config.devices.len() });
        }
        let os = |action| move |source| RingError::Os { action, source };
        let done = Arc::new(CompletionQueue::new().map_err(os("create an event descriptor"))?);
        let watches = Watches::new(done.as_fd()).map_err(os("create an epoll instance"))?;
        let workers = workers(&config, &done)?;
        Ok(Self {
            workers,
            devices: config.devices,
            depth: config.depth,
            in_flight: 0,
            done,
            watches,
            settled: VecDeque::with_capacity(config.depth as usize),
            taken: Vec::with_capacity(config.depth as usize),
            _of_this_thread: PhantomData,
        })
    }

    fn check_room(&self) -> Result<(), SubmitError> {
        let (in_flight, depth_max) = (self.in_flight, self.depth);
        if in_flight < depth_max { Ok(()) } else { Err(SubmitError::QueueFull { in_flight, depth_max }) }
    }

    fn begin(&mut self, transfer: Transfer) -> Result<(), (Transfer, SubmitError)> {
        let device = Arc::clone(&self.devices[usize::from(transfer.device.0)]);
        match self.workers.start(Job { device, transfer }) {
            Ok(()) => {
                self.in_flight += 1;
                Ok(())
            }
            Err((job, source)) => Err((job.transfer, SubmitError::Enter { source })),
        }
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
            let geometry = check::geometry(&self.devices, extent.device)?;
            check::transfer(geometry, operation, extent, &memory)
        });
        if let Err(reason) = checked {
            return Err((memory, reason));
        }
        let begun = self.begin(Transfer::new(operation, extent, Some(memory), token));
        begun.map_err(|(transfer, reason)| (transfer.memory.expect("it was given with its memory"), reason))
    }

    /// Moves finished transfers to `settled`, and the events that watches report within `wait_max`.
    fn collect(&mut self, wait_max: Option<Duration>) -> Result<(), ReapError> {
        let settled = &mut self.settled;
        let waits = wait_max != Some(Duration::ZERO);
        if waits || self.watches.armed() > 0 {
            let waited = self.watches.wait(wait_max, &mut |completion| settled.push_back(completion));
            if waited.map_err(|source| ReapError { source })? {
                self.done.silence();
            }
        }
        self.done.take(&mut self.taken);
        for Ended { transfer, outcome } in self.taken.drain(..) {
            self.settled.push_back(transfer.into_completion(outcome));
        }
        Ok(())
    }

    /// Sleeps for at most `wait_max`, unless a transfer has ended already.
    fn sleep(&mut self, wait_max: Option<Duration>) -> Result<(), ReapError> {
        let wait_max = if self.done.fall_asleep() { wait_max } else { Some(Duration::ZERO) };
        let collected = self.collect(wait_max);
        self.done.wake_up();
        collected
    }

    /// How long the next sleep may last (`Some(None)`: until something happens); `None` if there is
    /// nothing to wait for.
    fn sleep_for(&self, wait: Wait) -> Option<Option<Duration>> {
        match wait {
            Wait::Now => None,
            Wait::ForOne if self.in_flight == 0 && self.watches.armed() == 0 => None,
            Wait::ForOne => Some(None),
            // Sleeps until the instant even if nothing is outstanding, so that a reactor's loop
            // does not spin.
            Wait::Until(instant) => match instant.saturating_duration_since(Instant::now()) {
                left if left.is_zero() => None,
                left => Some(Some(left)),
            },
        }
    }

    fn deliver(&mut self, on_completion: &mut dyn FnMut(Completion)) -> usize {
        let mut delivered = 0;
        while let Some(completion) = self.settled.pop_front() {
            if !matches!(completion, Completion::Ready { .. }) {
                self.in_flight -= 1;
            }
            delivered += 1;
            on_completion(completion);
        }
        delivered
    }
}

impl<W: Workers> DeviceIo for ThreadedIo<W> {
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
        let geometry = check::geometry(&self.devices, device).map_err(refused)?;
        check::writable(geometry, Operation::Fsync, device).map_err(refused)?;
        let extent = Extent { device, offset_bytes: 0, length_bytes: 0 };
        let begun = self.begin(Transfer::new(Operation::Fsync, extent, None, token));
        begun.map_err(|(_, reason)| refused(reason))
    }

    fn watch(&mut self, watch: Watch<'_>) -> Result<WatchId, SubmitError> {
        self.watches.arm(&watch)
    }

    fn unwatch(&mut self, watch: WatchId) -> Result<(), SubmitError> {
        self.watches.leave(watch).map_err(|source| SubmitError::Enter { source })
    }

    fn flush(&mut self) -> Result<(), SubmitError> {
        Ok(())
    }

    fn reap(&mut self, wait: Wait, on_completion: &mut dyn FnMut(Completion)) -> Result<usize, ReapError> {
        self.collect(Some(Duration::ZERO))?;
        while self.settled.is_empty() {
            let Some(wait_max) = self.sleep_for(wait) else { break };
            self.sleep(wait_max)?;
        }
        Ok(self.deliver(on_completion))
    }

    fn in_flight(&self) -> u32 {
        self.in_flight
    }

    fn depth(&self) -> u32 {
        self.depth
    }

    fn watches(&self) -> u32 {
        self.watches.armed()
    }

    fn device_bytes(&self, device: DeviceIndex) -> Option<u64> {
        self.devices.get(usize::from(device.0)).map(|device| device.bytes())
    }
}

impl<W: Workers> Drop for ThreadedIo<W> {
    fn drop(&mut self) {
        self.workers.finish();
        // A thread that is just ending may still hold the list; this frees the memory of the
        // transfers in it now.
        self.done.take(&mut self.taken);
        self.taken.clear();
    }
}
