//! The text of the 22 TPC-H queries, q01 to q22.
//!
//! The text is compiled in, so that the command, the benchmarks and the tests run the same bytes
//! wherever they are installed. The crate does not parse or run SQL. Where the queries come from
//! and how their answers are checked: `queries/README.md`.
//!
//! ```text
//! src/lib.rs        the queries by number and by name
//! tpch/q01.sql ...  their text
//! tpch/answers/     their expected answers, written by make_answers.py
//! tpch/plans/       their expected plans, compared by the engine's tests
//! slt/              other SQL in the format of sqllogictest, run by the engine's tests
//! ```
//!
//! An example: a query is found by its number.
//!
//! ```
//! use rackscan_queries::{tpch, tpch_by_name};
//!
//! let query = tpch_by_name("6").ok_or("no such query")?;
//! assert_eq!((query.name().as_str(), query.title()), ("q06", "Forecasting Revenue Change"));
//! assert!(query.sql.ends_with("l_quantity < 24"));
//! assert_eq!(tpch().filter(|query| query.sql.contains("exists (")).count(), 3);
//! assert_eq!(tpch_by_name("q23"), None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

/// One query of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Its number, from 1.
    pub number: u8,
    /// One SQL statement, without a semicolon at its end.
    pub sql: &'static str,
}

const TPCH_SQL: [&str; 22] = [
    include_str!("../tpch/q01.sql"),
    include_str!("../tpch/q02.sql"),
    include_str!("../tpch/q03.sql"),
    include_str!("../tpch/q04.sql"),
    include_str!("../tpch/q05.sql"),
    include_str!("../tpch/q06.sql"),
    include_str!("../tpch/q07.sql"),
    include_str!("../tpch/q08.sql"),
    include_str!("../tpch/q09.sql"),
    include_str!("../tpch/q10.sql"),
    include_str!("../tpch/q11.sql"),
    include_str!("../tpch/q12.sql"),
    include_str!("../tpch/q13.sql"),
    include_str!("../tpch/q14.sql"),
    include_str!("../tpch/q15.sql"),
    include_str!("../tpch/q16.sql"),
    include_str!("../tpch/q17.sql"),
    include_str!("../tpch/q18.sql"),
    include_str!("../tpch/q19.sql"),
    include_str!("../tpch/q20.sql"),
    include_str!("../tpch/q21.sql"),
    include_str!("../tpch/q22.sql"),
];

impl Query {
    /// `q01` to `q22`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("q{:02}", self.number)
    }

    /// Its name in the specification: the comment on its first line.
    #[must_use]
    pub fn title(&self) -> &'static str {
        let first = self.sql.lines().next().unwrap_or_default();
        first.split_once(": ").map_or(first, |(_, title)| title)
    }
}

/// The 22 queries of TPC-H with the validation parameters, in order.
pub fn tpch() -> impl Iterator<Item = Query> {
    (1_u8..).zip(TPCH_SQL).map(|(number, sql)| Query { number, sql: sql.trim_end().trim_end_matches(';') })
}

/// The TPC-H query that `name` means: `q06`, `q6`, `Q06` or `6`.
#[must_use]
pub fn tpch_by_name(name: &str) -> Option<Query> {
    let number: u8 = name.strip_prefix(['q', 'Q']).unwrap_or(name).parse().ok()?;
    tpch().find(|query| query.number == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_22_queries_each_with_a_title() {
        assert_eq!(tpch().count(), 22);
        assert!(tpch().all(|query| !query.title().is_empty() && query.sql.contains("select")));
        assert_eq!(tpch().next().map(|query| query.title()), Some("Pricing Summary Report"));
    }

    #[test]
    fn a_query_answers_to_all_its_names() {
        for name in ["q06", "q6", "Q06", "6", "06"] {
            assert_eq!(tpch_by_name(name).map(|query| query.name()), Some("q06".to_owned()), "{name}");
        }
        for name in ["q0", "q23", "", "q", "six", "-1"] {
            assert_eq!(tpch_by_name(name), None, "{name}");
        }
    }
}
