//! How do changed rows become segments, while others read and write?
//!
//! ```text
//! rows as of now, and  -> new segments, stored by the nodes; nobody sees them                             readers and writers go on
//!   of worn segments
//! close                -> homes prepare nothing more of the table; what is prepared ends                  writers wait
//! rows changed since   -> more segments; every old segment is kept, with the rows that it has no more     writers wait
//! publish              -> the new version takes the table's place                                           whoever waited writes to that
//! empty                -> homes forget what has moved; the memory is free
//! ```
//!
//! Invariants
//! - Nothing acknowledged is lost: between the closing and the publication nobody can write, and
//!   what was acknowledged before is in the second half.
//! - A closed table stays closed until a new version is there. If the one who closed it is gone,
//!   the next one who wants to write seals it.
//! - Of two who seal one table, one publishes; the other's segments are forgotten. The first node
//!   of the table decides.
//! - Readers keep what they began with: segments of both tables are the same pages, and one that is
//!   left out had no rows left ([`compaction`]).

mod background;
mod bases;
mod compaction;
mod indexes;
mod work;

use crate::{
    catalog::{Known, Tables},
    changes::{Changes, new_segments},
    error::EngineError,
    limits::{ENDINGS_WAIT_MAX, FOLLOWED_ROWS_MAX, NEW_VERSION_POLL_TIME, NEW_VERSION_WAIT},
    table::Table,
};
use background::Background;
use datafusion::execution::SessionState;
use rackscan_client::{ClientError, Cluster};
use rackscan_delta::replica::TableRows;
use rackscan_format::{
    derived::DerivedDefinition,
    ids::{SegmentId, TableId},
    message::RefusalCode,
    schema::TableDefinition,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use work::{Work, Written};

/// What a new version is to derive from its rows.
#[derive(Clone, Debug)]
pub(crate) struct Derivations {
    /// The table for which this was worked out.
    pub(crate) of: TableId,
    /// All of it. Bases of sums are chosen by whoever writes the new version.
    pub(crate) derived: Vec<DerivedDefinition>,
    /// The statements by which new views are created, by name.
    pub(crate) sources: BTreeMap<String, String>,
}

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

/// A table, and what takes its place.
struct Replacement<'t> {
    table: &'t Table,
    /// But for its id.
    definition: TableDefinition,
    /// The statements by which new views are created, by name.
    sources: BTreeMap<String, String>,
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
        let outcome = self.run(name, None).await?;
        self.tend_indexes_if_possible(name).await;
        Ok(outcome)
    }

    /// The same, into a new version that derives something else. Its indexes are not tended.
    pub(crate) async fn derive(&self, name: &str, to: Derivations) -> Result<SealOutcome, EngineError> {
        self.run(name, Some(to)).await
    }

    /// What indexes do not know is scanned.
    async fn tend_indexes_if_possible(&self, name: &str) {
        if let Err(error) = self.tend_indexes(name).await {
            tracing::warn!(table = name, %error, "sealed; its indexes do not know all of it yet");
        }
    }

    async fn run(&self, name: &str, to: Option<Derivations>) -> Result<SealOutcome, EngineError> {
        let began = Instant::now();
        self.changes.catch_up(&self.tables).await?;
        let table = match self.tables.moment().stored(name) {
            None => return Ok(SealOutcome::Overtaken),
            // It goes with its table.
            Some(Known::View(_)) if to.is_none() => return Ok(SealOutcome::Nothing),
            Some(known) => Arc::clone(known.whole()?),
        };
        let id = table.definition().id;
        if to.as_ref().is_some_and(|to| to.of != id) {
            return Ok(SealOutcome::Overtaken);
        }
        let rows = self.changes.rows(id);
        let (worn, emptied) = (compaction::worn(&table.snapshot), compaction::emptied(&table.snapshot));
        let is_as_it_should_be = rows.is_empty() && worn.is_empty() && emptied.is_empty() && to.is_none();
        if is_as_it_should_be && !self.changes.is_closed(id) {
            return Ok(SealOutcome::Nothing);
        }
        let (mut definition, mut sources) = (TableDefinition::clone(table.definition()), BTreeMap::new());
        if let Some(to) = to {
            (definition.derived, sources) = (to.derived, to.sources);
        }
        let replacement = Replacement { table: &table, definition: bases::chosen(definition)?, sources };
        let (written, closed) = match self.succeed(&replacement, rows, &worn, &emptied).await {
            Ok(Some(done)) => done,
            Ok(None) => return Ok(SealOutcome::Overtaken),
            Err(error) => return self.overtaken(name, id, error).await,
        };
        let Written { rows, rewritten, segments, stored_bytes } = written;
        // From here on the table is sealed. What homes still have of it is emptied by whoever looks
        // for that next, if not now.
        if let Err(error) = self.changes.empty(id).await {
            tracing::warn!(table = name, %error, "sealed; what homes have of it is not emptied yet");
        }
        self.changes.renew(&self.tables).await?;
        if let Err(error) = self.drop_orphans().await {
            tracing::warn!(table = name, %error, "sealed; what its views were based on before is not dropped yet");
        }
        let elapsed = began.elapsed();
        let table = name.to_owned();
        let sealed = Sealed { table, rows, rewritten, segments, stored_bytes, elapsed, closed };
        tracing::info!(?sealed, "sealed");
        Ok(SealOutcome::Sealed(sealed))
    }

    /// Writes and publishes the new version of a table with these changed rows and those of its
    /// worn segments, without the emptied ones. What was written, and for how long the table was
    /// closed; `None` if its rows have moved away meanwhile.
    async fn succeed(
        &self,
        replacement: &Replacement<'_>,
        rows: TableRows,
        worn: &BTreeSet<SegmentId>,
        emptied: &BTreeSet<SegmentId>,
    ) -> Result<Option<(Written, Duration)>, EngineError> {
        let table = replacement.table;
        let id = table.definition().id;
        let mut work = Work::succeeding(&self.cluster, table, &replacement.definition).await?;
        let (all, rewritten) = self.with_rows_of(table, worn, &rows).await?;
        let every = all.since(&TableRows::default()).collect();
        work = work.store(Arc::new(all), every).await?;
        work.written.rows -= rewritten;
        work.written.rewritten = rewritten;
        // What is too much for a base is too much before anybody has to wait.
        self.bases(replacement, work.load.definition()).await?;
        // Nobody has to wait for the parity of what is stored by now.
        work.load.protect().await.map_err(EngineError::Catalog)?;
        let closed = Instant::now();
        self.changes.close(id, work.load.definition().id).await?;
        let Some(ended) = self.changes.ended_rows(&self.tables, id, ENDINGS_WAIT_MAX).await? else {
            work.give_up().await?;
            return Ok(None);
        };
        let since = ended.since(&rows).collect();
        work = work.store(Arc::new(ended), since).await?;
        work.keep(table, emptied).await?;
        self.lay_bases(replacement, work.load.definition()).await?;
        let written = work.publish().await?;
        Ok(Some((written, closed.elapsed())))
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

    /// The rows of segments that a table has and did not have `before`, where nobody has changed
    /// them.
    ///
    /// # Errors
    /// [`EngineError::Conflict`] if those are too many to be looked through.
    pub(crate) async fn rows_since(&self, before: &Table, now: &Table) -> Result<TableRows, EngineError> {
        let new = new_segments(&before.snapshot, &now.snapshot);
        if new.is_empty() {
            return Ok(TableRows::default());
        }
        let rows: u64 = new.iter().map(|segment| u64::from(now.snapshot.rows_left(*segment))).sum();
        if rows > FOLLOWED_ROWS_MAX {
            return Err(EngineError::Conflict { table: now.definition().name.clone() });
        }
        compaction::rows_of(&self.reading, now, &new).await
    }

    /// There is no new version by us: perhaps because there is another one.
    async fn overtaken(
        &self,
        name: &str,
        id: TableId,
        error: EngineError,
    ) -> Result<SealOutcome, EngineError> {
        self.changes.renew(&self.tables).await?;
        let is_there = self.tables.moment().id(name) == Some(id);
        // Another new version is decided for, or is about to be: nodes have forgotten ours for it.
        let is_forgotten = matches!(
            &error,
            EngineError::Catalog(ClientError::Refused { refusal, .. })
                if matches!(refusal.code, RefusalCode::NotFound | RefusalCode::Replaced)
        );
        if is_there && !is_forgotten { Err(error) } else { Ok(SealOutcome::Overtaken) }
    }

    /// Waits until there is another table in place of the one with the id `before`. If nobody seems
    /// to be making one, makes it.
    pub(crate) async fn wait_for_new_version(
        &self,
        name: &str,
        before: Option<TableId>,
    ) -> Result<(), EngineError> {
        let until = Instant::now() + NEW_VERSION_WAIT;
        loop {
            self.changes.renew(&self.tables).await?;
            if self.tables.moment().id(name) != before {
                return Ok(());
            }
            if Instant::now() >= until {
                // Whoever closed it is gone, or slow; then one of us is overtaken.
                return self.run(name, None).await.map(drop);
            }
            tokio::time::sleep(NEW_VERSION_POLL_TIME).await;
        }
    }

    /// Lets homes forget rows of tables that are not there any more; how many tables.
    pub(crate) async fn sweep(&self) -> Result<usize, EngineError> {
        self.changes.renew(&self.tables).await?;
        let left = self.changes.left_behind();
        for table in &left {
            self.changes.empty(*table).await?;
        }
        self.drop_orphans().await?;
        Ok(left.len())
    }
}
