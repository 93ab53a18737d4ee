//! Stores the tables on this node's devices: loads, publishes, replaces and drops them, so that a
//! table is always complete or absent.
//!
//! ```text
//! append   -> extents allocated, pages written, segment recorded in memory          (allocate, loads)
//! keep     -> a segment of the previous table version recorded for the new one      (loads)
//! prepare  -> devices flushed, catalog with the table as prepared durable           (publish, catalog_file)
//! commit   -> catalog durable with the table as committed, without its predecessor  (publish)
//! hold     -> a published table stays readable until the hold is released           (holds)
//! drop     -> catalog durable without the table; extents free after the last reader (publish)
//!             and their blocks returned to the filesystem                           (reclaim)
//! start    -> catalog read, directories verified, free extents derived              (recover)
//! ```
//!
//! Invariants
//! - What readers see changes only after the catalog that records the change is durable.
//! - A segment is named by the table under which it was written, and may also be in later versions
//!   of this table.
//! - One thread changes the catalog (`publish`). Readers take a snapshot of one table and use it as
//!   long as they need.

mod allocate;
mod catalog_content;
mod catalog_file;
mod devices;
mod error;
mod folder;
mod free_extents;
mod held_set;
mod holds;
mod loads;
mod maps;
mod places;
mod protected;
mod publish;
mod published;
mod reclaim;
mod recover;
mod relayed;
mod scratch;
#[cfg(test)]
mod simulated;
mod table;
mod table_segment;

pub use error::{CatalogFault, CatalogFileError, LabelFault, MetadataFull};

pub(crate) use allocate::StoredSegment;
pub(crate) use folder::make_durably;
pub(crate) use held_set::{HeldSet, PlacesClaim};
pub(crate) use loads::{Arrived, ParityCells};
pub(crate) use places::HeldPlace;
pub(crate) use protected::{ParityClaim, ParityPiece, parity_directory, parity_lengths};
pub(crate) use publish::{Change, Publisher};
pub(crate) use reclaim::Reclaim;
#[cfg(test)]
pub(crate) use relayed::tests as relayed_tests;
pub(crate) use table_segment::TableSegment;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use rackscan_cache::PageCache;
use rackscan_device::Device;
use rackscan_format::{
    ids::{DeviceId, NodeId, SegmentId, TableId},
    label::DeviceLabel,
    message::{DeviceStatus, Refusal, RefusalCode, ScratchArea},
    schema::TableDefinition,
    segment::SegmentDirectory,
    withheld::WithheldRows,
};

use crate::{config::Config, error::StartError, ids::ConnectionId, metrics::Metrics};
use allocate::Space;
use catalog_content::CatalogContentRef;
use catalog_file::CatalogFile;
use devices::{Devices, HostDevices, random_u64};
use folder::{Folder, HostFolder};
use holds::{Hold, Holds};
use loads::Loads;
use maps::MapFolder;
use protected::TableMapState;
use published::Published;
use scratch::Scratch;
use table::{Table, catalog_of};

/// The bounds of raw requests to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawRoom {
    pub(crate) capacity_bytes: u64,
    /// The alignment of offsets and lengths.
    pub(crate) align_bytes: u32,
    /// The alignment of memory.
    pub(crate) memory_align_bytes: u32,
    /// The area that may be written.
    pub(crate) scratch: Option<ScratchArea>,
}

/// The files of the store.
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
    /// The scratch area, which is on the first device.
    scratch: Option<ScratchArea>,
    published: RwLock<Arc<Published>>,
    loads: Mutex<Loads>,
    holds: Mutex<Holds>,
}

impl Store {
    /// Recovers the store, or makes an empty one in empty places.
    pub(crate) fn open(
        config: &Config,
        metadata_bytes_max: u64,
        metrics: Arc<Metrics>,
    ) -> Result<(Self, StoreFiles), StartError> {
        let folder = Arc::new(HostFolder::of(config)?);
        let open_devices = || Ok(Arc::new(HostDevices::open(config)?) as Arc<dyn Devices>);
        Self::over(config, folder, open_devices, metadata_bytes_max, metrics)
    }

    /// The same, over any folder and devices.
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

    /// Keeps or makes the scratch area; returns the free space to the filesystem before an area is
    /// made.
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
        // The lock is held to clone or swap one pointer; neither panics.
        Arc::clone(&self.published.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn publish(&self, published: Published) {
        let new_version = Arc::new(published);
        let predecessor = {
            let mut current = self.published.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, new_version)
        };
        // Dropped outside of the lock: this may free many extents.
        drop(predecessor);
    }

    fn holds(&self) -> MutexGuard<'_, Holds> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what is stored of published tables until the hold ends.
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

