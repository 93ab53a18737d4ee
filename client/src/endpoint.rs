//! Checks the ids of the configured nodes, and selects the address of each.

use std::collections::BTreeSet;

use rackscan_fabric::{Address, Wire};
use rackscan_format::{ids::NodeId, limits::CLUSTER_NODES_MAX};

use crate::ClientError;

/// A storage node as the configuration names it.
#[derive(Debug, Clone)]
pub struct NodeEndpoint {
    /// Its id.
    pub id: NodeId,
    /// Where it listens. The first address of the wire asked for is used; if none is asked for, the
    /// first.
    pub addresses: Vec<Address>,
}

/// The ids of the nodes, ascending.
pub(crate) fn member_list(nodes: &[NodeEndpoint]) -> Vec<NodeId> {
    let ids: BTreeSet<NodeId> = nodes.iter().map(|node| node.id).collect();
    ids.into_iter().collect()
}

/// Checks that the number of nodes is allowed and that their ids are unique.
pub(crate) fn check_ids(nodes: &[NodeEndpoint]) -> Result<(), ClientError> {
    if nodes.is_empty() || nodes.len() > CLUSTER_NODES_MAX {
        let problem = format!("they name {} nodes, expected 1 to {CLUSTER_NODES_MAX}", nodes.len());
        return Err(ClientError::Options(problem));
    }
    let ids: BTreeSet<NodeId> = nodes.iter().map(|node| node.id).collect();
    if ids.len() != nodes.len() {
        let (nodes, ids) = (nodes.len(), ids.len());
        return Err(ClientError::Options(format!(
            "{nodes} nodes have {ids} different ids, expected a different id for each node"
        )));
    }
    Ok(())
}

/// The node's first address of the wire, or its first address if no wire is given.
pub(crate) fn address_of(node: &NodeEndpoint, wire: Option<Wire>) -> Result<Address, ClientError> {
    let Some(first) = node.addresses.first() else {
        return Err(ClientError::Options(format!("node {} has no address, expected at least one", node.id)));
    };
    let Some(wire) = wire else { return Ok(as_called(first)) };
    node.addresses.iter().find(|address| address.wire() == wire).map(as_called).ok_or_else(|| {
        ClientError::NoAddress {
            node: node.id,
            wire,
            addresses: node.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        }
    })
}

/// The address as a client uses it: the device in it belongs to the node, and a client has its own.
fn as_called(address: &Address) -> Address {
    match address {
        Address::Verbs { host, port, .. } => Address::Verbs { device: None, host: host.clone(), port: *port },
        other => other.clone(),
    }
}
