//! Are these the nodes of the cluster, and is each of them the newest that others know?
//!
//! Invariants
//! - Nothing is asked of a node that records other members than were configured, or whose data
//!   folder is outdated.

use std::collections::BTreeSet;

use rackscan_format::{
    ids::NodeId,
    message::{FolderIdentity, Start},
};

use crate::{
    ClientError, NodeEndpoint,
    reach::{Dialled, Missing, Reached},
};

/// What a node must be to be the one that is meant, beyond its id and its cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct Expected {
    /// The member list that it must have, ascending; not compared if empty.
    pub(crate) members: Vec<NodeId>,
    /// The random number of its data folder, if it is known.
    pub(crate) folder: Option<u64>,
    /// Starts of it that others have seen.
    pub(crate) seen: Vec<Start>,
}

/// Node ids as people write them.
pub(crate) fn listed(nodes: &[NodeId]) -> String {
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The ids of nodes, ascending.
pub(crate) fn members(nodes: &[NodeEndpoint]) -> Vec<NodeId> {
    let ids: BTreeSet<NodeId> = nodes.iter().map(|node| node.id).collect();
    ids.into_iter().collect()
}

/// The starts of a node that these have seen.
pub(crate) fn seen_of(told: &[FolderIdentity], node: NodeId) -> Vec<Start> {
    told.iter().filter_map(|told| told.seen_of(node)).collect()
}

/// Does without nodes whose data folders are older than other nodes know, as many as may be away.
pub(crate) fn leave_out_outdated(reached: &mut [Reached], away: &mut Missing) -> Result<(), ClientError> {
    let told = reached.iter().filter_map(|node| Some(node.connected()?.status.identity.clone()));
    let told: Vec<FolderIdentity> = told.collect();
    for node in reached {
        node.dial.expected.seen = seen_of(&told, node.dial.node);
        let Some(found) = node.connected().map(|line| line.status.identity.clone()) else { continue };
        // A node that is rebuilt into another folder meanwhile is the same node.
        node.dial.expected.folder = None;
        let Err(error) = node.dial.check_folder(&found) else { continue };
        away.leave_out(&node.dial, error)?;
        node.line = Dialled::Failed;
    }
    Ok(())
}
