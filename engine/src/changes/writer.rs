//! Lets a program write many small transactions of rows without SQL.
//!
//! The program supplies the values of the rows to insert, and identifies the rows to delete by an
//! earlier search. A writer waits for each of its transactions; several writers can work in
//! parallel.

use super::{
    Changes,
    transaction::{Care, Isolation, Row, Transaction},
};
use crate::{
    catalog::{Known, View},
    error::EngineError,
    table::Table,
};
use rackscan_client::{Session, Written};
use rackscan_delta::{
    identity::RowIdentity,
    row::{Datum, encode},
};
use rackscan_format::ids::TableId;
use rackscan_ramp::timestamp::Timestamp;
use std::sync::Arc;

/// A row that was found ([`crate::Engine::rows_with_keys`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundRow {
    pub(crate) identity: RowIdentity,
    /// Its values, if it was found in a segment and its table has a sum over it.
    pub(crate) stored: Option<Vec<u8>>,
}

/// A change of a row.
#[derive(Clone, Debug)]
pub enum RowChange {
    /// A new row with these values of all columns.
    Insert(Vec<Datum>),
    /// The row is deleted.
    Delete(FoundRow),
}

/// Writes rows of tables over connections of its own, on the caller's thread.
#[derive(Debug)]
pub struct RowWriter {
    session: Session,
    changes: Arc<Changes>,
    view: Arc<View>,
}

impl RowWriter {
    pub(crate) fn open(changes: &Arc<Changes>, view: Arc<View>) -> Result<Self, EngineError> {
        Ok(Self { session: changes.writing()?, changes: Arc::clone(changes), view })
    }

    /// The tables that it knows.
    pub(crate) fn tables(&self) -> Vec<(String, TableId)> {
        let whole = self.view.iter().filter_map(|(name, known)| match known {
            Known::Whole(table) => Some((name.clone(), table.definition().id)),
            _ => None,
        });
        whole.collect()
    }

    /// Replaces the tables that it knows.
    pub(crate) fn look_at(&mut self, view: Arc<View>) {
        self.view = view;
    }

    fn table(&self, name: &str) -> Result<&Arc<Table>, EngineError> {
        match self.view.get(name) {
            Some(known) => known.whole(),
            None => Err(EngineError::UnknownTable {
                name: name.to_owned(),
                near: "it did not exist when the writer was opened".to_owned(),
            }),
        }
    }

    /// Changes rows of tables, all of them or none.
    ///
    /// # Errors
    /// A row does not fit its table, there are too many rows, or the transaction could not be
    /// committed. After [`EngineError::Flushed`] nothing was written, and rows that were found
    /// before have other identities: call [`crate::Engine::renew_writer`].
    pub fn write(&mut self, changes: Vec<(&str, Vec<RowChange>)>) -> Result<Written, EngineError> {
        // The rows to delete were found long before. A row that has changed since is deleted in its
        // newer version.
        let blind = Care { isolation: Isolation::ReadAtomic, ..Care::default() };
        let mut transaction = Transaction::at(Arc::default(), Arc::default(), blind);
        for (name, changes) in changes {
            let table = self.table(name)?;
            let row = |change| match change {
                RowChange::Insert(values) => encode(table.definition(), &values)
                    .map(Row::New)
                    .map_err(|fault| EngineError::Execution(fault.to_string())),
                RowChange::Delete(FoundRow { identity, stored }) => {
                    let timestamp = Timestamp::FIRST;
                    Ok(Row::Known { row: identity, value: None, timestamp, old: stored })
                }
            };
            let rows = changes.into_iter().map(row).collect::<Result<Vec<_>, _>>()?;
            transaction.write(table, rows)?;
        }
        let changes = &self.changes;
        self.session.write_with_timestamp(|timestamp| changes.items_of(&transaction, timestamp))
    }
}
