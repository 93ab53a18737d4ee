//! Simulates a node that starts, serves requests and loses power.
//!
//! It serves requests with the store's own functions, in the order in which `request` calls them.
//!
//! Invariants
//! - A node without power answers no request, not even one that it has executed before it lost
//!   power.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
};

use rackscan_device::{BufferPool, Completion, DeviceIndex, IoMemory, Token, Wait, Write, sim::SimDisk};
use rackscan_format::{
    codec::{self, Envelope},
    ids::{NodeId, SegmentId, TableId},
    message::{NodeCatalog, NodeSegment, Refusal, RefusalCode, ReserveParity, ScratchArea},
    schema::TableDefinition,
    segment::{Extent, SegmentDirectory},
    withheld::WithheldRows,
};

use super::{
    super::{
        Arrived, Change, ConnectionId, ParityCells, ParityPiece, Store, StoredSegment,
        devices::Devices,
        folder::Folder,
        parity_directory, parity_lengths,
        publish::{Publishing, flush},
    },
    devices::SimDevices,
    folder::{Files, Image, Meanwhile, SimFolder, StorageDefect},
    library::segment,
    power::{Party, Power},
};
use crate::{
    config::{ByteSize, ClusterId, Config, DeviceConfig},
    error::StartError,
    lifecycle::Lifecycle,
};

/// The one connection to each node.
const CONNECTION: ConnectionId = ConnectionId(1);
/// The connection of other clients, and the id of their load.
const OTHERS: ConnectionId = ConnectionId(2);
const BESIDE: TableId = TableId(80);
/// Devices of a node.
pub(super) const DEVICES: usize = 2;
/// Bytes of each device: so few that freed space is soon used again.
pub(super) const DEVICE_BYTES: usize = 224 << 10;
const METADATA_BYTES_MAX: u64 = 1 << 20;

thread_local! {
    static POOL: BufferPool = BufferPool::new(1 << 18, 1 << 16).unwrap();
}

/// Why a request fails.
#[derive(Debug)]
pub(super) enum Failure {
    /// The node has no power, or the client has none.
    Lost,
    Refused(Refusal),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The media of a node, which outlive its process.
#[derive(Clone, Debug)]
pub(super) struct Media {
    files: Files,
    disks: Vec<SimDisk>,
}

impl Media {
    /// The media of a new machine.
    pub(super) fn blank() -> Self {
        Self { files: Files::default(), disks: vec![SimDisk::zeroed(DEVICE_BYTES); DEVICES] }
    }
}

struct Running {
    store: Arc<Store>,
    publishing: Publishing,
    devices: Arc<SimDevices>,
    files: Arc<Mutex<Files>>,
    meanwhile: Meanwhile,
    lifecycle: Arc<Lifecycle>,
}

/// A node.
pub(super) struct SimNode {
    place: Party,
    config: Config,
    power: Arc<Power>,
    lies: StorageDefect,
    media: Media,
    running: Option<Running>,
}

pub(super) fn id(place: Party) -> NodeId {
    NodeId(u16::try_from(place + 1).unwrap())
}

impl SimNode {
    pub(super) fn new(
        place: Party,
        power: Arc<Power>,
        lies: StorageDefect,
        media: Media,
        scratch_bytes: u64,
    ) -> Self {
        let device =
            |number: usize| DeviceConfig { path: format!("d{number}").into(), size: None, reserve: false };
        let mut config = Config::new(id(place), ClusterId(99), "data".into(), device(0), "key".into());
        config.devices = (0..DEVICES).map(device).collect();
        config.scratch = (scratch_bytes > 0).then_some(ByteSize(scratch_bytes));
        Self { place, config, power, lies, media, running: None }
    }

