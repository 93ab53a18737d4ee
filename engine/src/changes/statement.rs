//! Turns an UPDATE or DELETE into a query for the rows that it changes.
//!
//! The query returns the places of these rows (a place is the segment of a row and its number
//! there, encoded as one number, [`rackscan_format::row_place`]) and, for an UPDATE, all their
//! columns with old or new values. So an UPDATE or DELETE can use everything that queries can:
//! pushed filters, all placements, joins.
//!
//! Invariants
//! - This file changes no rows; its result is a query.
//! - No clause of a statement is ignored: unknown clauses are refused.

use crate::visitors::visit_relations;
use crate::{error::EngineError, table::PLACE_COLUMN};
use datafusion::sql::{
    parser::Statement,
    sqlparser::ast::{
        Assignment, AssignmentTarget, Delete, Expr, FromTable, Ident, Insert, ObjectName, ObjectNamePart,
        Statement as SqlStatement, TableAlias, TableFactor, TableObject, TableWithJoins, Update,
        UpdateTableFromKind, Value, ValueWithSpan,
    },
};
use rackscan_format::schema::TableDefinition;
use std::{
    collections::BTreeSet,
    fmt::{Display, Write},
    ops::ControlFlow,
};

/// What a statement does with rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Insert,
    Update,
    Delete,
}

impl Verb {
    /// The past participle: the name of the count's column in the answer.
    pub(crate) fn done(self) -> &'static str {
        match self {
            Self::Insert => "rows inserted",
            Self::Update => "rows updated",
            Self::Delete => "rows deleted",
        }
    }
}

/// A statement that changes rows of one table.
#[derive(Debug)]
pub(crate) struct ChangeStatement {
    /// The table's name.
    pub(crate) table: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Insert(Box<Statement>),
    Update(Box<Update>),
    Delete(Box<Delete>),
}

impl ChangeStatement {
    /// The statement, if it changes rows; `None` for another one.
    ///
    /// # Errors
    /// A clause that is not supported.
    pub(crate) fn of(statement: &Statement) -> Result<Option<Self>, EngineError> {
        let Statement::Statement(inner) = statement else { return Ok(None) };
        Ok(Some(match inner.as_ref() {
            SqlStatement::Insert(insert) => {
                let table = inserted_into(insert)?;
                Self { table, kind: Kind::Insert(Box::new(statement.clone())) }
            }
            SqlStatement::Update(update) => {
                let (table, _) = changed(&update.table)?;
                let plain = Update {
                    optimizer_hints: Vec::new(),
                    returning: None,
                    output: None,
                    or: None,
                    order_by: Vec::new(),
                    limit: None,
                    ..update.clone()
                };
                only(plain == *update, "UPDATE with other clauses than SET, FROM and WHERE")?;
                Self { table, kind: Kind::Update(Box::new(plain)) }
            }
            SqlStatement::Delete(delete) => {
                let (table, _) = changed(deleted_from(delete)?)?;
                let plain = Delete {
                    optimizer_hints: Vec::new(),
                    tables: Vec::new(),
                    returning: None,
                    output: None,
                    order_by: Vec::new(),
                    limit: None,
                    ..delete.clone()
                };
                only(plain == *delete, "DELETE with other clauses than FROM, USING and WHERE")?;
                Self { table, kind: Kind::Delete(Box::new(plain)) }
            }
            _ => return Ok(None),
        }))
    }

    /// The names of all tables that it refers to.
    pub(crate) fn relations(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let mut take = |name: &ObjectName| {
            names.extend(last(name));
            ControlFlow::Continue(())
        };
        // The visitor never breaks off.
        let _ = match &self.kind {
            Kind::Insert(statement) => match statement.as_ref() {
                Statement::Statement(insert) => visit_relations(insert.as_ref(), &mut take),
                _ => ControlFlow::Continue(()),
            },
            Kind::Update(update) => visit_relations(update.as_ref(), &mut take),
            Kind::Delete(delete) => visit_relations(delete.as_ref(), &mut take),
        };
        names
    }

