//! Defines how an index is stored as a table: its name, its columns and its source.

use rackscan_format::{
    ids::{SegmentId, TableId},
    limits::NAME_BYTES_MAX,
};
use std::{fmt, str::FromStr};

const PREFIX: &str = "rackscan index ";
/// The maximum bytes of an index's name.
pub(crate) const INDEX_NAME_BYTES_MAX: usize = NAME_BYTES_MAX - PREFIX.len();
/// The column with the values.
pub(super) const VALUE: &str = "value";
/// The column with the places of the rows that have them.
pub(super) const PLACE: &str = "place";

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
