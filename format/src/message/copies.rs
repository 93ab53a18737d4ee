//! How does a node keep copies of other nodes' logs of transactions?
//!
//! A log is a row of bytes; whoever keeps a copy holds what comes against the checksums of its
//! records (`rackscan_ramp::log`). Offsets count from the log's first byte, header included.

use serde::{Deserialize, Serialize};

use super::{Payload, Start, Target};
use crate::ids::NodeId;

/// Behind a whole record of a log; 0, 0, 0 before all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LogPoint {
    /// Bytes of the log up to here.
    pub offset_bytes: u64,
    /// Number of the record.
    pub sequence: u64,
    /// Its checksum.
    pub checksum: u32,
}

/// Which replicas of a log have every acknowledged record: the log's generation.
///
/// The number grows whenever the set of these replicas changes, and whenever the log starts anew. A
/// set counts once its origin and all of its members know its generation durably, and so many other
/// nodes in all as `quorum` says. Its upper half counts decisions of persons who accepted a loss,
/// so that a generation after such a decision is above every earlier one.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LogGeneration {
    /// Its number; 0 for none.
    pub number: u64,
    /// The replicas beside the origin's own log, ascending.
    pub members: Vec<NodeId>,
    /// How many nodes beside the origin know every later generation before a record is acknowledged
    /// in it. With 0 only the origin may know.
    pub quorum: u16,
    /// The last record that was acknowledged when this generation was proposed.
    pub began_after: u64,
}

/// A part of a log, to be kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepLog {
    /// Whose log.
    pub origin: NodeId,
    /// The present start of the origin's folder. The replica node remembers it durably before it
    /// answers: a folder that is restored afterwards lacks it. Of lineage 0 nothing is remembered.
    pub start: Start,
    /// The number that tells it from other logs. Those of one row of logs, of which each replaces
    /// the one before, have the upper half in common.
    pub log: u32,
    /// Where the bytes belong. With 0 the copy is begun anew, beside what there is; without bytes
    /// nothing is kept, only answered.
    pub offset_bytes: u64,
    /// What the copy has behind this point is not of this log.
    pub cut: Option<LogPoint>,
    /// Whether with these bytes the copy has all that its origin has written down: now it takes the
    /// place of an older one.
    pub is_whole: bool,
    /// The bytes: at most `TRANSACT_BYTES_MAX` here, at most `KEPT_BYTES_MAX` beside.
    pub bytes: Payload,
    /// The log's present generation, to be known durably before this is answered. Nodes that keep
    /// no replica are told as well, without bytes.
    pub generation: Option<LogGeneration>,
}

/// What a node has of a log. What it says is on its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LogKept {
    /// All bytes, those of a record that is not whole yet included: the next ones belong here.
    pub through_bytes: u64,
    /// Behind the last whole record.
    pub end: LogPoint,
    /// Whether this copy is the one that counts, and not one that is only being made.
    pub is_whole: bool,
    /// The number of the newest generation of the log that the node knows durably; 0 if it knows
    /// none. If it is above the one it was told, nothing was kept.
    pub generation: u64,
    /// Up to which byte of the log the node has disk space for it, whatever becomes of its disk; 0
    /// if it has none ahead.
    pub room_bytes: u64,
}

/// Which part of a copy is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyOfLog {
    /// Whose log.
    pub origin: NodeId,
    /// The first byte.
    pub from_bytes: u64,
    /// Where the bytes go, at most `KEPT_BYTES_MAX` at a time; with a length of 0 only what there
    /// is is answered.
    pub target: Target,
}

/// The copy that a node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyHeld {
    /// The log's number.
    pub log: u32,
    /// How far it goes.
    pub end: LogPoint,
}
