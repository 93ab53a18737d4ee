//! How do changed rows become segments, while others read and write?
//!
//! ```text
//! rows as of now, and  -> new segments, stored by the nodes; nobody sees them                             readers and writers go on
//!   of worn segments
//! close                -> homes prepare nothing more of the table; what is prepared ends                  writers wait
//! rows changed since   -> more segments; every old segment is kept, with the rows that it has no more     writers wait
//! publish              -> the successor takes the table's place                                           whoever waited writes to that
//! empty                -> homes forget what has moved; the memory is free
//! ```
//!
//! Invariants
//! - Nothing acknowledged is lost: between the closing and the publication nobody can write, and what was acknowledged before is in the second half.
//! - A closed table stays closed until a successor is there. If the one who closed it is gone, the next one who wants to write seals it.
//! - Of two who seal one table, one publishes; the other's segments are forgotten. The first node of the table decides.
//! - Readers keep what they began with: segments of both tables are the same pages, and one that is left out had no rows left ([`compaction`]).

mod compaction;

use crate::{
    catalog::{Known, Tables},
    changes::Changes,
    error::EngineError,
    limits::{
        ENDINGS_WAIT_MAX, KEPT_IN_FLIGHT, SEAL_RETRY_TIME, SEALED_IN_FLIGHT, SUCCESSOR_POLL_TIME,
        SUCCESSOR_WAIT,
    },
    table::Table,
};
use datafusion::execution::SessionState;
use futures::{StreamExt, TryStreamExt, stream};
use rackscan_client::{Cluster, LoadSession};
use rackscan_delta::{
    identity::RowIdentity,
    replica::TableRows,
    sealed::{SealedSegment, Sealing},
};
use rackscan_format::{
    ids::{NodeId, SegmentId, TableId},
    segment::SegmentDirectory,
    withheld::{WithheldError, WithheldRows},
};
use rackscan_ramp::closing::Closing;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::{runtime::Handle, task::JoinHandle};

/// What sealing a table came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The table.
    pub table: String,
    /// Rows that lie in segments now and did not before.
    pub rows: u64,
    /// Rows that were written anew, because little was left in their segments.
    pub rewritten: u64,
    /// Segments that were written.
    pub segments: usize,
    /// Their stored bytes.
    pub stored_bytes: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// For how long of that nobody could write to the table.
    pub closed: Duration,
}

/// What has become of a sealing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SealOutcome {
    /// No row of the table had changed.
    Nothing,
    /// It is done.
    Sealed(Sealed),
    /// Somebody else was faster: the table was sealed, loaded or dropped meanwhile.
    Overtaken,
}

/// Seals tables. Copies share what is under way in the background.
#[derive(Clone)]
pub(crate) struct Sealer {
    cluster: Cluster,
    /// How segments are read that are written anew.
    reading: Arc<SessionState>,
    tables: Arc<Tables>,
    changes: Arc<Changes>,
    background: Arc<Mutex<Background>>,
}

#[derive(Debug, Default)]
struct Background {
    task: Option<JoinHandle<()>>,
    /// Tables that could not be sealed, and when.
    failed: BTreeMap<TableId, Instant>,
}

/// A sealing under way.
struct Work {
    load: LoadSession,
    sealing: Sealing,
    written: Written,
    /// New segments, from which rows may have to be withheld before they are published.
    appended: Vec<(NodeId, Arc<SegmentDirectory>)>,
}

/// What a sealing has written.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    rows: u64,
    rewritten: u64,
    segments: usize,
    stored_bytes: u64,
}

impl Sealer {
    pub(crate) fn new(
        cluster: Cluster,
        reading: SessionState,
        tables: Arc<Tables>,
        changes: Arc<Changes>,
    ) -> Self {
        Self { cluster, reading: Arc::new(reading), tables, changes, background: Arc::default() }
    }

    /// Seals a table's changed rows.
    pub(crate) async fn seal(&self, name: &str) -> Result<SealOutcome, EngineError> {
        let began = Instant::now();
        self.changes.catch_up(&self.tables).await?;
        let Some(table) = self.stored(name)? else { return Ok(SealOutcome::Overtaken) };
        let id = table.definition().id;
        let rows = self.changes.rows(id);
        let (worn, emptied) = (compaction::worn(&table.snapshot), compaction::emptied(&table.snapshot));
        let is_as_it_should_be = rows.is_empty() && worn.is_empty() && emptied.is_empty();
        if is_as_it_should_be && !self.changes.is_closed(id) {
            return Ok(SealOutcome::Nothing);
        }
        let (written, closed) = match self.succeed(&table, rows, &worn, &emptied).await {
            Ok(Some(done)) => done,
            Ok(None) => return Ok(SealOutcome::Overtaken),
            Err(error) => return self.overtaken(name, id, error).await,
        };
        let Written { rows, rewritten, segments, stored_bytes } = written;
        // From here on the table is sealed. What homes still have of it is emptied by whoever looks for that next, if not now.
        if let Err(error) = self.changes.close(id, Closing::Emptied).await {
            tracing::warn!(table = name, %error, "sealed; what homes have of it is not emptied yet");
        }
        self.changes.renew(&self.tables).await?;
        let elapsed = began.elapsed();
        let table = name.to_owned();
        let sealed = Sealed { table, rows, rewritten, segments, stored_bytes, elapsed, closed };
        tracing::info!(?sealed, "sealed");
        Ok(SealOutcome::Sealed(sealed))
    }

