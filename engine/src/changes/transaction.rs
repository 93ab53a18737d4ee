//! What has a transaction written so far, and what does it see?
//!
//! ```text
//! BEGIN  -> a moment: all tables as they are
//! change -> rows by their identities, the last value counts; they lie over the moment for the statements that follow
//! COMMIT -> items of one write
//! ```
//!
//! Invariants
//! - All statements see the moment at which it began, and its own writes over that.
//! - Nothing leaves this value before it commits; dropping it is a rollback.

use super::{derive::add_derived, statement::Verb};
use crate::{
    catalog::{Known, Moment, View},
    deriving::Sums,
    error::EngineError,
    limits::{TRANSACTION_BYTES_MAX, TRANSACTION_ITEMS_MAX, TRANSACTION_ROWS_MAX},
    table::Table,
};
use rackscan_delta::{
    identity::RowIdentity,
    layer::Layer,
    replica::{Replica, RowVersion, TableRows},
};
use rackscan_format::{ids::TableId, schema::TableDefinition};
use rackscan_ramp::{
    item::{Key, Value},
    stamp::{ClientId, Stamp},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Who inserts rows that have no stamp yet. No clock comes there.
const PENDING: Stamp = Stamp { time: u64::MAX, client: ClientId(u32::MAX) };

/// A transaction that is not committed.
#[derive(Debug)]
pub(crate) struct Transaction {
    moment: Arc<Moment>,
    /// Tables as its statements see them.
    view: Arc<View>,
    /// What changed rows add to views at its moment.
    sums: Arc<Sums>,
    written: BTreeMap<TableId, Written>,
    rows: usize,
    bytes: usize,
}

/// What was written to one table.
#[derive(Debug)]
struct Written {
    definition: Arc<TableDefinition>,
    rows: BTreeMap<RowIdentity, Value>,
    /// What segments have of rows that were found there, if that is needed.
    stored: BTreeMap<RowIdentity, Vec<u8>>,
    /// Rows that were inserted.
    inserted: u32,
    /// Rows that do not lie over the table yet.
    fresh: Vec<RowIdentity>,
    /// What lies over it, once a statement has asked.
    over: Option<Layer>,
    /// How many values were written; later ones are newer.
    writes: u64,
}

/// A row that a statement changes.
#[derive(Debug)]
pub(crate) enum Row {
    /// A new one.
    New(Vec<u8>),
    /// One that is there.
    Known {
        /// Which.
        row: RowIdentity,
        /// Its values; `None` to delete it.
        value: Option<Vec<u8>>,
        /// What its segment has of it, if it was found there and is needed ([`super::has_sums`]).
        stored: Option<Vec<u8>>,
    },
}

impl Transaction {
    /// One that begins at this moment.
    pub(crate) fn at(moment: Arc<Moment>, sums: Arc<Sums>) -> Self {
        let view = Arc::clone(&moment.view);
        Self { moment, view, sums, written: BTreeMap::new(), rows: 0, bytes: 0 }
    }

    /// What changed rows add to views, as it sees them.
    pub(crate) fn sums(&self) -> &Arc<Sums> {
        &self.sums
    }

    /// All tables as it sees them.
    pub(crate) fn view(&mut self) -> Arc<View> {
        let stale: Vec<TableId> =
            self.written.iter().filter(|(_, written)| !written.fresh.is_empty()).map(|(id, _)| *id).collect();
        for id in stale {
            self.lay_over(id);
        }
        Arc::clone(&self.view)
    }

    /// Writes rows of a table.
    ///
    /// # Errors
    /// More than a transaction may write; then nothing of them is.
    pub(crate) fn write(&mut self, table: &Table, rows: Vec<Row>) -> Result<(), EngineError> {
        let bytes: usize = rows.iter().map(Row::bytes).sum();
        let (rows_after, bytes_after) = (self.rows + rows.len(), self.bytes + bytes);
        if rows_after > TRANSACTION_ROWS_MAX || bytes_after > TRANSACTION_BYTES_MAX {
            return Err(EngineError::TooMuchChanged { rows: rows_after, bytes: bytes_after });
        }
        (self.rows, self.bytes) = (rows_after, bytes_after);
        let definition = table.definition();
        let written = self.written.entry(definition.id).or_insert_with(|| Written::of(definition));
        for row in rows {
            let (identity, value) = match row {
                Row::New(value) => {
                    let identity = RowIdentity::Inserted { by: PENDING, number: written.inserted };
                    written.inserted += 1;
                    (identity, Some(value))
                }
                Row::Known { row, value, stored } => {
                    if let Some(stored) = stored {
                        written.stored.insert(row, stored);
                    }
                    (row, value)
                }
            };
            let value = match value {
                Some(bytes) => {
                    Value::new(&bytes).map_err(|error| EngineError::Execution(error.to_string()))?
                }
                None => Value::DELETED,
            };
            written.rows.insert(identity, value);
            written.fresh.push(identity);
        }
        Ok(())
    }

    /// Lays what was written to a table over it.
    fn lay_over(&mut self, id: TableId) {
        let Some(written) = self.written.get_mut(&id) else { return };
        let Some(name) = self.moment.name(id) else { return };
        let Some(Known::Whole(table)) = self.moment.stored(name) else { return };
        let below = || {
            let below = self.moment.layer(id).cloned();
            below.unwrap_or_else(|| table.layer())
        };
        let mut layer = written.over.take().unwrap_or_else(below);
        let mut rows = TableRows::default();
        let fresh = std::mem::take(&mut written.fresh);
        written.writes += 1;
        for identity in &fresh {
            if let Some(value) = written.rows.get(identity) {
                let stamp = Stamp { time: written.writes, client: ClientId(0) };
                rows.insert(*identity, RowVersion { stamp, value: value.clone() });
            }
        }
        let laid = layer.lay_over(&rows, fresh).map(|()| layer);
        let known = Known::Whole(Arc::clone(table)).under(Some(&laid));
        written.over = laid.ok();
        Arc::make_mut(&mut self.view).insert(name.to_owned(), known);
    }

    /// Whether nothing was written.
    pub(crate) fn is_empty(&self) -> bool {
        self.written.values().all(|written| written.rows.is_empty())
    }

    /// The tables that it has written to.
    pub(crate) fn tables(&self) -> BTreeSet<TableId> {
        let written = self.written.iter().filter(|(_, written)| !written.rows.is_empty());
        written.map(|(id, _)| *id).collect()
    }

    /// The same with their names.
    pub(crate) fn named(&self) -> Vec<(String, TableId)> {
        let written = self.written.iter().filter(|(_, written)| !written.rows.is_empty());
        written.map(|(id, written)| (written.definition.name.clone(), *id)).collect()
    }

    /// Whether [`Self::items`] needs what was heard of homes.
    pub(crate) fn needs_what_was_heard(&self) -> bool {
        let is_new = |row: &RowIdentity| matches!(row, RowIdentity::Inserted { by: PENDING, .. });
        let mut derived = self.written.values().filter(|written| !written.definition.derived.is_empty());
        derived.any(|written| !written.rows.keys().all(is_new))
    }

    /// The items to write, with the stamp of their transaction or of one attempt to write it: rows, and what is derived from them.
    ///
    /// # Errors
    /// What cannot be derived ([`add_derived`]), and more items than a transaction may write.
    pub(crate) fn items(&self, stamp: Stamp, replica: &Replica) -> Result<Vec<(Key, Value)>, EngineError> {
        let mut items = Vec::with_capacity(self.rows);
        for (table, Written { definition, rows, stored, .. }) in &self.written {
            let rows = rows.iter().map(|(identity, value)| (*identity, value.clone()));
            let rows = rows.filter_map(|(identity, value)| match identity {
                // It was never there for anybody else.
                RowIdentity::Inserted { by: PENDING, .. } if value.bytes().is_none() => None,
                RowIdentity::Inserted { by: PENDING, number } => {
                    Some((RowIdentity::Inserted { by: stamp, number }, value))
                }
                known => Some((known, value)),
            });
            let rows: Vec<(RowIdentity, Value)> = rows.collect();
            if !definition.derived.is_empty() {
                add_derived(definition, &rows, stored, replica, &mut items)?;
            }
            items.extend(rows.into_iter().filter_map(|(row, value)| Some((row.key(*table)?, value))));
        }
        if items.len() > TRANSACTION_ITEMS_MAX {
            return Err(EngineError::TooMuchDerived { rows: self.rows, items: items.len() });
        }
        Ok(items)
    }
}

impl Written {
    fn of(definition: &Arc<TableDefinition>) -> Self {
        Self {
            definition: Arc::clone(definition),
            rows: BTreeMap::new(),
            stored: BTreeMap::new(),
            inserted: 0,
            fresh: Vec::new(),
            over: None,
            writes: 0,
        }
    }
}

impl Row {
    fn bytes(&self) -> usize {
        match self {
            Self::New(value) => value.len(),
            Self::Known { value, stored, .. } => {
                let bytes = |value: &Option<Vec<u8>>| value.as_ref().map_or(0, Vec::len);
                bytes(value) + bytes(stored)
            }
        }
    }

    /// What becomes of rows, by their identities or new.
    pub(crate) fn of(
        verb: Verb,
        identity: Option<RowIdentity>,
        value: Option<Vec<u8>>,
        stored: Option<Vec<u8>>,
    ) -> Option<Self> {
        match (verb, identity) {
            (Verb::Insert, _) => value.map(Self::New),
            (Verb::Update, Some(row)) if value.is_some() => Some(Self::Known { row, value, stored }),
            (Verb::Delete, Some(row)) => Some(Self::Known { row, value: None, stored }),
            _ => None,
        }
    }
}