    /// From now on, freeing an extent first removes it from this cache. Called once, before
    /// anything is served.
    pub(crate) fn keep_in_step(&self, cache: Arc<PageCache>) {
        self.space.keep_in_step(cache);
    }

    /// The devices, in the order of their ids.
    pub(crate) fn devices(&self) -> &[Arc<Device>] {
        self.devices.opened()
    }

    /// The segment with this number that was written under `table`, and the definition of a table
    /// that has it: that table or one that succeeds it, published, prepared or held.
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
        let found = in_table(&table).or_else(|| in_table(published.holders.get(&(table, segment))?));
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

    /// A segment of the table `of`, kept without these rows.
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
                "the list withholds {} rows of segment {id}, expected among them all {} rows that table {of} withholds",
                withheld.count(),
                segment.withheld().count()
            );
            return Err(malformed(text));
        }
        let kept = TableSegment::kept(Arc::clone(segment.stored()), withheld);
        kept.map_err(|full| Refusal::new(RefusalCode::Full, full.to_string()))
    }

    /// The encoded catalog and its generation.
    pub(crate) fn catalog(&self) -> (Arc<Vec<u8>>, u64) {
        let published = self.published();
        (Arc::clone(&published.encoded), published.generation)
    }

    /// A segment of a load begins to arrive, appended or kept. [`Store::end_append`] must follow.
    pub(crate) fn begin_append(&self, load: TableId, from: ConnectionId) -> Result<(), Refusal> {
        if self.published().tables.contains_key(&load) {
            let text = format!("table {load} is prepared or published already; a load needs a fresh id");
            return Err(Refusal::new(RefusalCode::Malformed, text));
        }
        self.loads().begin(load, from)
    }

    /// A piece of a map begins to arrive, of a load or of a table whose map is lost here.
    /// [`Store::end_map_piece`] must follow.
    pub(crate) fn begin_map(&self, load: TableId, from: ConnectionId) -> Result<(), Refusal> {
        let published = self.published();
        match published.tables.get(&load).map(|table| &table.map) {
            Some(TableMapState::Lost(_)) => self.loads().begin(load, from),
            _ => self.begin_append(load, from),
        }
    }

    /// A segment of a load has arrived; `None` if it failed.
    pub(crate) fn end_append(&self, load: TableId, arrived: Option<Arrived>) -> Result<(), Refusal> {
        self.loads().end(load, arrived)
    }

    /// Cells of parity of a load have arrived.
    pub(crate) fn end_parity(
        &self,
        load: TableId,
        set: u32,
        first_cell: u32,
        piece: ParityPiece,
    ) -> Result<(), Refusal> {
        self.loads().end_parity(load, (set, first_cell), piece)
    }

    /// A piece of the map of a load has arrived. Returns whether it was the last one.
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

    /// The encoded segments of a load here, after segment `after`: as many as fit in `bytes_max`,
    /// and the last of them if there may be more.
    pub(crate) fn load_held(
        &self,
        load: TableId,
        after: Option<SegmentId>,
        bytes_max: u64,
    ) -> Result<(Vec<u8>, Option<SegmentId>), Refusal> {
        self.loads().held(load, after, bytes_max)
    }

    /// The encoded map of a table, or of one whose stripe sets contain segments of it; and the id
    /// of the map's table, which tells it from other maps.
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
            TableMapState::Kept(map) => Ok((Arc::clone(&map.bytes), found.definition.id.0.into())),
            TableMapState::NotProtected => missing(format!("table {table} is not protected")),
            TableMapState::Lost(why) => {
                missing(format!("the map of table {table} is lost here ({why}); ask another node"))
            }
        }
    }

    /// Handles the end of a connection: ends its holds, and the loads that only it appended to.
    pub(crate) fn connection_closed(&self, connection: ConnectionId) {
        let ended = self.holds().connection_closed(connection);
        drop(ended);
        self.loads().connection_closed(connection);
    }

    /// Allocates extents for the pages of a directory, whose extents give only lengths so far.
    pub(crate) fn allocate(&self, directory: SegmentDirectory) -> Result<StoredSegment, Refusal> {
        let stored = StoredSegment::allocate(directory, &self.space);
        stored.map_err(|no_room| Refusal::new(RefusalCode::Full, no_room.to_string()))
    }

    /// The bounds of raw requests to a device, if it exists.
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

    /// The status of the devices, as clients see it.
    pub(crate) fn device_statuses(&self) -> Vec<DeviceStatus> {
        let devices = self.devices.facts().iter().zip(&self.labels).enumerate();
        devices
            .map(|(index, (device, label))| DeviceStatus {
                device: DeviceId(u8::try_from(index).expect("at most NODE_DEVICES_MAX devices")),
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
