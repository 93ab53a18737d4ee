//! Defines the errors of reads from local devices.

use rackscan_format::{
    ids::{DeviceId, NodeId},
    segment::Extent,
};

/// Why pages were not read from local devices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocalError {
    /// The node's devices cannot be read here.
    #[error(
        "the devices of node {node} are not attached to this host: {reason}; choose another placement (remote-fetch, \
         remote-process or auto)"
    )]
    NotAttached {
        /// The node.
        node: NodeId,
        /// Why not.
        reason: String,
    },
    /// An extent lies outside of the node's devices.
    #[error(
        "cannot read {length_bytes} bytes at offset {offset_bytes} of device {device} of node {node}: {reason}"
    )]
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
    /// No memory to read into.
    #[error("could not allocate {bytes} bytes of memory for pages of local devices: {reason}")]
    Memory {
        /// How many.
        bytes: usize,
        /// What the system said.
        reason: String,
    },
    /// The reading thread has ended.
    #[error("the thread that reads local devices has ended; see the log")]
    Closed,
}

pub(super) fn bad_extent(node: NodeId, extent: &Extent, reason: String) -> LocalError {
    let Extent { device, offset_bytes, length_bytes } = *extent;
    LocalError::BadExtent { node, device, offset_bytes, length_bytes, reason }
}
