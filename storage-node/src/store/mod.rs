//! Which tables are on this node's devices, and how do they come and go without ever being half
//! there?
//!
//! ```text
//! append   -> extents taken, pages written, segment remembered in memory   (allocate, loads)
//! keep     -> a published table's segment remembered with them             (loads)
//! prepare  -> devices flushed, catalog with the table as prepared durable  (publish, catalog_file)
//! commit   -> catalog with the table as committed, its predecessor gone    (publish)
//! hold     -> a published table stays for a reader until it is released   (holds)
//! drop     -> catalog without it; extents free when the last reader is done, and their blocks the filesystem's (reclaim)
//! start    -> catalog read, directories verified, free extents derived     (recover)
//! ```
//!
//! Invariants
//! - What readers see changes only after the catalog that says so is durable.
//! - A segment is named by the table under which it was written, and found in whichever table has
//!   it.
//! - One thread changes the catalog (`publish`); readers take a snapshot of one table and keep it
//!   as long as they need.

mod allocate;
mod catalog_file;
mod devices;
mod folder;
mod free_extents;
mod holds;
mod loads;
mod maps;
mod places;
mod protected;
mod publish;
mod reclaim;
mod recover;
mod relayed;
mod scratch;
#[cfg(test)]
mod simulated;
mod table;

pub use allocate::MetadataFull;
pub use catalog_file::CatalogFileError;
pub use devices::LabelFault;
pub use recover::CatalogFault;

pub(crate) use allocate::StoredSegment;
pub(crate) use folder::make_durably;
pub(crate) use loads::{Arrived, ConnectionId, ParityCells};
pub(crate) use places::HeldPlace;
pub(crate) use protected::{HeldSet, ParityClaim, ParityPiece, parity_directory, parity_lengths};
pub(crate) use publish::{Change, Publisher};
pub(crate) use reclaim::Reclaim;
pub(crate) use relayed::PlacesClaim;
#[cfg(test)]
pub(crate) use relayed::tests as relayed_tests;
pub(crate) use table::TableSegment;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use rackscan_cache::PageCache;
use rackscan_device::Device;
use rackscan_format::{
    codec::{self, CodecError, Envelope},
    ids::{DeviceId, NodeId, SegmentId, TableId},
    label::DeviceLabel,
    message::{DeviceStatus, Refusal, RefusalCode, ScratchArea},
    schema::TableDefinition,
    segment::SegmentDirectory,
    withheld::WithheldRows,
};

use crate::{config::Config, error::StartError, metrics::Metrics};
use allocate::Space;
use catalog_file::{CatalogContentRef, CatalogFile};
use devices::{Devices, HostDevices};
use folder::{Folder, HostFolder};
use holds::{Hold, Holds};
use loads::Loads;
use maps::MapFolder;
use protected::MapHere;
use scratch::Scratch;
use table::{ReplicaNodes, Table, Tables, catalog_of, replica_nodes_of};

/// What readers see: replaced as a whole.
#[derive(Debug)]
struct Published {
    tables: Tables,
    replica_nodes: ReplicaNodes,
    /// The sealed catalog for readers.
    encoded: Arc<Vec<u8>>,
    generation: u64,
}

impl Published {
    fn new(node: NodeId, tables: Tables, generation: u64) -> Result<Self, CodecError> {
        let encoded = Self::encode(node, &tables)?;
        Ok(Self::of(tables, encoded, generation))
    }

    /// The sealed catalog for readers.
    fn encode(node: NodeId, tables: &Tables) -> Result<Vec<u8>, CodecError> {
        codec::seal(Envelope::CatalogReply, &catalog_of(node, tables))
    }

    /// These tables, as they were encoded.
    fn of(tables: Tables, encoded: Vec<u8>, generation: u64) -> Self {
        Self { replica_nodes: replica_nodes_of(&tables), tables, encoded: Arc::new(encoded), generation }
    }
}

/// What raw requests may do with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawRoom {
    pub(crate) capacity_bytes: u64,
    /// For offsets and lengths.
    pub(crate) align_bytes: u32,
    /// For memory.
    pub(crate) memory_align_bytes: u32,
    /// Where may be written.
    pub(crate) scratch: Option<ScratchArea>,
}

/// The files in which the store keeps what it knows.
#[derive(Debug)]
pub(crate) struct StoreFiles {
    catalog: CatalogFile,
    maps: MapFolder,
}

