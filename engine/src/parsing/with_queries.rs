//! How many tables does a statement read, if each use of a query of WITH is planned by itself?
//!
//! Queries of WITH that use others several times double that with each step, and every later look
//! at the plan would take as long.

use std::{collections::HashMap, ops::ControlFlow};

use datafusion::sql::{
    parser::Statement,
    sqlparser::ast::{Ident, ObjectNamePart, Query, Visit, Visitor, visit_relations},
};

use crate::{error::EngineError, limits::COMMON_TABLE_USES_MAX};

/// Refuses statements that would read too many.
pub(super) fn check(statement: &Statement) -> Result<(), EngineError> {
    let Statement::Statement(statement) = statement else {
        let Statement::Explain(explain) = statement else { return Ok(()) };
        return check(&explain.statement);
    };
    match statement.visit(&mut CommonTables) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(uses) => Err(EngineError::TooDeep(format!(
            "queries of WITH that read {uses} tables, as they use others several times, expected at most \
             {COMMON_TABLE_USES_MAX}: store one of them in a table"
        ))),
    }
}

struct CommonTables;

impl Visitor for CommonTables {
    type Break = usize;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<usize> {
        let Some(with) = &query.with else { return ControlFlow::Continue(()) };
        let mut known = HashMap::new();
        for table in &with.cte_tables {
            let read = tables_read(&table.query, &known)?;
            known.insert(name_of(&table.alias.name), read);
        }
        tables_read(&query.body, &known).map_continue(|_| ())
    }
}

/// Tables that a query reads, where those of WITH read so many each.
fn tables_read(query: &impl Visit, known: &HashMap<String, usize>) -> ControlFlow<usize, usize> {
    let mut read: usize = 0;
    let _ = visit_relations(query, |name| {
        let of_with = match name.0.as_slice() {
            [ObjectNamePart::Identifier(name)] => known.get(&name_of(name)),
            _ => None,
        };
        read = read.saturating_add(of_with.copied().unwrap_or(0));
        ControlFlow::<()>::Continue(())
    });
    let read = read.max(1);
    if read > COMMON_TABLE_USES_MAX { ControlFlow::Break(read) } else { ControlFlow::Continue(read) }
}

fn name_of(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_ascii_lowercase(),
    }
}
