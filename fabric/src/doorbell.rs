//! How is a sleeping thread, perhaps of another process, woken?
//!
//! Invariants
//! - Ringing never waits and may be repeated: a bell that was rung stays readable until it is
//!   drained.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{event::EventfdFlags, fs::OFlags};

/// An eventfd.
#[derive(Debug)]
pub(crate) struct Doorbell(OwnedFd);

impl Doorbell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// A peer's bell. It must not be able to block whoever rings it.
    pub(crate) fn from_peer(bell: OwnedFd) -> io::Result<Self> {
        if rustix::fs::fcntl_getfl(&bell)?.contains(OFlags::NONBLOCK) {
            Ok(Self(bell))
        } else {
            Err(io::Error::other("the peer's doorbell is a descriptor that may block"))
        }
    }

    pub(crate) fn ring(&self) {
        // The only possible failure is a counter that is full, and then the bell is readable
        // already.
        let _ = rustix::io::write(&self.0, &1_u64.to_le_bytes());
    }

    pub(crate) fn drain(&self) {
        // Nothing to read means nothing to drain.
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