    /// Starts, with power.
    pub(super) fn start(&mut self, seed: u64) -> Result<(), StartError> {
        let files = Arc::new(Mutex::new(self.media.files.clone()));
        let power = || Arc::clone(&self.power);
        let folder = SimFolder::new(self.place, power(), self.lies, Arc::clone(&files));
        let disks = std::mem::take(&mut self.media.disks);
        let devices = Arc::new(SimDevices::over(self.place, power(), self.lies, disks, seed));
        let (given, meanwhile) = (Arc::clone(&devices) as Arc<dyn Devices>, folder.meanwhile());
        let folder = Arc::new(folder) as Arc<dyn Folder>;
        let started = Store::over(&self.config, folder, || Ok(given), METADATA_BYTES_MAX, Arc::default());
        let kept = (Arc::clone(&devices), Arc::clone(&files));
        let (store, written) = match started {
            Ok(started) => started,
            Err(error) => {
                self.media =
                    Media { files: files.lock().unwrap().clone(), disks: devices.crash(Image::Killed) };
                return Err(error);
            }
        };
        let (store, lifecycle) = (Arc::new(store), Arc::<Lifecycle>::default());
        let publishing = Publishing::new(&self.config, Arc::clone(&store), written, Arc::clone(&lifecycle));
        let (devices, files) = kept;
        self.running = Some(Running { store, publishing, devices, files, meanwhile, lifecycle });
        Ok(())
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some() && self.power.is_on(self.place)
    }

    /// Loses power, if it has not lost it before, and what is not durable.
    pub(super) fn crash(&mut self, image: Image, random: &mut fastrand::Rng) {
        if let Some(running) = self.running.take() {
            let files = running.files.lock().unwrap().clone();
            self.media = Media { files, disks: running.devices.crash(image) };
            self.media.files.crash(image, random);
        } else if image != Image::Killed {
            // It was about to start.
            let power = Arc::clone(&self.power);
            let disks = std::mem::take(&mut self.media.disks);
            let devices = SimDevices::over(self.place, power, self.lies, disks, random.u64(..));
            self.media.disks = devices.crash(image);
            self.media.files.crash(image, random);
        }
        self.power.restore(self.place);
    }

    /// The content of its media; it must not be running.
    pub(super) fn media(&self) -> Media {
        assert!(self.running.is_none(), "it is running");
        self.media.clone()
    }

    fn ask<T>(&mut self, what: impl FnOnce(&Running) -> Result<T, Refusal>) -> Result<T, Failure> {
        let Some(running) = self.running.as_ref().filter(|_| self.power.is_on(self.place)) else {
            return Err(Failure::Lost);
        };
        let answer = what(running);
        if running.lifecycle.failure().is_some() || !self.power.is_on(self.place) {
            assert!(
                !self.power.is_on(self.place),
                "a node stops by itself: {:?}",
                running.lifecycle.failure()
            );
            return Err(Failure::Lost);
        }
        Ok(answer?)
    }

    /// As `request/append` of a segment.
    pub(super) fn append(
        &mut self,
        load: TableId,
        directory: &SegmentDirectory,
        pages: &[Vec<u8>],
    ) -> Result<(), Failure> {
        self.ask(|node| {
            node.store.begin_append(load, CONNECTION)?;
            let stored = stored(&node.store, &node.devices, load, directory.clone(), pages)?;
            node.store.end_append(load, Some(Arrived::appended(stored)))
        })
    }

    /// As `request/append` of cells of parity.
    pub(super) fn append_parity(
        &mut self,
        load: TableId,
        set: u32,
        first_cell: u32,
        cells: &[Vec<u8>],
    ) -> Result<Vec<Extent>, Failure> {
        self.ask(|node| {
            node.store.begin_append(load, CONNECTION)?;
            let cell_bytes = u32::try_from(cells[0].len()).unwrap();
            let directory = parity_directory(load, first_cell, &parity_lengths(cells.len(), cell_bytes));
            let stored = stored(&node.store, &node.devices, load, directory, cells)?;
            let pages = stored.directory().chunks.iter().flat_map(|chunk| &chunk.pages);
            let extents = pages.map(|page| page.extent).collect();
            let checksums = cells.iter().map(|cell| codec::checksum(cell)).collect();
            node.store.end_parity(load, set, first_cell, ParityPiece::appended(stored, checksums))?;
            Ok(extents)
        })
    }

