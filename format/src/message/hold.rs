//! Defines the request for a hold: as long as a reader has a hold of tables, the node keeps what it
//! stores of them readable, although they are replaced or dropped. Decision 0052.

use serde::{Deserialize, Serialize};

use crate::ids::TableId;

/// A hold of published tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldTables {
    /// A random number that identifies the hold.
    pub hold: u64,
    /// The tables, at most [`HELD_TABLES_MAX`](crate::limits::HELD_TABLES_MAX).
    pub tables: Vec<TableId>,
}
