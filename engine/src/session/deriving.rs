//! Runs the statements that create and drop indexes, foreign keys and views.
//!
//! Such a statement publishes a new version of the table with another definition
//! ([`crate::flushing`]). Every write to the new version includes the entries that the definition
//! requires, and no write to it lacks them. A foreign key has two sides, in two tables, which are
//! changed one after the other, beginning with the table of the key. If the statement is
//! interrupted, running it again completes the key.
//!
//! Invariants
//! - Names of indexes, foreign keys and views are unique among all tables; a name that is in use is
//!   refused.
//! - A statement is checked against the table as it is when it is replaced: if the table has
//!   changed meanwhile, the check runs again.

use super::{Engine, QueryOutcome, answers::said};
use crate::{
    catalog::Known,
    deriving::{Aggregate, DerivationStatement, VIEW_NAME_BYTES_MAX},
    error::EngineError,
    flushing::{Derivations, FlushOutcome},
    indexing::INDEX_NAME_BYTES_MAX,
    limits::FLUSHED_ATTEMPTS_MAX,
};
use datafusion::{
    arrow::{
        array::AsArray,
        compute::cast,
        datatypes::{DataType, Decimal128Type, Int64Type},
    },
    sql::sqlparser::ast::Expr,
};
use rackscan_client::Retry;
use rackscan_format::{
    derived::{DerivedDefinition, DerivedKind},
    ids::ColumnId,
    schema::{ColumnType, TableDefinition},
};
use std::{collections::BTreeMap, time::Instant};

/// The new derived definitions of a table; `None` if they need no change.
type Change<'c> = dyn Fn(&TableDefinition) -> Result<Option<Vec<DerivedDefinition>>, EngineError> + Sync + 'c;

impl Engine {
    /// Runs a statement about what tables derive. `text` is its text.
    pub(super) async fn derive(
        &self,
        (statement, text): &(DerivationStatement, String),
        started: Instant,
    ) -> Result<QueryOutcome, EngineError> {
        self.refresh().await?;
        let done = match statement {
            DerivationStatement::CreateIndex { name, table, column, if_not_exists } => {
                let add = |definition: &TableDefinition| {
                    let kind = DerivedKind::Index { column: column_of(definition, column)?.0 };
                    added(definition, name, kind)
                };
                match self.holder(name) {
                    Some(_) if *if_not_exists => false,
                    Some(of) => return Err(taken(name, &of)),
                    None => {
                        fits("an index", name, INDEX_NAME_BYTES_MAX)?;
                        let done = self.redefine(table, &add, BTreeMap::new()).await?;
                        self.flusher.tend_indexes(table).await.map_err(|error| {
                            EngineError::Execution(format!(
                                "index {name:?} was created, but does not cover the segments of {table} yet, so queries scan them: {error}; `rackscan flush` tries again"
                            ))
                        })?;
                        done
                    }
                }
            }
            DerivationStatement::CreateView { name, aggregate, if_not_exists } => {
                self.create_view(name, aggregate, *if_not_exists, text).await?
            }
            DerivationStatement::AddForeignKey { name, child, key, parent, parent_key } => {
                self.add_foreign_key(name, (child, key), (parent, parent_key)).await?
            }
            DerivationStatement::DropIndex { name, if_exists } => {
                let is_index = |_: &str, kind: &DerivedKind| matches!(kind, DerivedKind::Index { .. });
                self.drop_derived(name, "index", &is_index, *if_exists).await?
            }
            DerivationStatement::DropView { name, if_exists } => {
                let is_view = |_: &str, kind: &DerivedKind| matches!(kind, DerivedKind::Sum(_));
                self.drop_derived(name, "materialized view", &is_view, *if_exists).await?
            }
            DerivationStatement::DropConstraint { name, table, if_exists } => {
                self.tables.moment().stored(table).ok_or_else(|| self.unknown_table(table))?;
                // Both sides, or the one that exists.
                let is_side = |of: &str, kind: &DerivedKind| match kind {
                    DerivedKind::Parent { child: other, .. } | DerivedKind::Child { parent: other, .. } => {
                        of == table || other == table
                    }
                    _ => false,
                };
                self.drop_derived(name, "foreign key", &is_side, *if_exists).await?
            }
        };
        Ok(said(if done { "done" } else { "nothing to do" }, started))
    }

    /// Replaces a table by a version with other derived definitions. Returns false if it has them
    /// already.
    async fn redefine(
        &self,
        table: &str,
        change: &Change<'_>,
        sources: BTreeMap<String, String>,
    ) -> Result<bool, EngineError> {
        let mut retry = Retry::new(FLUSHED_ATTEMPTS_MAX);
        loop {
            let moment = self.tables.moment();
            let known = moment.stored(table).ok_or_else(|| self.unknown_table(table))?.whole()?;
            let Some(derived) = change(known.definition())? else { return Ok(false) };
            let definition = verified(known.definition(), derived)?;
            let to = Derivations { of: definition.id, derived: definition.derived, sources: sources.clone() };
            match self.flusher.derive(table, to).await? {
                FlushOutcome::Flushed(_) => return Ok(true),
                FlushOutcome::Nothing | FlushOutcome::Overtaken if retry.again() => self.refresh().await?,
                FlushOutcome::Nothing | FlushOutcome::Overtaken => return Err(EngineError::Flushed),
            }
        }
    }

