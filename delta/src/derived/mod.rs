//! Derived entries: items of indexes, of both sides of foreign keys, and of sums by group. A
//! transaction writes them together with the rows from which they are computed.
//!
//! ```text
//! changed rows, with their old versions, and a table's derivations -> [Derived::maintain] -> items -> written by the transaction that writes the rows
//! participants -> replica, or a read of keys -> [DerivedView] -> rows by a value; parents and children; sums by group
//! ```
//!
//! A table's definition lists its derivations ([`rackscan_format::derived`]). Entries cover the
//! delta store only. For segments, zone maps and key filters are used in place of indexes, and a
//! sum begins with the sum over the segments.
//!
//! - `definition`: one derivation of a table. `entry`: the keys and values of entries. `sortable`:
//!   values as bytes that sort like them.
//! - `maintain`: the entries to write with changed rows. `view`: answers from the visible entries.
//!   `fault`: errors.
//!
//! Invariants
//! - The keys of entries contain the id of the table whose rows they are about. So entries are
//!   dropped with these rows, and a new table version begins without any.
//! - Every change of a row writes all entries of its new version. So an entry counts if and only if
//!   it has the timestamp of its row's newest version. Of two transactions that changed a row at
//!   the same time, the older one may leave entries behind; they do not count.
//! - A reader that reads atomically never sees an entry that is newer than its row. Such an entry
//!   is an error ([`DerivedFault::Torn`]).
//! - Sums are exact: integers and unscaled decimals in 128 bits. An overflow is an error.
//! - The same changes, in any order, build the same items.

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