    /// As `request/reserve_parity`.
    pub(super) fn reserve_parity(&mut self, request: &ReserveParity) -> Result<Vec<Extent>, Failure> {
        self.ask(|node| node.store.reserve_parity(request, CONNECTION))
    }

    /// As `relay/store` for a stripe: cells that nodes have made among themselves are written where
    /// room is reserved, flushed, and known.
    pub(super) fn relay_parity(&mut self, written: &ParityCells, cells: &[Vec<u8>]) -> Result<(), Failure> {
        self.ask(|node| {
            let (extents, claim) = node.store.claim_parity(written, cells[0].len() as u64)?;
            write(&node.devices, extents.into_iter(), cells)?;
            flush(&node.store).map_err(|reason| Refusal::new(RefusalCode::Storage, reason))?;
            let checksums: Vec<u32> = cells.iter().map(|cell| codec::checksum(cell)).collect();
            node.store.parity_stored(written, &claim, &checksums)
        })
    }

    /// As `request/keep`.
    pub(super) fn keep(
        &mut self,
        load: TableId,
        of: TableId,
        segment: SegmentId,
        withheld: WithheldRows,
    ) -> Result<(), Failure> {
        self.ask(|node| {
            let segment = node.store.published_segment(of, segment)?;
            node.store.begin_append(load, CONNECTION)?;
            let kept = node.store.keep(of, &segment, withheld);
            let kept = kept.inspect_err(|_| drop(node.store.end_append(load, None)))?;
            node.store.end_append(load, Some(Arrived::kept(kept, of)))
        })
    }

    /// As `request/catalog` of what a load has here.
    pub(super) fn held(&mut self, load: TableId) -> Result<Vec<NodeSegment>, Failure> {
        self.ask(|node| {
            let (bytes, next) = node.store.load_held(load, None, u64::MAX)?;
            assert!(next.is_none(), "all of it fits");
            Ok(codec::decode_envelope(Envelope::LoadHeld, "what a load holds", &bytes).unwrap())
        })
    }

    /// As `request/keep_map`, in two pieces.
    pub(super) fn keep_map(&mut self, load: TableId, bytes: &[u8]) -> Result<(), Failure> {
        self.ask(|node| {
            let (first, second) = bytes.split_at(bytes.len() / 2);
            let mut is_whole = false;
            for (from, piece) in [(0, first), (first.len(), second)] {
                node.store.begin_map(load, CONNECTION)?;
                is_whole = node.store.end_map_piece(load, from as u64, bytes.len() as u64, piece)?;
            }
            assert!(is_whole, "the last piece has come");
            node.publishing.apply(Change::KeepMap(load))
        })
    }

    /// As `request/publish`.
    pub(super) fn prepare(&mut self, definition: &TableDefinition, segments: usize) -> Result<(), Failure> {
        self.change(Change::Prepare { definition: definition.clone(), segments })
    }

    pub(super) fn commit(&mut self, load: TableId) -> Result<(), Failure> {
        self.change(Change::Commit(load))
    }

    pub(super) fn abort(&mut self, load: TableId) -> Result<(), Failure> {
        self.change(Change::Abort(load))
    }

    pub(super) fn drop_table(&mut self, table: TableId) -> Result<(), Failure> {
        self.change(Change::Drop(table))
    }

    /// While the catalog is being changed, another client begins to write to any free space, and
    /// then disconnects.
    fn change(&mut self, change: Change) -> Result<(), Failure> {
        self.ask(|node| {
            let (store, devices) = (Arc::clone(&node.store), Arc::clone(&node.devices));
            let numbers = AtomicU32::new(0);
            node.meanwhile.set(Some(Box::new(move || {
                let number = SegmentId(numbers.fetch_add(1, Ordering::Relaxed));
                write_beside(&store, &devices, number);
            })));
            let changed = node.publishing.apply(change);
            node.meanwhile.set(None);
            node.store.connection_closed(OTHERS);
            changed
        })
    }