    async fn create_view(
        &self,
        name: &str,
        aggregate: &Aggregate,
        if_not_exists: bool,
        text: &str,
    ) -> Result<bool, EngineError> {
        fits("a view", name, VIEW_NAME_BYTES_MAX)?;
        let is_there = self.tables.view().contains_key(name);
        match self.holder(name) {
            Some(_) if if_not_exists => return Ok(false),
            None if is_there && if_not_exists => return Ok(false),
            _ if is_there => {
                return Err(EngineError::Plan(format!("there is a table or view {name:?} already")));
            }
            Some(of) => return Err(taken(name, &of)),
            None => {}
        }
        let moment = self.tables.moment();
        let table =
            moment.stored(&aggregate.table).ok_or_else(|| self.unknown_table(&aggregate.table))?.whole()?;
        let mut values = Vec::new();
        if let Some(column) = aggregate.range_column() {
            let (_, column_type) = column_of(table.definition(), column)?;
            for constant in aggregate.constants() {
                values.push(self.constant(constant, column_type).await?);
            }
        }
        let add = |definition: &TableDefinition| {
            let sum = DerivedKind::Sum(aggregate.sum(definition, &values)?);
            added(definition, name, sum)
        };
        self.redefine(&aggregate.table, &add, BTreeMap::from([(name.to_owned(), text.to_owned())])).await
    }

    /// A constant as the integer that columns of this type store for it.
    async fn constant(&self, constant: &Expr, column_type: ColumnType) -> Result<i64, EngineError> {
        let sql = match column_type {
            ColumnType::Boolean => "BOOLEAN".to_owned(),
            ColumnType::Int32 => "INT".to_owned(),
            ColumnType::Date32 => "DATE".to_owned(),
            ColumnType::TimestampMicros => "TIMESTAMP(6)".to_owned(),
            ColumnType::Decimal { precision, scale } => format!("DECIMAL({precision},{scale})"),
            _ => "BIGINT".to_owned(),
        };
        let typed = format!("CAST(({constant}) AS {sql})");
        // A value that the type cannot hold exactly would be another bound, so it is compared with
        // the cast one.
        let text = format!("SELECT {typed}, CAST({typed} = ({constant}) AS INT)");
        let outcome = self.collect(Self::parse(&text)?, Instant::now(), self.now().await?).await?;
        let batch = outcome.batches.iter().find(|batch| batch.num_rows() == 1);
        let number = |column: usize| {
            let column = batch?.column(column);
            if let Some(decimal) = column.as_primitive_opt::<Decimal128Type>() {
                return decimal.iter().next().flatten().and_then(|digits| i64::try_from(digits).ok());
            }
            let column = cast(column, &DataType::Int64).ok()?;
            column.as_primitive::<Int64Type>().iter().next().flatten()
        };
        match (number(0), number(1)) {
            (Some(value), Some(1)) => Ok(value),
            _ => Err(EngineError::Plan(format!("{constant} is not exactly a value of a {column_type}"))),
        }
    }

