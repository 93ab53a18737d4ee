//! How is a whole cluster reached?
//!
//! Invariants
//! - A [`Cluster`] exists only if every configured node was reached, holds our key, speaks our version, says that it is
//!   the node configured and belongs to the same cluster as the others.
//! - Clones share connections, memory and the thread that drives them; the last one closes them.

use std::{sync::Arc, time::Duration};

use rackscan_fabric::{Address, ClusterKey, Wire};
use rackscan_format::{ids::NodeId, message::NodeStatus};

use crate::{
    error::ClientError,
    limits::{MEMORY_BYTES_DEFAULT, REQUEST_TIMEOUT_DEFAULT},
};

/// A storage node as the configuration names it.
#[derive(Debug, Clone)]
pub struct NodeEndpoint {
    /// Its id.
    pub id: NodeId,
    /// Where it listens. The first one of the wire asked for is used, or the first one.
    pub addresses: Vec<Address>,
}

/// What a cluster is reached with.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// All of its nodes.
    pub nodes: Vec<NodeEndpoint>,
    /// The key that all of its members hold.
    pub key: ClusterKey,
    /// The wire to use; each node's first address if absent.
    pub wire: Option<Wire>,
    /// Registered memory for answers, shared by all nodes.
    pub memory_bytes: usize,
    /// How long one request may take.
    pub request_timeout: Duration,
}

impl ClusterOptions {
    /// Options with the default memory and timeout.
    #[must_use]
    pub fn new(nodes: Vec<NodeEndpoint>, key: ClusterKey) -> Self {
        Self {
            nodes,
            key,
            wire: None,
            memory_bytes: MEMORY_BYTES_DEFAULT,
            request_timeout: REQUEST_TIMEOUT_DEFAULT,
        }
    }
}

/// A connection to every node of a cluster.
#[derive(Debug, Clone)]
pub struct Cluster {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) statuses: Vec<NodeStatus>,
}

impl Cluster {
    /// Connects to all nodes at the same time and asks each who it is.
    ///
    /// # Errors
    /// The first node that cannot be reached or is not who it should be, with its address and what to do.
    pub async fn connect(options: ClusterOptions) -> Result<Self, ClientError> {
        let _ = options;
        todo!()
    }

    /// The nodes' ids, ascending.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeId> {
        todo!()
    }

    /// What each node said of itself when it was connected to, in the order of [`Cluster::nodes`].
    #[must_use]
    pub fn statuses(&self) -> &[NodeStatus] {
        &self.shared.statuses
    }
}
