//! Defines the interface that every wire implements.
//!
//! Invariants
//! - [`crate::Connection`] has checked an operation and counted it against the queue's depth before
//!   `post`.
//! - A queue reports every accepted operation exactly once and `Event::Closed` last, also when the
//!   peer has gone.
//! - Only `close` waits for the peer.

use std::os::fd::BorrowedFd;

use crate::{
    access::Access,
    completion::Event,
    error::{PostError, RegisterError},
    memory::RawSlice,
    operation::{Operation, RemoteSpan},
    region::{Region, RemoteRegion},
};

/// One end of a connection over some wire.
pub(crate) trait Queue: Send {
    /// Gives the peer access to `region` and returns its name; the peer can use it once a later
    /// message tells it the name. `key` is random and not yet used on this connection. A wire whose
    /// keys are made elsewhere (by an adapter) returns such a key instead.
    fn grant(&mut self, key: u64, region: &Region, access: Access) -> Result<RemoteRegion, RegisterError>;

    /// Takes the access back. Operations that start after this are refused.
    fn revoke(&mut self, key: u64) -> Result<(), RegisterError>;

    /// Accepts an operation; never waits.
    fn post(&mut self, id: u64, operation: Operation<'_>) -> Result<(), PostError>;

    /// Operations posted from here on may be held back until `end_batch`.
    fn begin_batch(&mut self) {}

    /// Sends what was held back, with one announcement.
    fn end_batch(&mut self) {}

    /// Appends what has happened, at most `EVENTS_PER_POLL_MAX` events.
    fn poll(&mut self, events: &mut Vec<Event>);

    /// As `poll`, for an owner that knows that `wait_fd` is not readable. The queue may stay armed
    /// while memory shows nothing to poll.
    fn poll_memory(&mut self, events: &mut Vec<Event>) {
        self.poll(events);
    }

    /// Becomes readable when there may be something to poll, provided that `arm` returned true
    /// since the last poll.
    fn wait_fd(&self) -> BorrowedFd<'_>;

    /// Announces that the owner is about to sleep on `wait_fd`; false if there is something to poll
    /// already.
    fn arm(&mut self) -> bool;

    /// Whether waiting is in vain: nothing can come before the calling thread does something else
    /// (`sim` only).
    fn nothing_will_come(&mut self) -> bool {
        false
    }

    /// From now on a write of the peer to the registration `key` wakes an owner that sleeps. Does
    /// nothing on wires where the writer or the network wakes it.
    fn wake_on_write(&mut self, _key: u64) {}

    /// Wakes the peer's owner if it sleeps on its connection, once all that was posted before is
    /// executed. Does nothing on wires where the peer's side wakes it.
    fn wake(&mut self) {}

    /// A pointer into the peer's own memory, on wires that map it.
    fn map_remote(&mut self, span: RemoteSpan, access: Access) -> Option<RawSlice>;

    /// How long `wait` polls before it sleeps.
    fn spin_us(&self) -> u64;

    /// Sends what was posted and tells the peer that the connection ends on purpose.
    fn close(&mut self);
}
