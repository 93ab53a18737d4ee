//! Derived entries: indexes, sides of foreign keys, and sums by group, which are written in the
//! same transaction as the rows that they are derived from.
//!
//! ```text
//! changed rows, with what they were, and a table's derivations -> [Derived::maintain] -> items -> written by the transaction that writes the rows
//! participants -> replica, or a read of keys -> [DerivedView] -> rows by a value; parents and children; sums by group
//! ```
//!
//! A table's definition says what is derived from it ([`rackscan_format::derived`]). Entries cover
//! the delta store only. For segments, zone maps and key filters take the place of indexes, and the
//! sum over a segment is its base.
//!
//! - `definition`: one derivation of a table. `entry`: the keys and values of entries. `sortable`:
//!   values as bytes that sort like them.
//! - `maintain`: the entries to write with changed rows. `view`: answers from the visible entries.
//!   `fault`: errors.
//!
//! Invariants
//! - Entries lie under the id of the table whose rows they are about. So they go with these rows,
//!   and a new table version begins without any.
//! - Every change of a row writes all entries of its new version. So an entry counts if and only if
//!   it has the timestamp of its row's newest version. Entries that an overlapping transaction left
//!   behind do not count, although nothing prevents lost updates.
//! - A reader that reads atomically never sees an entry that is newer than its row. Such an entry
//!   is an error ([`DerivedFault::Torn`]).
//! - Sums are exact: integers and unscaled decimals in 128 bits. An overflow is an error.
//! - The same changes, in any order, make the same items.

mod definition;
mod entry;
mod fault;
mod maintain;
mod sortable;
mod view;

pub use definition::Derived;
pub(crate) use entry::table_of;
pub use entry::{Amount, DerivedId, Entry, Role, prefixes};
pub use fault::DerivedFault;
pub use maintain::{Before, RowChange, TakenAway};
pub(crate) use view::DerivedItems;
pub use view::{DerivedView, Family};

#[cfg(test)]
mod tests;
