//! Wakes a sleeping thread of this or another process.
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

    /// A peer's bell, which must be non-blocking so that it cannot block the thread that rings it.
    pub(crate) fn from_peer(bell: OwnedFd) -> io::Result<Self> {
        if rustix::fs::fcntl_getfl(&bell)?.contains(OFlags::NONBLOCK) {
            Ok(Self(bell))
        } else {
            Err(io::Error::other("the peer's doorbell is a descriptor that may block"))
        }
    }

    pub(crate) fn ring(&self) {
        // It fails only if the counter is full, and then the bell is readable already.
        let _ = rustix::io::write(&self.0, &1_u64.to_le_bytes());
    }

    pub(crate) fn drain(&self) {
        // If there is nothing to read, there is nothing to drain.
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