/// The pages and tables of one node.
#[derive(Debug)]
pub(crate) struct Store {
    devices: Arc<dyn Devices>,
    labels: Vec<DeviceLabel>,
    space: Arc<Space>,
    /// On the first device.
    scratch: Option<ScratchArea>,
    published: RwLock<Arc<Published>>,
    loads: Mutex<Loads>,
    holds: Mutex<Holds>,
}

impl Store {
    /// Recovers what there is, or begins anew in empty places.
    pub(crate) fn open(
        config: &Config,
        metadata_bytes_max: u64,
        metrics: Arc<Metrics>,
    ) -> Result<(Self, StoreFiles), StartError> {
        let folder = Arc::new(HostFolder::at(&config.data_dir)?);
        let open_devices = || Ok(Arc::new(HostDevices::open(config)?) as Arc<dyn Devices>);
        Self::over(config, folder, open_devices, metadata_bytes_max, metrics)
    }

    /// The same over a folder and devices, wherever they are.
    fn over(
        config: &Config,
        folder: Arc<dyn Folder>,
        open_devices: impl FnOnce() -> Result<Arc<dyn Devices>, StartError>,
        metadata_bytes_max: u64,
        metrics: Arc<Metrics>,
    ) -> Result<(Self, StoreFiles), StartError> {
        let maps = MapFolder::in_folder(Arc::clone(&folder));
        let file = CatalogFile::in_folder(Arc::clone(&folder));
        let mut recovered = recover::recover(config, &file, open_devices, metadata_bytes_max, metrics)?;
        maps.attach(&mut recovered.tables, config.node, &recovered.space);
        let labels: Vec<u64> = recovered.labels.iter().map(|label| label.label).collect();
        if recovered.is_new {
            let catalog = catalog_of(config.node, &recovered.tables);
            let cluster = config.cluster.0;
            file.replace(&CatalogContentRef { device_labels: &labels, cluster, catalog })?;
        }
        recover::complete_labels(&recovered)?;
        maps.retain(|table| recovered.tables.contains_key(&table));
        let scratch = Self::take_scratch(config, &*folder, &recovered)?;
        let published = Published::new(config.node, recovered.tables, random_u64()?)?;
        let store = Self {
            devices: recovered.devices,
            labels: recovered.labels,
            space: recovered.space,
            scratch,
            published: RwLock::new(Arc::new(published)),
            loads: Mutex::default(),
            holds: Mutex::default(),
        };
        Ok((store, StoreFiles { catalog: file, maps }))
    }

    /// Keeps or makes the scratch area; what is free then goes back to the filesystem.
    fn take_scratch(
        config: &Config,
        folder: &dyn Folder,
        recovered: &recover::Recovered,
    ) -> Result<Option<ScratchArea>, StartError> {
        let Some(label) = recovered.labels.get(scratch::DEVICE) else { return Ok(None) };
        let (space, devices, device_label) = (&recovered.space, &*recovered.devices, label.label);
        let scratch = Scratch { config, folder, space, devices, device_label };
        let kept = scratch.keep();
        recover::release_free_space(config, recovered);
        if kept.is_some() { Ok(kept) } else { scratch.make() }
    }

    /// The nodes of each published table.
    pub(crate) fn nodes_of_tables(&self) -> Vec<Vec<NodeId>> {
        let published = self.published();
        let committed = published.tables.values().filter(|table| table.committed);
        committed.map(|table| table.definition.nodes.clone()).collect()
    }

    /// The scratch area, on the first device, if there is one.
    pub(crate) fn scratch(&self) -> Option<ScratchArea> {
        self.scratch
    }

