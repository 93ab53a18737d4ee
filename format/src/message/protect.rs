//! How does parity get to nodes, and how do they know the maps of protected tables?
//!
//! Invariants
//! - Cells carry checksums: what is stored is what was sent, and can be told from what has corrupt
//!   since. Cells that were only reserved have none until a stripe has brought them.
//! - What a load holds is told in pieces, each behind a cursor, so that nothing is told twice.

use serde::{Deserialize, Serialize};

use super::Target;
use crate::ids::{SegmentId, TableId};

/// Cells of parity to be stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppendParity {
    /// The load.
    pub load: TableId,
    /// The number of the stripe set among those of the load.
    pub set: u32,
    /// The place of the first cell among all that the node keeps of the set.
    pub first_cell: u32,
    /// Bytes of each cell.
    pub cell_bytes: u32,
    /// CRC-32C of each cell, at most `PARITY_CELLS_MAX`.
    pub checksums: Vec<u32>,
    /// The requester's memory with the cells, one behind the other.
    pub source: Target,
}

/// Cells of parity to be written later by stripes that are relayed: their room is taken now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReserveParity {
    /// The load.
    pub load: TableId,
    /// The number of the stripe set among those of the load.
    pub set: u32,
    /// The place of the first cell among all that the node keeps of the set.
    pub first_cell: u32,
    /// How many neighbouring cells, at most `PARITY_CELLS_MAX`.
    pub cells: u32,
    /// Bytes of each cell.
    pub cell_bytes: u32,
}

/// Which of a load's segments are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadHeld {
    /// The load.
    pub load: TableId,
    /// Those behind this one; all if absent.
    pub after: Option<SegmentId>,
    /// Where they go.
    pub target: Target,
}

/// A piece of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepMap {
    /// The load.
    pub load: TableId,
    /// Where the piece begins; 0 begins anew.
    pub from_bytes: u64,
    /// Bytes of the whole map, sealed.
    pub total_bytes: u64,
    /// The requester's memory with exactly the piece, at most `MAP_PIECE_BYTES_MAX`.
    pub source: Target,
}

/// Which part of which map is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadMap {
    /// The table. If it is not here any more, a table in whose stripe sets segments of it lie.
    pub table: TableId,
    /// Bytes already read; 0 the first time.
    pub from_bytes: u64,
    /// Where it goes.
    pub target: Target,
}
