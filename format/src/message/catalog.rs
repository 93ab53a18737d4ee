//! Defines the catalog of a node, as sent to clients: its tables and their segments.

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use crate::codec;
use crate::{ids::NodeId, schema::TableDefinition, segment::NodeSegment, stripe_set::NodeSet};

/// The part of a table that one node keeps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeTable {
    /// The table.
    pub definition: TableDefinition,
    /// Whether the node has committed the table, or only prepared it. A table that any node
    /// committed is published; a reader that sees it only prepared at another node completes the
    /// commit there.
    pub committed: bool,
    /// The node's segments.
    pub segments: Vec<NodeSegment>,
    /// The node's part of the stripe sets that protect the segments; empty for a table that is not
    /// protected.
    pub sets: Vec<NodeSet>,
}

/// The catalog of one node; it is sent encoded ([`codec::encode_envelope`]) and in parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeCatalog {
    /// The node.
    pub node: NodeId,
    /// Published and prepared tables.
    pub tables: Vec<NodeTable>,
}
