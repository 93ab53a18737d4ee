//! Defines what is derived from a table's rows and stored with them: indexes, foreign keys and
//! sums. Each row has an *entry* in every derivation of its table, under a key that is computed
//! from the row.
//!
//! | derivation | key of a row's entry | question that its entries answer |
//! |---|---|---|
//! | [`DerivedKind::Index`] | the value of a column | which rows have values in a range |
//! | [`DerivedKind::Parent`] in one table, [`DerivedKind::Child`] in another | the foreign key that both sides have | which rows belong together |
//! | [`DerivedKind::Sum`] | the value of the column to group by; the entry contains an amount | what the sum of each group is |
//!
//! Derivations are part of the table's definition, so every writer that knows the table version
//! knows which entries to write with its rows. To change derivations, publish a new version of the
//! table.
//!
//! `definition` contains the definitions, `scale` computes the digits of amounts, `verify` checks
//! the definitions against their table.
//!
//! Invariants (checked by [`TableDefinition::verify`])
//! - A table has at most `DERIVED_MAX` derivations; their names are unique in it, non-empty and at
//!   most `NAME_BYTES_MAX` bytes.
//! - A derivation names existing columns of suitable types. An amount is a product of at most
//!   `FACTORS_MAX` exact numbers, with no more digits behind the point than a stored decimal has. A
//!   range is over values that are stored as integers.
//! - The two sides of a foreign key have the same derivation name and refer to each other's tables
//!   by name, because ids change with every new version. The two sides are different tables.
//! - The amounts of the rows in segments are summed up in another table, not in the table itself.

mod definition;
mod scale;
mod verify;

#[cfg(doc)]
use crate::schema::TableDefinition;

pub use definition::{DerivedDefinition, DerivedKind, Factor, SumDefinition, Within};
pub(crate) use verify::verify;
