//! Makes each change of the catalog durable, and then visible to readers.
//!
//! One thread makes the changes, one after the other, so that reactors never wait for a flush. It
//! checks a change against the catalog, flushes the devices if the change adds pages, replaces the
//! catalog's file, and then shows the new catalog to readers.
//!
//! Invariants
//! - A change that was answered with success survives a crash that follows. Any other change is
//!   applied completely or not at all.
//! - A new table version replaces the version that it names, or it is not committed. The first of
//!   the table's nodes decides, by whether the named version is in its catalog.
//! - A failed flush stops the node, because it is unknown which pages are on the medium.

mod repaired;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, TrySendError},
    },
    thread::JoinHandle,
};

use rackscan_device::{Completion, DeviceIndex, Fsync, Token, Wait};
use rackscan_format::{
    ids::{NodeId, SegmentId, TableId},
    message::{Refusal, RefusalCode},
    schema::TableDefinition,
    stripe_set::TableMap,
};

use super::{
    Store, StoreFiles,
    catalog_content::CatalogContentRef,
    error::CatalogFileError,
    held_set::HeldSet,
    protected::{Preparing, TableMapState},
    published::Published,
    table::{Table, Tables, catalog_of},
    table_segment::TableSegment,
};
use crate::{
    config::Config, error::StartError, lifecycle::Lifecycle, limits::PUBLISH_QUEUE_MAX,
    message_queue::ReplyTo,
};

/// A change of the catalog.
#[derive(Debug)]
pub(crate) enum Change {
    /// A load becomes a prepared table.
    Prepare {
        /// The table.
        definition: TableDefinition,
        /// Segments this node must hold.
        segments: usize,
    },
    /// The map of a load, which has arrived completely, is made durable.
    KeepMap(TableId),
    /// The lost part of a published table is taken over again.
    Adopt(TableId),
    /// A prepared table is published.
    Commit(TableId),
    /// A prepared table is published if exactly this table, or none, is published under its name.
    CommitInPlace(TableId, Option<TableId>),
    /// A load, prepared or not, is aborted.
    Abort(TableId),
    /// A published table is forgotten.
    Drop(TableId),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prepare { definition, segments } => {
                write!(f, "prepare table {} ({:?}, {segments} segments)", definition.id, definition.name)
            }
            Self::KeepMap(load) => write!(f, "keep the map of load {load}"),
            Self::Adopt(table) => write!(f, "adopt table {table}"),
            Self::Commit(table) => write!(f, "commit table {table}"),
            Self::CommitInPlace(table, Some(of)) => write!(f, "commit table {table} in place of {of}"),
            Self::CommitInPlace(table, None) => write!(f, "commit table {table} in no other's place"),
            Self::Abort(table) => write!(f, "abort load {table}"),
            Self::Drop(table) => write!(f, "drop table {table}"),
        }
    }
}

type Job = (Change, ReplyTo<Result<(), Refusal>>);

/// A handle on the publishing thread.
#[derive(Debug, Clone)]
pub(crate) struct Publisher {
    queue: SyncSender<Job>,
}

impl Publisher {
    /// Starts the thread. It ends when the last `Publisher` is dropped.
    pub(crate) fn start(
        config: &Config,
        store: Arc<Store>,
        files: StoreFiles,
        lifecycle: Arc<Lifecycle>,
    ) -> Result<(Self, JoinHandle<()>), StartError> {
        let (queue, jobs) = std::sync::mpsc::sync_channel(PUBLISH_QUEUE_MAX);
        let publishing = Publishing::new(config, store, files, lifecycle);
        let name = format!("n{}-publish", config.node);
        let thread = std::thread::Builder::new().name(name).spawn(move || publishing.run(&jobs));
        let thread =
            thread.map_err(|source| StartError::Os { action: "start the publishing thread", source })?;
        Ok((Self { queue }, thread))
    }

    /// Queues a change. The outcome goes to `reply_to`, unless this returns a refusal.
    pub(crate) fn submit(
        &self,
        change: Change,
        reply_to: ReplyTo<Result<(), Refusal>>,
    ) -> Result<(), Refusal> {
        self.queue.try_send((change, reply_to)).map_err(|refused| match refused {
            TrySendError::Full(_) => {
                let text = format!("{PUBLISH_QUEUE_MAX} catalog changes are waiting; ask again");
                Refusal::new(RefusalCode::Busy, text)
            }
            TrySendError::Disconnected(_) => Refusal::new(RefusalCode::Stopping, "the node is stopping"),
        })
    }
}