    fn published(&self) -> Arc<Published> {
        // The lock is held for a clone or a swap of one pointer; neither panics.
        Arc::clone(&self.published.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn publish(&self, published: Published) {
        let new_version = Arc::new(published);
        let predecessor = {
            let mut current = self.published.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, new_version)
        };
        // Outside of the lock: this may give many extents back.
        drop(predecessor);
    }

    fn holds(&self) -> MutexGuard<'_, Holds> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what published tables have until the hold ends.
    pub(crate) fn hold(&self, number: u64, tables: &[TableId], from: ConnectionId) -> Result<(), Refusal> {
        let hold = Hold::of(&self.published(), tables, from)?;
        let before = self.holds().begin(number, hold)?;
        drop(before);
        Ok(())
    }

    /// Ends a hold, if it is there.
    pub(crate) fn release(&self, number: u64) {
        let ended = self.holds().end(number);
        drop(ended);
    }

    fn loads(&self) -> MutexGuard<'_, Loads> {
        self.loads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on whatever frees an extent takes it out of this cache first. Called once, before
    /// anything is served.
    pub(crate) fn keep_in_step(&self, cache: Arc<PageCache>) {
        self.space.keep_in_step(cache);
    }

    /// The devices, in the order of their ids.
    pub(crate) fn devices(&self) -> &[Arc<Device>] {
        self.devices.opened()
    }

    /// The segment with this number that was written under `table`, and the definition of a table
    /// that has it: that one or one that succeeds it, published, prepared or held.
    pub(crate) fn segment(
        &self,
        table: TableId,
        segment: SegmentId,
    ) -> Result<(Arc<TableDefinition>, Arc<StoredSegment>), Refusal> {
        let published = self.published();
        let in_table = |holder: &TableId| {
            let holder = published.tables.get(holder)?;
            let found = holder.segments.get(&segment).filter(|found| found.directory().table == table)?;
            Some((Arc::clone(&holder.definition), Arc::clone(found.stored())))
        };
        let found = in_table(&table).or_else(|| in_table(published.replica_nodes.get(&(table, segment))?));
        found.or_else(|| self.holds().segment(table, segment)).ok_or_else(|| {
            let text = match published.tables.get(&table).map(|table| table.segments.get(&segment)) {
                None => format!("no table {table} here; read the catalog anew"),
                Some(None) => format!("table {table} has no segment {segment} here"),
                Some(Some(kept)) => {
                    let written = kept.directory().table;
                    format!(
                        "segment {segment} of table {table} was written under table {written}; name it so"
                    )
                }
            };
            Refusal::new(RefusalCode::NotFound, text)
        })
    }

    /// A segment of a published table, for a load whose table succeeds it.
    pub(crate) fn published_segment(&self, of: TableId, segment: SegmentId) -> Result<TableSegment, Refusal> {
        let missing = |text| Refusal::new(RefusalCode::NotFound, text);
        let published = self.published();
        let table = published.tables.get(&of).filter(|table| table.committed);
        let table = table
            .ok_or_else(|| missing(format!("no table {of} is published here; read the catalog anew")))?;
        let found = table.segments.get(&segment).cloned();
        found.ok_or_else(|| missing(format!("table {of} has no segment {segment} here")))
    }

    /// A segment that a load has written here.
    pub(crate) fn appended_segment(
        &self,
        load: TableId,
        segment: SegmentId,
    ) -> Result<TableSegment, Refusal> {
        self.loads().appended(load, segment).ok_or_else(|| {
            Refusal::new(RefusalCode::NotFound, format!("load {load} has written no segment {segment} here"))
        })
    }

    /// A segment of the table `of`, as it is kept without these rows.
    pub(crate) fn keep(
        &self,
        of: TableId,
        segment: &TableSegment,
        withheld: WithheldRows,
    ) -> Result<TableSegment, Refusal> {
        let malformed = |text| Refusal::new(RefusalCode::Malformed, text);
        let (id, rows) = (segment.directory().segment, segment.directory().rows);
        withheld.verify(rows).map_err(|error| malformed(format!("segment {id} of table {of}: {error}")))?;
        if !withheld.includes(segment.withheld()) {
            let text = format!(
                "{} rows of segment {id} to be withheld, expected all {} among them that table {of} withholds",
                withheld.count(),
                segment.withheld().count()
            );
            return Err(malformed(text));
        }
        let kept = TableSegment::kept(Arc::clone(segment.stored()), withheld);
        kept.map_err(|full| Refusal::new(RefusalCode::Full, full.to_string()))
    }

    /// The sealed catalog and its generation.
    pub(crate) fn catalog(&self) -> (Arc<Vec<u8>>, u64) {
        let published = self.published();
        (Arc::clone(&published.encoded), published.generation)
    }

    /// A segment of a load begins to arrive, appended or kept; that must be ended.
    pub(crate) fn begin_append(&self, load: TableId, from: ConnectionId) -> Result<(), Refusal> {
        if self.published().tables.contains_key(&load) {
            let text = format!("table {load} is prepared or published already; a load needs a fresh id");
            return Err(Refusal::new(RefusalCode::Malformed, text));
        }
        self.loads().begin(load, from)
    }

    /// A piece of a map begins to arrive, of a load or of a table whose map is lost here; that must
    /// be ended.
    pub(crate) fn begin_map(&self, load: TableId, from: ConnectionId) -> Result<(), Refusal> {
        let published = self.published();
        match published.tables.get(&load).map(|table| &table.map) {
            Some(MapHere::Lost(_)) => self.loads().begin(load, from),
            _ => self.begin_append(load, from),
        }
    }

    /// A segment of a load has arrived, or does not.
    pub(crate) fn end_append(&self, load: TableId, arrived: Option<Arrived>) -> Result<(), Refusal> {
        self.loads().end(load, arrived)
    }

    /// Cells of parity of a load have arrived, or do not.
    pub(crate) fn end_parity(
        &self,
        load: TableId,
        set: u32,
        first_cell: u32,
        piece: ParityPiece,
    ) -> Result<(), Refusal> {
        self.loads().end_parity(load, (set, first_cell), piece)
    }

    /// A piece of the map of a load has arrived; whether it was the last one.
    pub(crate) fn end_map_piece(
        &self,
        load: TableId,
        from_bytes: u64,
        total_bytes: u64,
        piece: &[u8],
    ) -> Result<bool, Refusal> {
        let space = Arc::clone(&self.space);
        self.loads().end_map_piece(load, (from_bytes, total_bytes), piece, &space)
    }

    /// What a load has here behind a segment: as many sealed segments as fit, and the last of them
    /// if there may be more.
    pub(crate) fn load_held(
        &self,
        load: TableId,
        after: Option<SegmentId>,
        bytes_max: u64,
    ) -> Result<(Vec<u8>, Option<SegmentId>), Refusal> {
        self.loads().held(load, after, bytes_max)
    }

    /// The sealed map of a table, or of one in whose stripe sets segments of it lie; and what tells
    /// it from others.
    pub(crate) fn map(&self, table: TableId) -> Result<(Arc<Vec<u8>>, u64), Refusal> {
        let missing = |text| Err(Refusal::new(RefusalCode::NotFound, text));
        let published = self.published();
        let holds = |known: &&Arc<Table>| known.sets.iter().any(|set| set.has_of(table));
        let by = |committed| published.tables.values().filter(move |known| known.committed == committed);
        let found = published.tables.get(&table);
        let Some(found) = found.or_else(|| by(true).chain(by(false)).find(holds)) else {
            return missing(format!("no protected table {table} here; read the catalog anew"));
        };
        match &found.map {
            MapHere::Kept(map) => Ok((Arc::clone(&map.bytes), found.definition.id.0.into())),
            MapHere::Needless => missing(format!("table {table} is not protected")),
            MapHere::Lost(why) => {
                missing(format!("the map of table {table} is lost here ({why}); ask another node"))
            }
        }
    }

    /// A connection is gone, and with it the loads that only it appended to, and what it held.
    pub(crate) fn connection_closed(&self, connection: ConnectionId) {
        let ended = self.holds().connection_closed(connection);
        drop(ended);
        self.loads().connection_closed(connection);
    }

    /// Takes room for the pages of a directory, whose extents say only lengths so far.
    pub(crate) fn allocate(&self, directory: SegmentDirectory) -> Result<StoredSegment, Refusal> {
        let stored = StoredSegment::allocate(directory, &self.space);
        stored.map_err(|no_room| Refusal::new(RefusalCode::Full, no_room.to_string()))
    }

    /// What raw requests may do with a device, if there is such a one.
    pub(crate) fn raw_room(&self, device: DeviceId) -> Option<RawRoom> {
        let index = usize::from(device.0);
        let alignment = self.devices.facts().get(index)?.alignment;
        Some(RawRoom {
            capacity_bytes: self.labels.get(index)?.capacity_bytes,
            align_bytes: alignment.offset_bytes,
            memory_align_bytes: alignment.memory_bytes,
            scratch: self.scratch.filter(|_| index == scratch::DEVICE),
        })
    }

    /// The devices as others see them.
    pub(crate) fn device_statuses(&self) -> Vec<DeviceStatus> {
        let devices = self.devices.facts().iter().zip(&self.labels).enumerate();
        devices
            .map(|(index, (device, label))| DeviceStatus {
                device: DeviceId(u8::try_from(index).unwrap_or(u8::MAX)),
                path: absolute(&device.path),
                label: label.label,
                capacity_bytes: label.capacity_bytes,
                used_bytes: self.space.used_bytes(index),
                align_bytes: device.alignment.offset_bytes,
                memory_align_bytes: device.alignment.memory_bytes,
                scratch: self.scratch.filter(|_| index == scratch::DEVICE),
            })
            .collect()
    }
}

fn absolute(path: &std::path::Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// A number that nobody can guess.
fn random_u64() -> Result<u64, StartError> {
    getrandom::u64().map_err(|error| StartError::Os {
        action: "draw a random number",
        source: std::io::Error::other(error.to_string()),
    })
}
