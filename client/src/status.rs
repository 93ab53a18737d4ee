//! Sends status requests to a node, and other requests about the node itself.

use rackscan_format::{
    ids::NodeId,
    message::{Answer, NodeStatus, Request},
};

use crate::{ClientError, Cluster, message_names::unexpected_answer};

/// The cost of an echo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echoed {
    /// Bytes that crossed the wire: request, reply and the bytes asked for.
    pub wire_bytes: u64,
    /// Requests that were answered: one.
    pub round_trips: u32,
}

impl Cluster {
    /// Asks a node for its status.
    ///
    /// # Errors
    /// A lost or refusing node.
    pub async fn status(&self, node: NodeId) -> Result<NodeStatus, ClientError> {
        let during = "status";
        if let Some(cache) = self.remote_cache(node) {
            // The node learns of all uses first, so that its counters are right.
            self.tell_used(node, cache.untold());
        }
        let mut reply = self.ask(node, Request::Status, None).await?;
        match reply.take_answer(node, during)? {
            Answer::Status(status) => Ok(*status),
            other => Err(unexpected_answer(node, during, &other, "a status")),
        }
    }

    /// Lets a node write `bytes` arbitrary bytes into our memory: measures the wire alone, for
    /// calibration.
    ///
    /// # Errors
    /// A lost or refusing node, or more bytes than there is target memory.
    pub async fn echo(&self, node: NodeId, bytes: usize) -> Result<Echoed, ClientError> {
        let during = "echo";
        let span = self.shared.memory.take(bytes, "an echo").await?;
        let request = Request::Echo { bytes: bytes as u64, target: span.as_target() };
        let mut reply = self.ask(node, request, Some(span)).await?;
        match reply.take_answer(node, during)? {
            Answer::Done => Ok(Echoed { wire_bytes: reply.message_bytes + bytes as u64, round_trips: 1 }),
            other => Err(unexpected_answer(node, during, &other, "done")),
        }
    }

    /// Tells a node that an operator accepts a loss: its log of transactions continues from the
    /// best replica that there is, although acknowledged records may be missing.
    ///
    /// # Errors
    /// A lost node, or a node that does not wait for such a decision.
    pub async fn accept_loss(&self, node: NodeId) -> Result<(), ClientError> {
        self.ask_done(node, Request::AcceptLoss).await.map(drop)
    }

    /// Tells a node to shut down cleanly.
    ///
    /// # Errors
    /// A lost or refusing node.
    pub async fn stop(&self, node: NodeId) -> Result<(), ClientError> {
        self.ask_done(node, Request::Stop).await.map(drop)
    }
}
