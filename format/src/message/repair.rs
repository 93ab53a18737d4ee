//! Defines requests that verify and repair bytes on a node's devices.
//!
//! A node's part of a stripe set (the data over which parity is computed) is a list of *places*:
//! first the pages that a load wrote on the node, in order, then the node's parity cells, in order.
//! The content of each place can be checked: a page by its checksum and identity, a parity cell by
//! the checksum in the catalog.
//!
//! Invariants
//! - A node writes to a place only the bytes that it had before, so it need not trust the sender.
//! - Each request is bounded, and its answer says where the next one begins.

use serde::{Deserialize, Serialize};

use super::Target;
use crate::{ids::TableId, stripe_set::SetId};

/// Asks the node to read and check places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verify {
    /// The set.
    pub set: SetId,
    /// The first place; 0 the first time.
    pub from: u64,
    /// The maximum number of bytes to read; at least one place is read.
    pub bytes_max: u64,
}

/// The result of checking places.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// The place to continue with; `None` after the last place.
    pub next: Option<u64>,
    /// The number of places checked.
    pub places: u64,
    /// The bytes of these places.
    pub bytes: u64,
    /// The places that cannot be read or whose bytes have changed, ascending.
    pub corrupt: Vec<u64>,
}

/// Writes bytes to places.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repair {
    /// The set.
    pub set: SetId,
    /// The places, at most `REPAIR_PLACES_MAX`.
    pub places: Vec<u64>,
    /// The requester's memory with exactly the bytes of the places, one after the other in the
    /// order of the list.
    pub source: Target,
}

/// Lets a node adopt its lost part of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopt {
    /// The table. Its map was sent before, as the map of a load.
    pub table: TableId,
}
