//! Indexes: tables that say in which rows of a table's segments a value is.
//!
//! ```text
//! CREATE INDEX, flush  -> sorted values of segments with the places of their rows: a table of its own   [lay]   (flushing/indexes)
//! WHERE column = value -> places, by a scan of that table                                                [lookup]
//!                      -> all other rows are withheld from the scan of the segments, as if deleted       (exec)
//! ```
//!
//! | index's name | `rackscan index NAME` |
//! |---|---|
//! | index's columns | [`VALUE`](layout::VALUE), of the indexed column's type, never missing; [`PLACE`](layout::PLACE), a bigint ([`rackscan_format::row_place`]) |
//! | index's source | which segments it knows ([`Coverage`]) |
//!
//! Invariants
//! - An index knows all rows that were there when it was made, of all segments below some number.
//!   It says nothing about the segments from that number on: they are scanned whole.
//! - What an index says of a segment stays true: segments never change, and their numbers stay
//!   theirs in all later versions of the table. Rows that were deleted since are withheld anyway.
//!   The filter stays in the plan and drops rows that the index lists in excess.
//! - Nothing depends on an index: without one, or if it cannot be read, the same scan returns the
//!   same rows.
//! - Only scans and flushes see indexes.

mod find;
mod lay;
mod layout;
mod lookup;

pub(crate) use find::indexes_of;
pub(crate) use lay::{definition, lay, sorted};
pub(crate) use layout::{Coverage, INDEX_NAME_BYTES_MAX, index_in};
pub(crate) use lookup::{Lookup, Wanted, filter_of_values};
