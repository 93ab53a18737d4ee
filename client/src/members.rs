//! Describes the identity that a node must prove before requests are sent to it: its member list
//! (the nodes of its cluster), and that its data folder records the newest start of the node that
//! other nodes have seen.
//!
//! Invariants
//! - No request is sent to a node that records other members than were configured, or whose data
//!   folder is outdated.

use rackscan_format::{
    ids::NodeId,
    message::{FolderIdentity, Start},
};

/// What is expected of a node, besides its id and its cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExpectedIdentity {
    /// The member list that it must have, ascending; not compared if empty.
    pub(crate) members: Vec<NodeId>,
    /// The random number of its data folder, if it is known.
    pub(crate) folder: Option<u64>,
    /// Starts of the node that other nodes have seen.
    pub(crate) seen: Vec<Start>,
}

/// Node ids as a list in a sentence.
pub(crate) fn listed(nodes: &[NodeId]) -> String {
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The starts of a node that these nodes have seen.
pub(crate) fn seen_of(told: &[FolderIdentity], node: NodeId) -> Vec<Start> {
    told.iter().filter_map(|told| told.seen_of(node)).collect()
}
