//! How many rows are fetched?
//!
//! `FETCH FIRST 3 ROWS ONLY` is standard SQL's LIMIT, which DataFusion does not plan.

use datafusion::sql::sqlparser::ast::{Fetch, LimitClause, Query};

use super::{number, refuse};
use crate::error::EngineError;

/// Writes FETCH as LIMIT.
///
/// # Errors
/// WITH TIES, PERCENT, and LIMIT besides.
pub(super) fn rewrite(query: &mut Query) -> Result<(), Box<EngineError>> {
    let Some(Fetch { with_ties, percent, quantity }) = query.fetch.take() else { return Ok(()) };
    if with_ties || percent {
        return Err(refuse("FETCH ... WITH TIES or PERCENT", "compare rank() in a query around it"));
    }
    let rows = quantity.unwrap_or_else(|| number("1"));
    match &mut query.limit_clause {
        clause @ None => {
            *clause =
                Some(LimitClause::LimitOffset { limit: Some(rows), offset: None, limit_by: Vec::new() });
        }
        Some(LimitClause::LimitOffset { limit: limit @ None, .. }) => *limit = Some(rows),
        Some(_) => {
            return Err(Box::new(EngineError::Syntax("LIMIT and FETCH, expected one of them".to_owned())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::rewrite::tests::rewritten;

    #[test]
    fn fetch_is_limit() {
        for (sql, expected) in [
            ("SELECT a FROM t FETCH FIRST 2 ROWS ONLY", "SELECT a FROM t LIMIT 2"),
            ("SELECT a FROM t FETCH NEXT ROW ONLY", "SELECT a FROM t LIMIT 1"),
            (
                "SELECT a FROM t OFFSET 3 ROWS FETCH FIRST 2 ROWS ONLY",
                "SELECT a FROM t LIMIT 2 OFFSET 3 ROWS",
            ),
        ] {
            assert_eq!(rewritten(sql).unwrap(), expected);
        }
        for sql in [
            "SELECT a FROM t ORDER BY a FETCH FIRST 2 ROWS WITH TIES",
            "SELECT a FROM t FETCH FIRST 2 PERCENT ROWS ONLY",
            "SELECT a FROM t LIMIT 1 FETCH FIRST 2 ROWS ONLY",
        ] {
            assert!(rewritten(sql).is_err(), "{sql}");
        }
    }
}