/// The state of the publishing thread.
pub(super) struct Publishing {
    node: NodeId,
    cluster: u64,
    store: Arc<Store>,
    files: StoreFiles,
    lifecycle: Arc<Lifecycle>,
}

impl Publishing {
    pub(super) fn new(
        config: &Config,
        store: Arc<Store>,
        files: StoreFiles,
        lifecycle: Arc<Lifecycle>,
    ) -> Self {
        Self { node: config.node, cluster: config.cluster.0, store, files, lifecycle }
    }

    fn run(&self, jobs: &Receiver<Job>) {
        while let Ok((change, reply_to)) = jobs.recv() {
            let began = std::time::Instant::now();
            let what = change.to_string();
            let outcome = self.apply(change);
            let us = began.elapsed().as_micros();
            match &outcome {
                Ok(()) => tracing::info!(change = what, us, "catalog changed"),
                Err(refusal) => {
                    tracing::warn!(change = what, us, reason = refusal.text, "catalog not changed")
                }
            }
            reply_to.send(outcome);
        }
    }

    /// Makes one change.
    pub(super) fn apply(&self, change: Change) -> Result<(), Refusal> {
        match change {
            Change::Prepare { definition, segments } => self.prepare(definition, segments),
            Change::KeepMap(load) => self.keep_map(load),
            Change::Adopt(table) => self.adopt(table),
            Change::Commit(table) => self.commit(table),
            Change::CommitInPlace(table, of) => self.commit_in_place(table, of),
            Change::Abort(table) => self.abort(table),
            Change::Drop(table) => self.drop_table(table),
        }
    }

    fn prepare(&self, definition: TableDefinition, expected: usize) -> Result<(), Refusal> {
        let malformed = |text: String| Refusal::new(RefusalCode::Malformed, text);
        definition.verify().map_err(|error| malformed(error.to_string()))?;
        let published = self.store.published();
        if let Some(table) = published.tables.get(&definition.id) {
            if *table.definition == definition && table.segments.len() == expected {
                return Ok(());
            }
            return Err(malformed(format!(
                "table {} is here already, with another definition",
                definition.id
            )));
        }
        if let Some(predecessor) = definition.succeeds {
            check_predecessor(&published, &definition, predecessor)?;
        }
        let segments = self.store.loads().complete(definition.id, expected, definition.succeeds)?;
        check_segments(&definition, &segments)?;
        let (sets, map) = self.protection(&published, &definition, &segments)?;
        if !segments.is_empty() || !sets.is_empty() {
            self.flush_devices()?;
        }
        let id = definition.id;
        let mut tables = published.tables.clone();
        let definition = Arc::new(definition);
        tables.insert(id, Arc::new(Table { definition, committed: false, segments, sets, map }));
        self.replace(tables)?;
        self.store.loads().published(id);
        Ok(())
    }

    /// The map of a table that is to be prepared, and its stripe sets on this node, if the map
    /// matches what is here.
    fn protection(
        &self,
        published: &Published,
        definition: &TableDefinition,
        segments: &BTreeMap<SegmentId, TableSegment>,
    ) -> Result<(Vec<Arc<HeldSet>>, TableMapState), Refusal> {
        if definition.protection.is_none() {
            return Ok((Vec::new(), TableMapState::NotProtected));
        }
        let malformed = |text: String| Refusal::new(RefusalCode::Malformed, text);
        let (kept, parity) = self.store.loads().protection(definition.id)?;
        let map = TableMap::decode_envelope(&kept.bytes).map_err(|error| malformed(error.to_string()))?;
        let predecessor = definition.succeeds.and_then(|id| published.tables.get(&id));
        let before = predecessor.map_or(&[][..], |table| &table.sets);
        let preparing = Preparing { node: self.node, definition, segments, before, parity: &parity };
        Ok((preparing.sets(&map).map_err(malformed)?, TableMapState::Kept(kept)))
    }

