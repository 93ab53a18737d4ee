//! Builds the measured queries over lineitem, by their selectivity.

use serde::Serialize;
use std::fmt;

/// Keys of parts per unit of scale; each is in about 30 rows of lineitem, spread evenly.
const PART_KEYS: f64 = 200_000.0;

/// The queries over lineitem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ScanQuery {
    /// Selects four columns of the rows that pass.
    Rows,
    /// Sums over the rows that pass.
    Aggregate,
}

impl ScanQuery {
    /// Its SQL, with a predicate that about this share of the rows passes. The rows of each TPC-H
    /// part are spread evenly, so zone maps help only if all rows pass: then the predicate's column
    /// is not read.
    #[must_use]
    pub fn sql(self, selectivity: f64, scale: f64) -> String {
        let keys = (PART_KEYS * scale * selectivity).round().max(1.0);
        let wanted = match self {
            Self::Rows => "l_orderkey, l_extendedprice, l_discount, l_shipdate",
            Self::Aggregate => "sum(l_extendedprice * l_discount), count(*)",
        };
        format!("SELECT {wanted} FROM lineitem WHERE l_partkey <= {keys}")
    }
}

impl fmt::Display for ScanQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rows => "rows",
            Self::Aggregate => "aggregate",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_rows_becomes_a_share_of_parts() {
        let sql = ScanQuery::Aggregate.sql(0.01, 0.1);
        assert!(sql.ends_with("l_partkey <= 200"), "{sql}");
        let sql = ScanQuery::Rows.sql(0.0001, 0.01);
        assert!(sql.ends_with("l_partkey <= 1"), "at least one part: {sql}");
    }
}
