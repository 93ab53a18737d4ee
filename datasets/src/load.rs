//! Stores the segments of a table on the nodes and publishes the table.
//!
//! ```text
//! blocking threads (cut)  -- segments, a bounded queue -->  the caller's task  -- appends, a bounded number --> nodes
//! ```
//!
//! Invariants
//! - After any failure, the load session (the client's open load) is aborted before the error is
//!   returned. If the caller drops the future of the load, the session is aborted, too, and the
//!   queue is closed, which ends the threads.
//! - A table may be published only if the nodes stored as many rows as were read.

use std::time::{Duration, Instant};

use futures::stream::{FuturesUnordered, StreamExt};
use rackscan_client::{Appended, ClientError, Cluster, LoadSession};
use rackscan_format::{
    ids::{ColumnId, TableId},
    schema::{ColumnDefinition, TableDefinition},
};
use tokio::{sync::mpsc, task::JoinError};

use crate::{
    LoadError, LoadOptions,
    cut::{CutOutput, Pieces, cut},
    encode::EncodedSegment,
    limits::{APPENDS_MAX, MADE_QUEUE_MAX},
};

/// The progress of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress<'t> {
    /// The table that is being loaded.
    pub table: &'t str,
    /// Rows read from their source.
    pub rows_read: u64,
    /// Rows stored on the nodes. A sorted table is read completely before any of its rows is
    /// stored.
    pub rows_stored: u64,
    /// The total number of rows, if known before they are read. For TPC-H's lineitem it is an
    /// estimate within 1 %.
    pub rows_total: Option<u64>,
    /// Bytes stored on the nodes.
    pub stored_bytes: u64,
}

/// Called by the task that awaits the load, to report progress.
pub type OnProgress<'p> = &'p (dyn Fn(&Progress<'_>) + Send + Sync);

/// A table that has been loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedTable {
    /// Its name.
    pub name: String,
    /// Its rows.
    pub rows: u64,
    /// Bytes of its pages.
    pub stored_bytes: u64,
}

/// The result of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadSummary {
    /// Each table, in the order of loading.
    pub tables: Vec<LoadedTable>,
    /// Rows of all tables.
    pub rows: u64,
    /// Rows of the source that were left out at the caller's request.
    pub rows_rejected: u64,
    /// Bytes of the source: the file, or for TPC-H the `.tbl` files that hold the same rows.
    pub raw_bytes: u64,
    /// Bytes of all pages.
    pub stored_bytes: u64,
    /// The time from the first row to the last publication.
    pub elapsed: Duration,
}

impl LoadSummary {
    pub(crate) fn new(tables: Vec<LoadedTable>, raw_bytes: u64, started: Instant) -> Self {
        let rows = tables.iter().map(|table| table.rows).sum();
        let stored_bytes = tables.iter().map(|table| table.stored_bytes).sum();
        Self { tables, rows, rows_rejected: 0, raw_bytes, stored_bytes, elapsed: started.elapsed() }
    }
}

/// A table to be loaded.
pub(crate) struct NewTable<'t> {
    pub(crate) name: &'t str,
    pub(crate) columns: Vec<ColumnDefinition>,
    pub(crate) partition_by: &'t str,
    pub(crate) sort_by: Option<&'t str>,
    /// A description of the source for users.
    pub(crate) source: String,
    pub(crate) rows_total: Option<u64>,
    pub(crate) pieces: Pieces,
}

/// A table whose rows are all stored, and which is not published yet.
#[derive(Debug)]
pub(crate) struct StoredTable {
    pub(crate) session: LoadSession,
    pub(crate) loaded: LoadedTable,
}

impl StoredTable {
    /// Makes the table visible.
    pub(crate) async fn publish(self) -> Result<LoadedTable, LoadError> {
        self.session.publish().await?;
        Ok(self.loaded)
    }
}

