//! Refuses requests to unavailable nodes at once, and records which nodes are unavailable.

use std::time::{Duration, Instant};

use rackscan_format::{ids::NodeId, message::Request};

use crate::{ClientError, Cluster, cluster::Node};

impl Cluster {
    /// The maximum number of unavailable nodes ([`crate::ClusterOptions::unavailable_max`]).
    #[must_use]
    pub fn unavailable_max(&self) -> usize {
        self.shared.unavailable_max
    }

    /// Whether a node is unavailable now: the last request could not reach it, or it does not
    /// answer.
    #[must_use]
    pub fn is_unavailable(&self, node: NodeId) -> bool {
        self.shared.nodes.iter().any(|known| known.id == node && known.state.is_unavailable())
    }

    /// The nodes that are unavailable now, see [`Cluster::is_unavailable`].
    #[must_use]
    pub fn unavailable(&self) -> Vec<NodeId> {
        let nodes = self.shared.nodes.iter();
        nodes.filter(|node| node.state.is_unavailable()).map(|node| node.id).collect()
    }

    /// How long a node has been unresponsive, if it is.
    #[must_use]
    pub fn unresponsive_for(&self, node: NodeId) -> Option<Duration> {
        self.shared.nodes.iter().find(|known| known.id == node)?.state.unresponsive_for()
    }

    /// A node did not answer over another connection: callers do not wait for it over this one
    /// either, until a message from it arrives.
    pub(crate) fn suspect(&self, node: NodeId) {
        let known = self.shared.nodes.iter().position(|known| known.id == node);
        if let Some(at) =
            known.filter(|at| self.unavailable_max() > 0 && !self.shared.nodes[*at].state.is_unavailable())
        {
            self.shared.nodes[at].state.mark_unresponsive(Instant::now());
            self.shared.driver.suspect(at);
        }
    }

    /// Whether other nodes can make up for a node that does not answer this request. Then callers
    /// do not wait long for it.
    pub(crate) fn can_go_without(&self, request: &Request) -> bool {
        let can = match request {
            Request::Fetch { table, .. } | Request::Process { table, .. } => {
                self.shared.maps.protects(*table)
            }
            Request::Status
            | Request::Catalog { .. }
            | Request::ReadMap(_)
            | Request::ReadRaw { .. }
            | Request::CopyOfLog(_) => true,
            Request::Append { .. }
            | Request::Keep { .. }
            | Request::AppendParity(_)
            | Request::ReserveParity(_)
            | Request::LoadHeld(_)
            | Request::KeepMap(_)
            | Request::Verify(_)
            | Request::Repair(_)
            | Request::Adopt(_)
            | Request::PreparePublish { .. }
            | Request::CommitPublish { .. }
            | Request::AbortLoad { .. }
            | Request::Drop { .. }
            | Request::Echo { .. }
            | Request::WriteRaw { .. }
            | Request::OpenCache
            | Request::CacheUsed { .. }
            | Request::OpenParticipant
            | Request::Transact { .. }
            | Request::OpenPosts { .. }
            | Request::KeepLog(_)
            | Request::Stop
            | Request::CommitInPlace { .. }
            | Request::AcceptLoss
            | Request::HoldTables(_)
            | Request::ReleaseTables(_) => false,
        };
        can && self.shared.unavailable_max > 0
    }

    /// Refuses a request at once if it would wait for an unavailable node. It was not sent then.
    pub(crate) fn check_available(
        &self,
        node: &Node,
        request: &Request,
        during: &'static str,
    ) -> Result<(), ClientError> {
        if self.shared.unavailable_max == 0 {
            return Ok(());
        }
        let (id, address) = (node.id, node.address.clone());
        match node.state.may_ask(request) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let reason = "the last attempt to connect failed, and the next one is not due yet".to_owned();
                let advice = "see `rackscan cluster status`";
                Err(ClientError::Unreachable { node: id, address, reason, advice })
            }
            Err(since) if self.can_go_without(request) => {
                Err(ClientError::Unresponsive { node: id, address, during, silent: since.elapsed() })
            }
            // The request waits until the node has been silent for too long.
            Err(_) => Ok(()),
        }
    }

    /// Updates the state of a node from the outcome of a request.
    pub(crate) fn record_outcome<T>(&self, node: &Node, outcome: &Result<T, ClientError>) {
        if self.shared.unavailable_max == 0 {
            return;
        }
        match outcome {
            Ok(_) if node.state.is_unavailable() => {
                tracing::info!(node = %node.id, "a node that was unavailable is back");
                node.state.set_available(true);
            }
            // The driver of the connection has recorded this, and records when it ends.
            Err(ClientError::Unresponsive { .. }) => {}
            Err(error) if error.is_node_lost() => {
                if !node.state.is_unavailable() {
                    tracing::warn!(node = %node.id, %error, "a node is unavailable");
                }
                node.state.set_available(false);
            }
            _ => {}
        }
    }
}
