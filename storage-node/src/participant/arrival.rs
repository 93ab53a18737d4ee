//! Hands the participant to the first reactor, if the participant was recovered only after the node
//! had begun to serve.
//!
//! Invariants
//! - If the first reactor has ended before the participant is ready, the participant is dropped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::service::ParticipantService;
use crate::message_queue::{Mail, MessageQueue};

#[derive(Debug)]
enum State {
    Awaited,
    /// The participant and the number of its log.
    Here(Box<ParticipantService>, u32),
    /// The participant was taken, or the reactor has ended.
    Over,
}

/// The place where the recovered participant is left.
#[derive(Debug)]
pub(crate) struct Arrival(Mutex<State>);

impl Arrival {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Awaited)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the participant here and tells the reactor.
    pub(super) fn leave(&self, participant: ParticipantService, log: u32, first: &MessageQueue) {
        {
            let mut state = self.lock();
            if matches!(*state, State::Over) {
                return;
            }
            *state = State::Here(Box::new(participant), log);
        }
        first.send(Mail::ParticipantRecovered);
    }

    /// Takes the participant, if it is there. It can be taken once. From now on it is told of its
    /// log's replicas.
    pub(super) fn take(&self) -> Option<Box<ParticipantService>> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Awaited) {
            State::Here(mut participant, log) => {
                *state = State::Over;
                participant.log_replaced(log);
                Some(participant)
            }
            other => {
                *state = other;
                None
            }
        }
    }

    /// Drops the participant, now or when it arrives: no reactor will take it.
    pub(super) fn close(&self) {
        let left = std::mem::replace(&mut *self.lock(), State::Over);
        // Dropping it ends its threads; that must not happen under the lock.
        drop(left);
    }
}
