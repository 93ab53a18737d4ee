//! Keeps the state of a node as this client observes it, and decides when a request may try an
//! unavailable node again.
//!
//! An **unreachable** node cannot be connected to, or its connection has ended; from time to time
//! one request tries again. An **unresponsive** node is connected, or accepts connections, but does
//! not answer: callers do not wait for it, and the driver of its connection notices when it answers
//! again. Both are **unavailable**.
//!
//! Requests to unavailable nodes are refused only in clusters that can operate without some nodes
//! ([`crate::ClusterOptions::unavailable_max`]). In other clusters every request is sent, and fails
//! when its node has been silent for too long.
//!
//! Invariants
//! - A node becomes unreachable with the first request that could not reach it or lost it, and
//!   stays so until a request is answered.
//! - At most one request at a time tries an unreachable node; the others do not wait for it.
//! - A node becomes unresponsive when it does not answer a keep-alive in time, and stays so until
//!   any message from it arrives.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rackscan_format::message::Request;

use crate::limits::{AWAY_DATA_PERIOD, AWAY_LOOK_PERIOD};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Available,
    /// Since when, or when a request last tried it again.
    Unreachable(Instant),
    /// Since when nothing was heard from it.
    Unresponsive(Instant),
}

/// The state of a node, shared by its callers and the driver of its connection.
#[derive(Debug)]
pub(crate) struct NodeState(Mutex<State>);

impl NodeState {
    /// The state of a node that is connected, that could not be reached (`dialled_at` is `None`),
    /// or that has not answered since it was dialled.
    pub(crate) fn new(is_connected: bool, dialled_at: Option<Instant>) -> Arc<Self> {
        let state = match (is_connected, dialled_at) {
            (true, _) => State::Available,
            (false, None) => State::Unreachable(Instant::now()),
            (false, Some(at)) => State::Unresponsive(at),
        };
        Arc::new(Self(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state changes in single assignments, so a panic leaves it consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a request may be sent; to an unreachable node one may from time to time.
    ///
    /// # Errors
    /// Since when the node has been unresponsive, if it is.
    pub(crate) fn may_ask(&self, request: &Request) -> Result<bool, Instant> {
        let mut state = self.state();
        // A status or catalog request should find out soon; pages can be read elsewhere.
        let period = match request {
            Request::Status | Request::Catalog { .. } => AWAY_LOOK_PERIOD,
            _ => AWAY_DATA_PERIOD,
        };
        match *state {
            State::Unreachable(at) if at.elapsed() < period => Ok(false),
            State::Unreachable(_) => {
                *state = State::Unreachable(Instant::now());
                Ok(true)
            }
            State::Available => Ok(true),
            State::Unresponsive(since) => Err(since),
        }
    }

    pub(crate) fn set_available(&self, is_available: bool) {
        let mut state = self.state();
        match (*state, is_available) {
            // The driver of the connection reports when that ends.
            (State::Unresponsive(_), _) => {}
            (_, true) => *state = State::Available,
            (_, false) => *state = State::Unreachable(Instant::now()),
        }
    }

    /// Nothing has been heard since then, though a request is owed. Returns whether the node was
    /// not unresponsive before.
    pub(crate) fn mark_unresponsive(&self, since: Instant) -> bool {
        let mut state = self.state();
        let is_new = !matches!(*state, State::Unresponsive(_));
        if is_new {
            *state = State::Unresponsive(since);
        }
        is_new
    }

    /// A message was heard. Returns whether the node was unresponsive before.
    pub(crate) fn mark_responsive(&self) -> bool {
        let mut state = self.state();
        let was_silent = matches!(*state, State::Unresponsive(_));
        if was_silent {
            *state = State::Available;
        }
        was_silent
    }

    /// The connection has ended, or could not be made: an unresponsive node becomes unreachable.
    pub(crate) fn mark_disconnected(&self) {
        let mut state = self.state();
        if matches!(*state, State::Unresponsive(_)) {
            *state = State::Unreachable(Instant::now());
        }
    }

    pub(crate) fn is_unavailable(&self) -> bool {
        *self.state() != State::Available
    }

    /// How long the node has been unresponsive, if it is.
    pub(crate) fn unresponsive_for(&self) -> Option<Duration> {
        if let State::Unresponsive(since) = *self.state() { Some(since.elapsed()) } else { None }
    }
}
