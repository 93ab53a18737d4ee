//! Allocates extents for new pages, and memory for their directories (the lists of a segment's
//! columns and pages).
//!
//! The pages of a segment are striped round-robin over the devices, page by page in the directory's
//! order. The segment's number determines the first device, so that a scan of one segment and a
//! scan of one column both use every device. The pages of a segment on one device are one range if
//! a free range is long enough, so neighbouring pages can be read at once.
//!
//! Invariants
//! - An extent is free, or belongs to exactly one [`StoredSegment`]. It is freed when the last user
//!   of the segment, a table or a request, drops it. So a page is never overwritten while it may
//!   still be read.
//! - A segment that is removed from the catalog is dropped only after the removal is durable.
//! - The pages of an extent are removed from the cache before the extent is freed, so no reader
//!   finds a page there that the next owner has replaced.

use std::{
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use rackscan_cache::PageCache;
use rackscan_format::{
    ids::DeviceId,
    segment::{Extent, PageEntry, SegmentDirectory},
    withheld::WithheldRows,
    zone::ZoneValue,
};

use super::{
    error::MetadataFull,
    free_extents::{DeviceCapacity, FreeExtents, State},
};
use crate::metrics::Metrics;

/// The space that segments take: extents of the devices, and memory for their directories.
#[derive(Debug)]
pub(crate) struct Space {
    capacities: Vec<DeviceCapacity>,
    free: FreeExtents,
    metadata_bytes: AtomicU64,
    metadata_bytes_max: u64,
    metrics: Arc<Metrics>,
    /// The page cache, whose pages must not outlive their extents.
    cache: OnceLock<Arc<PageCache>>,
}

/// A device is full.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "device {path} is full: {needed_bytes} bytes are needed there, {free_bytes} bytes are free (perhaps in pieces); \
     drop a table or add a device",
    path = path.display()
)]
pub(crate) struct DeviceFull {
    path: PathBuf,
    needed_bytes: u64,
    free_bytes: u64,
}

