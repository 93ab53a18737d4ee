//! Who starts storage nodes for an experiment?
//!
//! The lab only asks: the command starts them as processes of their own, tests start them in
//! theirs.

use std::path::PathBuf;

use rackscan_fabric::{Address, ClusterKey};
use rackscan_format::ids::NodeId;

use super::grid::{NodeShape, WireKind};

/// A node that runs.
#[derive(Debug, Clone)]
pub struct RunningNode {
    /// Its process, whose processor time is read.
    pub pid: u32,
    /// Its number.
    pub node: NodeId,
    /// Where it is reached on each wire.
    pub addresses: Vec<(WireKind, Address)>,
    /// The cluster's key.
    pub key: ClusterKey,
    /// The file of its first device, which holds the scratch area.
    pub device: PathBuf,
}

/// Starts nodes.
pub trait NodeHost {
    /// Ends the node that runs, if it is of another shape, and starts one of this shape over the
    /// same data.
    ///
    /// # Errors
    /// Why it could not start, in words.
    fn start(&mut self, shape: &NodeShape) -> Result<RunningNode, String>;
}
