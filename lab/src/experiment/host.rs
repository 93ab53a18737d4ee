//! Defines the interface through which an experiment starts storage nodes.
//!
//! The command line starts nodes as processes, or takes a node of a running cluster. Tests start
//! nodes in their own process.

use std::path::PathBuf;

use rackscan_fabric::{Address, ClusterKey, Wire};
use rackscan_format::ids::NodeId;

use super::grid::NodeShape;

/// A running node.
#[derive(Debug, Clone)]
pub struct RunningNode {
    /// Its process id, to read its processor time; `None` on another host.
    pub pid: Option<u32>,
    /// Its number.
    pub node: NodeId,
    /// Its address on each wire.
    pub addresses: Vec<(Wire, Address)>,
    /// The cluster's key.
    pub key: ClusterKey,
    /// Path of its first device, which is read; `None` on another host.
    pub device: Option<PathBuf>,
    /// Bytes at the start of its first device that have been written, which are read if the node
    /// has no scratch area. Reads of unwritten parts would not reach the device.
    pub written_bytes: Option<u64>,
}

/// Starts nodes.
pub trait NodeHost {
    /// Stops the running node if it has another shape, and starts one of this shape over the same
    /// data.
    ///
    /// # Errors
    /// A text that says why it could not start.
    fn start(&mut self, shape: &NodeShape) -> Result<RunningNode, String>;
}
