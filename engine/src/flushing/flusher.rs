//! Defines the flusher, which flushes tables, and the results of a flush.

use crate::{catalog::Tables, changes::Changes, table::Table};
use datafusion::execution::SessionState;
use rackscan_client::Cluster;
use rackscan_format::{derived::DerivedDefinition, ids::TableId, schema::TableDefinition};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::task::JoinHandle;

/// What a new version derives from its rows.
#[derive(Clone, Debug)]
pub(crate) struct Derivations {
    /// The table for which this was made.
    pub(crate) of: TableId,
    /// All derived definitions. The bases of sums are chosen when the new version is written.
    pub(crate) derived: Vec<DerivedDefinition>,
    /// The statements that create new views, by name.
    pub(crate) sources: BTreeMap<String, String>,
}

/// The result of flushing a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flushed {
    /// The table.
    pub table: String,
    /// Changed rows that were moved into segments.
    pub rows: u64,
    /// Rows that were written again, because few rows were left in their segments.
    pub rewritten: u64,
    /// Segments that were written.
    pub segments: usize,
    /// Their stored bytes.
    pub stored_bytes: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// The part of that time in which the table took no writes.
    pub closed: Duration,
}

/// The outcome of a flush.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlushOutcome {
    /// No row of the table had changed.
    Nothing,
    /// The table was flushed.
    Flushed(Flushed),
    /// Another engine was faster: the table was flushed, loaded or dropped meanwhile.
    Overtaken,
}

/// Flushes tables. Clones share the flush that runs in the background.
#[derive(Clone)]
pub(crate) struct Flusher {
    pub(super) cluster: Cluster,
    /// The DataFusion state that reads segments whose rows are written again.
    pub(super) reading: Arc<SessionState>,
    pub(super) tables: Arc<Tables>,
    pub(super) changes: Arc<Changes>,
    pub(super) background: Arc<Mutex<Background>>,
}

/// A table, and the definition of its new version.
pub(super) struct Replacement<'t> {
    pub(super) table: &'t Table,
    /// Complete except for its id.
    pub(super) definition: TableDefinition,
    /// The statements that create new views, by name.
    pub(super) sources: BTreeMap<String, String>,
}

/// The flush that runs in the background, and the flushes there that failed.
#[derive(Debug, Default)]
pub(super) struct Background {
    pub(super) task: Option<JoinHandle<()>>,
    /// Tables whose flush failed, and when.
    pub(super) failed: BTreeMap<TableId, Instant>,
}

impl Flusher {
    pub(crate) fn new(
        cluster: Cluster,
        reading: SessionState,
        tables: Arc<Tables>,
        changes: Arc<Changes>,
    ) -> Self {
        Self { cluster, reading: Arc::new(reading), tables, changes, background: Arc::default() }
    }
}
