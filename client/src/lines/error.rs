//! Defines why [`Lines`](crate::Lines) refused a request or a read.

use rackscan_fabric::{Address, OutOfBounds, PostError};
use rackscan_format::{codec::CodecError, ids::NodeId};

/// Why a request or read was not accepted. Nothing of it was done.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LineError {
    /// The node is unavailable.
    #[error("node {node} at {address} is unavailable: {reason}; start it, or try again later")]
    Unavailable {
        /// The node.
        node: NodeId,
        /// Where it should be.
        address: Box<Address>,
        /// Why.
        reason: String,
    },
    /// The maximum number of requests or reads is outstanding at the node.
    #[error(
        "{outstanding} requests are outstanding at node {node}, expected fewer than {depth_max}: poll for replies first"
    )]
    Full {
        /// The node.
        node: NodeId,
        /// How many are outstanding.
        outstanding: usize,
        /// How many may be.
        depth_max: usize,
    },
    /// The tag is that of an outstanding request, or is 0 for a read.
    #[error(
        "the tag {tag} cannot name a request: it is 0, or the tag of an outstanding request; choose another tag"
    )]
    InUse {
        /// The tag.
        tag: u64,
    },
    /// No such node.
    #[error("there is no node at position {number} of the list of nodes, expected less than {nodes}")]
    NoSuchNode {
        /// The number.
        number: usize,
        /// How many there are.
        nodes: usize,
    },
    /// A request that breaks a limit.
    #[error("a request to node {node} was not sent, because it cannot be encoded: {source}")]
    TooLarge {
        /// The node.
        node: NodeId,
        /// The limit.
        source: CodecError,
    },
    /// A read into memory that is not there.
    #[error("a read from node {node} was not posted, because it reaches outside of the memory: {source}")]
    Outside {
        /// The node.
        node: NodeId,
        /// What is outside.
        source: OutOfBounds,
    },
    /// The wire does not accept it.
    #[error(
        "a request to node {node} could not be put on its connection, and was not sent: {source}; try again"
    )]
    Post {
        /// The node.
        node: NodeId,
        /// Why.
        source: PostError,
    },
}
