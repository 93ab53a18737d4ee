//! What is written with a row, so that whoever sees the one sees the other?
//!
//! ```text
//! changed rows, with what they were, and what a table derives -> [Derived::maintain] -> items -> written by the transaction that writes the rows
//! homes -> replica, or a read of keys -> [DerivedView] -> rows by a value; parents and children; sums by group
//! ```
//!
//! What a table derives is said by its definition ([`rackscan_format::derived`]): indexes, sides of
//! foreign keys, sums by group.
//!
//! Entries tell of rows beside segments. Segments have zones and key filters; what they add to a
//! sum is its base.
//!
//! Invariants
//! - Entries lie under the id of the table whose rows they tell of, so they go with them, and a
//!   table that takes another one's place begins with none.
//! - Every change of a row writes all entries of what it becomes. So an entry counts if and only if
//!   it has the timestamp of its row's newest version: what an overlapping transaction left behind
//!   counts nowhere, although nothing keeps updates from getting lost.
//! - An entry that is newer than its row is never seen by those who read atomically, and is a fault
//!   where it is found ([`DerivedFault::Torn`]).
//! - Sums are exact: integers and unscaled decimals in 128 bits, and what does not fit is a fault.
//! - The same changes make the same items, in any order of the changes.

mod definition;
mod entry;
mod fault;
mod maintain;
mod sortable;
mod view;

pub use definition::{Derived, DerivedId};
pub(crate) use entry::table_of;
pub use entry::{Amount, Entry, Role, prefixes};
pub use fault::DerivedFault;
pub use maintain::{Before, RowChange, TakenAway};
pub(crate) use view::DerivedItems;
pub use view::{DerivedView, Family};

#[cfg(test)]
mod tests;
