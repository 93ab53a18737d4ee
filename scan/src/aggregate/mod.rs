//! Groups and aggregates selected rows.
//!
//! Rows arrive as arrays of keys and arguments ([`Groups::add_rows`]), or, where they can be
//! computed on unpacked blocks ([`direct`]), as partial groups ([`Groups::add_partial`]). Both end
//! in one table of groups.
//!
//! ```text
//! groups      what a program groups by; the groups so far, fed by rows or by partial groups
//!   keys        finds the group of a row by its keys
//!   accumulate  folds the values of a group into one
//! direct      groups packed blocks without building arrow arrays, where the program allows it
//!   domain      maps the keys of a row to a slot
//!   table       counts, sums and extremes per slot
//!   masked      the loops over a block that the table runs once per slot
//!   hashed      one integer key of a large range, by a hash table instead of slots
//! partial     groups of some rows, on their way from `direct` to `groups`
//! integers    arrays of any integer type as 64-bit integers, and back
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