    /// Whether it is an INSERT that reads from the table it inserts into.
    pub(crate) fn inserts_what_it_reads(&self) -> bool {
        let Kind::Insert(statement) = &self.kind else { return false };
        let Statement::Statement(inner) = statement.as_ref() else { return false };
        let SqlStatement::Insert(Insert { source: Some(source), .. }) = inner.as_ref() else { return false };
        let is_it = |name: &ObjectName| match last(name) {
            Ok(name) if name == self.table => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        visit_relations(source.as_ref(), &mut { is_it }).is_break()
    }

    pub(crate) fn verb(&self) -> Verb {
        match &self.kind {
            Kind::Insert(_) => Verb::Insert,
            Kind::Update(_) => Verb::Update,
            Kind::Delete(_) => Verb::Delete,
        }
    }

    /// The statement, if it is an INSERT: DataFusion plans the rows to insert.
    pub(crate) fn insert(&self) -> Option<&Statement> {
        match &self.kind {
            Kind::Insert(statement) => Some(statement),
            _ => None,
        }
    }

    /// The query for the rows of an UPDATE or DELETE, over the table with a column of places. It
    /// returns the places, then for an UPDATE all columns with their new values, then if `with_old`
    /// all columns with their old values.
    ///
    /// # Errors
    /// A column that the table does not have, or that is set twice.
    pub(crate) fn select(&self, definition: &TableDefinition, with_old: bool) -> Result<String, EngineError> {
        match &self.kind {
            Kind::Insert(_) => Ok(String::new()),
            Kind::Update(update) => {
                let (_, name) = changed(&update.table)?;
                let mut columns = new_columns(definition, &name, &update.assignments)?;
                columns.push_str(&old_columns(definition, &name, with_old));
                let others = match &update.from {
                    None => &[][..],
                    Some(UpdateTableFromKind::BeforeSet(others) | UpdateTableFromKind::AfterSet(others)) => {
                        others
                    }
                };
                Ok(query(&name, &columns, (&update.table, others), update.selection.as_ref()))
            }
            Kind::Delete(delete) => {
                let from = deleted_from(delete)?;
                let (_, name) = changed(from)?;
                let others = delete.using.as_deref().unwrap_or_default();
                let columns = old_columns(definition, &name, with_old);
                Ok(query(&name, &columns, (from, others), delete.selection.as_ref()))
            }
        }
    }
}

fn only(is_plain: bool, found: &str) -> Result<(), EngineError> {
    if is_plain {
        return Ok(());
    }
    Err(EngineError::Statement { found: found.to_owned(), way_out: "leave them out" })
}

fn query(
    name: &str,
    columns: &str,
    (table, others): (&TableWithJoins, &[TableWithJoins]),
    selection: Option<&impl Display>,
) -> String {
    let mut text = format!("SELECT {name}.{}{columns} FROM {table}", quoted(PLACE_COLUMN));
    // Writing to a text cannot fail.
    for other in others {
        let _ = write!(text, ", {other}");
    }
    if let Some(selection) = selection {
        let _ = write!(text, " WHERE {selection}");
    }
    text
}

/// The new values of all columns, as SQL: `, a, (b + 1), c`.
fn new_columns(
    definition: &TableDefinition,
    name: &str,
    assignments: &[Assignment],
) -> Result<String, EngineError> {
    let mut values = vec![None; definition.columns.len()];
    for Assignment { target, value } in assignments {
        let AssignmentTarget::ColumnName(column) = target else {
            return Err(EngineError::Statement {
                found: "SET of several columns together".to_owned(),
                way_out: "set them one by one",
            });
        };
        let column = last(column)?;
        let at = definition.columns.iter().position(|known| known.name == column);
        let Some((slot, known)) = at.map(|at| (&mut values[at], &definition.columns[at])) else {
            let names: Vec<&str> = definition.columns.iter().map(|column| column.name.as_str()).collect();
            let (table, names) = (&definition.name, names.join(", "));
            let message = format!("table {table} has no column {column:?}; there are {names}");
            return Err(EngineError::invalid("42703", message));
        };
        let value = match value {
            // A text constant has the type of its column.
            Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(_), .. }) => {
                format!("CAST({value} AS {})", known.column_type)
            }
            value => format!("({value})"),
        };
        if slot.replace(value).is_some() {
            let message = format!("column {column:?} is set twice, expected once");
            return Err(EngineError::invalid("42601", message));
        }
    }
    let columns = definition.columns.iter().zip(values);
    let columns =
        columns.map(|(column, value)| value.unwrap_or_else(|| format!("{name}.{}", quoted(&column.name))));
    // Two columns may get the same expression, so each has its own alias.
    Ok(columns.enumerate().map(|(at, column)| format!(", {column} AS \"new {at}\"")).collect())
}

/// All columns of the table with their old values, if they are wanted.
pub(crate) fn old_columns(definition: &TableDefinition, name: &str, are_wanted: bool) -> String {
    if !are_wanted {
        return String::new();
    }
    let columns = definition.columns.iter().enumerate();
    columns.map(|(at, column)| format!(", {name}.{} AS \"old {at}\"", quoted(&column.name))).collect()
}

fn inserted_into(insert: &Insert) -> Result<String, EngineError> {
    let TableObject::TableName(name) = &insert.table else {
        only(false, "INSERT into something that is not a table")?;
        return Ok(String::new());
    };
    let is_plain = !insert.overwrite
        && !insert.replace_into
        && insert.on.is_none()
        && insert.returning.is_none()
        && insert.or.is_none()
        && !insert.ignore;
    only(is_plain, "INSERT that overwrites, ignores or returns rows")?;
    last(name)
}

fn deleted_from(delete: &Delete) -> Result<&TableWithJoins, EngineError> {
    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
    match from.as_slice() {
        [table] => Ok(table),
        _ => Err(EngineError::Statement {
            found: "DELETE from several tables".to_owned(),
            way_out: "delete from one after the other, in a transaction",
        }),
    }
}

/// The name of the changed table, and the name that qualifies its columns in the statement.
fn changed(table: &TableWithJoins) -> Result<(String, String), EngineError> {
    let TableFactor::Table { name, alias, .. } = &table.relation else {
        only(false, "a change of something that is not a table")?;
        return Ok((String::new(), String::new()));
    };
    only(table.joins.is_empty(), "a change of a table with joins")?;
    let called = match alias {
        Some(TableAlias { name, .. }) => normal(name),
        None => last(name)?,
    };
    Ok((last(name)?, quoted(&called)))
}

/// The last part of a name.
fn last(name: &ObjectName) -> Result<String, EngineError> {
    match name.0.last() {
        Some(ObjectNamePart::Identifier(name)) => Ok(normal(name)),
        _ => Err(EngineError::Plan(format!("{name} is no name of a table or column"))),
    }
}

/// A name in the form in which it is looked up: lower case unless it is quoted.
fn normal(name: &Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() }
}

/// A name quoted as SQL, so that it is looked up exactly as given.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
