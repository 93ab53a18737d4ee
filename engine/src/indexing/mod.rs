//! Indexes: tables that say in which rows of a table's segments a value is.
//!
//! ```text
//! CREATE INDEX, flush  -> sorted values of segments with the places of their rows: a table of its own   [lay]   (sealing/indexes)
//! WHERE column = value -> places, by a scan of that table                                                [lookup]
//!                      -> all other rows are withheld from the scan of the segments, as if deleted       (exec)
//! ```
//!
//! | index's name | `rackscan index NAME` |
//! |---|---|
//! | index's columns | [`VALUE`], of the indexed column's type, never missing; [`PLACE`], a bigint ([`rackscan_format::row_place`]) |
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

mod lay;
mod lookup;

use crate::table::Table;
use rackscan_format::{
    derived::DerivedKind,
    ids::{SegmentId, TableId},
    limits::NAME_BYTES_MAX,
    schema::{ColumnType, TableDefinition},
};
use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc};

pub(crate) use lay::{definition, lay, sorted};
pub(crate) use lookup::{Lookup, Wanted};

const PREFIX: &str = "rackscan index ";
/// The maximum bytes of an index's name.
pub(crate) const INDEX_NAME_BYTES_MAX: usize = NAME_BYTES_MAX - PREFIX.len();
/// The column with the values.
const VALUE: &str = "value";
/// The column with the places of the rows that have them.
const PLACE: &str = "place";

/// The name of the table of an index.
pub(crate) fn table_of(index: &str) -> String {
    format!("{PREFIX}{index}")
}

/// The index whose table has this name; `None` if it is another table.
pub(crate) fn index_in(table: &str) -> Option<&str> {
    table.strip_prefix(PREFIX)
}

/// Which segments an index covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Coverage {
    /// The table for which it was made.
    pub(crate) of: TableId,
    /// The first segment that it does not cover; it covers all before that.
    pub(crate) below: SegmentId,
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {:08x} below segment {}", self.of.0, self.below.0)
    }
}

impl FromStr for Coverage {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (of, below) =
            text.strip_prefix("table ").and_then(|rest| rest.split_once(" below segment ")).ok_or(())?;
        let of = u32::from_str_radix(of, 16).map_err(|_| ())?;
        Ok(Self { of: TableId(of), below: SegmentId(below.parse().map_err(|_| ())?) })
    }
}

/// An index of a table.
#[derive(Clone, Debug)]
pub(crate) struct TableIndex {
    pub(crate) name: String,
    /// The indexed column's name.
    pub(crate) column: String,
    pub(crate) coverage: Coverage,
    /// The table that holds it.
    pub(crate) table: Arc<Table>,
}

/// The indexes of a table, found among the hidden tables by their names: those that were made for
/// this version of the table or for the one before.
pub(crate) fn indexes_of<'t>(
    table: &TableDefinition,
    hidden: impl Fn(&str) -> Option<&'t Arc<Table>>,
) -> Vec<TableIndex> {
    let indexes = table.derived.iter().filter_map(|derived| {
        let DerivedKind::Index { column } = derived.kind else { return None };
        let lies_in = hidden(&table_of(&derived.name))?;
        let coverage: Coverage = lies_in.definition().source.parse().ok()?;
        let is_its = coverage.of == table.id || table.succeeds == Some(coverage.of);
        let [value, place] = lies_in.definition().columns.as_slice() else { return None };
        let column = table.columns.get(column.index())?;
        let fits = value.column_type == column.column_type && place.column_type == ColumnType::Int64;
        let (name, column, table) = (derived.name.clone(), column.name.clone(), Arc::clone(lies_in));
        (is_its && fits).then_some(TableIndex { name, column, coverage, table })
    });
    indexes.collect()
}

/// Places by their segments.
type Places = BTreeMap<SegmentId, Vec<u32>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_index_knows_is_read_as_it_was_written() {
        for coverage in [
            Coverage { of: TableId(7), below: SegmentId(0) },
            Coverage { of: TableId(u32::MAX), below: SegmentId(u32::MAX) },
        ] {
            assert_eq!(coverage.to_string().parse(), Ok(coverage));
        }
        for other in ["", "tpch scale 0.01", "table 7", "table x below segment 1", "table 7 below segment -1"]
        {
            assert_eq!(other.parse::<Coverage>(), Err(()), "{other}");
        }
        assert_eq!(index_in(&table_of("by day")), Some("by day"));
        assert_eq!(index_in("lineitem"), None);
    }
}
