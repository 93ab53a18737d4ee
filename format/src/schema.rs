//! What does a table look like?
//!
//! Invariants (held by [`TableDefinition::verify`], which every reader of a definition calls)
//! - Column names are unique, non-empty and at most `NAME_BYTES_MAX` bytes.
//! - A table does not succeed itself.
//! - A protected table has as many nodes as its parity needs, each once.
//! - What is derived from its rows fits it ([`crate::derived`]).
//! - The partition key is a column of the table. Rows go to nodes by a hash of it, so every key has
//!   one home.
//! - Every type but `Float64` and `Text` is stored as a 64-bit integer; decimals as their unscaled
//!   value.

use crate::{
    derived::{self, DerivedDefinition},
    ids::{ColumnId, NodeId, TableId},
    limits::{
        BLOCK_ROWS, CLUSTER_NODES_MAX, COLUMNS_MAX, DECIMAL_DIGITS_MAX, NAME_BYTES_MAX, PAGE_SIZE_MAX,
        PAGE_SIZE_MIN, PROTECTED_NODES_MAX, SECTOR_BYTES, SEGMENT_ROWS_MAX,
    },
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, fmt};

/// The type of a stored column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ColumnType {
    /// False is 0, true is 1.
    Boolean,
    /// A signed 32-bit integer.
    Int32,
    /// A signed 64-bit integer.
    Int64,
    /// Days since 1970-01-01.
    Date32,
    /// Microseconds since 1970-01-01T00:00:00, without a time zone.
    TimestampMicros,
    /// An exact decimal: the stored integer is the value times `10^scale`.
    Decimal {
        /// All digits, at most [`DECIMAL_DIGITS_MAX`].
        precision: u8,
        /// Digits after the point, at most `precision`.
        scale: u8,
    },
    /// An IEEE 754 double.
    Float64,
    /// UTF-8 text.
    Text,
}

impl ColumnType {
    /// Whether values are stored as 64-bit integers.
    #[must_use]
    pub fn is_integer(self) -> bool {
        !matches!(self, Self::Float64 | Self::Text)
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean => f.write_str("boolean"),
            Self::Int32 => f.write_str("int"),
            Self::Int64 => f.write_str("bigint"),
            Self::Date32 => f.write_str("date"),
            Self::TimestampMicros => f.write_str("timestamp"),
            Self::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            Self::Float64 => f.write_str("double"),
            Self::Text => f.write_str("text"),
        }
    }
}

/// One column of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnDefinition {
    /// Its name, as SQL sees it.
    pub name: String,
    /// Its type.
    pub column_type: ColumnType,
    /// Whether values may be missing.
    pub nullable: bool,
}

/// Which parities give back what lost nodes had of a table. The names are those that people write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Protection {
    /// `xor`: one parity. Any one node may be lost.
    Xor,
    /// `2d-xor`: two parities. Any two nodes may be lost.
    TwoD,
}

impl Protection {
    /// The fewest nodes of a table.
    #[must_use]
    pub fn nodes_min(self) -> usize {
        match self {
            Self::Xor => 2,
            Self::TwoD => 3,
        }
    }

    /// How many nodes may be lost at once without losing anything.
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

/// One load of a table: what its pages hold and how they were cut.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableDefinition {
    /// Drawn by the loader, never reused.
    pub id: TableId,
    /// The name SQL knows it by; unique in the cluster.
    pub name: String,
    /// Columns in order; a [`ColumnId`] is a position here.
    pub columns: Vec<ColumnDefinition>,
    /// Whose hash decides the node of a row.
    pub partition_key: ColumnId,
    /// The column rows are sorted by, if the load was told to sort.
    pub sorted_by: Option<ColumnId>,
    /// Target bytes of a page.
    pub page_size: u32,
    /// Rows of a full segment.
    pub segment_rows: u32,
    /// The nodes that hold the table. A reader that misses one of them must not answer.
    pub nodes: Vec<NodeId>,
    /// Rows of the whole table.
    pub rows: u64,
    /// Where the rows came from, for people (`tpch scale 1`, a file name).
    pub source: String,
    /// The table whose place it takes and whose segments it may keep; `None` for one that was
    /// loaded.
    pub succeeds: Option<TableId>,
    /// What is derived from its rows and written with them. A new version may derive something
    /// else.
    pub derived: Vec<DerivedDefinition>,
    /// What gives back the part of a lost node; `None` if nothing does.
    pub protection: Option<Protection>,
}

/// What is wrong with a table definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("table {table:?}: {what} is {found}, expected {expected}")]
pub struct DefinitionError {
    /// The table's name.
    pub table: String,
    /// The field at fault.
    pub what: &'static str,
    /// Its value.
    pub found: String,
    /// What would be right.
    pub expected: String,
}

