//! Loads a table into the cluster, atomically.
//!
//! ```text
//! begin       starts the load
//! append ...  sends segments to nodes; keep: takes over a segment of the version that the load replaces
//! publish     computes the parity and the map (if the table is protected), prepares the table at every node,
//!             closes the table that it replaces, commits at the first node, then at the others
//!             -> once the first node has committed, the table exists; if an earlier step fails, the load is forgotten
//! drop, abort before `publish`: the load is forgotten
//! ```
//!
//! Invariants
//! - Nothing of a load can be read before every node has prepared it and one has committed it.
//! - A session that is dropped before [`LoadSession::publish`] aborts: its segments are freed, and
//!   the table does not exist.
//! - A load is never published if one of its segments could not be stored or taken over.
//! - A node that has lost parts of protected tables accepts no segment before it is rebuilt.
//! - A new version replaces exactly the table version that it succeeds, or is not published. Of
//!   several such versions, the first to commit wins.
//! - A table that replaces another one without succeeding it replaces exactly the one that was
//!   closed to writers before ([`crate::closing`]).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::join_all;
use rackscan_format::{
    codec::{self, Envelope},
    ids::{NodeId, TableId},
    limits::SECTOR_BYTES,
    message::{Answer, RefusalCode, Request, Target},
    schema::TableDefinition,
    segment::SegmentDirectory,
    withheld::WithheldRows,
};

use crate::{
    ClientError, Cluster, closing::published, forget::forget_left, message_names::unexpected_answer,
    protected::LoadStripes, retry::Retry, target::Span,
};

/// A load in progress.
#[derive(Debug)]
pub struct LoadSession {
    pub(crate) cluster: Cluster,
    definition: TableDefinition,
    stored: Mutex<Stored>,
    /// The stripe sets of the load, if it is protected.
    pub(crate) sets: tokio::sync::Mutex<LoadStripes>,
    /// Whether nothing is left to abort.
    is_over: bool,
}

/// The parts of the load that nodes hold so far.
#[derive(Debug, Default)]
struct Stored {
    rows: u64,
    segments: BTreeMap<NodeId, u32>,
    /// Why the load cannot be published any more.
    failed: Option<ClientError>,
}

/// One stored segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Stored bytes.
    pub stored_bytes: u64,
    /// Bytes that crossed the wire.
    pub wire_bytes: u64,
}

impl LoadSession {
    /// Begins to load a table. [`LoadSession::publish`] fills in `definition.rows`. Prepared loads
    /// of the same name that were interrupted are forgotten; if such a load is only slow, its
    /// commit is refused later.
    ///
    /// # Errors
    /// A definition that breaks an invariant or names a node that the cluster does not have.
    pub async fn begin(cluster: &Cluster, definition: TableDefinition) -> Result<Self, ClientError> {
        definition.verify()?;
        if let Some(node) = definition.nodes.iter().find(|node| cluster.address(**node).is_none()) {
            let known = cluster.nodes().map(|id| id.to_string()).collect::<Vec<_>>().join(", ");
            return Err(ClientError::UnknownNode { node: *node, known });
        }
        cluster.refuse_unrebuilt(&definition.nodes).await?;
        forget_left(cluster, &definition).await?;
        let (cluster, stored, sets) = (cluster.clone(), Mutex::default(), tokio::sync::Mutex::default());
        Ok(Self { cluster, definition, stored, sets, is_over: false })
    }

    /// Begins to load a new version of a table: it has an id of its own, and no rows of the present
    /// version yet. To derive other columns from its rows, change `derived` in the definition, and
    /// nothing else.
    ///
    /// # Errors
    /// As [`LoadSession::begin`].
    pub async fn succeed(cluster: &Cluster, table: &TableDefinition) -> Result<Self, ClientError> {
        let (id, succeeds) = (new_table_id()?, Some(table.id));
        Self::begin(cluster, TableDefinition { id, succeeds, ..table.clone() }).await
    }

    /// The definition of the table that is being loaded.
    #[must_use]
    pub fn definition(&self) -> &TableDefinition {
        &self.definition
    }

    /// Stores a segment at a node. Of the directory's extents only the lengths count; `pages` are
    /// in its order, chunk by chunk. May be called from many tasks at a time; the cluster's memory
    /// bounds how many are in flight.
    ///
    /// # Errors
    /// A segment that does not fit its table or the memory; a lost or refusing node. The load
    /// cannot be published then.
    pub async fn append<P: AsRef<[u8]>>(
        &self,
        node: NodeId,
        directory: &SegmentDirectory,
        pages: &[P],
    ) -> Result<Appended, ClientError> {
        let appended = self.store(node, directory, pages).await;
        self.count(node, directory, &appended);
        appended
    }