    /// Handles the end of the client's connection.
    pub(super) fn connection_closed(&mut self) {
        // Nobody waits for it.
        let _ = self.ask(|node| {
            node.store.connection_closed(CONNECTION);
            Ok(())
        });
    }

    pub(super) fn catalog(&mut self) -> Result<NodeCatalog, Failure> {
        self.ask(|node| {
            Ok(codec::decode_envelope(Envelope::CatalogReply, "catalog", &node.store.catalog().0).unwrap())
        })
    }

    /// The encoded map of a table.
    pub(super) fn map(&mut self, table: TableId) -> Result<Arc<Vec<u8>>, Failure> {
        self.ask(|node| Ok(node.store.map(table)?.0))
    }

    /// The content of its devices.
    pub(super) fn bytes(&mut self, extent: &Extent) -> Result<Vec<u8>, Failure> {
        self.ask(|node| Ok(node.devices.bytes(extent)))
    }

    /// Bytes in use on all devices.
    pub(super) fn used_bytes(&mut self) -> Result<u64, Failure> {
        self.ask(|node| Ok((0..DEVICES).map(|device| node.store.space.used_bytes(device)).sum()))
    }

    pub(super) fn scratch(&mut self) -> Result<Option<ScratchArea>, Failure> {
        self.ask(|node| Ok(node.store.scratch()))
    }
}

/// Writes a segment of a load that fails. There may be no space, and no power.
fn write_beside(store: &Store, devices: &SimDevices, number: SegmentId) {
    let segment = segment(BESIDE, number, 100);
    if store.begin_append(BESIDE, OTHERS).is_ok() {
        let stored = stored(store, devices, BESIDE, segment.directory.clone(), &segment.pages);
        // It is given up anyway.
        let _ = stored.map(|stored| store.end_append(BESIDE, Some(Arrived::appended(stored))));
    }
}

/// Allocates extents for pages and writes them there, several at a time.
fn stored(
    store: &Store,
    devices: &SimDevices,
    load: TableId,
    directory: SegmentDirectory,
    pages: &[Vec<u8>],
) -> Result<Arc<StoredSegment>, Refusal> {
    let stored = store.allocate(directory);
    let stored = stored.and_then(|stored| {
        let entries = stored.directory().chunks.iter().flat_map(|chunk| &chunk.pages);
        write(devices, entries.map(|entry| entry.extent), pages)?;
        Ok(Arc::new(stored))
    });
    stored.inspect_err(|_| drop(store.end_append(load, None)))
}

fn write(
    devices: &SimDevices,
    extents: impl Iterator<Item = Extent>,
    pages: &[Vec<u8>],
) -> Result<(), Refusal> {
    let failed = |text: String| Refusal::new(RefusalCode::Storage, text);
    let mut io = devices.io(8).map_err(|error| failed(error.to_string()))?;
    for (extent, page) in extents.zip(pages) {
        let mut buffer = POOL.with(|pool| pool.take(page.len())).unwrap();
        buffer[..page.len()].copy_from_slice(page);
        let Extent { device, offset_bytes, length_bytes } = extent;
        let (device, from) = (DeviceIndex(device.0.into()), IoMemory::Buffer(buffer));
        let write = Write { device, offset_bytes, length_bytes, from, token: Token(0) };
        io.submit_write(write).map_err(|refused| failed(refused.reason.to_string()))?;
    }
    let mut outcome = Ok(());
    while io.in_flight() > 0 && outcome.is_ok() {
        let reaped = io.reap(Wait::ForOne, &mut |completion| {
            if let Completion::Write { outcome: Err(fault), .. } = completion {
                outcome = Err(failed(fault.to_string()));
            }
        });
        reaped.map_err(|error| failed(error.to_string()))?;
    }
    outcome
}
