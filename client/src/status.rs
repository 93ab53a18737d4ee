//! Who are the nodes, and how are they?

use rackscan_format::{
    ids::NodeId,
    message::{Answer, NodeStatus, Request, Target},
};

use crate::{
    ClientError, Cluster,
    cluster::{taken, unexpected},
    target::Span,
};

/// What an echo took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echoed {
    /// Bytes that crossed the wire: request, reply and the bytes asked for.
    pub wire_bytes: u64,
    /// Requests that were answered: one.
    pub round_trips: u32,
}

impl Cluster {
    /// Asks a node how it is.
    ///
    /// # Errors
    /// A lost or refusing node.
    pub async fn status(&self, node: NodeId) -> Result<NodeStatus, ClientError> {
        let during = "status";
        if let Some(cache) = self.remote_cache(node) {
            // Told first, so that the counts are true.
            self.tell_used(node, cache.untold());
        }
        let mut reply = self.ask(node, Request::Status, None).await?;
        match taken(node, during, &mut reply)? {
            Answer::Status(status) => Ok(*status),
            other => Err(unexpected(node, during, &other, "a status")),
        }
    }

    /// Has a node write `bytes` arbitrary bytes into our memory: the wire alone, for calibration.
    ///
    /// # Errors
    /// A lost or refusing node, or more bytes than there is target memory.
    pub async fn echo(&self, node: NodeId, bytes: usize) -> Result<Echoed, ClientError> {
        let during = "echo";
        let span = self.shared.memory.take(bytes, "an echo").await?;
        let request = Request::Echo { bytes: bytes as u64, target: target_in(&span) };
        let mut reply = self.ask(node, request, Some(span)).await?;
        match taken(node, during, &mut reply)? {
            Answer::Done => Ok(Echoed { wire_bytes: reply.message_bytes + bytes as u64, round_trips: 1 }),
            other => Err(unexpected(node, during, &other, "done")),
        }
    }

    /// Tells a node that a person has decided: its log of transactions goes on with the best
    /// replica there is, though acknowledged records may be missing.
    ///
    /// # Errors
    /// A lost node, or one that waits for no such decision.
    pub async fn accept_loss(&self, node: NodeId) -> Result<(), ClientError> {
        self.ask_done(node, Request::AcceptLoss).await.map(drop)
    }

    /// Tells a node to stop in good order.
    ///
    /// # Errors
    /// A lost or refusing node.
    pub async fn stop(&self, node: NodeId) -> Result<(), ClientError> {
        self.ask_done(node, Request::Stop).await.map(drop)
    }
}

/// A span as requests name it; the driver fills in the key.
pub(crate) fn target_in(span: &Span) -> Target {
    Target { key: 0, offset_bytes: span.offset_bytes() as u64, length_bytes: span.length_bytes() as u64 }
}