    async fn store<P: AsRef<[u8]>>(
        &self,
        node: NodeId,
        directory: &SegmentDirectory,
        pages: &[P],
    ) -> Result<Appended, ClientError> {
        let during = "append";
        self.check(node, directory, pages)?;
        let encoded = codec::encode_envelope(Envelope::Segment, directory)
            .map_err(|source| ClientError::TooLarge { node, during, source })?;
        let padded_bytes = encoded.len().next_multiple_of(SECTOR_BYTES as usize);
        let page_bytes: usize = pages.iter().map(|page| page.as_ref().len()).sum();
        let span = self.cluster.shared.memory.take(padded_bytes + page_bytes, "storing a segment").await?;
        fill(&span, &encoded, padded_bytes, pages)
            .map_err(|error| self.bad_segment(directory, error.to_string()))?;
        let directory_bytes = u32::try_from(encoded.len())
            .map_err(|_| self.bad_segment(directory, format!("a directory of {} bytes", encoded.len())))?;
        let mut source = span.as_target();
        source.length_bytes = (padded_bytes + page_bytes) as u64;
        let request = Request::Append { load: self.definition.id, directory_bytes, source };
        let mut reply = self.cluster.ask(node, request, Some(span)).await?;
        match reply.take_answer(node, during)? {
            Answer::Appended { stored_bytes } => {
                let wire_bytes = reply.message_bytes + (padded_bytes + page_bytes) as u64;
                Ok(Appended { stored_bytes, wire_bytes })
            }
            other => Err(unexpected_answer(node, during, &other, "a stored segment")),
        }
    }

    /// Checks that the segment is one of this load and that its pages are those of its directory.
    fn check<P: AsRef<[u8]>>(
        &self,
        node: NodeId,
        directory: &SegmentDirectory,
        pages: &[P],
    ) -> Result<(), ClientError> {
        if directory.table != self.definition.id {
            return Err(self.bad_segment(directory, format!("it belongs to table {}", directory.table)));
        }
        if !self.definition.nodes.contains(&node) {
            return Err(self.bad_segment(directory, format!("the table has no part at node {node}")));
        }
        // Extents name the first device until the node chooses one.
        let verified = directory.verify(self.definition.columns.len(), 1);
        verified.map_err(|error| self.bad_segment(directory, error.to_string()))?;
        let entries = || directory.chunks.iter().flat_map(|chunk| &chunk.pages);
        if entries().count() != pages.len() {
            let problem = format!("{} pages, expected the directory's {}", pages.len(), entries().count());
            return Err(self.bad_segment(directory, problem));
        }
        for (at, (entry, page)) in entries().zip(pages).enumerate() {
            let (found, expected) = (page.as_ref().len(), entry.extent.length_bytes as usize);
            if found != expected {
                let problem = format!("its page {at} has {found} bytes, expected the directory's {expected}");
                return Err(self.bad_segment(directory, problem));
            }
        }
        Ok(())
    }

    /// Takes over a segment of the version that this one succeeds, without the withheld rows:
    /// nothing is written, both versions share the segment. All rows that the other version
    /// withholds must be withheld here, too. May be called from many tasks at a time.
    ///
    /// # Errors
    /// A load that succeeds no table; rows that the segment does not have; a lost or refusing node.
    /// The load cannot be published then.
    pub async fn keep(
        &self,
        node: NodeId,
        directory: &SegmentDirectory,
        withheld: &WithheldRows,
    ) -> Result<(), ClientError> {
        let kept = match self.definition.succeeds {
            Some(of) => self.share(node, directory, of, withheld).await,
            None => {
                let problem = "it cannot be kept: the table succeeds no other".to_owned();
                Err(self.bad_segment(directory, problem))
            }
        };
        self.count(node, directory, &kept);
        kept
    }

    /// Withholds rows of an appended segment, because they have changed since.
    ///
    /// # Errors
    /// Rows that the segment does not have; a lost or refusing node. The load cannot be published
    /// then.
    pub async fn withhold(
        &self,
        node: NodeId,
        directory: &SegmentDirectory,
        withheld: &WithheldRows,
    ) -> Result<(), ClientError> {
        let shared = self.share(node, directory, self.definition.id, withheld).await;
        if let Err(error) = &shared {
            self.fail(error);
        }
        shared
    }

