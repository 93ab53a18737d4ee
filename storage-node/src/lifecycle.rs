//! Is the node to go on?
//!
//! Invariants
//! - Stopping is final, and its first reason is the one that is told.
//! - Whoever sleeps is woken.

use std::sync::{
    Arc, Mutex, OnceLock, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use crate::{error::Stopped, message_queue::MessageQueue};

/// What all threads of a node share about its end.
#[derive(Debug, Default)]
pub(crate) struct Lifecycle {
    stopping: AtomicBool,
    failure: Mutex<Option<Stopped>>,
    reactors: OnceLock<Vec<Arc<MessageQueue>>>,
}

impl Lifecycle {
    /// Names the threads to wake; called once, before any of them runs.
    pub(crate) fn watch_over(&self, reactors: Vec<Arc<MessageQueue>>) {
        // A second call would be ignored; there is none.
        let _ = self.reactors.set(reactors);
    }

    /// Whether requests are still taken.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// The node is told to stop.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Wakes all reactors, so that each looks at what waits.
    pub(crate) fn wake(&self) {
        self.reactors.get().into_iter().flatten().for_each(|message_queue| message_queue.ring());
    }

    /// The node cannot go on.
    pub(crate) fn fail(&self, reason: &str) {
        tracing::error!(reason, "the node stops");
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(Stopped { reason: reason.to_owned() });
        self.stop();
    }

    /// Stops the node if the calling thread panics while the guard lives: a bug in one thread must
    /// not leave the others waiting for it.
    pub(crate) fn guard(self: &Arc<Self>, thread: &'static str) -> Guard {
        Guard { lifecycle: Arc::clone(self), thread }
    }

    /// Why the node stopped by itself, if it did.
    pub(crate) fn failure(&self) -> Option<Stopped> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// See [`Lifecycle::guard`].
#[derive(Debug)]
pub(crate) struct Guard {
    lifecycle: Arc<Lifecycle>,
    thread: &'static str,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.lifecycle.fail(&format!("{} panicked; this is a bug, please report it", self.thread));
        }
    }
}

/// Makes the calling thread so nice; one that may not be goes on as it is.
pub(crate) fn be_nice(nice: u8) {
    if let Err(error) = rackscan_fabric::be_nice(nice) {
        tracing::warn!(nice, %error, "a thread keeps its priority");
    }
}
