//! Defines [`DeviceIo`], the trait through which all code above this crate uses devices.
//!
//! Its implementations: [`crate::Ring`] uses io_uring, [`crate::PreadPool`] and
//! [`crate::ThreadPerRequest`] use threads that block, and [`crate::sim::SimIo`] simulates devices
//! in memory from a seed.

use crate::error::{ReapError, Refused, SubmitError};
use crate::request::{Completion, DeviceIndex, Fsync, Read, Wait, Watch, WatchId, Write};

/// Asynchronous reads, writes and flushes of devices by one thread.
///
/// The states of a request: submitted (owned by the implementation, together with its memory),
/// completed (inside the implementation), reaped (passed to the callback of [`DeviceIo::reap`]).
pub trait DeviceIo {
    /// Accepts a read, or returns it with the reason.
    ///
    /// # Errors
    /// [`Refused`] with any [`SubmitError`]; nothing has happened then.
    fn submit_read(&mut self, read: Read) -> Result<(), Refused<Read>>;

    /// Accepts a write, or returns it with the reason.
    ///
    /// # Errors
    /// [`Refused`] with any [`SubmitError`]; nothing has happened then.
    fn submit_write(&mut self, write: Write) -> Result<(), Refused<Write>>;

    /// Accepts a flush. It covers writes that have completed by now, not writes in flight.
    ///
    /// # Errors
    /// [`Refused`] with any [`SubmitError`]; nothing has happened then.
    fn submit_fsync(&mut self, fsync: Fsync) -> Result<(), Refused<Fsync>>;

    /// Watches a descriptor that is not a device, so that a blocking [`DeviceIo::reap`] also waits
    /// for it.
    ///
    /// # Errors
    /// [`SubmitError::WatchesFull`] or [`SubmitError::Enter`].
    fn watch(&mut self, watch: Watch<'_>) -> Result<WatchId, SubmitError>;

    /// Ends a watch; no [`Completion::Ready`] of it is delivered afterwards. Does nothing if the
    /// watch has ended already.
    ///
    /// # Errors
    /// [`SubmitError::Enter`] if the kernel takes no more submissions.
    fn unwatch(&mut self, watch: WatchId) -> Result<(), SubmitError>;

    /// Hands submitted requests to the device without waiting.
    ///
    /// # Errors
    /// [`SubmitError::Enter`]; the requests stay queued.
    fn flush(&mut self) -> Result<(), SubmitError>;

    /// Hands submitted requests to the device, waits as `wait` says, and calls `on_completion` for
    /// everything that has ended. Returns the number of calls.
    ///
    /// # Errors
    /// [`ReapError`] if the wait itself fails; requests stay in flight.
    fn reap(&mut self, wait: Wait, on_completion: &mut dyn FnMut(Completion)) -> Result<usize, ReapError>;

    /// Accepted requests whose completion has not been delivered. Watches do not count.
    fn in_flight(&self) -> u32;

    /// The maximum number of requests in flight.
    fn depth(&self) -> u32;

    /// The number of armed watches.
    fn watches(&self) -> u32;

    /// Size of a device in bytes, if the index exists.
    fn device_bytes(&self, device: DeviceIndex) -> Option<u64>;
}
