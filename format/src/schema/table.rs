//! Defines a table, as nodes and clients keep and exchange it.

use super::ColumnDefinition;
use crate::{
    derived::DerivedDefinition,
    ids::{ColumnId, NodeId, TableId},
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The parity that protects a table against the loss of nodes. `Display` gives the names that
/// options use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Protection {
    /// `xor`: one parity per stripe. Any one node may be lost.
    Xor,
    /// `2d-xor`: two parities per stripe. Any two nodes may be lost.
    TwoD,
}

impl Protection {
    /// The minimum number of nodes of a table.
    #[must_use]
    pub fn nodes_min(self) -> usize {
        match self {
            Self::Xor => 2,
            Self::TwoD => 3,
        }
    }

    /// The maximum number of nodes that may be lost at once without losing data.
    #[must_use]
    pub fn lost_max(self) -> usize {
        match self {
            Self::Xor => 1,
            Self::TwoD => 2,
        }
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Xor => "xor",
            Self::TwoD => "2d-xor",
        })
    }
}

/// The definition of one version of a table: what its pages hold and how they were cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableDefinition {
    /// Drawn by the loader, never reused.
    pub id: TableId,
    /// The name SQL knows it by; unique in the cluster.
    pub name: String,
    /// Columns in order; a [`ColumnId`] is a position here.
    pub columns: Vec<ColumnDefinition>,
    /// The column whose hash decides the node of a row.
    pub partition_key: ColumnId,
    /// The column rows are sorted by, if the load was told to sort.
    pub sorted_by: Option<ColumnId>,
    /// Target bytes of a page.
    pub page_size: u32,
    /// Rows of a full segment.
    pub segment_rows: u32,
    /// The nodes that hold the table. A reader that cannot read from one of them must not answer
    /// the query.
    pub nodes: Vec<NodeId>,
    /// Rows of the whole table.
    pub rows: u64,
    /// Where the rows came from, for display (`tpch scale 1`, a file name).
    pub source: String,
    /// The table version that this one replaces and whose segments it may keep; `None` if the table
    /// was loaded.
    pub succeeds: Option<TableId>,
    /// Indexes, foreign keys and sums: what is derived from the rows and written with them. A new
    /// version may have other ones.
    pub derived: Vec<DerivedDefinition>,
    /// The parity that protects the table; `None` if it is not protected.
    pub protection: Option<Protection>,
}

/// Why a table definition is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the definition of table {table:?} is invalid: {what} is {found}, expected {expected}")]
pub struct DefinitionError {
    /// The table's name.
    pub table: String,
    /// The field at fault.
    pub what: &'static str,
    /// The value found.
    pub found: String,
    /// The valid values.
    pub expected: String,
}

impl TableDefinition {
    /// The column named `name`, with its id.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<(ColumnId, &ColumnDefinition)> {
        let index = self.columns.iter().position(|column| column.name == name)?;
        Some((ColumnId(u16::try_from(index).ok()?), &self.columns[index]))
    }
}
