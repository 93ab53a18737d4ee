//! The copier's state of each other node: what the node has of the log and its generation, and the
//! request in flight to it.

use rackscan_format::message::LogPoint;

/// What is known of a node's replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing was heard over this connection.
    Unknown,
    /// It has the log with this number up to the position `through`. `is_whole`: whether that
    /// replica counts.
    Follows { log: u32, through: u64, is_whole: bool },
    /// It continues differently behind this point.
    Differs { log: u32, from: LogPoint },
    /// It refuses now, and is asked again at the next tick.
    Rests,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRequest {
    pub(super) tag: u64,
    pub(super) log: u32,
    /// Where the replica should end then; `None` if the request asks for that.
    pub(super) through: Option<u64>,
    /// Whether the replica was to be cut.
    pub(super) cuts: bool,
    /// Whether the replica was to count from then on.
    pub(super) ends: bool,
    /// Whether it is about the log's new version.
    pub(super) ahead: bool,
    /// The generation in the request; 0 for none.
    pub(super) told: u64,
}

/// Another node, which keeps a replica of the log.
#[derive(Debug)]
pub(super) struct ReplicaNode {
    /// Its number among the connections.
    pub(super) node: usize,
    pub(super) standing: Standing,
    pub(super) asked: Option<PendingRequest>,
    /// What it has of the log's new version: the number, and up to which position.
    pub(super) ahead: (u32, u64),
    /// Whether the new version is sent next, when there is something of both.
    pub(super) turn: bool,
    /// Whether its disk is almost full.
    pub(super) is_tight: bool,
    /// Whether to ask if its disk is still almost full.
    pub(super) looks: bool,
    /// Whether its refusal was logged.
    pub(super) refuses: bool,
    /// The newest generation that it knows, as heard over this connection.
    pub(super) knows: u64,
}

/// Another node, which has no replica but knows which replicas count.
#[derive(Debug)]
pub(super) struct Witness {
    /// Its number among the connections.
    pub(super) node: usize,
    pub(super) asked: Option<PendingRequest>,
    pub(super) knows: u64,
    /// It refused the generation, and is told again at the next tick.
    pub(super) rests: bool,
}
