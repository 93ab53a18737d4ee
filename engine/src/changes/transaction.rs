//! Collects the writes of an open transaction, and shows the transaction its own writes.
//!
//! ```text
//! BEGIN   -> a point in time: all tables as they are
//! change  -> adds rows by identity; the last value of a row counts, and later statements see it
//! COMMIT  -> the items of one write
//! ```
//!
//! Invariants
//! - All statements of a transaction see the tables as of its beginning, with its own writes over
//!   them.
//! - Nothing is sent to participants before the commit. To roll back, the engine drops the
//!   [`Transaction`].

mod moved;

use super::{
    derive::{add_derived, has_sums},
    statement::Verb,
};
use crate::{
    catalog::{Known, Moment, View},
    deriving::Sums,
    error::EngineError,
    functions,
    limits::{TRANSACTION_BYTES_MAX, TRANSACTION_ITEMS_MAX, TRANSACTION_ROWS_MAX},
    table::Table,
};
use chrono::{DateTime, Utc};
use rackscan_client::TablesHold;
use rackscan_delta::{
    identity::RowIdentity,
    layer::Layer,
    replica::{Replica, RowVersion, TableRows},
};
use rackscan_format::{ids::TableId, schema::TableDefinition};
use rackscan_ramp::{
    item::{Value, Write},
    timestamp::{ClientId, Timestamp},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

pub(crate) use moved::new_segments;

/// The isolation between concurrent transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Each transaction sees one point in time. Of two that change the same row the first one
    /// commits, the second one gets a conflict error.
    #[default]
    Snapshot,
    /// Each transaction sees one point in time. Of two that change the same row the write with the
    /// later timestamp stays.
    ReadAtomic,
}

/// What a transaction has to keep about the rows that it changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Care {
    pub(crate) isolation: Isolation,
    /// Whether its rows are found again after a flush; then it keeps their old values.
    pub(crate) outlives_flushes: bool,
    /// The newest versions of [`RowIdentity::GUARD`], by table, that are not newer than its
    /// snapshot.
    pub(crate) guards: BTreeMap<TableId, Timestamp>,
}

/// The timestamp of inserted rows until the commit gives them one. No clock reaches it.
const PENDING: Timestamp = Timestamp { time: u64::MAX, client: ClientId(u32::MAX) };

/// A transaction that is not committed.
#[derive(Clone, Debug)]
pub(crate) struct Transaction {
    care: Care,
    /// When it began.
    time: DateTime<Utc>,
    moment: Arc<Moment>,
    /// Keeps the segments of these tables from being freed.
    _hold: Option<Arc<TablesHold>>,
    /// Tables as its statements see them.
    view: Arc<View>,
    /// What changed rows add to views at its point in time.
    sums: Arc<Sums>,
    written: BTreeMap<TableId, Written>,
    /// Newer versions of tables to which its writes were moved, by id.
    followed: BTreeMap<TableId, Table>,
    rows: usize,
    bytes: usize,
}

/// What was written to one table.
#[derive(Clone, Debug)]
struct Written {
    definition: Arc<TableDefinition>,
    rows: BTreeMap<RowIdentity, Value>,
    /// The values of rows found in segments, where they are needed.
    stored: BTreeMap<RowIdentity, Vec<u8>>,
    /// The versions that were read of existing rows.
    read: BTreeMap<RowIdentity, Read>,
    /// Whether rows are written only if they are still the versions that were read.
    is_conditional: bool,
    /// The version of [`RowIdentity::GUARD`] that was read, if it must not have changed at the
    /// commit.
    guard: Option<Timestamp>,
    /// How many rows were inserted.
    inserted: u32,
    /// Written rows that are not in `over` yet.
    fresh: Vec<RowIdentity>,
    /// The layer of written rows over the table, once a statement has needed it.
    over: Option<Layer>,
    /// How many values were written. It numbers them: a higher number is a newer value.
    writes: u64,
}

/// A version that was read.
#[derive(Clone, Debug)]
struct Read {
    /// [`Timestamp::FIRST`] for a row in a segment.
    timestamp: Timestamp,
    /// Its values, if they are kept.
    values: Option<Vec<u8>>,
}