/// Stores all rows of a table, without publishing it.
pub(crate) async fn store(
    cluster: &Cluster,
    table: NewTable<'_>,
    options: &LoadOptions,
    progress: OnProgress<'_>,
) -> Result<StoredTable, LoadError> {
    options.check()?;
    let definition = definition_of(cluster, &table, options)?;
    let session = LoadSession::begin(cluster, definition.clone()).await?;
    let name = definition.name.clone();
    let (sender, made) = mpsc::channel(MADE_QUEUE_MAX);
    let (pieces, own_options) = (table.pieces, options.clone());
    let cutting = tokio::task::spawn_blocking(move || cut(&definition, pieces, &own_options, sender));
    let mut counters = Progress {
        table: &name,
        rows_read: 0,
        rows_stored: 0,
        rows_total: table.rows_total,
        stored_bytes: 0,
    };
    let appended = append_all(&session, made, &mut counters, progress).await;
    let cut = cutting.await.unwrap_or_else(|panic| Err(panicked(&name, &panic)));
    let outcome = appended.map_err(LoadError::from).and(cut).and_then(|()| counters.check_whole());
    if let Err(error) = outcome {
        if let Err(abort) = session.abort().await {
            tracing::warn!(table = name, error = %abort, "could not abort the load on every node; a node discards it when it restarts");
        }
        return Err(error);
    }
    let loaded =
        LoadedTable { name: name.clone(), rows: counters.rows_stored, stored_bytes: counters.stored_bytes };
    Ok(StoredTable { session, loaded })
}

/// Stores segments as they arrive, several at a time. Returns when all are stored or one failed.
async fn append_all(
    session: &LoadSession,
    mut made: mpsc::Receiver<CutOutput>,
    counters: &mut Progress<'_>,
    progress: OnProgress<'_>,
) -> Result<(), ClientError> {
    let mut appends = FuturesUnordered::new();
    let mut is_open = true;
    while is_open || !appends.is_empty() {
        tokio::select! {
            next = made.recv(), if is_open && appends.len() < APPENDS_MAX => match next {
                Some(CutOutput::Read(rows)) => counters.rows_read += rows,
                Some(CutOutput::Segment(segment)) => appends.push(append(session, segment)),
                None => is_open = false,
            },
            Some(stored) = appends.next() => {
                let (rows, appended) = stored?;
                counters.rows_stored += rows;
                counters.stored_bytes += appended.stored_bytes;
            }
        }
        progress(counters);
    }
    Ok(())
}

async fn append(session: &LoadSession, segment: EncodedSegment) -> Result<(u64, Appended), ClientError> {
    let EncodedSegment { node, directory, pages } = segment;
    let appended = session.append(node, &directory, &pages).await?;
    Ok((directory.rows.into(), appended))
}

impl Progress<'_> {
    /// Guards against publishing a table with missing rows.
    fn check_whole(&self) -> Result<(), LoadError> {
        if self.rows_read == self.rows_stored {
            return Ok(());
        }
        let problem = format!("{} rows were read and {} stored", self.rows_read, self.rows_stored);
        Err(LoadError::Defect { table: self.table.to_owned(), problem })
    }
}

fn panicked(table: &str, error: &JoinError) -> LoadError {
    LoadError::Defect { table: table.to_owned(), problem: error.to_string() }
}

/// The definition of the table.
fn definition_of(
    cluster: &Cluster,
    table: &NewTable<'_>,
    options: &LoadOptions,
) -> Result<TableDefinition, LoadError> {
    let column = |role: &'static str, name: &str| {
        let position = table.columns.iter().position(|column| column.name == name);
        position.and_then(|position| u16::try_from(position).ok()).map(ColumnId).ok_or_else(|| {
            let names = table.columns.iter().map(|column| column.name.escape_debug().to_string());
            let names: Vec<String> = names.collect();
            LoadError::UnknownColumn {
                table: table.name.to_owned(),
                role,
                column: name.to_owned(),
                columns: names.join(", "),
            }
        })
    };
    Ok(TableDefinition {
        id: TableId(getrandom::u32().map_err(|source| LoadError::Random { reason: source.to_string() })?),
        name: table.name.to_owned(),
        partition_key: column("partitioned", table.partition_by)?,
        sorted_by: table.sort_by.map(|name| column("sorted", name)).transpose()?,
        columns: table.columns.clone(),
        page_size: options.page_size,
        segment_rows: options.segment_rows,
        nodes: cluster.nodes().collect(),
        rows: 0,
        source: table.source.clone(),
        succeeds: None,
        derived: Vec::new(),
        protection: options.protection,
    })
}