    /// Writes and publishes the successor of a table with these changed rows and those of its worn segments, without the emptied ones. What was written, and for how
    /// long the table was closed; `None` if its rows have moved away meanwhile.
    async fn succeed(
        &self,
        table: &Table,
        rows: TableRows,
        worn: &BTreeSet<SegmentId>,
        emptied: &BTreeSet<SegmentId>,
    ) -> Result<Option<(Written, Duration)>, EngineError> {
        let id = table.definition().id;
        let mut work = self.begin(table).await?;
        let (all, rewritten) = self.with_rows_of(table, worn, &rows).await?;
        let every = all.since(&TableRows::default()).collect();
        work = self.store(work, Arc::new(all), every).await?;
        work.written.rows -= rewritten;
        work.written.rewritten = rewritten;
        let closed = Instant::now();
        self.changes.close(id, Closing::Closed).await?;
        let Some(ended) = self.changes.ended_rows(&self.tables, id, ENDINGS_WAIT_MAX).await? else {
            work.load.abort().await.map_err(EngineError::Catalog)?;
            return Ok(None);
        };
        let since = ended.since(&rows).collect();
        work = self.store(work, Arc::new(ended), since).await?;
        self.keep(&work, table, emptied).await?;
        work.load.publish().await.map_err(EngineError::Catalog)?;
        Ok(Some((work.written, closed.elapsed())))
    }

    /// These rows, and those of worn segments that have not changed; how many the latter are.
    async fn with_rows_of(
        &self,
        table: &Table,
        worn: &BTreeSet<SegmentId>,
        rows: &TableRows,
    ) -> Result<(TableRows, u64), EngineError> {
        let mut all = rows.clone();
        if worn.is_empty() {
            return Ok((all, 0));
        }
        let mut rewritten = 0;
        for (row, version) in compaction::rows_of(&self.reading, table, worn).await?.rows() {
            if rows.row(row).is_none() {
                all.insert(row, version.clone());
                rewritten += 1;
            }
        }
        Ok((all, rewritten))
    }

    /// A table as nodes have it; `None` if it is not there.
    fn stored(&self, name: &str) -> Result<Option<Arc<Table>>, EngineError> {
        match self.tables.moment().stored(name) {
            Some(Known::Whole(table)) => Ok(Some(Arc::clone(table))),
            Some(Known::Broken(error)) => Err(EngineError::Catalog(error.clone())),
            Some(Known::Unreadable(_, error)) => Err(EngineError::Scan(error.clone())),
            None => Ok(None),
        }
    }

    async fn begin(&self, table: &Table) -> Result<Work, EngineError> {
        let load =
            LoadSession::succeed(&self.cluster, table.definition()).await.map_err(EngineError::Catalog)?;
        let last = table.snapshot.stored().map(|(_, directory)| directory.segment.0).max();
        let next = SegmentId(last.map_or(0, |last| last.saturating_add(1)));
        let successor = Arc::new(load.definition().clone());
        let sealing = Sealing::new(successor, next, Arc::clone(&table.snapshot.sealed));
        Ok(Work { load, sealing, written: Written::default(), appended: Vec::new() })
    }

    /// Lays out rows and has them stored.
    async fn store(
        &self,
        work: Work,
        rows: Arc<TableRows>,
        changed: Vec<RowIdentity>,
    ) -> Result<Work, EngineError> {
        let Work { load, mut sealing, mut written, mut appended } = work;
        // Encoding takes a processor for a while.
        let laid_out = tokio::task::spawn_blocking(move || {
            let segments = sealing.take(&rows, changed);
            (sealing, segments)
        });
        let (sealing, segments) = laid_out
            .await
            .map_err(|error| EngineError::Changes(format!("the thread that seals: {error}")))?;
        let segments = segments.map_err(|fault| EngineError::Changes(fault.to_string()))?;
        let store = |segment: SealedSegment| {
            let load = &load;
            async move {
                let (directory, pages) = (Arc::clone(segment.run.directory()), segment.run.pages());
                let stored = load.append(segment.node, &directory, &pages).await?;
                Ok((segment.node, directory, stored.stored_bytes))
            }
        };
        let stored = stream::iter(segments.into_iter().map(store)).buffer_unordered(SEALED_IN_FLIGHT);
        let stored: Vec<_> = stored.try_collect().await.map_err(EngineError::Catalog)?;
        for (node, directory, stored_bytes) in stored {
            written.stored_bytes += stored_bytes;
            written.rows += u64::from(directory.rows);
            written.segments += 1;
            appended.push((node, directory));
        }
        Ok(Work { load, sealing, written, appended })
    }

