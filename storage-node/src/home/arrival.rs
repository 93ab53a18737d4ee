//! How does a home reach the first reactor that comes only when the node serves already?
//!
//! Invariants
//! - A home that nobody takes ends with the node: what arrives when the reactor has gone is not
//!   kept.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::service::HomeService;
use crate::message_queue::{Mail, MessageQueue};

#[derive(Debug)]
enum State {
    Awaited,
    /// With the number of its log.
    Here(Box<HomeService>, u32),
    /// Nobody awaits it any more.
    Over,
}

/// The place where it is left.
#[derive(Debug)]
pub(crate) struct Arrival(Mutex<State>);

impl Arrival {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Awaited)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the home and tells the reactor.
    pub(super) fn leave(&self, home: HomeService, log: u32, first: &MessageQueue) {
        {
            let mut state = self.lock();
            if matches!(*state, State::Over) {
                return;
            }
            *state = State::Here(Box::new(home), log);
        }
        first.send(Mail::Arrived);
    }

    /// Takes the home, if it is there. It comes once. From now on it hears of copies of its log.
    pub(super) fn take(&self) -> Option<Box<HomeService>> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Awaited) {
            State::Here(mut home, log) => {
                *state = State::Over;
                home.log_replaced(log);
                Some(home)
            }
            other => {
                *state = other;
                None
            }
        }
    }

    /// Nobody takes it any more.
    pub(super) fn close(&self) {
        let left = std::mem::replace(&mut *self.lock(), State::Over);
        // Ends its threads, which is no business of the lock.
        drop(left);
    }
}
