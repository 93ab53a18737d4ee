//! Counts the tables that a statement reads if each use of a WITH query is planned separately, and
//! removes hints about such queries.
//!
//! In a chain of WITH queries in which each one uses the previous one several times, that number at
//! least doubles at each step. The time of every later pass over the plan grows with it.

use crate::visitors::{visit, visit_relations};
use std::{
    collections::{BTreeSet, HashMap},
    ops::ControlFlow,
};

use datafusion::sql::{
    parser::Statement,
    sqlparser::{
        ast::{Ident, ObjectNamePart, Query, Visit, Visitor},
        keywords::Keyword,
        tokenizer::{Token, TokenWithSpan},
    },
};

use super::words::is_word;
use crate::{error::EngineError, limits::COMMON_TABLE_USES_MAX};

/// Removes `[NOT] MATERIALIZED` after AS. sqlparser knows it in another dialect only, and it
/// changes no answer.
pub(super) fn leave_hints_out(tokens: &mut Vec<TokenWithSpan>) {
    let words: Vec<usize> =
        (0..tokens.len()).filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_))).collect();
    let is = |at: usize, keyword| is_word(&tokens[words[at]].token, &[keyword]);
    let mut hints = BTreeSet::new();
    for at in 1..words.len().saturating_sub(1) {
        let opens = tokens[words[at + 1]].token == Token::LParen;
        if !opens || !is(at, Keyword::MATERIALIZED) {
            continue;
        }
        if is(at - 1, Keyword::AS) {
            hints.insert(words[at]);
        } else if at > 1 && is(at - 1, Keyword::NOT) && is(at - 2, Keyword::AS) {
            hints.extend([words[at - 1], words[at]]);
        }
    }
    let mut at = 0;
    tokens.retain(|_| {
        at += 1;
        !hints.contains(&(at - 1))
    });
}

/// Refuses statements that would read too many tables.
pub(super) fn check(statement: &Statement) -> Result<(), EngineError> {
    let Statement::Statement(statement) = statement else {
        let Statement::Explain(explain) = statement else { return Ok(()) };
        return check(&explain.statement);
    };
    let mut tables = CommonTables { read_max: 0 };
    match visit(statement.as_ref(), &mut tables) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(EngineError::TooDeep(format!(
            "queries of WITH that read {} tables, as they use others several times, expected at most \
             {COMMON_TABLE_USES_MAX}: store one of them in a table",
            tables.read_max
        ))),
    }
}

struct CommonTables {
    /// The most that one query reads, as far as they were visited.
    read_max: usize,
}

impl Visitor for CommonTables {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let Some(with) = &query.with else { return ControlFlow::Continue(()) };
        let mut known = HashMap::new();
        for table in &with.cte_tables {
            let read = self.tables_read(&table.query, &known)?;
            known.insert(name_of(&table.alias.name), read);
        }
        self.tables_read(&query.body, &known).map_continue(|_| ())
    }
}

impl CommonTables {
    /// How many tables a query reads, given how many each WITH query reads; breaks above the bound.
    fn tables_read(&mut self, query: &impl Visit, known: &HashMap<String, usize>) -> ControlFlow<(), usize> {
        let mut read: usize = 0;
        let _ = visit_relations(query, &mut |name| {
            let of_with = match name.0.as_slice() {
                [ObjectNamePart::Identifier(name)] => known.get(&name_of(name)),
                _ => None,
            };
            read = read.saturating_add(of_with.copied().unwrap_or(0));
            ControlFlow::Continue(())
        });
        let read = read.max(1);
        self.read_max = self.read_max.max(read);
        if read > COMMON_TABLE_USES_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(read) }
    }
}

fn name_of(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use crate::parsing::parse;

    #[test]
    fn hints_about_queries_of_with_are_left_out() {
        for hint in ["materialized", "NOT  MATERIALIZED"] {
            let parsed = parse(&format!("with a as {hint} (select 1) select * from a")).unwrap();
            assert_eq!(parsed[0].to_string(), "WITH a AS (SELECT 1) SELECT * FROM a");
        }
        assert_eq!(parse("select 1 as materialized").unwrap()[0].to_string(), "SELECT 1 AS materialized");
        assert!(parse("select not materialized (1)").is_ok());
    }
}
