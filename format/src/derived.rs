//! Definitions of what is derived from a table's rows and written with them: indexes, foreign keys
//! and sums.
//!
//! | | entries of a row are stored under | they answer |
//! |---|---|---|
//! | [`DerivedKind::Index`] | the value of a column | which rows have values in a range |
//! | [`DerivedKind::Parent`] in one table, [`DerivedKind::Child`] in another | the key that both sides share | which rows belong together |
//! | [`DerivedKind::Sum`] | the value of a group's column, with an amount | what the amounts of each group add up to |
//!
//! Derivations are part of the table's definition, so every writer that knows the table version
//! knows what to write with its rows. To change them, publish a new version of the table.
//!
//! `definition` holds the definitions, `scale` computes the digits of amounts, `verify` checks the
//! definitions against their table.
//!
//! Invariants (checked by [`TableDefinition::verify`])
//! - A table has at most `DERIVED_MAX` derivations; their names are unique in it, non-empty and at
//!   most `NAME_BYTES_MAX` bytes.
//! - Each names existing columns of suitable types: amounts are products of at most `FACTORS_MAX`
//!   exact numbers, with no more digits behind the point than a stored decimal has; ranges are over
//!   values that are stored as integers.
//! - The two sides of a foreign key have the same derivation name and refer to each other's tables
//!   by name, because ids change with every new version. The two sides are different tables.
//! - The contribution of segments to a sum is stored in another table.

mod definition;
mod scale;
mod verify;

#[cfg(doc)]
use crate::schema::TableDefinition;

pub use definition::{DerivedDefinition, DerivedKind, Factor, SumDefinition, Within};
pub(crate) use verify::verify;
