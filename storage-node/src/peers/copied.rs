//! What is a home told of the copies of its log?

/// How much of a log the disk below a copy of it has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyRoom {
    /// The log's number.
    pub(crate) log: u32,
    /// Up to which byte of the log there is room, whatever becomes of the disk.
    pub(crate) end_bytes: u64,
    /// Whether that is too little, and the disk has no more.
    pub(crate) is_tight: bool,
}

/// What the home is told of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Copied {
    /// It has all records up to there.
    Through { copy: usize, sequence: u64, room: CopyRoom },
    /// It has what there is of the log with this number, which will take the place of the present
    /// one.
    Ahead { copy: usize, log: u32 },
    /// It has no room for the log with this number, which was to take the place of the present one.
    NoRoomAhead { copy: usize, log: u32 },
    /// The node with this number knows this generation.
    Knows { other: usize, generation: u64 },
    /// It knows one that this node does not, though this node was to give out the numbers.
    Newer { other: usize, generation: u64 },
    /// It cannot be reached any more.
    Lost { other: usize },
    /// Its disk is full, as it says.
    Full { other: usize, reason: String },
}