    async fn share(
        &self,
        node: NodeId,
        directory: &SegmentDirectory,
        of: TableId,
        withheld: &WithheldRows,
    ) -> Result<(), ClientError> {
        if !self.definition.nodes.contains(&node) {
            return Err(self.bad_segment(directory, format!("the table has no part at node {node}")));
        }
        let fits = withheld.verify(directory.rows);
        fits.map_err(|error| self.bad_segment(directory, error.to_string()))?;
        let bytes = withheld.as_bytes();
        let withheld_bytes = u32::try_from(bytes.len())
            .map_err(|_| self.bad_segment(directory, format!("{} bytes of withheld rows", bytes.len())))?;
        let (source, span) = if bytes.is_empty() {
            (Target { key: 0, offset_bytes: 0, length_bytes: 0 }, None)
        } else {
            let span = self.cluster.shared.memory.take(bytes.len(), "withheld rows").await?;
            span.copy_in(0, bytes).map_err(|error| self.bad_segment(directory, error.to_string()))?;
            (span.as_target(), Some(span))
        };
        let (load, segment) = (self.definition.id, directory.segment);
        let request = Request::Keep { load, of, segment, withheld_bytes, source };
        let mut reply = self.cluster.ask(node, request, span).await?;
        match reply.take_answer(node, "keep")? {
            Answer::Done => Ok(()),
            other => Err(unexpected_answer(node, "keep", &other, "done")),
        }
    }

    /// Counts a segment that a node has stored, or records the first failure.
    fn count<T>(&self, node: NodeId, directory: &SegmentDirectory, outcome: &Result<T, ClientError>) {
        let mut stored = self.stored();
        match outcome {
            Ok(_) => {
                stored.rows += u64::from(directory.rows);
                *stored.segments.entry(node).or_default() += 1;
            }
            Err(error) => {
                stored.failed.get_or_insert_with(|| error.clone());
            }
        }
    }

    /// Records a failure: the load cannot be published any more.
    pub(crate) fn fail(&self, error: &ClientError) {
        self.stored().failed.get_or_insert_with(|| error.clone());
    }

    fn bad_segment(&self, directory: &SegmentDirectory, problem: String) -> ClientError {
        ClientError::BadSegment { table: self.definition.id, segment: directory.segment, problem }
    }

    fn stored(&self) -> MutexGuard<'_, Stored> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes everything durable and then visible, in place of a table of the same name. Returns the
    /// final definition, whose number of rows is that of all segments, withheld rows included.
    ///
    /// # Errors
    /// If a segment could not be stored, a node could not prepare, or the version to succeed does
    /// not exist any more (`RefusalCode::Replaced`): the load is aborted everywhere. If the first
    /// node was lost while it committed, or, for a protected table, too many nodes to be sure: the
    /// outcome is unknown until they are back.
    pub async fn publish(mut self) -> Result<TableDefinition, ClientError> {
        let (failed, rows) = {
            let stored = self.stored();
            (stored.failed.clone(), stored.rows)
        };
        self.definition.rows = rows;
        if let Err(error) = match failed {
            Some(error) => Err(error),
            None => self.prepare().await,
        } {
            self.forget().await?;
            return Err(error);
        }
        self.commit().await?;
        Ok(self.definition.clone())
    }

    async fn prepare(&self) -> Result<(), ClientError> {
        // A node may have lost its folder since the load began, before it got any part of it.
        self.cluster.refuse_unrebuilt(&self.definition.nodes).await?;
        self.keep_map().await?;
        let segments = self.stored().segments.clone();
        let prepare = |node: &NodeId| {
            let segments = segments.get(node).copied().unwrap_or(0);
            self.cluster
                .ask_done(*node, Request::PreparePublish { definition: self.definition.clone(), segments })
        };
        let outcomes = join_all(self.definition.nodes.iter().map(prepare)).await;
        outcomes.into_iter().try_for_each(|outcome| outcome.map(drop))
    }

    /// Commits on the first node, which decides, and then on the others.
    async fn commit(&mut self) -> Result<(), ClientError> {
        let commit = Request::CommitPublish { load: self.definition.id };
        let nodes = self.definition.nodes.clone();
        let Some((first, others)) = nodes.split_first() else { return Ok(()) };
        self.decide(*first).await?;
        let others = others.iter().map(|node| self.cluster.ask_done(*node, commit.clone()));
        let (mut committed, mut failed) = (1, None);
        for outcome in join_all(others).await {
            match outcome {
                Ok(_) => committed += 1,
                // Another client has completed the commit there, and replaced or dropped the table
                // since.
                Err(error) if error.is_not_found() => committed += 1,
                Err(error) => {
                    tracing::warn!(table = self.definition.name, %error, "published; the next reader completes the commit");
                    failed.get_or_insert(error);
                }
            }
        }
        // For a protected table, one node that knows of the commit must remain, whichever nodes are
        // lost next.
        failed.filter(|_| committed < Cluster::commits_needed(self.definition.protection)).map_or(Ok(()), Err)
    }

