//! Which nodes are away, and when are they tried again?
//!
//! Only of clusters that may do without some ([`crate::ClusterOptions::away_max`]). Elsewhere every request to a lost node connects to it again.
//!
//! Invariants
//! - A node is away from the first request on that could not reach it or lost it, until one is answered.
//! - Who asks whether it is back is one request at a time, and the others do not wait for that.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

use rackscan_format::{ids::NodeId, message::Request};

use crate::{
    ClientError, Cluster,
    cluster::Node,
    limits::{AWAY_DATA_PERIOD, AWAY_LOOK_PERIOD},
};

/// Since when a node is away, or was asked for in vain again; `None` if it is there.
#[derive(Debug)]
pub(crate) struct Away(Mutex<Option<Instant>>);

impl Away {
    pub(crate) fn new(is_away: bool) -> Self {
        Self(Mutex::new(is_away.then(Instant::now)))
    }

    /// Whether a request may be sent; of a node that is away, one from time to time.
    fn may_ask(&self, request: &Request) -> bool {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Who looks what there is wants to know; who reads pages can read them elsewhere.
        let period = match request {
            Request::Status | Request::Catalog { .. } => AWAY_LOOK_PERIOD,
            _ => AWAY_DATA_PERIOD,
        };
        match *since {
            Some(at) if at.elapsed() < period => false,
            Some(_) => {
                *since = Some(Instant::now());
                true
            }
            None => true,
        }
    }

    fn set(&self, is_away: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = is_away.then(Instant::now);
    }

    fn is_away(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl Cluster {
    /// How many nodes may be away ([`crate::ClusterOptions::away_max`]).
    #[must_use]
    pub fn away_max(&self) -> usize {
        self.shared.away_max
    }

    /// Whether a node is away now: it could not be reached when it was asked last.
    #[must_use]
    pub fn is_away(&self, node: NodeId) -> bool {
        self.shared.nodes.iter().any(|known| known.id == node && known.away.is_away())
    }

    /// The nodes that are away now: that could not be reached when they were asked last.
    #[must_use]
    pub fn away(&self) -> Vec<NodeId> {
        let nodes = self.shared.nodes.iter();
        nodes.filter(|node| node.away.is_away()).map(|node| node.id).collect()
    }

    /// Refuses at once what would wait for a node that is away.
    pub(crate) fn check_away(
        &self,
        node: &Node,
        request: &Request,
        during: &'static str,
    ) -> Result<(), ClientError> {
        if self.shared.away_max == 0 || node.away.may_ask(request) {
            return Ok(());
        }
        let reason = "it is away since a moment ago".to_owned();
        Err(ClientError::NodeLost { node: node.id, address: node.address.clone(), during, reason })
    }

    /// Takes down what the end of a request says of its node.
    pub(crate) fn note_away<T>(&self, node: &Node, outcome: &Result<T, ClientError>) {
        if self.shared.away_max == 0 {
            return;
        }
        match outcome {
            Ok(_) if node.away.is_away() => {
                tracing::info!(node = %node.id, "a node that was away is there again");
                node.away.set(false);
            }
            Err(error) if error.is_node_lost() => {
                if !node.away.is_away() {
                    tracing::warn!(node = %node.id, %error, "a node is away");
                }
                node.away.set(true);
            }
            _ => {}
        }
    }
}