impl TableDefinition {
    /// The column named `name`, with its id.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<(ColumnId, &ColumnDefinition)> {
        let index = self.columns.iter().position(|column| column.name == name)?;
        Some((ColumnId(u16::try_from(index).ok()?), &self.columns[index]))
    }

    /// Checks every bound the rest of the code relies on.
    ///
    /// # Errors
    /// The first field that breaks an invariant.
    pub fn verify(&self) -> Result<(), DefinitionError> {
        let fault = |what: &'static str, found: String, expected: String| {
            Err(DefinitionError { table: self.name.clone(), what, found, expected })
        };
        if self.name.is_empty() || self.name.len() > NAME_BYTES_MAX {
            return fault(
                "the name",
                format!("{} bytes", self.name.len()),
                format!("1 to {NAME_BYTES_MAX} bytes"),
            );
        }
        if self.columns.is_empty() || self.columns.len() > COLUMNS_MAX {
            return fault(
                "the number of columns",
                self.columns.len().to_string(),
                format!("1 to {COLUMNS_MAX}"),
            );
        }
        for (index, column) in self.columns.iter().enumerate() {
            if column.name.is_empty() || column.name.len() > NAME_BYTES_MAX {
                let found = format!("{} bytes (column {index})", column.name.len());
                return fault("a column's name", found, format!("1 to {NAME_BYTES_MAX} bytes"));
            }
            if self.columns[..index].iter().any(|other| other.name == column.name) {
                return fault("a column's name", format!("{:?} twice", column.name), "unique names".into());
            }
            if let ColumnType::Decimal { precision, scale } = column.column_type
                && (precision == 0 || precision > DECIMAL_DIGITS_MAX || scale > precision)
            {
                let expected = format!("1 to {DECIMAL_DIGITS_MAX} digits with scale <= precision");
                return fault("a column's type", format!("decimal({precision},{scale})"), expected);
            }
        }
        if self.partition_key.index() >= self.columns.len() {
            let expected = format!("a column below {}", self.columns.len());
            return fault("the partition key", self.partition_key.to_string(), expected);
        }
        if let Some(column) = self.sorted_by
            && column.index() >= self.columns.len()
        {
            return fault(
                "the sort column",
                column.to_string(),
                format!("a column below {}", self.columns.len()),
            );
        }
        if self.succeeds == Some(self.id) {
            return fault("the table that it succeeds", self.id.to_string(), "another one".into());
        }
        self.verify_sizes()?;
        self.verify_protection()?;
        derived::verify(self)
    }

    fn verify_protection(&self) -> Result<(), DefinitionError> {
        let Some(protection) = self.protection else { return Ok(()) };
        let (what, table) = ("the nodes of a protected table", || self.name.clone());
        let (fewest, found) = (protection.nodes_min(), self.nodes.len());
        if !(fewest..=PROTECTED_NODES_MAX).contains(&found) {
            let expected = format!("{fewest} to {PROTECTED_NODES_MAX} with parity {protection}");
            return Err(DefinitionError { table: table(), what, found: found.to_string(), expected });
        }
        let different: BTreeSet<NodeId> = self.nodes.iter().copied().collect();
        if different.len() != found {
            let (found, expected) = (format!("{:?}", self.nodes), "each once".to_owned());
            return Err(DefinitionError { table: table(), what, found, expected });
        }
        Ok(())
    }

    fn verify_sizes(&self) -> Result<(), DefinitionError> {
        let fault = |what: &'static str, found: String, expected: String| {
            Err(DefinitionError { table: self.name.clone(), what, found, expected })
        };
        if !(PAGE_SIZE_MIN..=PAGE_SIZE_MAX).contains(&self.page_size)
            || !self.page_size.is_multiple_of(SECTOR_BYTES)
        {
            let expected = format!("a multiple of {SECTOR_BYTES} from {PAGE_SIZE_MIN} to {PAGE_SIZE_MAX}");
            return fault("the page size", format!("{} bytes", self.page_size), expected);
        }
        let block = u32::try_from(BLOCK_ROWS).unwrap_or(u32::MAX);
        if self.segment_rows == 0
            || self.segment_rows > SEGMENT_ROWS_MAX
            || !self.segment_rows.is_multiple_of(block)
        {
            let expected = format!("a multiple of {BLOCK_ROWS} up to {SEGMENT_ROWS_MAX}");
            return fault("the number of rows of a segment", self.segment_rows.to_string(), expected);
        }
        if self.nodes.is_empty() || self.nodes.len() > CLUSTER_NODES_MAX {
            return fault(
                "the number of nodes",
                self.nodes.len().to_string(),
                format!("1 to {CLUSTER_NODES_MAX}"),
            );
        }
        Ok(())
    }
}
