//! Writes a new table version, segment by segment.
//!
//! Invariants
//! - The new version cannot be read before it is published. If the flush is aborted, its segments
//!   are dropped.
//! - The number of segments in flight is bounded.

use crate::{
    error::EngineError,
    limits::{FLUSHED_IN_FLIGHT, KEPT_IN_FLIGHT},
    table::Table,
};
use futures::{StreamExt, TryStreamExt, stream};
use rackscan_client::{Cluster, LoadSession};
use rackscan_delta::{
    flushed::{FlushedSegment, Flushing},
    identity::RowIdentity,
    replica::TableRows,
};
use rackscan_format::{
    ids::{NodeId, SegmentId},
    schema::TableDefinition,
    segment::SegmentDirectory,
    withheld::{WithheldError, WithheldRows},
};
use std::{collections::BTreeSet, sync::Arc};

/// A table version that is being written.
pub(crate) struct Work {
    pub(super) load: LoadSession,
    flushing: Flushing,
    pub(super) written: Written,
    /// New segments. Rows of them may have to be withheld before publication.
    appended: Vec<(NodeId, Arc<SegmentDirectory>)>,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    pub(super) rows: u64,
    pub(super) rewritten: u64,
    pub(super) segments: usize,
    pub(super) stored_bytes: u64,
}

impl Work {
    /// Begins a new version of a table with this definition, which gets a new id.
    pub(super) async fn succeeding(
        cluster: &Cluster,
        table: &Table,
        definition: &TableDefinition,
    ) -> Result<Self, EngineError> {
        let load = LoadSession::succeed(cluster, definition).await.map_err(EngineError::Catalog)?;
        let last = table.snapshot.stored().map(|(_, directory)| directory.segment.0).max();
        let next = SegmentId(last.map_or(0, |last| last.saturating_add(1)));
        let new_version = Arc::new(load.definition().clone());
        let flushing = Flushing::new(new_version, next, Arc::clone(&table.snapshot.flushed));
        Ok(Self { load, flushing, written: Written::default(), appended: Vec::new() })
    }

    /// Writes and publishes a new table with these rows.
    pub(crate) async fn whole(
        cluster: &Cluster,
        definition: TableDefinition,
        rows: TableRows,
    ) -> Result<(), EngineError> {
        let load = LoadSession::begin(cluster, definition).await.map_err(EngineError::Catalog)?;
        let flushing = Flushing::new(Arc::new(load.definition().clone()), SegmentId(0), Arc::default());
        let work = Self { load, flushing, written: Written::default(), appended: Vec::new() };
        let all = rows.rows().map(|(row, _)| row).collect();
        work.store(Arc::new(rows), all).await?.publish().await.map(drop)
    }

    /// Lays out rows as segments and has nodes store them.
    pub(super) async fn store(
        self,
        rows: Arc<TableRows>,
        changed: Vec<RowIdentity>,
    ) -> Result<Self, EngineError> {
        let Self { load, mut flushing, mut written, mut appended } = self;
        // Encoding takes a processor for some time.
        let laid_out = tokio::task::spawn_blocking(move || {
            let segments = flushing.take(&rows, changed);
            (flushing, segments)
        });
        let (flushing, segments) = laid_out.await.map_err(|error| {
            EngineError::Changes(format!("the thread that writes segments has failed: {error}"))
        })?;
        let segments = segments.map_err(|fault| EngineError::Changes(fault.to_string()))?;
        let store = |segment: FlushedSegment| {
            let load = &load;
            async move {
                let (directory, pages) = (Arc::clone(segment.run.directory()), segment.run.pages());
                let stored = load.append(segment.node, &directory, &pages).await?;
                Ok((segment.node, directory, stored.stored_bytes))
            }
        };
        let stored = stream::iter(segments.into_iter().map(store)).buffer_unordered(FLUSHED_IN_FLIGHT);
        let stored: Vec<_> = stored.try_collect().await.map_err(EngineError::Catalog)?;
        for (node, directory, stored_bytes) in stored {
            written.stored_bytes += stored_bytes;
            written.rows += u64::from(directory.rows);
            written.segments += 1;
            appended.push((node, directory));
        }
        Ok(Self { load, flushing, written, appended })
    }

    /// Carries over all segments of the table before except `emptied`, and tells nodes which rows
    /// are withheld, in new segments too.
    pub(super) async fn keep(&self, table: &Table, emptied: &BTreeSet<SegmentId>) -> Result<(), EngineError> {
        let withheld = |directory: &SegmentDirectory| -> Result<Arc<WithheldRows>, EngineError> {
            let fault = |error: WithheldError| EngineError::Changes(error.to_string());
            self.flushing.withheld(directory.segment).map_err(fault)
        };
        let mut tellings = Vec::new();
        for (node, directory) in table.snapshot.stored() {
            if !emptied.contains(&directory.segment) {
                tellings.push((true, *node, Arc::clone(directory), withheld(directory)?));
            }
        }
        for (node, directory) in &self.appended {
            let withheld = withheld(directory)?;
            if !withheld.is_empty() {
                tellings.push((false, *node, Arc::clone(directory), withheld));
            }
        }
        let load = &self.load;
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

    /// Publishes the version in place of the table before.
    pub(super) async fn publish(self) -> Result<Written, EngineError> {
        self.load.publish().await.map_err(EngineError::Catalog)?;
        Ok(self.written)
    }

    /// Drops the unpublished version.
    pub(super) async fn give_up(self) -> Result<(), EngineError> {
        self.load.abort().await.map_err(EngineError::Catalog)
    }
}
