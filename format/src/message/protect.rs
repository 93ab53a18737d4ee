//! Defines requests that store parity cells and the maps of protected tables.
//!
//! Invariants
//! - Cells carry checksums, so a node stores exactly what was sent, and later corruption is
//!   detected. Cells whose space is only reserved have no checksum until a relayed stripe has
//!   written them.
//! - The segments of a load are listed by several requests. Each request says after which segment
//!   its list begins, so that no segment is listed twice.

use serde::{Deserialize, Serialize};

use super::Target;
use crate::ids::{SegmentId, TableId};

/// Parity cells to be stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppendParity {
    /// The load.
    pub load: TableId,
    /// The number of the stripe set among those of the load.
    pub set: u32,
    /// The position of the first cell among all cells that the node keeps of the set.
    pub first_cell: u32,
    /// Bytes of each cell.
    pub cell_bytes: u32,
    /// CRC-32C of each cell, at most `PARITY_CELLS_MAX`.
    pub checksums: Vec<u32>,
    /// The requester's memory with the cells, one after the other.
    pub source: Target,
}

/// Parity cells whose space is allocated now and which relayed stripes write later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReserveParity {
    /// The load.
    pub load: TableId,
    /// The number of the stripe set among those of the load.
    pub set: u32,
    /// The position of the first cell among all cells that the node keeps of the set.
    pub first_cell: u32,
    /// The number of consecutive cells, at most `PARITY_CELLS_MAX`.
    pub cells: u32,
    /// Bytes of each cell.
    pub cell_bytes: u32,
}

/// Asks for the segments of a load that a node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadHeld {
    /// The load.
    pub load: TableId,
    /// Lists only segments after this one; all if absent.
    pub after: Option<SegmentId>,
    /// The memory to write them to.
    pub target: Target,
}

/// A piece of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepMap {
    /// The load.
    pub load: TableId,
    /// Where the piece begins in the map; 0 begins a new map.
    pub from_bytes: u64,
    /// Bytes of the whole map, encoded.
    pub total_bytes: u64,
    /// The requester's memory with exactly the piece, at most `MAP_PIECE_BYTES_MAX`.
    pub source: Target,
}

/// Asks for a part of the map of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadMap {
    /// The table. If the node does not have it any more, the node answers with the map of a table
    /// whose stripe sets hold segments of it.
    pub table: TableId,
    /// Bytes already read; 0 the first time.
    pub from_bytes: u64,
    /// The memory to write it to.
    pub target: Target,
}
