//! How do bytes that are corrupt or lost on a node's devices become whole again?
//!
//! What a node has of a stripe set is a list of *places*: the pages of its stream in their order,
//! then its cells of parity in theirs. Each says what it is: a page by checksum and identity, a
//! cell by the checksum in the catalog.
//!
//! Invariants
//! - A place takes only the bytes that it had: whoever brings them need not be believed.
//! - Each request is bounded, and says where the next one begins.

use serde::{Deserialize, Serialize};

use super::Target;
use crate::{ids::TableId, stripe_set::SetId};

/// Which places are to be read and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verify {
    /// The set.
    pub set: SetId,
    /// The first place; 0 the first time.
    pub from: u64,
    /// So many bytes at most, but one place at least.
    pub bytes_max: u64,
}

/// What was found of places.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// Where to go on; `None` behind the last place.
    pub next: Option<u64>,
    /// Places that were looked at.
    pub places: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those of them that cannot be read or are not what they were, ascending.
    pub corrupt: Vec<u64>,
}

/// Bytes for places.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repair {
    /// The set.
    pub set: SetId,
    /// The places, at most `REPAIR_PLACES_MAX`.
    pub places: Vec<u64>,
    /// The requester's memory with exactly their bytes, one behind the other in the order of the
    /// list.
    pub source: Target,
}

/// A table whose part a node has lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopt {
    /// The table. Its map has come before, as that of a load.
    pub table: TableId,
}
