//! How does a program write many small transactions of rows?
//!
//! Without SQL: rows are made by the program, and those that are deleted were found before. One writer waits for each of its transactions; several write beside
//! each other.

use super::transaction::{Row, Transaction};
use crate::{
    catalog::{Known, Moment, View},
    error::EngineError,
    table::Table,
};
use rackscan_client::{LinesOptions, Session, Written};
use rackscan_delta::{
    identity::RowIdentity,
    row::{Datum, encode},
};
use rackscan_format::ids::TableId;
use std::sync::Arc;

/// What becomes of a row.
#[derive(Clone, Debug)]
pub enum RowChange {
    /// It is new, with these values of all columns.
    Insert(Vec<Datum>),
    /// It is deleted.
    Delete(RowIdentity),
}

/// Writes rows of tables on connections of its own, on the caller's thread.
#[derive(Debug)]
pub struct RowWriter {
    session: Session,
    view: Arc<View>,
}

impl RowWriter {
    pub(crate) fn open(lines: &LinesOptions, view: Arc<View>) -> Result<Self, EngineError> {
        Ok(Self { session: super::writing(lines)?, view })
    }

    /// The tables that it knows.
    pub(crate) fn tables(&self) -> Vec<(String, TableId)> {
        let whole = self.view.iter().filter_map(|(name, known)| match known {
            Known::Whole(table) => Some((name.clone(), table.definition().id)),
            _ => None,
        });
        whole.collect()
    }

    /// Lets it know these tables instead.
    pub(crate) fn look_at(&mut self, view: Arc<View>) {
        self.view = view;
    }

    fn table(&self, name: &str) -> Result<&Arc<Table>, EngineError> {
        match self.view.get(name) {
            Some(Known::Whole(table)) => Ok(table),
            Some(Known::Broken(error)) => Err(EngineError::Catalog(error.clone())),
            Some(Known::Unreadable(_, error)) => Err(EngineError::Scan(error.clone())),
            None => Err(EngineError::UnknownTable {
                name: name.to_owned(),
                near: "it was not there when the writer was opened".to_owned(),
            }),
        }
    }

    /// Changes rows of tables, all of them or none.
    ///
    /// # Errors
    /// A row that does not fit its table, too many of them, and why it could not be committed. After [`EngineError::Sealed`] nothing was written, and rows
    /// that were found before have other identities: [`crate::Engine::renew_writer`].
    pub fn write(&mut self, changes: Vec<(&str, Vec<RowChange>)>) -> Result<Written, EngineError> {
        let mut transaction = Transaction::at(Arc::new(Moment::default()));
        for (name, changes) in changes {
            let table = self.table(name)?;
            let row = |change| match change {
                RowChange::Insert(values) => encode(table.definition(), &values)
                    .map(Row::New)
                    .map_err(|fault| EngineError::Execution(fault.to_string())),
                RowChange::Delete(identity) => Ok(Row::Known(identity, None)),
            };
            let rows = changes.into_iter().map(row).collect::<Result<Vec<_>, _>>()?;
            transaction.write(table, rows)?;
        }
        self.session.write_stamped(|stamp| transaction.items(stamp)).map_err(EngineError::from)
    }
}
