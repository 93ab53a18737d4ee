//! Who are the nodes, and how are they?

use rackscan_format::{ids::NodeId, message::NodeStatus};

use crate::{ClientError, Cluster};

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
        let _ = node;
        todo!()
    }

    /// Has a node write `bytes` arbitrary bytes into our memory: the wire alone, for calibration.
    ///
    /// # Errors
    /// A lost or refusing node, or more bytes than there is target memory.
    pub async fn echo(&self, node: NodeId, bytes: usize) -> Result<Echoed, ClientError> {
        let _ = (node, bytes);
        todo!()
    }

    /// Tells a node to stop in good order.
    ///
    /// # Errors
    /// A lost or refusing node.
    pub async fn stop(&self, node: NodeId) -> Result<(), ClientError> {
        let _ = node;
        todo!()
    }
}