    fn keep_map(&self, load: TableId) -> Result<(), Refusal> {
        let malformed = |text: String| Refusal::new(RefusalCode::Malformed, text);
        let map = self.store.loads().take_map(load)?;
        if let Some(table) = self.store.published().tables.get(&load) {
            return self.keep_lost_map(table, map);
        }
        let parsed = TableMap::decode_envelope(&map.bytes).map_err(|error| malformed(error.to_string()))?;
        if parsed.definition.id != load {
            return Err(malformed(format!(
                "the map is of table {}, expected table {load}",
                parsed.definition.id
            )));
        }
        let written = self.files.maps.write(load, &map.bytes);
        written.map_err(|error| self.not_written("a map could not be stored", &error))?;
        self.store.loads().map_kept(load, map)
    }

    fn commit(&self, id: TableId) -> Result<(), Refusal> {
        let published = self.store.published();
        let Some(table) = published.tables.get(&id) else {
            let text = format!("table {id} was not prepared here; load it anew");
            return Err(Refusal::new(RefusalCode::NotFound, text));
        };
        if table.committed {
            return Ok(());
        }
        let name = &table.definition.name;
        if let Some(predecessor) = table.definition.succeeds
            && !is_published(&published, predecessor, name)
        {
            if table.definition.nodes.first() == Some(&self.node) {
                return Err(replaced(&table.definition, predecessor));
            }
            // The first node decided to publish it while its predecessor was published. A third
            // table that is published here by now was decided later.
            if published.tables.values().any(|other| other.is_published_as(name)) {
                return self.remove(&published, id);
            }
        }
        let mut tables = published.tables.clone();
        tables.retain(|_, other| !other.is_published_as(name));
        tables.insert(id, Arc::new(Table { committed: true, ..(**table).clone() }));
        self.replace(tables)
    }

    /// The client that commits has made sure that no one can write to the table `of` any more.
    fn commit_in_place(&self, id: TableId, of: Option<TableId>) -> Result<(), Refusal> {
        let published = self.store.published();
        if let Some(table) = published.tables.get(&id).filter(|table| !table.committed) {
            let name = &table.definition.name;
            let mut there = published.tables.iter().filter(|(_, other)| other.is_published_as(name));
            let there = there.next().map(|(id, _)| *id);
            if there != of {
                let named =
                    |id: Option<TableId>| id.map_or("no table".to_owned(), |id| format!("table {id}"));
                let text = format!(
                    "{} is published here as {name:?}, expected {}, which load {id} was to replace: read the catalog again and repeat the commit",
                    named(there),
                    named(of)
                );
                return Err(Refusal::new(RefusalCode::Replaced, text));
            }
        }
        self.commit(id)
    }

    fn abort(&self, id: TableId) -> Result<(), Refusal> {
        let published = self.store.published();
        let prepared = published.tables.get(&id);
        if prepared.is_some_and(|table| table.committed) {
            let text = format!("table {id} is published already, so it cannot be aborted; drop it instead");
            return Err(Refusal::new(RefusalCode::Malformed, text));
        }
        self.store.loads().abort(id);
        if prepared.is_some() {
            return self.remove(&published, id);
        }
        self.remove_maps(&published.tables);
        Ok(())
    }

    fn drop_table(&self, id: TableId) -> Result<(), Refusal> {
        let published = self.store.published();
        if published.tables.contains_key(&id) { self.remove(&published, id) } else { Ok(()) }
    }

    fn remove(&self, published: &Published, id: TableId) -> Result<(), Refusal> {
        let mut tables = published.tables.clone();
        tables.remove(&id);
        self.replace(tables)
    }

    /// Makes these tables durable and then visible.
    fn replace(&self, tables: Tables) -> Result<(), Refusal> {
        let labels: Vec<u64> = self.store.labels.iter().map(|label| label.label).collect();
        let catalog = catalog_of(self.node, &tables);
        let content = CatalogContentRef { device_labels: &labels, cluster: self.cluster, catalog };
        let generation = self.store.published().generation.wrapping_add(1);
        let encoded = Published::encode(self.node, &tables);
        let encoded = encoded.map_err(|error| Refusal::new(RefusalCode::Storage, error.to_string()))?;
        self.files.catalog.replace(&content).map_err(|error| {
            if matches!(error, CatalogFileError::InDoubt { .. }) {
                // Either catalog may count after a restart: the extents that both list must stay as
                // they are.
                self.store.space.extents().freeze();
                self.lifecycle.fail(&error.to_string());
            }
            self.not_written("the catalog was not changed", &error)
        })?;
        self.remove_maps(&tables);
        self.store.publish(Published::of(tables, encoded, generation));
        Ok(())
    }

