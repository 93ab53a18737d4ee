//! Defines messages about log replicas: the copies of transaction logs that a node keeps for other
//! nodes. The node that owns a log is its *origin*.
//!
//! A log is a sequence of bytes. The replica node checks arriving bytes against the checksums of
//! the log's records (`rackscan_ramp::log`). Offsets count from the log's first byte, header
//! included.

use serde::{Deserialize, Serialize};

use super::{Payload, Start, Target};
use crate::ids::NodeId;

/// The position after a complete record of a log; all fields are 0 at the log's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LogPoint {
    /// Bytes of the log up to here.
    pub offset_bytes: u64,
    /// The number of this record.
    pub sequence: u64,
    /// The checksum of this record.
    pub checksum: u32,
}

/// The generation of a log: the set of replicas that have every acknowledged record.
///
/// The number grows whenever the set of these replicas changes, and whenever the log is started
/// anew. A generation is valid once the origin, all of its members and in total at least `quorum`
/// nodes besides the origin know it durably. The upper half of the number counts the decisions of
/// operators who accepted a loss, so that a generation after such a decision is above every earlier
/// one.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LogGeneration {
    /// Its number; 0 for none.
    pub number: u64,
    /// The nodes with replicas besides the origin's own log, ascending.
    pub members: Vec<NodeId>,
    /// The number of nodes besides the origin that must know every later generation before a record
    /// is acknowledged in it. With 0, possibly only the origin knows it.
    pub quorum: u16,
    /// The last record that was acknowledged when this generation was proposed.
    pub began_after: u64,
}

/// A part of a log to be stored in a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepLog {
    /// The node whose log it is.
    pub origin: NodeId,
    /// The current start of the origin's data folder. The replica node remembers it durably before
    /// it answers, so that a folder that is later restored from an older state is recognized
    /// because it lacks this start. A start of lineage 0 is not remembered.
    pub start: Start,
    /// The number that distinguishes the log from others. Logs of which each replaces the previous
    /// one have the upper half in common.
    pub log: u32,
    /// The offset of the bytes in the log. With 0 a new copy is begun beside the existing one.
    /// Without bytes nothing is stored; the node only answers.
    pub offset_bytes: u64,
    /// Everything in the copy after this point does not belong to this log.
    pub cut: Option<LogPoint>,
    /// Whether with these bytes the copy has everything that its origin has written: it then
    /// replaces an older copy.
    pub is_whole: bool,
    /// The bytes: at most `TRANSACT_BYTES_MAX` inside the message, at most `KEPT_BYTES_MAX` beside
    /// it.
    pub bytes: Payload,
    /// The log's current generation, which the node stores durably before it answers. Nodes that
    /// keep no replica receive it as well, without bytes.
    pub generation: Option<LogGeneration>,
}

/// What a node has of a log. Everything reported here is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LogKept {
    /// The number of all bytes, including those of an incomplete record: the next bytes belong at
    /// this offset.
    pub through_bytes: u64,
    /// The position after the last complete record.
    pub end: LogPoint,
    /// Whether this copy is the valid one, and not one that is still being made.
    pub is_whole: bool,
    /// The number of the newest generation of the log that the node knows durably; 0 if it knows
    /// none. If it is above that of the request, nothing was stored.
    pub generation: u64,
    /// The offset in the log up to which the node has reserved disk space for it, so that a full
    /// disk does not stop the log; 0 if it has reserved none.
    pub room_bytes: u64,
}

/// Asks for a part of a copy of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyOfLog {
    /// The node whose log it is.
    pub origin: NodeId,
    /// The first byte.
    pub from_bytes: u64,
    /// The memory for the bytes, at most `KEPT_BYTES_MAX` at a time; with a length of 0 the node
    /// only reports what it has.
    pub target: Target,
}

/// The copy of a log that a node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyHeld {
    /// The log's number.
    pub log: u32,
    /// The position after its last complete record.
    pub end: LogPoint,
}
