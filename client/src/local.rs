//! Which nodes' devices are attached to this host, and how are they read here?
//!
//! Invariants
//! - A device counts as attached only if its node runs on this host (same boot id) and the label in its first sector is
//!   the one that its node reports.
//! - Devices are opened read-only; pages are immutable once published, so no lock is needed.

use rackscan_device::OpenError;
use rackscan_format::{
    ids::{DeviceId, NodeId},
    message::NodeStatus,
    segment::Extent,
};

use crate::PageBuffer;

/// The devices of the cluster that this process can read itself.
#[derive(Debug, Clone)]
pub struct LocalDevices {}

/// Why pages were not read from local devices.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LocalError {
    /// The node's devices cannot be read here.
    #[error(
        "the devices of node {node} are not attached to this host: {reason}; choose another placement (remote-fetch, remote-process or auto)"
    )]
    NotAttached {
        /// The node.
        node: NodeId,
        /// Why not.
        reason: String,
    },
    /// An extent lies outside of the node's devices.
    #[error("node {node} has no bytes {offset_bytes}..+{length_bytes} on device {device}: {reason}")]
    BadExtent {
        /// The node.
        node: NodeId,
        /// The device.
        device: DeviceId,
        /// Where.
        offset_bytes: u64,
        /// How many bytes.
        length_bytes: u32,
        /// What is wrong.
        reason: String,
    },
    /// The device failed.
    #[error("reading a device of node {node} failed: {reason}")]
    Io {
        /// The node.
        node: NodeId,
        /// What the device said.
        reason: String,
    },
    /// The reading thread has ended.
    #[error("the thread that reads local devices has ended")]
    Closed,
}

impl LocalDevices {
    /// Opens what is attached. Nodes that are not are remembered with the reason.
    #[must_use]
    pub fn attach(statuses: &[NodeStatus]) -> Self {
        let _ = statuses;
        todo!()
    }

    /// Whether `node`'s devices can be read here.
    ///
    /// # Errors
    /// [`LocalError::NotAttached`] with the reason.
    pub fn attached(&self, node: NodeId) -> Result<(), LocalError> {
        let _ = node;
        todo!()
    }

    /// Reads extents of `node`'s devices, in the order asked for.
    ///
    /// # Errors
    /// A node that is not attached, an extent outside of its devices, or a device that fails.
    pub async fn read(&self, node: NodeId, extents: Vec<Extent>) -> Result<Vec<PageBuffer>, LocalError> {
        let _ = (node, extents, OpenError::Exists { path: "".into() });
        todo!()
    }
}
