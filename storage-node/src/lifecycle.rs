//! Stops the node: on request, or because it cannot continue.
//!
//! Invariants
//! - Stopping is final. The first reason is the one that is reported.
//! - Stopping wakes every reactor that sleeps.

use std::sync::{
    Arc, Mutex, OnceLock, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use crate::{error::Stopped, message_queue::MessageQueue};

/// The state that all threads of a node share about its end.
#[derive(Debug, Default)]
pub(crate) struct Lifecycle {
    stopping: AtomicBool,
    failure: Mutex<Option<Stopped>>,
    reactors: OnceLock<Vec<Arc<MessageQueue>>>,
}

impl Lifecycle {
    /// Sets the reactors to wake. Called once, before any of them runs.
    pub(crate) fn watch_over(&self, reactors: Vec<Arc<MessageQueue>>) {
        // A second call would be ignored; there is none.
        let _ = self.reactors.set(reactors);
    }

    /// Whether the node is stopping, and takes no more requests.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Stops the node.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Wakes all reactors, so that each checks what is waiting.
    pub(crate) fn wake(&self) {
        self.reactors.get().into_iter().flatten().for_each(|message_queue| message_queue.ring());
    }

    /// Stops the node because it cannot continue.
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

/// Lowers the priority of the calling thread to this nice value. If the system refuses, the thread
/// keeps its priority.
pub(crate) fn be_nice(nice: u8) {
    if let Err(error) = rackscan_fabric::be_nice(nice) {
        tracing::warn!(nice, %error, "the priority of a thread could not be changed");
    }
}
