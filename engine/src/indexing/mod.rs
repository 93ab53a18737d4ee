//! Stores indexes as internal tables that list which rows of a table's segments contain a value,
//! and looks rows up in them.
//!
//! ```text
//! CREATE INDEX, flush  -> sorted values of segments, and the row places of each: an internal table       [lay]   (flushing/indexes)
//! WHERE column = value -> row places, by a scan of that internal table                                   [lookup]
//!                      -> all other rows are withheld from the scan of the segments, as if deleted       (exec)
//! ```
//!
//! | index's name | `rackscan index NAME` |
//! |---|---|
//! | index's columns | [`VALUE`](layout::VALUE), of the indexed column's type, never NULL; [`PLACE`](layout::PLACE), a bigint that identifies a row ([`rackscan_format::row_place`]) |
//! | index's source | which segments it covers ([`Coverage`]) |
//!
//! Invariants
//! - An index lists all rows that existed when it was built, of all segments below some number. It
//!   covers no segments from that number on: these are scanned completely.
//! - The entries of an index for a segment stay valid, because segments never change and keep their
//!   numbers in all later versions of the table. Rows that were deleted since are withheld anyway.
//!   The filter stays in the plan and drops rows that the index lists although they do not match.
//! - Results do not depend on an index: if there is none, or if it cannot be read, the same scan
//!   returns the same rows.
//! - Only scans and flushes read indexes.

mod find;
mod lay;
mod layout;
mod lookup;

pub(crate) use find::indexes_of;
pub(crate) use lay::{definition, lay, sorted};
pub(crate) use layout::{Coverage, INDEX_NAME_BYTES_MAX, index_in};
pub(crate) use lookup::{Lookup, Wanted, filter_of_values};