    /// Commits on the first node, which decides. If it refuses, the load is forgotten.
    async fn decide(&mut self, first: NodeId) -> Result<(), ClientError> {
        let load = self.definition.id;
        let mut retry = Retry::of_replacement();
        loop {
            let commit = if self.definition.succeeds.is_some() {
                // The writer of a new version has closed the present one before.
                Request::CommitPublish { load }
            } else {
                match self.close_replaced(first).await {
                    Ok(of) => Request::CommitInPlace { load, of },
                    Err(error) => {
                        self.forget().await?;
                        return Err(error);
                    }
                }
            };
            let may_repeat = matches!(commit, Request::CommitInPlace { .. });
            // From here on the table may exist: a caller that gives up waiting must not forget it
            // at other nodes, which would leave half a table.
            self.is_over = true;
            let mut decision = self.cluster.ask_done(first, commit.clone()).await;
            if matches!(decision, Err(ClientError::NodeLost { .. } | ClientError::TimedOut { .. })) {
                // Perhaps only the reply was lost; asking again does no harm. An unresponsive node
                // is not asked again: the request may still be carried out there.
                let again = self.cluster.ask_done(first, commit).await;
                // A second request that was not sent does not tell whether the first one was
                // carried out.
                if !matches!(again, Err(ClientError::Unreachable { .. })) {
                    decision = again;
                }
            }
            match decision {
                Err(ClientError::Refused { refusal, .. })
                    if may_repeat && refusal.code == RefusalCode::Replaced =>
                {
                    self.is_over = false;
                    if let Err(error) = retry.after_replacement(&self.definition.name) {
                        self.forget().await?;
                        return Err(error);
                    }
                }
                Err(error @ ClientError::Refused { .. }) => {
                    self.forget().await?;
                    return Err(error);
                }
                // The load may have been committed there.
                Err(error) => return Err(error),
                Ok(_) => return Ok(()),
            }
        }
    }

    /// Closes the tables that are published under the name of this load to writers. Returns the one
    /// that is published at the node.
    async fn close_replaced(&self, first: NodeId) -> Result<Option<TableId>, ClientError> {
        let name = &self.definition.name;
        let catalogs = self.cluster.completed_catalogs(name).await?;
        let tables = catalogs.iter().flat_map(|catalog| published(catalog, name)).collect();
        self.cluster.close_tables(name, tables).await?;
        let mut decides = catalogs.iter().filter(|catalog| catalog.node == first);
        Ok(decides.find_map(|catalog| published(catalog, name).next()))
    }

    /// Forgets the load at all nodes.
    ///
    /// # Errors
    /// A node that could not be told; it forgets the load when it is restarted.
    pub async fn abort(mut self) -> Result<(), ClientError> {
        self.forget().await
    }

    async fn forget(&mut self) -> Result<(), ClientError> {
        self.is_over = true;
        let abort = Request::AbortLoad { load: self.definition.id };
        let aborts = self.definition.nodes.iter().map(|node| self.cluster.ask_done(*node, abort.clone()));
        // Every node is told before the first failure is reported.
        let mut first = Ok(());
        for outcome in join_all(aborts).await {
            match outcome {
                // A lost node forgets unpublished loads when it comes back.
                Ok(_) | Err(ClientError::NodeLost { .. } | ClientError::Unreachable { .. }) => {}
                Err(error) => first = first.and(Err(error)),
            }
        }
        first
    }
}

/// An id for a table that is about to be loaded: 32 random bits, so that no other table has it.
///
/// # Errors
/// If the operating system provides no random numbers.
pub fn new_table_id() -> Result<TableId, ClientError> {
    let id = getrandom::u32().map_err(|error| ClientError::Os {
        action: "draw a random id",
        source: Arc::new(std::io::Error::other(error.to_string())),
    })?;
    Ok(TableId(id))
}

impl Drop for LoadSession {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let load = self.definition.id;
        for node in &self.definition.nodes {
            if !self.cluster.tell(*node, Request::AbortLoad { load }) {
                tracing::warn!(%node, table = %load, "could not abort a load: the node forgets it when it starts anew");
            }
        }
    }
}

fn fill<P: AsRef<[u8]>>(
    span: &Span,
    encoded: &[u8],
    padded_bytes: usize,
    pages: &[P],
) -> Result<(), rackscan_fabric::OutOfBounds> {
    span.copy_in(0, encoded)?;
    span.zero(encoded.len(), padded_bytes - encoded.len())?;
    let mut offset = padded_bytes;
    for page in pages {
        span.copy_in(offset, page.as_ref())?;
        offset += page.as_ref().len();
    }
    Ok(())
}