    async fn add_foreign_key(
        &self,
        name: &str,
        (child, key): (&str, &str),
        (parent, parent_key): (&str, &str),
    ) -> Result<bool, EngineError> {
        let column_type = |table: &str, column: &str| {
            let moment = self.tables.moment();
            let known = moment.stored(table).ok_or_else(|| self.unknown_table(table))?.whole()?;
            column_of(known.definition(), column).map(|(_, column_type)| column_type)
        };
        if child == parent {
            return Err(EngineError::Plan(format!(
                "table {child} cannot have a foreign key to itself, because both sides of the key would have the same name in one table"
            )));
        }
        let (of_child, of_parent) = (column_type(child, key)?, column_type(parent, parent_key)?);
        if of_child != of_parent {
            return Err(EngineError::Plan(format!(
                "the columns of a foreign key have different types: {child}.{key} is a {of_child} and {parent}.{parent_key} a {of_parent}, expected one type"
            )));
        }
        let parents = |definition: &TableDefinition| {
            let (key, _) = column_of(definition, parent_key)?;
            added_side(definition, name, DerivedKind::Parent { key, child: child.to_owned() })
        };
        let children = |definition: &TableDefinition| {
            let (key, _) = column_of(definition, key)?;
            added_side(definition, name, DerivedKind::Child { key, parent: parent.to_owned() })
        };
        // Errors are found before one of the two tables is replaced.
        let moment = self.tables.moment();
        let mut sides = 0;
        for (table, change) in [(parent, &parents as &Change<'_>), (child, &children)] {
            let known = moment.stored(table).ok_or_else(|| self.unknown_table(table))?.whole()?;
            match change(known.definition())? {
                Some(derived) => verified(known.definition(), derived).map(drop)?,
                None => sides += 1,
            }
        }
        match self.holder(name) {
            Some(of) if sides == 0 => return Err(taken(name, &of)),
            _ if sides == 2 => return Err(taken(name, child)),
            _ => {}
        }
        let one = self.redefine(parent, &parents, BTreeMap::new()).await?;
        let other = self.redefine(child, &children, BTreeMap::new()).await?;
        Ok(one || other)
    }

    async fn drop_derived(
        &self,
        name: &str,
        what: &str,
        is_that: &(dyn Fn(&str, &DerivedKind) -> bool + Sync),
        if_exists: bool,
    ) -> Result<bool, EngineError> {
        let is_meant =
            |of: &str, derived: &DerivedDefinition| derived.name == name && is_that(of, &derived.kind);
        let moment = self.tables.moment();
        let tables = moment.view.iter().filter_map(|(table, known)| match known {
            Known::Whole(known) if known.definition().derived.iter().any(|one| is_meant(table, one)) => {
                Some(table.clone())
            }
            _ => None,
        });
        let tables: Vec<String> = tables.collect();
        let without = |definition: &TableDefinition| {
            let left: Vec<_> =
                definition.derived.iter().filter(|one| !is_meant(&definition.name, one)).cloned().collect();
            Ok((left.len() < definition.derived.len()).then_some(left))
        };
        let mut done = false;
        for table in &tables {
            done |= self.redefine(table, &without, BTreeMap::new()).await?;
        }
        if done || if_exists {
            Ok(done)
        } else {
            Err(EngineError::Plan(format!("there is no {what} {name:?}")))
        }
    }

    /// The table that has a derived definition of this name.
    fn holder(&self, name: &str) -> Option<String> {
        let moment = self.tables.moment();
        let mut tables = moment.view.iter().filter_map(|(table, known)| match known {
            Known::Whole(known) => Some((table, known)),
            _ => None,
        });
        let of =
            tables.find(|(_, known)| known.definition().derived.iter().any(|derived| derived.name == name));
        of.map(|(table, _)| table.clone())
    }
}

/// The definition of the table with these derived definitions, verified.
fn verified(
    table: &TableDefinition,
    derived: Vec<DerivedDefinition>,
) -> Result<TableDefinition, EngineError> {
    let definition = TableDefinition { derived, ..table.clone() };
    definition.verify().map_err(|error| EngineError::Plan(error.to_string()))?;
    Ok(definition)
}

/// Whether the name is short enough for the names of the tables that store it.
fn fits(what: &str, name: &str, bytes_max: usize) -> Result<(), EngineError> {
    if name.len() > bytes_max {
        let found = name.len();
        return Err(EngineError::Plan(format!(
            "cannot create {what} with a name of {found} bytes, expected at most {bytes_max}: choose a shorter name"
        )));
    }
    Ok(())
}

fn taken(name: &str, table: &str) -> EngineError {
    EngineError::Plan(format!(
        "{name:?} is derived from {table} already, as an index, a foreign key or a view: drop it, or choose another name"
    ))
}

fn column_of(definition: &TableDefinition, name: &str) -> Result<(ColumnId, ColumnType), EngineError> {
    let at = definition.columns.iter().position(|column| column.name == name);
    let column = at.and_then(|at| Some((ColumnId(u16::try_from(at).ok()?), definition.columns.get(at)?)));
    column.map(|(id, column)| (id, column.column_type)).ok_or_else(|| {
        let names: Vec<&str> = definition.columns.iter().map(|column| column.name.as_str()).collect();
        let (table, names) = (&definition.name, names.join(", "));
        let message = format!("table {table} has no column {name:?}; there are {names}");
        EngineError::invalid("42703", message)
    })
}

fn added(
    definition: &TableDefinition,
    name: &str,
    kind: DerivedKind,
) -> Result<Option<Vec<DerivedDefinition>>, EngineError> {
    if definition.derived.iter().any(|derived| derived.name == name) {
        return Err(taken(name, &definition.name));
    }
    let mut derived = definition.derived.clone();
    derived.push(DerivedDefinition { name: name.to_owned(), kind });
    Ok(Some(derived))
}

/// The new derived definitions for one side of a foreign key; `None` if it is there already.
fn added_side(
    definition: &TableDefinition,
    name: &str,
    kind: DerivedKind,
) -> Result<Option<Vec<DerivedDefinition>>, EngineError> {
    if definition.derived.iter().any(|derived| derived.name == name && derived.kind == kind) {
        return Ok(None);
    }
    added(definition, name, kind)
}
