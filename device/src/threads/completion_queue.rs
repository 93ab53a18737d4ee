//! Returns finished transfers from the worker threads to the submitting thread, and wakes it by an
//! event descriptor (the bell).
//!
//! Invariants
//! - A transfer that ends after [`CompletionQueue::fall_asleep`] returned true rings the bell; one
//!   that ended before makes it return false.
//! - The bell rings at most once between two sleeps, so while the submitting thread is busy, its
//!   workers make no system call to wake it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::fault::IoFault;
use crate::transfer::Transfer;

/// A transfer and how it ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) transfer: Transfer,
    pub(super) outcome: Result<(), Box<IoFault>>,
}

#[derive(Debug, Default)]
struct State {
    ended: Vec<Ended>,
    asleep: bool,
}

/// Transfers that have ended and were not taken yet.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    state: Mutex<State>,
    /// The length of `ended`, which is read without the lock.
    waiting: AtomicUsize,
    bell: OwnedFd,
}

impl CompletionQueue {
    pub(super) fn new() -> Result<Self, Errno> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { state: Mutex::default(), waiting: AtomicUsize::new(0), bell })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is one assignment or one push, so a panic leaves the value consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a finished transfer.
    pub(super) fn push(&self, ended: Ended) {
        let was_asleep = {
            let mut state = self.lock();
            state.ended.push(ended);
            self.waiting.store(state.ended.len(), Ordering::Release);
            std::mem::take(&mut state.asleep)
        };
        if was_asleep {
            // The write fails only if the counter is full, and then the bell has been rung already.
            let _rung = rustix::io::write(&self.bell, &1_u64.to_le_bytes());
        }
    }

    /// Moves all finished transfers into `taken`, which must be empty.
    pub(super) fn take(&self, taken: &mut Vec<Ended>) {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut state = self.lock();
        std::mem::swap(&mut state.ended, taken);
        self.waiting.store(state.ended.len(), Ordering::Release);
    }

    /// Announces that the submitting thread is about to sleep; false if a transfer has ended.
    pub(super) fn fall_asleep(&self) -> bool {
        let mut state = self.lock();
        state.asleep = state.ended.is_empty();
        state.asleep
    }

    /// Ends the sleep. A bell that is about to be rung ends the next sleep early.
    pub(super) fn wake_up(&self) {
        self.lock().asleep = false;
    }

    /// Resets the bell.
    pub(super) fn silence(&self) {
        // The read fails only if the bell was not rung.
        let _silenced = rustix::io::read(&self.bell, &mut [0_u8; 8]);
    }
}

impl AsFd for CompletionQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
