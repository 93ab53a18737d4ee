//! Defines the reports on log replicas, from the thread that talks to other nodes to the
//! participant.

/// The disk space for a log replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaSpace {
    /// The log's number.
    pub(crate) log: u32,
    /// The position in the log up to which space is reserved, whatever else fills the disk.
    pub(crate) end_bytes: u64,
    /// Whether that is too little, and the disk has no more.
    pub(crate) is_tight: bool,
}

/// A report on a replica or another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Copied {
    /// It has all records up to this sequence number.
    Through { copy: usize, sequence: u64, room: ReplicaSpace },
    /// It has all of the log with this number, which will replace the present one.
    Ahead { copy: usize, log: u32 },
    /// It has no space for the log with this number, which was to replace the present one.
    NoRoomAhead { copy: usize, log: u32 },
    /// The node with this number knows this generation.
    Knows { other: usize, generation: u64 },
    /// It knows a generation that this node does not know, although this node alone assigns the
    /// numbers.
    Newer { other: usize, generation: u64 },
    /// It is unavailable.
    Lost { other: usize },
    /// It reports that its disk is full.
    Full { other: usize, reason: String },
}
