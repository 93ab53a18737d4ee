//! Defines the identifiers (newtypes) of everything that is named on devices or in messages.
//!
//! Invariants
//! - An id is opaque: code uses only its equality, its order and its bytes.
//! - The loader draws `TableId`s at random, and no `TableId` is used again, so a page of a dropped
//!   table can never be mistaken for a page of its new version.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// One version of a table: each load and each new version has a new id.
    TableId(u32)
}
id! {
    /// A segment, unique within its table.
    SegmentId(u32)
}
id! {
    /// A column: its position in the table's schema.
    ColumnId(u16)
}
id! {
    /// A page of a chunk: 0 is the one that holds the chunk's first rows.
    PageNumber(u16)
}
id! {
    /// A storage node of the cluster.
    NodeId(u16)
}
id! {
    /// A device of a storage node: its position in the node's configuration.
    DeviceId(u8)
}
id! {
    /// A request on one connection; the reply carries the same number.
    RequestId(u64)
}

impl ColumnId {
    /// The column's position as an index into per-column vectors.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}
