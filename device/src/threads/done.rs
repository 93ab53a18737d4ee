//! How does what other threads have finished reach the one that asked?
//!
//! Invariants
//! - What ends after [`Done::fall_asleep`] has said that nothing has ended rings the bell; what
//!   ended before is found by it.
//! - The bell rings at most once between two sleeps, so a busy reaper costs its workers no system
//!   call.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::error::IoFault;
use crate::transfer::Transfer;

/// A transfer and how it ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) transfer: Transfer,
    pub(super) outcome: Result<(), Box<IoFault>>,
}

#[derive(Debug, Default)]
struct Inside {
    ended: Vec<Ended>,
    asleep: bool,
}

/// What has ended and was not taken.
#[derive(Debug)]
pub(super) struct Done {
    inside: Mutex<Inside>,
    /// How many of `ended` there are: looked at without the lock.
    waiting: AtomicUsize,
    bell: OwnedFd,
}

impl Done {
    pub(super) fn new() -> Result<Self, Errno> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { inside: Mutex::default(), waiting: AtomicUsize::new(0), bell })
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        // Every change is one assignment or one push; a panic in between leaves it whole.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something has ended.
    pub(super) fn push(&self, ended: Ended) {
        let was_asleep = {
            let mut inside = self.lock();
            inside.ended.push(ended);
            self.waiting.store(inside.ended.len(), Ordering::Release);
            std::mem::take(&mut inside.asleep)
        };
        if was_asleep {
            // The only failure is a counter that is full, and then the bell is rung already.
            let _rung = rustix::io::write(&self.bell, &1_u64.to_le_bytes());
        }
    }

    /// Moves what has ended into `taken`, which must be empty.
    pub(super) fn take(&self, taken: &mut Vec<Ended>) {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut inside = self.lock();
        std::mem::swap(&mut inside.ended, taken);
        self.waiting.store(inside.ended.len(), Ordering::Release);
    }

    /// Announces a sleep; false if something has ended.
    pub(super) fn fall_asleep(&self) -> bool {
        let mut inside = self.lock();
        inside.asleep = inside.ended.is_empty();
        inside.asleep
    }

    /// The sleep is over. A bell that is about to be rung wakes the next one for nothing.
    pub(super) fn wake_up(&self) {
        self.lock().asleep = false;
    }

    /// The bell has been heard.
    pub(super) fn silence(&self) {
        // The only failure is that it was not rung.
        let _silenced = rustix::io::read(&self.bell, &mut [0_u8; 8]);
    }
}

impl AsFd for Done {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
