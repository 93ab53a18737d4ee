//! Defines the paper's queries as filters: which rows pass, and which columns are returned.
//!
//! Invariants
//! - A query is its WHERE clause and the columns of its select list. It computes no sums, no groups
//!   and no order.

use std::fmt;
use std::str::FromStr;

use rackscan_format::program::Comparison;
use serde::Serialize;

/// The table that all of the queries read.
pub const TABLE: &str = "lineitem";

/// A query of the paper's section 4.5, as a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SimulatedQuery {
    /// Query 1: lines shipped at the latest 120 days before 1998-12-01.
    Q01,
    /// Query 6: lines of 1995 with a discount of 4 to 6 percent and fewer than 24 pieces.
    Q06,
    /// The subquery of query 15: lines of three months from 1993-04-01 on.
    Q15,
}

impl SimulatedQuery {
    /// All queries.
    pub const ALL: [Self; 3] = [Self::Q01, Self::Q06, Self::Q15];

    /// Its name for users.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Q01 => "q01",
            Self::Q06 => "q06",
            Self::Q15 => "q15",
        }
    }

    /// The selectivity as the paper's table 4.5 prints it.
    #[must_use]
    pub fn paper_selectivity(self) -> &'static str {
        match self {
            Self::Q01 => "0.97",
            Self::Q06 => "0.013",
            Self::Q15 => "0.15",
        }
    }

    /// Conditions that must all hold.
    pub(super) fn conditions(self) -> Vec<(&'static str, Comparison, Constant)> {
        use Comparison::{GreaterOrEqual, Less, LessOrEqual};
        let shipped = |op, date| ("l_shipdate", op, Constant::Date(date));
        match self {
            Self::Q01 => vec![shipped(LessOrEqual, days(1998, 12, 1) - 120)],
            Self::Q06 => vec![
                shipped(GreaterOrEqual, days(1995, 1, 1)),
                shipped(Less, days(1996, 1, 1)),
                ("l_discount", GreaterOrEqual, Constant::Hundredths(4)),
                ("l_discount", LessOrEqual, Constant::Hundredths(6)),
                ("l_quantity", Less, Constant::Hundredths(2400)),
            ],
            Self::Q15 => {
                vec![shipped(GreaterOrEqual, days(1993, 4, 1)), shipped(Less, days(1993, 7, 1))]
            }
        }
    }

    /// The columns that the select list names.
    pub(super) fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Q01 => {
                &["l_returnflag", "l_linestatus", "l_quantity", "l_extendedprice", "l_discount", "l_tax"]
            }
            Self::Q06 => &["l_extendedprice", "l_discount"],
            Self::Q15 => &["l_suppkey", "l_extendedprice", "l_discount"],
        }
    }
}

impl fmt::Display for SimulatedQuery {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A word that names no query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no query {found:?} to simulate; expected q01, q06 or q15")]
pub struct UnknownQuery {
    /// The word.
    pub found: String,
}

impl FromStr for SimulatedQuery {
    type Err = UnknownQuery;

    fn from_str(text: &str) -> Result<Self, UnknownQuery> {
        let named = Self::ALL.into_iter().find(|query| query.name() == text);
        named.ok_or_else(|| UnknownQuery { found: text.to_owned() })
    }
}

/// A constant that a column is compared with.
#[derive(Debug, Clone, Copy)]
pub(super) enum Constant {
    /// Days since 1970-01-01.
    Date(i32),
    /// A decimal, in hundredths.
    Hundredths(i128),
}

/// Days from 1970-01-01 to a date of the years 1970 to 2099, in which every fourth year is a leap
/// year.
const fn days(year: i32, month: i32, day: i32) -> i32 {
    // Years begin in March, so that a leap day is the last day of its year; any five months from
    // there have 153 days.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    // 1969-03-01 is 306 days before 1970-01-01.
    let years = year - 1969;
    years * 365 + (years + 1) / 4 + (153 * month + 2) / 5 + day - 1 - 306
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_counted_from_1970() {
        assert_eq!(days(1970, 1, 1), 0);
        assert_eq!(days(1972, 2, 29), 789);
        assert_eq!(days(1998, 12, 1), 10_561);
        assert_eq!(days(1998, 12, 1) - 120, days(1998, 8, 3));
        assert_eq!(days(1996, 1, 1) - days(1995, 1, 1), 365);
    }
}
