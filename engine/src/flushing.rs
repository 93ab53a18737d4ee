//! Flushes tables: moves changed rows into new segments while other statements read and write.
//!
//! ```text
//! copy      changed rows, and rows of segments with few rows left -> new segments, stored, not visible yet    readers and writers continue
//! close     participants refuse new writes to the table; prepared transactions end                             writers wait
//! complete  rows that changed since the copy -> more new segments; old segments are kept with withheld rows    writers wait
//! publish   the new version replaces the table                                                                 waiting writers write to it
//! empty     participants drop the moved rows and free their memory
//! ```
//!
//! Invariants
//! - No acknowledged write is lost: writes that were acknowledged before the close are in the new
//!   segments, and between close and publication no write is accepted.
//! - A closed table stays closed until a new version is published. If the engine that closed it has
//!   failed, the next engine that wants to write to the table flushes it.
//! - If two engines flush one table at the same time, one publishes its version and the segments of
//!   the other are dropped. The first node of the table decides which.
//! - Readers can continue with the version that they began with: the new version shares its pages,
//!   and a segment that the new version omits had no rows left ([`compaction`]).

mod background;
mod bases;
mod compaction;
mod flusher;
mod indexes;
mod work;

use crate::{
    catalog::Known,
    changes::new_segments,
    error::EngineError,
    limits::{ENDINGS_WAIT_MAX, FOLLOWED_ROWS_MAX, NEW_VERSION_POLL_TIME, NEW_VERSION_WAIT},
    table::Table,
};
use flusher::Replacement;
use rackscan_client::ClientError;
use rackscan_delta::replica::TableRows;
use rackscan_format::{
    ids::{SegmentId, TableId},
    message::RefusalCode,
    schema::TableDefinition,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};
use work::{Work, Written};

pub(crate) use flusher::{Derivations, Flusher};
pub use flusher::{FlushOutcome, Flushed};

impl Flusher {
    /// Flushes a table's changed rows.
    pub(crate) async fn flush(&self, name: &str) -> Result<FlushOutcome, EngineError> {
        let outcome = self.run(name, None).await?;
        self.tend_indexes_if_possible(name).await;
        Ok(outcome)
    }

    /// The same, into a new version with other derived definitions. Its indexes are not updated.
    pub(crate) async fn derive(&self, name: &str, to: Derivations) -> Result<FlushOutcome, EngineError> {
        self.run(name, Some(to)).await
    }

    /// Failures are only logged: segments that an index does not cover are scanned.
    async fn tend_indexes_if_possible(&self, name: &str) {
        if let Err(error) = self.tend_indexes(name).await {
            tracing::warn!(
                table = name,
                %error,
                "the table was flushed, but its indexes do not cover all of its segments yet"
            );
        }
    }

    async fn run(&self, name: &str, to: Option<Derivations>) -> Result<FlushOutcome, EngineError> {
        let began = Instant::now();
        self.changes.catch_up(&self.tables).await?;
        let table = match self.tables.moment().stored(name) {
            None => return Ok(FlushOutcome::Overtaken),
            // A view is flushed together with its table.
            Some(Known::View(_)) if to.is_none() => return Ok(FlushOutcome::Nothing),
            Some(known) => Arc::clone(known.whole()?),
        };
        let id = table.definition().id;
        if to.as_ref().is_some_and(|to| to.of != id) {
            return Ok(FlushOutcome::Overtaken);
        }
        let rows = self.changes.rows(id);
        let (worn, emptied) = (compaction::worn(&table.snapshot), compaction::emptied(&table.snapshot));
        let is_as_it_should_be = rows.is_empty() && worn.is_empty() && emptied.is_empty() && to.is_none();
        if is_as_it_should_be && !self.changes.is_closed(id) {
            return Ok(FlushOutcome::Nothing);
        }
        let (mut definition, mut sources) = (TableDefinition::clone(table.definition()), BTreeMap::new());
        if let Some(to) = to {
            (definition.derived, sources) = (to.derived, to.sources);
        }
        let replacement = Replacement { table: &table, definition: bases::chosen(definition)?, sources };
        let (written, closed) = match self.succeed(&replacement, rows, &worn, &emptied).await {
            Ok(Some(done)) => done,
            Ok(None) => return Ok(FlushOutcome::Overtaken),
            Err(error) => return self.overtaken(name, id, error).await,
        };
        let Written { rows, rewritten, segments, stored_bytes } = written;
        // From here on the table is flushed. If participants cannot drop its rows now, the next
        // sweep does.
        if let Err(error) = self.changes.empty(id).await {
            tracing::warn!(
                table = name,
                %error,
                "the table was flushed, but participants have not dropped its changed rows yet"
            );
        }
        self.changes.renew(&self.tables).await?;
        if let Err(error) = self.drop_abandoned_bases().await {
            tracing::warn!(
                table = name,
                %error,
                "the table was flushed, but the former sums of its views are not dropped yet"
            );
        }
        let elapsed = began.elapsed();
        let table = name.to_owned();
        let flushed = Flushed { table, rows, rewritten, segments, stored_bytes, elapsed, closed };
        tracing::info!(?flushed, "flushed");
        Ok(FlushOutcome::Flushed(flushed))
    }

    /// Writes and publishes the new version of a table, with these changed rows and those of its
    /// worn segments, without the emptied ones. Returns what was written, and how long the table
    /// was closed; `None` if its rows were moved by another flush meanwhile.
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
        // Bases are computed before the close as well: what is too large for one fails before
        // writers have to wait.
        self.bases(replacement, work.load.definition()).await?;
        // Parity of what is stored by now is written before the close, so that writers do not wait
        // for it.
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

    /// Adds the unchanged rows of worn segments. Returns how many those are.
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

    /// The unchanged rows of segments that `now` has and `before` did not have.
    ///
    /// # Errors
    /// [`EngineError::Conflict`] if there are too many to be searched.
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

    /// This engine publishes no new version, perhaps because another one did.
    async fn overtaken(
        &self,
        name: &str,
        id: TableId,
        error: EngineError,
    ) -> Result<FlushOutcome, EngineError> {
        self.changes.renew(&self.tables).await?;
        let is_there = self.tables.moment().id(name) == Some(id);
        // Another new version is chosen, or about to be, so nodes have dropped ours.
        let is_forgotten = matches!(
            &error,
            EngineError::Catalog(ClientError::Refused { refusal, .. })
                if matches!(refusal.code, RefusalCode::NotFound | RefusalCode::Replaced)
        );
        if is_there && !is_forgotten { Err(error) } else { Ok(FlushOutcome::Overtaken) }
    }

    /// Waits for the version after the table with the id `before`. If no engine seems to be writing
    /// it, flushes the table itself.
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
                // The engine that closed the table is gone or slow. In the latter case one of the
                // two is overtaken.
                return self.run(name, None).await.map(drop);
            }
            tokio::time::sleep(NEW_VERSION_POLL_TIME).await;
        }
    }

    /// Makes participants drop the rows of dropped tables. Returns the number of tables.
    pub(crate) async fn sweep(&self) -> Result<usize, EngineError> {
        self.changes.renew(&self.tables).await?;
        let left = self.changes.left_behind();
        for table in &left {
            self.changes.empty(*table).await?;
        }
        self.drop_abandoned_bases().await?;
        Ok(left.len())
    }
}