    /// Keeps all segments of the predecessor but these, and says which rows are not there any more, of new ones too.
    async fn keep(
        &self,
        work: &Work,
        table: &Table,
        emptied: &BTreeSet<SegmentId>,
    ) -> Result<(), EngineError> {
        let withheld = |directory: &SegmentDirectory| -> Result<Arc<WithheldRows>, EngineError> {
            let fault = |error: WithheldError| EngineError::Changes(error.to_string());
            work.sealing.withheld(directory.segment).map_err(fault)
        };
        let mut tellings = Vec::new();
        for (node, directory) in table.snapshot.stored() {
            if !emptied.contains(&directory.segment) {
                tellings.push((true, *node, Arc::clone(directory), withheld(directory)?));
            }
        }
        for (node, directory) in &work.appended {
            let withheld = withheld(directory)?;
            if !withheld.is_empty() {
                tellings.push((false, *node, Arc::clone(directory), withheld));
            }
        }
        let load = &work.load;
        let tell = |(is_kept, node, directory, withheld)| async move {
            let (directory, withheld): (Arc<SegmentDirectory>, Arc<WithheldRows>) = (directory, withheld);
            if is_kept {
                load.keep(node, &directory, &withheld).await
            } else {
                load.withhold(node, &directory, &withheld).await
            }
        };
        let told = stream::iter(tellings.into_iter().map(tell)).buffer_unordered(KEPT_IN_FLIGHT);
        told.try_collect().await.map_err(EngineError::Catalog)
    }

    /// There is no successor by us: perhaps because there is another one.
    async fn overtaken(
        &self,
        name: &str,
        id: TableId,
        error: EngineError,
    ) -> Result<SealOutcome, EngineError> {
        self.changes.renew(&self.tables).await?;
        let is_there = self.tables.moment().id(name) == Some(id);
        if is_there { Err(error) } else { Ok(SealOutcome::Overtaken) }
    }

    /// Waits until there is another table in place of the one with the id `before`. If nobody seems to be making one, makes it.
    pub(crate) async fn wait_for_successor(
        &self,
        name: &str,
        before: Option<TableId>,
    ) -> Result<(), EngineError> {
        let until = Instant::now() + SUCCESSOR_WAIT;
        loop {
            self.changes.renew(&self.tables).await?;
            if self.tables.moment().id(name) != before {
                return Ok(());
            }
            if Instant::now() >= until {
                // Whoever closed it is gone, or slow; then one of us is overtaken.
                return self.seal(name).await.map(drop);
            }
            tokio::time::sleep(SUCCESSOR_POLL_TIME).await;
        }
    }

    /// Lets homes forget rows of tables that are not there any more; how many tables.
    pub(crate) async fn sweep(&self) -> Result<usize, EngineError> {
        self.changes.renew(&self.tables).await?;
        let left = self.changes.left_behind();
        for table in &left {
            self.changes.close(*table, Closing::Emptied).await?;
        }
        Ok(left.len())
    }

    /// Seals the table in the background that has most changed rows, if those are at least so many and none is being sealed here.
    pub(crate) fn seal_if_due(&self, rows_min: u64) {
        // Only programs with a runtime have a background.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut background = self.background.lock().unwrap_or_else(PoisonError::into_inner);
        if background.task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        background.failed.retain(|_, when| when.elapsed() < SEAL_RETRY_TIME);
        let view = self.tables.view();
        let due = view.iter().filter_map(|(name, known)| match known {
            Known::Whole(table) => Some((table.changed_rows(), name, table.definition().id)),
            _ => None,
        });
        let due = due.filter(|(rows, _, id)| *rows >= rows_min && !background.failed.contains_key(id)).max();
        let Some((_, name, id)) = due else { return };
        let (sealer, name) = (self.clone(), name.clone());
        background.task = Some(runtime.spawn(async move {
            if let Err(error) = sealer.seal(&name).await {
                tracing::warn!(table = name, %error, "could not be sealed; it is tried again later");
                let mut background = sealer.background.lock().unwrap_or_else(PoisonError::into_inner);
                background.failed.insert(id, Instant::now());
            }
        }));
    }

    pub(crate) fn is_at_work(&self) -> bool {
        let background = self.background.lock().unwrap_or_else(PoisonError::into_inner);
        background.task.as_ref().is_some_and(|task| !task.is_finished())
    }

    /// Waits until nothing is being sealed in the background.
    pub(crate) async fn rest(&self) {
        let task = self.background.lock().unwrap_or_else(PoisonError::into_inner).task.take();
        if let Some(task) = task {
            // A sealing that panicked has said so.
            let _ = task.await;
        }
    }
}
