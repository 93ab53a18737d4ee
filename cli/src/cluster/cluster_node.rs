//! A node of a cluster as an experiment measures it: configured as its file says, on this host or
//! on another one.
//!
//! Invariants
//! - The node's configuration does not change, so an experiment has one shape of node.
//! - Nothing is written: experiments on such a node only read.

use super::{ClusterFile, Member, SharedNodes};
use crate::failure::Failure;
use rackscan_fabric::Wire;
use rackscan_format::{
    ids::NodeId,
    message::{BridgeKind, NodeStatus},
};
use rackscan_lab::{LineOptions, NodeHost, NodeShape, Remote, RunningNode, limits::NODE_PATIENCE};
use std::path::Path;

/// Least data of a device that can be read: the largest read.
const WRITTEN_BYTES_MIN: u64 = rackscan_lab::limits::IO_BYTES_LARGEST as u64;

/// A node of a cluster.
pub(crate) struct ClusterNode {
    node: RunningNode,
    shape: NodeShape,
    _nodes: SharedNodes,
}

impl ClusterNode {
    /// Finds a node of the cluster, the first one unless a number is given. Nodes of this host are
    /// started for this command unless they run.
    pub(crate) fn find(path: &Path, number: Option<u16>) -> Result<Self, Failure> {
        let file = ClusterFile::read(path)?;
        let is_asked = |member: &&Member| number.is_none_or(|number| member.config.node == NodeId(number));
        let Some(member) = file.members.iter().find(is_asked) else {
            let known: Vec<String> =
                file.members.iter().map(|member| member.config.node.to_string()).collect();
            let (path, known) = (path.display(), known.join(", "));
            let number = number.unwrap_or_default();
            return Err(Failure::Usage(format!("--node {number}: {path} lists nodes {known}")));
        };
        // A node that does not run is named when it is connected to.
        let nodes = SharedNodes::start(&file, u8::MAX)?;
        let addresses = member.config.listen.iter().map(|address| (address.wire(), address.clone()));
        let mut node = RunningNode {
            pid: None,
            node: member.config.node,
            addresses: addresses.collect(),
            key: file.key()?,
            device: None,
            written_bytes: None,
        };
        let status = status(&node)?;
        if member.here {
            node.pid = Some(status.process_id);
            node.device = member.config.devices.first().map(|device| device.path.clone());
        }
        node.written_bytes = written_bytes(&node, &status)?;
        let serving = match status.bridge.kind {
            BridgeKind::Reactor => member.config.reactors,
            BridgeKind::Static | BridgeKind::Dynamic => member.config.pollers,
        };
        let (bridge, io, io_threads) = (status.bridge.kind, status.bridge.io, status.bridge.io_threads);
        let shape = NodeShape { bridge, io, io_threads, serving, pin: false };
        Ok(Self { node, shape, _nodes: nodes })
    }

    /// How the node is configured.
    pub(crate) fn shape(&self) -> NodeShape {
        self.shape
    }

    /// The wire of its first address.
    pub(crate) fn first_wire(&self) -> Option<Wire> {
        self.node.addresses.first().map(|(wire, _)| *wire)
    }
}

impl NodeHost for ClusterNode {
    fn start(&mut self, _shape: &NodeShape) -> Result<RunningNode, String> {
        Ok(self.node.clone())
    }
}

/// Bytes that can be read without a scratch area: tables lie in the lowest free space.
fn written_bytes(node: &RunningNode, status: &NodeStatus) -> Result<Option<u64>, Failure> {
    let Some(device) = status.devices.first().filter(|device| device.scratch.is_none()) else {
        return Ok(None);
    };
    let written_bytes = device.used_bytes / WRITTEN_BYTES_MIN * WRITTEN_BYTES_MIN;
    if written_bytes == 0 {
        return Err(Failure::Runtime(format!(
            "node {}: its first device has {} bytes of data, at least {WRITTEN_BYTES_MIN} are needed to read from it: load \
             tables, or give the node a scratch area (`scratch`)",
            node.node, device.used_bytes
        )));
    }
    Ok(Some(written_bytes))
}

fn status(node: &RunningNode) -> Result<NodeStatus, Failure> {
    let Some((_, address)) = node.addresses.first() else {
        return Err(Failure::Runtime(format!("node {} listens at no address", node.node)));
    };
    let options = LineOptions {
        node: node.node,
        address: address.clone(),
        key: node.key.clone(),
        patience: NODE_PATIENCE,
        depth: 1,
        slot_bytes: rackscan_lab::limits::IO_BYTES_LEAST,
        batch: None,
        reads_cache: false,
    };
    let line = Remote::connect(&options).map_err(|error| Failure::of(&error))?;
    Ok(line.status().clone())
}
