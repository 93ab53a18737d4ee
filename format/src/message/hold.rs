//! Which tables does a reader want to stay, though others replace or drop them? Decision 0052.

use serde::{Deserialize, Serialize};

use crate::ids::TableId;

/// A hold of published tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldTables {
    /// A random number, which names the hold.
    pub hold: u64,
    /// At most [`HELD_TABLES_MAX`](crate::limits::HELD_TABLES_MAX).
    pub tables: Vec<TableId>,
}
