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

use super::statement::Verb;
use crate::{
    catalog::{Known, Moment, View},
    error::EngineError,
    limits::{TRANSACTION_BYTES_MAX, TRANSACTION_ROWS_MAX},
    table::Table,
};
use rackscan_delta::{
    identity::RowIdentity,
    layer::Layer,
    replica::{RowVersion, TableRows},
};
use rackscan_format::ids::TableId;
use rackscan_ramp::{
    item::{Key, Value},
    stamp::{ClientId, Stamp},
};
use std::{collections::BTreeMap, sync::Arc};

/// Who inserts rows that have no stamp yet. No clock comes there.
const PENDING: Stamp = Stamp { time: u64::MAX, client: ClientId(u32::MAX) };

/// A transaction that is not committed.
#[derive(Debug)]
pub(crate) struct Transaction {
    moment: Arc<Moment>,
    /// Tables as its statements see them.
    view: Arc<View>,
    written: BTreeMap<TableId, Written>,
    rows: usize,
    bytes: usize,
}

/// What was written to one table.
#[derive(Debug, Default)]
struct Written {
    rows: BTreeMap<RowIdentity, Value>,
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
    /// One that is there, and its values; `None` to delete it.
    Known(RowIdentity, Option<Vec<u8>>),
}

impl Transaction {
    /// One that begins at this moment.
    pub(crate) fn at(moment: Arc<Moment>) -> Self {
        let view = Arc::clone(&moment.view);
        Self { moment, view, written: BTreeMap::new(), rows: 0, bytes: 0 }
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
        if !table.definition().derived.is_empty() {
            return Err(EngineError::Statement {
                found: "a change of a table with an index, a foreign key or a sum".to_owned(),
                way_out: "this version does not write what is derived from rows",
            });
        }
        let bytes: usize = rows.iter().map(Row::bytes).sum();
        let (rows_after, bytes_after) = (self.rows + rows.len(), self.bytes + bytes);
        if rows_after > TRANSACTION_ROWS_MAX || bytes_after > TRANSACTION_BYTES_MAX {
            return Err(EngineError::TooMuchChanged { rows: rows_after, bytes: bytes_after });
        }
        (self.rows, self.bytes) = (rows_after, bytes_after);
        let written = self.written.entry(table.definition().id).or_default();
        for row in rows {
            let (identity, value) = match row {
                Row::New(value) => {
                    let identity = RowIdentity::Inserted { by: PENDING, number: written.inserted };
                    written.inserted += 1;
                    (identity, Some(value))
                }
                Row::Known(identity, value) => (identity, value),
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

    /// The items to write, with the stamp of their transaction.
    pub(crate) fn items(self, stamp: Stamp) -> Vec<(Key, Value)> {
        let mut items = Vec::with_capacity(self.rows);
        for (table, written) in self.written {
            for (identity, value) in written.rows {
                let identity = match identity {
                    // It was never there for anybody else.
                    RowIdentity::Inserted { by: PENDING, .. } if value.bytes().is_none() => continue,
                    RowIdentity::Inserted { by: PENDING, number } => {
                        RowIdentity::Inserted { by: stamp, number }
                    }
                    known => known,
                };
                items.extend(identity.key(table).map(|key| (key, value)));
            }
        }
        items
    }
}

impl Row {
    fn bytes(&self) -> usize {
        match self {
            Self::New(value) | Self::Known(_, Some(value)) => value.len(),
            Self::Known(_, None) => 0,
        }
    }

    /// What becomes of rows, by their identities or new.
    pub(crate) fn of(verb: Verb, identity: Option<RowIdentity>, value: Option<Vec<u8>>) -> Option<Self> {
        match (verb, identity, value) {
            (Verb::Insert, _, Some(value)) => Some(Self::New(value)),
            (Verb::Update, Some(row), Some(value)) => Some(Self::Known(row, Some(value))),
            (Verb::Delete, Some(row), _) => Some(Self::Known(row, None)),
            _ => None,
        }
    }
}