/// A row that a statement changes.
#[derive(Debug)]
pub(crate) enum Row {
    /// A new row.
    New(Vec<u8>),
    /// An existing row.
    Known {
        /// Its identity.
        row: RowIdentity,
        /// Its new values; `None` to delete it.
        value: Option<Vec<u8>>,
        /// The timestamp of the version that was found; [`Timestamp::FIRST`] for a row in a
        /// segment.
        timestamp: Timestamp,
        /// The old values, if they are needed.
        old: Option<Vec<u8>>,
    },
}

impl Transaction {
    /// A transaction that begins with these tables.
    pub(crate) fn at(moment: Arc<Moment>, sums: Arc<Sums>, care: Care) -> Self {
        let view = Arc::clone(&moment.view);
        Self {
            care,
            time: functions::time(),
            moment,
            _hold: None,
            view,
            sums,
            written: BTreeMap::new(),
            followed: BTreeMap::new(),
            rows: 0,
            bytes: 0,
        }
    }

    /// Adds a hold of its tables, which keeps what it reads in place.
    pub(crate) fn holding(self, hold: Option<TablesHold>) -> Self {
        Self { _hold: hold.map(Arc::new), ..self }
    }

    /// The time that `now()` returns in all its statements.
    pub(crate) fn time(&self) -> DateTime<Utc> {
        self.time
    }

    /// Whether statements have to give the old values of the rows that they change.
    pub(crate) fn needs_old(&self, table: &TableDefinition) -> bool {
        self.care.outlives_flushes || has_sums(table)
    }

    /// Makes it conflict with other transactions that insert what they read from this table.
    pub(crate) fn guard(&mut self, table: &Table) {
        if self.care.isolation == Isolation::Snapshot {
            let definition = table.definition();
            let guard = self.care.guards.get(&definition.id).copied().unwrap_or(Timestamp::FIRST);
            let written = self.written.entry(definition.id).or_insert_with(|| Written::of(definition));
            written.guard = Some(guard);
        }
    }

    /// What changed rows add to views, at its point in time.
    pub(crate) fn sums(&self) -> &Arc<Sums> {
        &self.sums
    }

    /// All tables as it sees them, with its own writes.
    pub(crate) fn view(&mut self) -> Arc<View> {
        let stale: Vec<TableId> =
            self.written.iter().filter(|(_, written)| !written.fresh.is_empty()).map(|(id, _)| *id).collect();
        for id in stale {
            self.lay_over(id);
        }
        Arc::clone(&self.view)
    }