impl Space {
    /// Devices that hold only their labels, and memory for directories.
    pub(crate) fn new(
        capacities: Vec<DeviceCapacity>,
        metadata_bytes_max: u64,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            free: FreeExtents::of(&capacities),
            capacities,
            metadata_bytes: AtomicU64::new(0),
            metadata_bytes_max,
            metrics,
            cache: OnceLock::new(),
        }
    }

    /// See [`super::Store::keep_in_step`].
    pub(super) fn keep_in_step(&self, cache: Arc<PageCache>) {
        // A second call would be ignored; there is none.
        let _ = self.cache.set(cache);
    }

    /// Removes an extent from the cache, because its bytes are about to change, or have changed.
    pub(super) fn withdraw(&self, extent: &Extent) {
        if let Some(cache) = self.cache.get() {
            cache.withdraw(extent);
        }
    }

    fn admit_metadata(&self, bytes: u64) -> Result<(), MetadataFull> {
        let max_bytes = self.metadata_bytes_max;
        let admit = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= max_bytes);
        let admitted = self.metadata_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, admit);
        admitted.map_err(|used_bytes| MetadataFull { used_bytes, max_bytes, needed_bytes: bytes })?;
        self.metrics.memory_taken(bytes);
        Ok(())
    }

    /// Allocates memory for a table's metadata.
    pub(super) fn share(self: &Arc<Self>, bytes: u64) -> Result<MetadataShare, MetadataFull> {
        self.admit_metadata(bytes)?;
        Ok(MetadataShare { bytes, space: Arc::clone(self) })
    }

    fn return_metadata(&self, bytes: u64) {
        self.metadata_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.metrics.memory_returned(bytes);
    }

    /// The free extents.
    pub(super) fn extents(&self) -> &FreeExtents {
        &self.free
    }

    /// The number of devices.
    pub(crate) fn devices(&self) -> usize {
        self.capacities.len()
    }

    /// Bytes in use on a device, labels included.
    pub(crate) fn used_bytes(&self, device: usize) -> u64 {
        self.capacities[device].capacity_bytes.saturating_sub(self.free.lock().free_bytes(device))
    }

    /// The free ranges: device, begin and length of each.
    pub(crate) fn free_ranges(&self) -> Vec<(usize, u64, u64)> {
        let free = self.free.lock();
        let devices = free.devices.iter().enumerate();
        devices
            .flat_map(|(device, space)| space.ranges().map(move |(begin, length)| (device, begin, length)))
            .collect()
    }

    /// Claims extents that a catalog lists. Claims none and returns false if one is outside of its
    /// device or overlaps another.
    pub(crate) fn claim_all(&self, extents: &[Extent]) -> bool {
        let claim_all = |free: &mut State| {
            let mut claim = |extent: &Extent| {
                let device = free.devices.get_mut(usize::from(extent.device.0));
                device.is_some_and(|device| device.take_at(extent.offset_bytes, extent.length_bytes.into()))
            };
            let Some(failed) = extents.iter().position(|extent| !claim(extent)) else { return Ok(()) };
            extents[..failed].iter().for_each(|extent| free.give_back(*extent));
            Err(())
        };
        self.free.take(claim_all).is_ok()
    }

    /// Claims exactly this range of a device; false if it is outside or not free.
    pub(crate) fn claim_range(&self, device: usize, offset_bytes: u64, length_bytes: u64) -> bool {
        self.free
            .lock()
            .devices
            .get_mut(device)
            .is_some_and(|device| device.take_at(offset_bytes, length_bytes))
    }

    /// Allocates a range of a device permanently. If no free range is long enough, returns how many
    /// bytes are free in all.
    pub(crate) fn reserve(&self, device: usize, length_bytes: u64) -> Result<u64, u64> {
        let mut free = self.free.lock();
        let device = free.devices.get_mut(device).ok_or(0_u64)?;
        device.take(length_bytes).ok_or(device.free())
    }

    /// Allocates extents for pages of these lengths, in order. Allocates nothing on failure.
    pub(crate) fn allocate(&self, first_device: u32, lengths: &[u32]) -> Result<Vec<Extent>, DeviceFull> {
        self.free.take(|free| self.allocate_in(free, first_device, lengths))
    }

    fn allocate_in(
        &self,
        free: &mut State,
        first_device: u32,
        lengths: &[u32],
    ) -> Result<Vec<Extent>, DeviceFull> {
        let devices = self.capacities.len();
        let first = first_device as usize % devices;
        let mut extents =
            vec![Extent { device: DeviceId(0), offset_bytes: 0, length_bytes: 0 }; lengths.len()];
        for (turn, device) in (0..devices).map(|turn| (turn, (first + turn) % devices)) {
            let id = DeviceId(u8::try_from(device).expect("at most NODE_DEVICES_MAX devices"));
            let mine = || (turn..lengths.len()).step_by(devices);
            let needed_bytes: u64 = mine().map(|page| u64::from(lengths[page])).sum();
            if needed_bytes == 0 {
                continue;
            }
            let mut whole = free.devices[device].take(needed_bytes);
            for page in mine() {
                let length_bytes = lengths[page];
                let begin = match &mut whole {
                    Some(next) => {
                        let begin = *next;
                        *next += u64::from(length_bytes);
                        Some(begin)
                    }
                    None => free.devices[device].take(length_bytes.into()),
                };
                let Some(offset_bytes) = begin else {
                    let taken = extents.iter().filter(|extent| extent.length_bytes > 0);
                    taken.for_each(|extent| free.give_back(*extent));
                    let free_bytes = free.free_bytes(device);
                    return Err(DeviceFull {
                        path: self.capacities[device].path.clone(),
                        needed_bytes,
                        free_bytes,
                    });
                };
                extents[page] = Extent { device: id, offset_bytes, length_bytes };
            }
        }
        Ok(extents)
    }
}

/// How often a directory is in memory: once parsed, and once encoded for readers, which is smaller.
const PARSED_AND_ENCODED: u64 = 2;

/// The approximate memory of a directory, with its share of the encoded catalog.
fn memory_bytes(directory: &SegmentDirectory) -> u64 {
    let text = |value: &Option<ZoneValue>| match value {
        Some(ZoneValue::Text(bytes)) => bytes.len(),
        _ => 0,
    };
    let pages = directory.chunks.iter().flat_map(|chunk| &chunk.pages);
    let page = |page: &PageEntry| size_of::<PageEntry>() + text(&page.zone.min) + text(&page.zone.max);
    let parsed = size_of::<SegmentDirectory>() + pages.map(page).sum::<usize>();
    PARSED_AND_ENCODED * parsed as u64
}

/// A segment with its extents and memory. Dropping the last handle frees them.
#[derive(Debug)]
pub(crate) struct StoredSegment {
    directory: Arc<SegmentDirectory>,
    metadata_bytes: u64,
    space: Arc<Space>,
}

