//! Reads the FROM clause of a view's query, which must be one table, and resolves column names in
//! it.

use super::clause::{last, normal, only, refused};
use crate::error::EngineError;
use datafusion::sql::sqlparser::ast::{Expr, ObjectNamePart, TableAlias, TableFactor, TableWithJoins};

/// The form of a view's query, for error messages.
pub(super) const FORM: &str =
    "say SELECT column, sum(amount), count(*) FROM table WHERE a range GROUP BY column";

/// The table of a query, and how its columns may be qualified.
pub(super) struct Source {
    pub(super) table: String,
    /// The alias, which hides the table's name; without one, all parts of the name.
    called: Vec<String>,
}

impl Source {
    pub(super) fn of(from: &[TableWithJoins]) -> Result<Self, EngineError> {
        let [TableWithJoins { relation, joins }] = from else {
            return Err(refused("a materialized view of other than one table", FORM));
        };
        if !joins.is_empty() {
            return Err(refused("a materialized view of a join", FORM));
        }
        let TableFactor::Table { name, alias, .. } = relation else {
            return Err(refused("a materialized view of something that is not a table", FORM));
        };
        let plain_alias = |alias: &TableAlias| TableAlias {
            explicit: alias.explicit,
            name: alias.name.clone(),
            columns: Vec::new(),
            at: None,
        };
        let plain = TableFactor::Table {
            name: name.clone(),
            alias: alias.as_ref().map(plain_alias),
            args: None,
            with_hints: Vec::new(),
            version: None,
            with_ordinality: false,
            partitions: Vec::new(),
            json_path: None,
            sample: None,
            index_hints: Vec::new(),
        };
        only(plain == *relation, "a materialized view of a table with other clauses than its alias")?;
        let parts = name.0.iter().filter_map(ObjectNamePart::as_ident);
        let called = match alias {
            Some(alias) => vec![normal(&alias.name)],
            None => parts.map(normal).collect(),
        };
        Ok(Self { table: last(name)?, called })
    }

    /// The name of a column; `None` if the expression is something else.
    pub(super) fn column(&self, expression: &Expr) -> Result<Option<String>, EngineError> {
        let parts = match expression {
            Expr::Identifier(name) => return Ok(Some(normal(name))),
            Expr::CompoundIdentifier(parts) => parts,
            _ => return Ok(None),
        };
        let Some((name, qualifier)) = parts.split_last() else { return Ok(None) };
        let qualifier: Vec<String> = qualifier.iter().map(normal).collect();
        if !self.called.ends_with(&qualifier) {
            let called = self.called.join(".");
            return Err(EngineError::Plan(format!(
                "{expression} is no column of the view's table, which is called {called} in the query"
            )));
        }
        Ok(Some(normal(name)))
    }
}
