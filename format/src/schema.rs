//! Defines tables: columns, partitioning, and how a load cuts rows into segments and pages.
//!
//! `column` and `table` are the definitions, `verify` checks them.
//!
//! Invariants (checked by [`TableDefinition::verify`], which every reader of a definition calls)
//! - Column names are unique, non-empty and have at most `NAME_BYTES_MAX` bytes.
//! - A table version does not replace itself.
//! - A protected table has at least as many nodes as its parity needs, each listed once.
//! - The derivations of a table fit its columns ([`crate::derived`]).
//! - The partition key is a column of the table. A hash of its value assigns rows to nodes, so all
//!   rows with one key are on one node.
//! - Values of every type but `Float64` and `Text` are stored as 64-bit integers; decimals as their
//!   unscaled value.

mod column;
mod table;
mod verify;

pub use column::{ColumnDefinition, ColumnType};
pub use table::{DefinitionError, Protection, TableDefinition};
