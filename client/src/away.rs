//! Which nodes are unavailable or unresponsive, and when are they tried again?
//!
//! An **unavailable** node cannot be reached, or its connection has ended; one request from time to
//! time tries again. An **unresponsive** node is connected, or takes connections, and does not
//! answer: nobody waits for it, and whoever drives its connection notices when it speaks again.
//!
//! Requests are refused for that only in clusters that may do without some nodes
//! ([`crate::ClusterOptions::away_max`]). Elsewhere every request is sent, and fails when its node
//! has been silent for too long.
//!
//! Invariants
//! - A node is unavailable from the first request on that could not reach it or lost it, until one
//!   is answered.
//! - Who asks whether it is back is one request at a time, and the others do not wait for that.
//! - A node is unresponsive from a keep-alive on that it did not answer in time, until any message
//!   of it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rackscan_format::{ids::NodeId, message::Request};

use crate::{
    ClientError, Cluster,
    cluster::Node,
    limits::{AWAY_DATA_PERIOD, AWAY_LOOK_PERIOD},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Available,
    /// Since when, or when it was asked in vain again.
    Unavailable(Instant),
    /// Since when nothing was heard.
    Unresponsive(Instant),
}

/// Whether a node is there, for those who ask it and who drives its connection.
#[derive(Debug)]
pub(crate) struct Away(Mutex<State>);

impl Away {
    /// Of a node that is connected; that could not be reached; or that has not answered since it
    /// was dialled.
    pub(crate) fn new(is_connected: bool, dialled_at: Option<Instant>) -> Arc<Self> {
        let state = match (is_connected, dialled_at) {
            (true, _) => State::Available,
            (false, None) => State::Unavailable(Instant::now()),
            (false, Some(at)) => State::Unresponsive(at),
        };
        Arc::new(Self(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Changed in single assignments.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a request may be sent; to a node that is unavailable, one from time to time. If it
    /// is unresponsive, since when.
    fn may_ask(&self, request: &Request) -> Result<bool, Instant> {
        let mut state = self.state();
        // Who looks what there is wants to know; who reads pages can read them elsewhere.
        let period = match request {
            Request::Status | Request::Catalog { .. } => AWAY_LOOK_PERIOD,
            _ => AWAY_DATA_PERIOD,
        };
        match *state {
            State::Unavailable(at) if at.elapsed() < period => Ok(false),
            State::Unavailable(_) => {
                *state = State::Unavailable(Instant::now());
                Ok(true)
            }
            State::Available => Ok(true),
            State::Unresponsive(since) => Err(since),
        }
    }

    fn set_available(&self, is_available: bool) {
        let mut state = self.state();
        match (*state, is_available) {
            // Whoever drives the connection says when it ends.
            (State::Unresponsive(_), _) => {}
            (_, true) => *state = State::Available,
            (_, false) => *state = State::Unavailable(Instant::now()),
        }
    }

    /// Nothing has been heard since then, though something was asked. Whether that is new.
    pub(crate) fn falls_silent(&self, since: Instant) -> bool {
        let mut state = self.state();
        let is_new = !matches!(*state, State::Unresponsive(_));
        if is_new {
            *state = State::Unresponsive(since);
        }
        is_new
    }

    /// Something was heard. Whether it was unresponsive before.
    pub(crate) fn speaks(&self) -> bool {
        let mut state = self.state();
        let was_silent = matches!(*state, State::Unresponsive(_));
        if was_silent {
            *state = State::Available;
        }
        was_silent
    }

    /// Its connection has ended, or none came about: if it was unresponsive, it is unavailable now.
    pub(crate) fn is_gone(&self) {
        let mut state = self.state();
        if matches!(*state, State::Unresponsive(_)) {
            *state = State::Unavailable(Instant::now());
        }
    }

    fn is_away(&self) -> bool {
        *self.state() != State::Available
    }

    /// For how long it has been unresponsive, if it is.
    pub(crate) fn silent(&self) -> Option<Duration> {
        if let State::Unresponsive(since) = *self.state() { Some(since.elapsed()) } else { None }
    }
}

impl Cluster {
    /// How many nodes may be away ([`crate::ClusterOptions::away_max`]).
    #[must_use]
    pub fn away_max(&self) -> usize {
        self.shared.away_max
    }

    /// Whether a node is away now: it could not be reached when it was asked last, or does not
    /// answer.
    #[must_use]
    pub fn is_away(&self, node: NodeId) -> bool {
        self.shared.nodes.iter().any(|known| known.id == node && known.away.is_away())
    }

    /// The nodes that are away now: that could not be reached when they were asked last, or do not
    /// answer.
    #[must_use]
    pub fn away(&self) -> Vec<NodeId> {
        let nodes = self.shared.nodes.iter();
        nodes.filter(|node| node.away.is_away()).map(|node| node.id).collect()
    }

    /// For how long a node has been unresponsive, if it is.
    #[must_use]
    pub fn unresponsive_for(&self, node: NodeId) -> Option<Duration> {
        self.shared.nodes.iter().find(|known| known.id == node)?.away.silent()
    }

    /// A node was found not to answer over another connection: nobody waits for it over this one
    /// until it says something.
    pub(crate) fn suspect(&self, node: NodeId) {
        let known = self.shared.nodes.iter().position(|known| known.id == node);
        if let Some(at) = known.filter(|at| self.away_max() > 0 && !self.shared.nodes[*at].away.is_away()) {
            self.shared.nodes[at].away.falls_silent(Instant::now());
            self.shared.driver.suspect(at);
        }
    }

    /// Whether others make up for a node that does not answer this request: then nobody waits for
    /// it for long.
    pub(crate) fn goes_without(&self, request: &Request) -> bool {
        let can = match request {
            Request::Fetch { table, .. } | Request::Process { table, .. } => {
                self.shared.maps.protects(*table)
            }
            Request::Status
            | Request::Catalog { .. }
            | Request::ReadMap(_)
            | Request::ReadRaw { .. }
            | Request::CopyOfLog(_) => true,
            _ => false,
        };
        can && self.shared.away_max > 0
    }

    /// Refuses at once what would wait for a node that is away.
    pub(crate) fn check_away(
        &self,
        node: &Node,
        request: &Request,
        during: &'static str,
    ) -> Result<(), ClientError> {
        if self.shared.away_max == 0 {
            return Ok(());
        }
        let (id, address) = (node.id, node.address.clone());
        match node.away.may_ask(request) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let reason =
                    "it could not be reached a moment ago, and is tried again from time to time".to_owned();
                Err(ClientError::NodeLost { node: id, address, during, reason })
            }
            Err(since) if self.goes_without(request) => {
                Err(ClientError::Unresponsive { node: id, address, during, silent: since.elapsed() })
            }
            // It waits until the node has been silent for too long.
            Err(_) => Ok(()),
        }
    }

    /// Takes down what the end of a request says of its node.
    pub(crate) fn note_away<T>(&self, node: &Node, outcome: &Result<T, ClientError>) {
        if self.shared.away_max == 0 {
            return;
        }
        match outcome {
            Ok(_) if node.away.is_away() => {
                tracing::info!(node = %node.id, "a node that was away is there again");
                node.away.set_available(true);
            }
            // Whoever drives the connection has said so, and says when it ends.
            Err(ClientError::Unresponsive { .. }) => {}
            Err(error) if error.is_node_lost() => {
                if !node.away.is_away() {
                    tracing::warn!(node = %node.id, %error, "a node is away");
                }
                node.away.set_available(false);
            }
            _ => {}
        }
    }
}
