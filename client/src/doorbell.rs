//! Wakes a sleeping thread when another thread has work for it.
//!
//! Invariants
//! - The other thread stores the work before [`Doorbell::ring`], and the owner looks for work after
//!   [`Doorbell::fall_asleep`]. Whichever call comes second observes the other one, so the owner
//!   never sleeps while work waits.
//! - Ringing costs no system call while the owner is awake.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering, fence},
    },
};

use rustix::event::EventfdFlags;

use crate::ClientError;

/// An eventfd and whether its owner sleeps on it.
#[derive(Debug)]
pub(crate) struct Doorbell {
    bell: OwnedFd,
    asleep: AtomicBool,
}

impl Doorbell {
    pub(crate) fn new() -> Result<Self, ClientError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = rustix::event::eventfd(0, flags)
            .map_err(|errno| ClientError::Os { action: "make an eventfd", source: Arc::new(errno.into()) })?;
        Ok(Self { bell, asleep: AtomicBool::new(false) })
    }

    /// Wakes the owner if it sleeps or is about to.
    pub(crate) fn ring(&self) {
        // Pairs with the fence in `fall_asleep`.
        fence(Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst) {
            // The only possible failure is a counter that is full, and then the bell is readable
            // already.
            let _ = rustix::io::write(&self.bell, &1_u64.to_le_bytes());
        }
    }

    /// The owner is about to sleep. It looks for work once more before it does.
    pub(crate) fn fall_asleep(&self) {
        self.asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The owner is awake.
    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Ordering::SeqCst);
        // Nothing to read means that it woke for another reason.
        let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec};

    fn is_readable(bell: &Doorbell) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut [PollFd::new(bell, PollFlags::IN)], Some(&now)).unwrap() == 1
    }

    #[test]
    fn a_bell_rings_only_for_a_sleeper() {
        let bell = Doorbell::new().unwrap();
        bell.ring();
        assert!(!is_readable(&bell), "its owner is awake");
        bell.fall_asleep();
        bell.ring();
        assert!(is_readable(&bell));
        bell.wake_up();
        assert!(!is_readable(&bell));
    }
}
