//! Defines the structures that describe indexes, foreign keys and sums of a table.

use crate::ids::{ColumnId, TableId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// One derivation of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DerivedDefinition {
    /// Its name; the two sides of a foreign key have the same one.
    pub name: String,
    /// What is derived.
    pub kind: DerivedKind,
}

/// The kinds of derivations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DerivedKind {
    /// A secondary index: finds rows by the value of a column.
    Index {
        /// The indexed column.
        column: ColumnId,
    },
    /// The side of a foreign key that holds the referenced key: an order.
    Parent {
        /// The key's column.
        key: ColumnId,
        /// The name of the table that has the other side.
        child: String,
    },
    /// The side of a foreign key that holds the reference: an order's line.
    Child {
        /// The key's column.
        key: ColumnId,
        /// The name of the table that has the other side.
        parent: String,
    },
    /// A materialised aggregate.
    Sum(SumDefinition),
}

impl fmt::Display for DerivedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Index { .. } => "an index",
            Self::Parent { .. } => "a foreign key's parents",
            Self::Child { .. } => "a foreign key's children",
            Self::Sum(_) => "a sum",
        })
    }
}

/// A sum of amounts of rows, grouped by the value of a column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SumDefinition {
    /// The column whose values are the groups.
    pub group: ColumnId,
    /// A row's amount is the product of these factors; without any it is 1. Its scale is the sum of
    /// the scales of all factors. A row in which a factor is null counts in no group.
    pub factors: Vec<Factor>,
    /// The rows that count; all rows if absent.
    pub within: Option<Within>,
    /// The table that holds, for each group, the sum over the segments; `None` if the segments
    /// contribute nothing.
    pub base: Option<TableId>,
}

/// A factor of an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Factor {
    /// A column's value.
    Column(ColumnId),
    /// One minus a column's value: the share that is paid after a discount.
    OneMinus(ColumnId),
    /// One plus a column's value: the share that is paid with a tax.
    OnePlus(ColumnId),
}

impl Factor {
    /// The column.
    #[must_use]
    pub fn column(self) -> ColumnId {
        match self {
            Self::Column(column) | Self::OneMinus(column) | Self::OnePlus(column) => column,
        }
    }
}

/// A range of values of a column that is stored as integers, for example the days of a quarter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Within {
    /// The column.
    pub column: ColumnId,
    /// The first value of the range.
    pub from: i64,
    /// The first value after the range.
    pub until: i64,
}