    /// The refusal when a file of the node's folder could not be written.
    fn not_written(&self, what: &str, error: &CatalogFileError) -> Refusal {
        if error.is_full() {
            let text = format!(
                "the disk of node {} is full: {what}: {error}; free some space there and repeat",
                self.node
            );
            return Refusal::new(RefusalCode::Full, text);
        }
        Refusal::new(RefusalCode::Storage, format!("{what}: {error}"))
    }

    /// Removes the maps of what is neither a table nor a load.
    fn remove_maps(&self, tables: &Tables) {
        self.files.maps.retain(|table| tables.contains_key(&table) || self.store.loads().has(table));
    }

    fn flush_devices(&self) -> Result<(), Refusal> {
        flush(&self.store).map_err(|reason| {
            let reason = format!("flushing the devices failed: {reason}");
            self.lifecycle.fail(&reason);
            Refusal::new(RefusalCode::Storage, reason)
        })
    }
}

fn is_published(published: &Published, table: TableId, name: &str) -> bool {
    published.tables.get(&table).is_some_and(|table| table.is_published_as(name))
}

fn replaced(definition: &TableDefinition, predecessor: TableId) -> Refusal {
    let text = format!(
        "table {predecessor}, which table {} succeeds as {:?}, is not published here under that name: it was replaced or dropped; begin anew with the \
         one that is",
        definition.id, definition.name
    );
    Refusal::new(RefusalCode::Replaced, text)
}

/// Checks that a table may replace another one and keep its segments.
fn check_predecessor(
    published: &Published,
    definition: &TableDefinition,
    predecessor: TableId,
) -> Result<(), Refusal> {
    let there = published.tables.get(&predecessor).filter(|table| table.is_published_as(&definition.name));
    let Some(before) = there.map(|table| &table.definition) else {
        return Err(replaced(definition, predecessor));
    };
    for (what, same) in [
        ("columns", before.columns == definition.columns),
        ("partition key", before.partition_key == definition.partition_key),
        ("nodes", before.nodes == definition.nodes),
    ] {
        if !same {
            let text = format!(
                "table {} has other {what} than table {predecessor}, which it succeeds; expected the same",
                definition.id
            );
            return Err(Refusal::new(RefusalCode::Malformed, text));
        }
    }
    Ok(())
}

/// Checks that the segments of a load match the definition of the table.
fn check_segments(
    definition: &TableDefinition,
    segments: &BTreeMap<SegmentId, TableSegment>,
) -> Result<(), Refusal> {
    for (id, segment) in segments {
        let directory = segment.directory();
        let (found, columns) = (directory.chunks.len(), definition.columns.len());
        let too_long = directory.rows > definition.segment_rows;
        if found != columns || too_long {
            let text = format!(
                "segment {id} of load {} has {found} columns and {} rows, expected {columns} columns and at most {} rows",
                definition.id, directory.rows, definition.segment_rows
            );
            return Err(Refusal::new(RefusalCode::Malformed, text));
        }
    }
    Ok(())
}

/// Makes every page written so far durable.
pub(super) fn flush(store: &Store) -> Result<(), String> {
    let count = u16::try_from(store.devices.facts().len()).expect("at most NODE_DEVICES_MAX devices");
    let mut io = store.devices.io(u32::from(count.max(1))).map_err(|error| error.to_string())?;
    for device in 0..count {
        let fsync = Fsync { device: DeviceIndex(device), token: Token(u64::from(device)) };
        io.submit_fsync(fsync).map_err(|refused| refused.reason.to_string())?;
    }
    let mut failed = None;
    while io.in_flight() > 0 {
        let mut on_completion = |completion| {
            if let Completion::Fsync { outcome: Err(fault), .. } = completion {
                failed = Some(fault.to_string());
            }
        };
        io.reap(Wait::ForOne, &mut on_completion).map_err(|error| error.to_string())?;
    }
    failed.map_or(Ok(()), Err)
}
