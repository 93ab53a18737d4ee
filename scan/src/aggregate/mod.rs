//! Groups and aggregates selected rows.
//!
//! Rows arrive as arrays of keys and arguments ([`Groups::add_rows`]), or as partial groups
//! ([`Groups::add_partial`]) if they can be computed on unpacked blocks ([`direct`]). Both are
//! added to the same table of groups.
//!
//! ```text
//! groups        the groups that a scan has found, to which rows and partial groups are added
//!   keys        finds the group of a row by its keys
//!   accumulate  combines the values of a group into one
//! direct        groups packed blocks without building arrow arrays, where the program allows it
//!   domain      maps the keys of a row to a slot (an entry of a small table)
//!   table       counts, sums, minima and maxima for each slot
//!   masked      the loops over a block that the table runs once for each slot
//!   hashed      groups by one integer key of a large range, by a hash table instead of slots
//! partial       groups of some rows, passed from `direct` to `groups`
//! integers      converts arrays of any integer type to 64-bit integers, and back
//! ```
//!
//! Invariant: the output is a partial aggregation. The same group may appear in several batches of
//! one answer; the caller merges them.

mod accumulate;
pub(crate) mod direct;
mod domain;
mod groups;
mod integers;
mod keys;
mod masked;
mod partial;
mod table;

pub(crate) use groups::{Grouping, Groups};