/// Why a segment cannot be allocated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AllocationError {
    /// A device is full.
    #[error(transparent)]
    Device(#[from] DeviceFull),
    /// The memory for directories is full.
    #[error(transparent)]
    Metadata(#[from] MetadataFull),
}

impl StoredSegment {
    /// Allocates extents for the pages of a directory, whose extents give only lengths so far.
    pub(crate) fn allocate(
        mut directory: SegmentDirectory,
        space: &Arc<Space>,
    ) -> Result<Self, AllocationError> {
        let pages = directory.chunks.iter().flat_map(|chunk| &chunk.pages);
        let lengths: Vec<u32> = pages.map(|page| page.extent.length_bytes).collect();
        let extents = space.allocate(directory.segment.0, &lengths)?;
        let pages = directory.chunks.iter_mut().flat_map(|chunk| &mut chunk.pages);
        for (page, extent) in pages.zip(extents) {
            page.extent = extent;
        }
        let metadata_bytes = memory_bytes(&directory);
        let admitted = space.admit_metadata(metadata_bytes);
        // Dropping `stored` frees the extents. It does not return memory that was not admitted.
        let counted = if admitted.is_ok() { metadata_bytes } else { 0 };
        let stored =
            Self { directory: Arc::new(directory), metadata_bytes: counted, space: Arc::clone(space) };
        admitted?;
        Ok(stored)
    }

    /// Takes over the claimed extents of a directory that the catalog lists.
    pub(crate) fn recovered(directory: SegmentDirectory, space: &Arc<Space>) -> Result<Self, MetadataFull> {
        let metadata_bytes = memory_bytes(&directory);
        let admitted = space.admit_metadata(metadata_bytes);
        // Dropping `stored` frees the extents. It does not return memory that was not admitted.
        let counted = if admitted.is_ok() { metadata_bytes } else { 0 };
        let stored =
            Self { directory: Arc::new(directory), metadata_bytes: counted, space: Arc::clone(space) };
        admitted?;
        Ok(stored)
    }

    /// Allocates memory for one more table that has the segment without these rows: its directory
    /// and the rows in the encoded catalog, and the rows themselves.
    pub(super) fn share_for(&self, withheld: &WithheldRows) -> Result<MetadataShare, MetadataFull> {
        let rows = withheld.memory_bytes() + withheld.as_bytes().len();
        let bytes = memory_bytes(&self.directory) / PARSED_AND_ENCODED + rows as u64;
        self.space.admit_metadata(bytes)?;
        Ok(MetadataShare { bytes, space: Arc::clone(&self.space) })
    }

    /// Its directory, with its extents.
    pub(crate) fn directory(&self) -> &Arc<SegmentDirectory> {
        &self.directory
    }
}

impl Drop for StoredSegment {
    fn drop(&mut self) {
        let pages = self.directory.chunks.iter().flat_map(|chunk| &chunk.pages);
        pages.for_each(|page| self.space.withdraw(&page.extent));
        let pages = self.directory.chunks.iter().flat_map(|chunk| &chunk.pages);
        self.space.free.give_back(pages.map(|page| page.extent));
        self.space.return_metadata(self.metadata_bytes);
    }
}

/// Memory for a table's metadata of segments. Dropping it returns the memory.
#[derive(Debug)]
pub(super) struct MetadataShare {
    bytes: u64,
    space: Arc<Space>,
}

impl Drop for MetadataShare {
    fn drop(&mut self) {
        self.space.return_metadata(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackscan_format::{
        ids::{SegmentId, TableId},
        label::DATA_OFFSET_BYTES,
        segment::{ChunkDirectory, PageEntry},
        zone::Zone,
    };

    fn space(devices: usize, pages: u64) -> Arc<Space> {
        let room = |n| DeviceCapacity {
            path: format!("d{n}").into(),
            capacity_bytes: DATA_OFFSET_BYTES + pages * 4096,
            is_sparse: true,
        };
        Arc::new(Space::new((0..devices).map(room).collect(), 4096, Arc::default()))
    }

    fn directory(lengths: &[u32]) -> SegmentDirectory {
        let extent = |length_bytes| Extent { device: DeviceId(0), offset_bytes: 0, length_bytes };
        let page = |length: &u32| PageEntry {
            extent: extent(*length),
            first_row: 0,
            rows: 1,
            zone: Zone::default(),
        };
        let chunks = vec![ChunkDirectory { pages: lengths.iter().map(page).collect() }];
        SegmentDirectory { table: TableId(1), segment: SegmentId(0), rows: 1, chunks }
    }

    fn stored(space: &Arc<Space>, lengths: &[u32]) -> StoredSegment {
        StoredSegment::allocate(directory(lengths), space).unwrap()
    }

    #[test]
    fn pages_go_round_the_devices_and_lie_together_on_each() {
        let space = space(3, 8);
        let extents = space.allocate(4, &[4096, 8192, 4096, 4096, 4096]).unwrap();
        let places: Vec<(u8, u64)> =
            extents.iter().map(|e| (e.device.0, (e.offset_bytes - DATA_OFFSET_BYTES) / 4096)).collect();
        assert_eq!(places, [(1, 0), (2, 0), (0, 0), (1, 1), (2, 2)]);
    }

    #[test]
    fn a_full_device_is_named_and_nothing_is_taken() {
        let space = space(2, 4);
        let full = space.allocate(0, &[4096; 10]).unwrap_err();
        assert_eq!(full, DeviceFull { path: "d0".into(), needed_bytes: 20_480, free_bytes: 16_384 });
        assert_eq!(space.used_bytes(0), DATA_OFFSET_BYTES);
        assert_eq!(space.allocate(0, &[4096; 8]).unwrap().len(), 8);
    }

    #[test]
    fn pieces_are_used_when_nothing_whole_is_left() {
        let space = space(1, 4);
        let held: Vec<StoredSegment> = (0..4).map(|_| stored(&space, &[4096])).collect();
        let mut held = held.into_iter();
        let _first = held.next();
        drop(held.next());
        let _third = held.next();
        drop(held.next());
        assert_eq!(space.allocate(0, &[4096, 4096]).unwrap().len(), 2);
    }

    #[test]
    fn extents_come_back_with_the_last_handle_and_not_before() {
        let space = space(1, 4);
        let segment = Arc::new(stored(&space, &[8192]));
        let reader = Arc::clone(&segment);
        drop(segment);
        assert_eq!(space.used_bytes(0), DATA_OFFSET_BYTES + 8192);
        drop(reader);
        assert_eq!(space.used_bytes(0), DATA_OFFSET_BYTES);
    }

    #[test]
    fn directories_are_refused_beyond_their_memory_and_leave_nothing_taken() {
        let space = space(1, 1000);
        let mut held = Vec::new();
        let refused = loop {
            match StoredSegment::allocate(directory(&[4096]), &space) {
                Ok(segment) => held.push(segment),
                Err(refused) => break refused,
            }
        };
        assert!(matches!(refused, AllocationError::Metadata(_)) && !held.is_empty(), "{refused}");
        assert_eq!(space.used_bytes(0), DATA_OFFSET_BYTES + held.len() as u64 * 4096);
        drop(held);
        assert_eq!(space.metadata_bytes.load(Ordering::Relaxed), 0);
        assert_eq!(space.used_bytes(0), DATA_OFFSET_BYTES);
    }

    #[test]
    fn each_table_that_keeps_a_segment_takes_memory_within_the_budget_and_gives_it_back() {
        let space = space(1, 4);
        let segment = Arc::new(stored(&space, &[4096]));
        let before = space.metadata_bytes.load(Ordering::Relaxed);
        let rows = WithheldRows::of(0..100).unwrap();
        let mut kept = Vec::new();
        let refused = loop {
            match segment.share_for(&rows) {
                Ok(share) => kept.push(share),
                Err(refused) => break refused,
            }
        };
        assert!(refused.needed_bytes > rows.as_bytes().len() as u64 && !kept.is_empty(), "{refused}");
        assert_eq!(refused.used_bytes, before + kept.len() as u64 * refused.needed_bytes);
        drop(kept);
        assert_eq!(space.metadata_bytes.load(Ordering::Relaxed), before);
    }

    #[test]
    fn overlapping_and_outside_extents_cannot_be_claimed() {
        let space = space(1, 4);
        let extent = |offset_bytes| Extent { device: DeviceId(0), offset_bytes, length_bytes: 8192 };
        assert!(space.claim_all(&[extent(DATA_OFFSET_BYTES)]));
        for offset_bytes in [0, DATA_OFFSET_BYTES + 4096, DATA_OFFSET_BYTES + 3 * 4096] {
            assert!(!space.claim_all(&[extent(offset_bytes)]), "{offset_bytes}");
        }
        assert!(!space.claim_all(&[Extent { device: DeviceId(1), ..extent(DATA_OFFSET_BYTES) }]));
        let free = extent(DATA_OFFSET_BYTES + 2 * 4096);
        assert!(!space.claim_all(&[free, extent(DATA_OFFSET_BYTES)]));
        assert!(space.claim_all(&[free]), "nothing is taken of what cannot be taken whole");
    }
}
