//! Which operations does everything above this crate need from devices?
//!
//! [`DeviceIo`] is the seam: [`crate::Ring`] gives it over io_uring, [`crate::PreadPool`] and
//! [`crate::ThreadPerRequest`] over threads that wait, [`crate::sim::SimIo`] over seeded memory.

use crate::error::{ReapError, Refused, SubmitError};
use crate::request::{Completion, DeviceIndex, Fsync, Read, Wait, Watch, WatchId, Write};

/// Asynchronous reads, writes and flushes of devices by one thread.
///
/// Life of a request: submitted (owned by the implementation, together with its memory), completed
/// (inside the implementation), reaped (handed to the callback of [`DeviceIo::reap`]).
pub trait DeviceIo {
    /// Accepts a read, or gives it back with the reason.
    ///
    /// # Errors
    /// [`Refused`] with any [`SubmitError`]; nothing has happened then.
    fn submit_read(&mut self, read: Read) -> Result<(), Refused<Read>>;

    /// Accepts a write, or gives it back with the reason.
    ///
    /// # Errors
    /// [`Refused`] with any [`SubmitError`]; nothing has happened then.
    fn submit_write(&mut self, write: Write) -> Result<(), Refused<Write>>;

    /// Accepts a flush. It covers writes that have completed by now, not those in flight.
    ///
    /// # Errors
    /// [`Refused`] with any [`SubmitError`]; nothing has happened then.
    fn submit_fsync(&mut self, fsync: Fsync) -> Result<(), Refused<Fsync>>;

    /// Watches a descriptor that is not a device, so that one blocking [`DeviceIo::reap`] covers it
    /// too.
    ///
    /// # Errors
    /// [`SubmitError::WatchesFull`] or [`SubmitError::Enter`].
    fn watch(&mut self, watch: Watch<'_>) -> Result<WatchId, SubmitError>;

    /// Ends a watch; no [`Completion::Ready`] of it is delivered afterwards. A watch that has ended
    /// is ignored.
    ///
    /// # Errors
    /// [`SubmitError::Enter`] if the kernel takes no more submissions.
    fn unwatch(&mut self, watch: WatchId) -> Result<(), SubmitError>;

    /// Hands what was submitted to the device without waiting.
    ///
    /// # Errors
    /// [`SubmitError::Enter`]; the requests stay queued.
    fn flush(&mut self) -> Result<(), SubmitError>;

    /// Submits, waits as told, and calls `on_completion` for everything that has ended. Returns how
    /// many were delivered.
    ///
    /// # Errors
    /// [`ReapError`] if the wait itself fails; requests stay in flight.
    fn reap(&mut self, wait: Wait, on_completion: &mut dyn FnMut(Completion)) -> Result<usize, ReapError>;

    /// Requests accepted whose completion has not been delivered. Watches do not count.
    fn in_flight(&self) -> u32;

    /// Most requests in flight.
    fn depth(&self) -> u32;

    /// Watches armed.
    fn watches(&self) -> u32;

    /// Size of a device in bytes, if the index exists.
    fn device_bytes(&self, device: DeviceIndex) -> Option<u64>;
}