    /// Adds changed rows of a table.
    ///
    /// # Errors
    /// More than a transaction may write; then none of `rows` is added.
    pub(crate) fn write(&mut self, table: &Table, rows: Vec<Row>) -> Result<(), EngineError> {
        let has_sums = has_sums(table.definition());
        let bytes: usize = rows.iter().map(|row| row.bytes(has_sums)).sum();
        let (rows_after, bytes_after) = (self.rows + rows.len(), self.bytes + bytes);
        if rows_after > TRANSACTION_ROWS_MAX || bytes_after > TRANSACTION_BYTES_MAX {
            return Err(EngineError::TooMuchChanged { rows: rows_after, bytes: bytes_after });
        }
        (self.rows, self.bytes) = (rows_after, bytes_after);
        let definition = table.definition();
        let written = self.written.entry(definition.id).or_insert_with(|| Written::of(definition));
        written.is_conditional = self.care.isolation == Isolation::Snapshot;
        for row in rows {
            let (identity, value) = match row {
                Row::New(value) => {
                    let identity = RowIdentity::Inserted { by: PENDING, number: written.inserted };
                    written.inserted += 1;
                    (identity, Some(value))
                }
                Row::Known { row, value, timestamp, old } => {
                    let is_own = written.rows.contains_key(&row);
                    if has_sums && timestamp == Timestamp::FIRST && !is_own {
                        written.stored.extend(old.clone().map(|old| (row, old)));
                    }
                    if !is_own {
                        let values = old.filter(|_| self.care.outlives_flushes);
                        written.read.insert(row, Read { timestamp, values });
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

    /// Lays the written rows over their table.
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
                let timestamp = Timestamp { time: written.writes, client: ClientId(0) };
                rows.insert(*identity, RowVersion { timestamp, value: value.clone() });
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

    /// The names and ids of the tables that it has written to.
    pub(crate) fn named(&self) -> Vec<(String, TableId)> {
        let written = self.written.iter().filter(|(_, written)| !written.rows.is_empty());
        written.map(|(id, written)| (written.definition.name.clone(), *id)).collect()
    }

    /// Whether [`Self::items`] needs the replica of the participants' rows.
    pub(crate) fn needs_what_was_heard(&self) -> bool {
        let is_new = |row: &RowIdentity| matches!(row, RowIdentity::Inserted { by: PENDING, .. });
        let mut derived = self.written.values().filter(|written| !written.definition.derived.is_empty());
        derived.any(|written| !written.rows.keys().all(is_new))
    }

    /// The items to write, with the timestamp of their transaction or of one attempt to write it:
    /// rows, and what is derived from them.
    ///
    /// # Errors
    /// What cannot be derived ([`add_derived`]), and more items than a transaction may write.
    pub(crate) fn items(&self, timestamp: Timestamp, replica: &Replica) -> Result<Vec<Write>, EngineError> {
        let mut items: Vec<Write> = Vec::with_capacity(self.rows);
        for (table, written) in &self.written {
            let Written { definition, rows, stored, read, .. } = written;
            let rows = rows.iter().map(|(identity, value)| (*identity, value.clone()));
            let rows = rows.filter_map(|(identity, value)| match identity {
                // A row that this transaction inserted and deleted: no one else ever saw it.
                RowIdentity::Inserted { by: PENDING, .. } if value.bytes().is_none() => None,
                RowIdentity::Inserted { by: PENDING, number } => {
                    Some((RowIdentity::Inserted { by: timestamp, number }, value))
                }
                known => Some((known, value)),
            });
            let rows: Vec<(RowIdentity, Value)> = rows.collect();
            if !definition.derived.is_empty() {
                let mut derived = Vec::new();
                add_derived(definition, &rows, stored, replica, &mut derived)?;
                items.extend(derived.into_iter().map(Write::from));
            }
            items.extend(rows.into_iter().filter_map(|(row, value)| {
                let read = read.get(&row).filter(|_| written.is_conditional);
                Some(Write { key: row.key(*table)?, value, expected: read.map(|read| read.timestamp) })
            }));
            items.extend(written.guard.and_then(|guard| {
                let key = RowIdentity::GUARD.key(*table)?;
                Some(Write { key, value: Value::DELETED, expected: Some(guard) })
            }));
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
            read: BTreeMap::new(),
            is_conditional: false,
            guard: None,
            inserted: 0,
            fresh: Vec::new(),
            over: None,
            writes: 0,
        }
    }
}

impl Row {
    fn bytes(&self, has_sums: bool) -> usize {
        match self {
            Self::New(value) => value.len(),
            Self::Known { value, timestamp, old, .. } => {
                let bytes = |value: &Option<Vec<u8>>| value.as_ref().map_or(0, Vec::len);
                let is_kept = has_sums && *timestamp == Timestamp::FIRST;
                bytes(value) + if is_kept { bytes(old) } else { 0 }
            }
        }
    }

    /// The change of one row by a statement; `None` if what the verb needs is missing.
    pub(crate) fn of(
        verb: Verb,
        version: Option<(RowIdentity, Timestamp)>,
        value: Option<Vec<u8>>,
        old: Option<Vec<u8>>,
    ) -> Option<Self> {
        match (verb, version) {
            (Verb::Insert, _) => value.map(Self::New),
            (Verb::Update, Some((row, timestamp))) if value.is_some() => {
                Some(Self::Known { row, value, timestamp, old })
            }
            (Verb::Delete, Some((row, timestamp))) => Some(Self::Known { row, value: None, timestamp, old }),
            _ => None,
        }
    }
}
