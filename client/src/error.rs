//! Defines the errors of requests to a cluster. Their messages say what the user can do.
//!
//! Invariants
//! - Every error about a node names it; errors about reaching it name its address too.
//! - A node that has no room for a scan is not an error: see [`crate::ProcessAnswer::Bounced`].

use std::{sync::Arc, time::Duration};

use rackscan_fabric::{Address, RegionError, Wire};
use rackscan_format::{
    codec::CodecError,
    ids::{NodeId, SegmentId, TableId},
    message::{Refusal, RefusalCode},
    schema::DefinitionError,
    segment::DirectoryError,
};

use crate::TransactionError;

/// Why a request to the cluster has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// The options cannot work.
    #[error("the options of this client are invalid: {0}")]
    Options(String),
    /// The operating system refused a resource that the client needs.
    #[error("this process could not {action}: {source}")]
    Os {
        /// What was attempted.
        action: &'static str,
        /// The system's error.
        source: Arc<std::io::Error>,
    },
    /// The target memory could not be allocated.
    #[error(
        "could not allocate {bytes} bytes of memory for the answers of nodes: {source}; free memory, or raise the limits of this process"
    )]
    Memory {
        /// Bytes asked for.
        bytes: usize,
        /// Why.
        source: Arc<RegionError>,
    },
    /// One answer needs more than all target memory.
    #[error(
        "{wanted_bytes} bytes of memory in one piece are needed for {what}, expected at most {available_bytes}: {advice}"
    )]
    MemoryTooSmall {
        /// The purpose of the memory.
        what: &'static str,
        /// Bytes wanted.
        wanted_bytes: usize,
        /// The maximum that can be allocated in one piece.
        available_bytes: usize,
        /// What to do.
        advice: &'static str,
    },
    /// No node has this id.
    #[error("node {node} is not one of this cluster's nodes ({known})")]
    UnknownNode {
        /// The id.
        node: NodeId,
        /// The ids there are.
        known: String,
    },
    /// The node has no address for the wire asked for.
    #[error(
        "node {node} has no address for the wire {wire:?}; its addresses are {addresses}: add one to the cluster's configuration"
    )]
    NoAddress {
        /// The node.
        node: NodeId,
        /// The wire asked for.
        wire: Wire,
        /// What it has.
        addresses: String,
    },
    /// The node could not be reached, or the handshake failed. The request was not sent.
    #[error("cannot connect to node {node} at {address}: {reason}; {advice}")]
    Unreachable {
        /// The node.
        node: NodeId,
        /// Where it should be.
        address: Address,
        /// What happened.
        reason: String,
        /// What to do.
        advice: &'static str,
    },
    /// More nodes are unavailable than may be.
    #[error(
        "{found} nodes are unavailable (nodes {nodes}), expected at most {unavailable_max}; the first error: {first}"
    )]
    TooManyUnavailable {
        /// How many.
        found: usize,
        /// Their ids.
        nodes: String,
        /// How many may be.
        unavailable_max: usize,
        /// The error of the first of them.
        first: Box<ClientError>,
    },
    /// The node has lost its part of a protected table, and new data might overwrite its extents.
    #[error(
        "node {node} has lost its part of table '{table}', and new data could be stored in the extents that its rebuild needs: \
         run `rackscan rebuild {node}` or drop the table, then try again"
    )]
    Unrebuilt {
        /// The node.
        node: NodeId,
        /// The table's name.
        table: String,
    },
    /// Another node or process answers at the node's address.
    #[error(
        "node {node} at {address}: {what} is {found}, expected {expected}; check the addresses in the cluster's configuration"
    )]
    WrongNode {
        /// The node.
        node: NodeId,
        /// Where.
        address: Box<Address>,
        /// What differs.
        what: &'static str,
        /// What was found.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// The configuration lists other nodes than the cluster has.
    #[error(
        "the configuration lists nodes {found}, expected nodes {expected}, which node {node} records as the members of its cluster: \
         a cluster cannot gain or lose nodes; make the configuration list nodes {expected} again"
    )]
    OtherMembers {
        /// The node that says so.
        node: NodeId,
        /// The nodes of the configuration.
        found: String,
        /// The nodes of the cluster.
        expected: String,
    },
    /// The node's data folder was restored from an older snapshot.
    #[error(
        "node {node} at {address} is unavailable: its data folder is outdated, as if it was restored from an older snapshot: it records \
         {starts} starts of the node, but not the start {seen} that other nodes record; `rackscan rebuild {node}` brings it up to date"
    )]
    Outdated {
        /// The node.
        node: NodeId,
        /// Where.
        address: Box<Address>,
        /// The starts that it counts.
        starts: u64,
        /// The start that others have seen.
        seen: u64,
    },
    /// The node was lost while a request was outstanding. The request may or may not have been
    /// carried out.
    #[error(
        "node {node} at {address} was lost during a {during} request: {reason}; see `rackscan cluster status`"
    )]
    NodeLost {
        /// The node.
        node: NodeId,
        /// Where it was.
        address: Address,
        /// The kind of the request.
        during: &'static str,
        /// How it ended.
        reason: String,
    },
    /// The node is connected, or accepts connections, and does not answer. A request that was sent
    /// to it may still be carried out.
    #[error(
        "node {node} has been unresponsive for {:.1} s: no process at {address} answers a keep-alive or a {during} request; \
         resume or restart its process, see `rackscan cluster status`",
        silent.as_secs_f64()
    )]
    Unresponsive {
        /// The node.
        node: NodeId,
        /// Where it is.
        address: Address,
        /// The kind of the request.
        during: &'static str,
        /// How long it has said nothing.
        silent: Duration,
    },
    /// Other nodes have answered similar requests far sooner, and can make up for this one.
    #[error(
        "node {node} at {address} has not answered a {during} request in {:.1} s, but other nodes have answered several similar requests \
         in that time; `rackscan cluster status` shows how busy it is",
        waited.as_secs_f64()
    )]
    Outpaced {
        /// The node.
        node: NodeId,
        /// Where it is.
        address: Address,
        /// The kind of the request.
        during: &'static str,
        /// How long was waited.
        waited: Duration,
    },
    /// The node did not answer in time; its connection has been closed.
    #[error(
        "node {node} at {address} did not answer a {during} request within {waited:?}; see `rackscan cluster status`"
    )]
    TimedOut {
        /// The node.
        node: NodeId,
        /// Where it is.
        address: Address,
        /// The kind of the request.
        during: &'static str,
        /// How long was waited.
        waited: Duration,
    },
    /// The node refused the request.
    #[error("node {node} refused the {during} request: {}", refusal.text)]
    Refused {
        /// The node.
        node: NodeId,
        /// The kind of the request.
        during: &'static str,
        /// Its reason.
        refusal: Box<Refusal>,
    },
    /// The node's answer does not fit the request, or breaks a bound.
    #[error(
        "node {node} answered a {during} request with {found}, expected {expected}; run the same version of rackscan on all hosts"
    )]
    BadAnswer {
        /// The node.
        node: NodeId,
        /// The kind of the request.
        during: &'static str,
        /// What it answered.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// A structure from the node does not decode.
    #[error("the answer of node {node} to a {during} request cannot be decoded: {source}")]
    Codec {
        /// The node.
        node: NodeId,
        /// The kind of the request.
        during: &'static str,
        /// What is wrong.
        source: CodecError,
    },
    /// The node's catalog changed every time it was read.
    #[error("the catalog of node {node} changed {attempts} times while it was read; try again")]
    CatalogUnstable {
        /// The node.
        node: NodeId,
        /// How often it was read.
        attempts: u32,
    },
    /// A table's definition from a node breaks an invariant.
    #[error("node {node} sent an invalid table definition: {source}")]
    Definition {
        /// The node.
        node: NodeId,
        /// What is wrong.
        source: DefinitionError,
    },
    /// A segment's directory from a node breaks an invariant.
    #[error("node {node} sent an invalid segment directory: {source}")]
    Directory {
        /// The node.
        node: NodeId,
        /// What is wrong.
        source: DirectoryError,
    },
    /// A part of a published table is missing, so no query over it would be right.
    #[error("table {table:?} is incomplete: {problem}; {advice}")]
    IncompleteTable {
        /// The table.
        table: String,
        /// What is missing, and at which node.
        problem: String,
        /// What to do.
        advice: &'static str,
    },
    /// The table could not be closed to writers at its participants, so it is neither replaced nor
    /// dropped.
    #[error(
        "table {table:?} is neither replaced nor dropped, because not all participants could be told to refuse further writes to it: {source}; repeat the command"
    )]
    NotClosed {
        /// The table.
        table: String,
        /// What happened.
        source: Box<TransactionError>,
    },
    /// During every attempt to replace or drop a table, another version was published.
    #[error(
        "table {table:?} is neither replaced nor dropped, because other clients loaded or flushed it during each of {attempts} attempts; repeat the command"
    )]
    AlwaysReplaced {
        /// The table.
        table: String,
        /// How often it was tried.
        attempts: u32,
    },
    /// Nodes with parts of a table are unavailable or have lost them, and the parts cannot be
    /// reconstructed.
    #[error(
        "table {table:?} has parts on nodes {nodes}, which are unavailable or have lost their part, \
         and {protection}: start them if they are down (`rackscan cluster start`)"
    )]
    PartsUnavailable {
        /// The table.
        table: String,
        /// The nodes.
        nodes: String,
        /// Why it cannot be read without them.
        protection: String,
    },
    /// Pages of lost nodes cannot be reconstructed.
    #[error(
        "table {table:?}: {pages} cannot be reconstructed without nodes {nodes}: {problem}; start them (`rackscan cluster start`)"
    )]
    LostPages {
        /// The table.
        table: String,
        /// Which pages, and where they lie.
        pages: String,
        /// The nodes that are lost.
        nodes: String,
        /// Why.
        problem: String,
    },
    /// The parity or the map of a load cannot be computed or stored.
    #[error("the parity of load {set} cannot be computed or stored: {problem}; the load was not published")]
    Unprotectable {
        /// The load, or its stripe set.
        set: String,
        /// What is wrong.
        problem: String,
    },
    /// A table cannot be checked or repaired by its parity.
    #[error("table {table} cannot be verified or repaired by parity: {problem}")]
    NotProtected {
        /// The table.
        table: TableId,
        /// Why.
        problem: String,
    },
    /// No table has this name.
    #[error("no table is named {name:?}; tables: {known}")]
    UnknownTable {
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A segment does not belong to the load's table, or does not fit it.
    #[error("segment {segment} cannot be added to the load of table {table}: {problem}")]
    BadSegment {
        /// The load.
        table: TableId,
        /// The segment.
        segment: SegmentId,
        /// What is wrong.
        problem: String,
    },
    /// A table's definition that was to be loaded breaks an invariant.
    #[error(transparent)]
    BadDefinition(#[from] DefinitionError),
    /// A request cannot be encoded: it breaks a limit.
    #[error("a {during} request to node {node} was not sent, because it cannot be encoded: {source}")]
    TooLarge {
        /// The node.
        node: NodeId,
        /// The kind of the request.
        during: &'static str,
        /// The limit.
        source: CodecError,
    },
    /// The cluster handle was closed while the request waited.
    #[error("this process has closed its connection to the cluster, so the request has no answer")]
    Closed,
}

impl ClientError {
    /// Whether the node said that it has no such table, segment or page.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { refusal, .. } if refusal.code == RefusalCode::NotFound)
    }

    /// Whether the node said that the request or its data is wrong.
    pub(crate) fn is_malformed(&self) -> bool {
        matches!(self, Self::Refused { refusal, .. } if refusal.code == RefusalCode::Malformed)
    }

    /// Whether the node could not read its device, or found something wrong there.
    pub(crate) fn is_corrupt(&self) -> bool {
        matches!(self, Self::Refused { refusal, .. } if refusal.code == RefusalCode::Storage)
    }

    /// Whether the node's data must be reconstructed from other nodes.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.is_node_lost() || self.is_corrupt()
    }

    /// Whether a load was refused because another client was faster: the version that it wanted to
    /// succeed does not exist any more, or the load was forgotten for another one of its name.
    #[must_use]
    pub fn is_overtaken(&self) -> bool {
        let codes = [RefusalCode::Replaced, RefusalCode::NotFound, RefusalCode::Malformed];
        matches!(self, Self::Refused { refusal, .. } if codes.contains(&refusal.code))
    }

    /// Whether the node is lost: it cannot be reached, was lost, does not answer or far later than
    /// others, or is stopping.
    #[must_use]
    pub fn is_node_lost(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::NodeLost { .. }
            | Self::Unresponsive { .. }
            | Self::Outpaced { .. }
            | Self::Outdated { .. }
            | Self::TimedOut { .. } => true,
            Self::Refused { refusal, .. } => refusal.code == RefusalCode::Stopping,
            Self::TooManyUnavailable { .. } => true,
            _ => false,
        }
    }

    /// Whether the node is connected, or accepts connections, and does not answer.
    #[must_use]
    pub fn is_unresponsive(&self) -> bool {
        match self {
            Self::Unresponsive { .. } => true,
            Self::TooManyUnavailable { first, .. } => first.is_unresponsive(),
            _ => false,
        }
    }

    /// Whether the node has its maximum of connections. It is available, and may accept another
    /// connection later.
    #[must_use]
    pub fn is_too_many_connections(&self) -> bool {
        matches!(self, Self::Refused { refusal, .. } if refusal.code == RefusalCode::TooManyConnections)
    }

    /// The SQLSTATE of the error, by which a program distinguishes errors.
    #[must_use]
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Self::Unrebuilt { .. } => "55000",
            Self::TooManyUnavailable { first, .. } => first.sqlstate(),
            Self::Refused { refusal, .. } => match refusal.code {
                RefusalCode::Full => "53100",
                RefusalCode::Busy | RefusalCode::TooManyConnections => "53300",
                RefusalCode::Replaced => "40001",
                RefusalCode::Overflow => "22003",
                RefusalCode::Computation => "22000",
                _ => "58000",
            },
            _ => "58000",
        }
    }

    /// The node that the error is about, if it is about one.
    #[must_use]
    pub fn node(&self) -> Option<NodeId> {
        match self {
            Self::UnknownNode { node, .. }
            | Self::NoAddress { node, .. }
            | Self::Unreachable { node, .. }
            | Self::WrongNode { node, .. }
            | Self::Unrebuilt { node, .. }
            | Self::OtherMembers { node, .. }
            | Self::Outdated { node, .. }
            | Self::NodeLost { node, .. }
            | Self::Unresponsive { node, .. }
            | Self::Outpaced { node, .. }
            | Self::TimedOut { node, .. }
            | Self::Refused { node, .. }
            | Self::BadAnswer { node, .. }
            | Self::Codec { node, .. }
            | Self::CatalogUnstable { node, .. }
            | Self::Definition { node, .. }
            | Self::Directory { node, .. }
            | Self::TooLarge { node, .. } => Some(*node),
            Self::TooManyUnavailable { first, .. } => first.node(),
            _ => None,
        }
    }
}
