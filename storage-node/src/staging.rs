//! Staging memory: buffers for bytes in transit between a device and a wire that cannot reach the
//! requester's memory directly.
//!
//! Each reactor has one fabric region, allocated at start. A slot is a piece of it.
//!
//! Invariants
//! - A [`Slot`] belongs to one request, which returns it when neither a device nor the wire uses it
//!   any more.
//! - One connection uses at most half of its reactor's staging memory, but may always have one
//!   slot. So a peer that does not read its replies cannot exhaust the memory.

use std::sync::Arc;

use rackscan_cache::FreeSpace;
use rackscan_device::ExternalMemory;
use rackscan_fabric::{OutOfBounds, Region, RegionError, RegionSlice};
use rackscan_format::limits::SECTOR_BYTES;

use crate::metrics::Metrics;

/// The staging memory of one reactor.
#[derive(Debug)]
pub(crate) struct Staging {
    region: Region,
    memory: ExternalMemory,
    free: FreeSpace,
    metrics: Arc<Metrics>,
}

/// A part of the staging memory, in whole sectors.
#[derive(Debug)]
pub(crate) struct Slot {
    offset: usize,
    bytes: usize,
}

impl Slot {
    /// Its length.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Staging {
    /// Allocates the memory.
    pub(crate) fn new(bytes: usize, metrics: Arc<Metrics>) -> Result<Self, RegionError> {
        let region = Region::allocate(bytes)?;
        let shared = region.as_raw_slice(0, bytes)?.into_shared_bytes();
        let Some(shared) = shared else {
            // Our own regions are writable; only a peer's may not be.
            return Err(RegionError::OutOfBounds(OutOfBounds { offset: 0, length: 0, region_bytes: 0 }));
        };
        let memory = ExternalMemory::of_bytes(Arc::new(shared));
        Ok(Self { region, memory, free: FreeSpace::new(0, bytes as u64), metrics })
    }

    /// The size of the staging memory.
    pub(crate) fn total_bytes(&self) -> usize {
        self.region.bytes()
    }

    /// Allocates a slot of at least `bytes`; `None` if no free range is long enough.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<Slot> {
        let bytes = bytes.max(1).next_multiple_of(SECTOR_BYTES as usize);
        let offset = usize::try_from(self.free.take(bytes as u64)?).ok()?;
        self.metrics.memory_taken(bytes as u64);
        Some(Slot { offset, bytes })
    }

    /// Frees a slot.
    pub(crate) fn give_back(&mut self, slot: &Slot) {
        self.free.give_back(slot.offset as u64, slot.bytes as u64);
        self.metrics.memory_returned(slot.bytes as u64);
    }

    /// The first `bytes` of a slot, for a wire.
    pub(crate) fn slice(&self, slot: &Slot, bytes: usize) -> Result<RegionSlice, OutOfBounds> {
        self.region.slice(slot.offset, bytes.min(slot.bytes))
    }

    /// A slot, for a device.
    pub(crate) fn memory(&self, slot: &Slot) -> Option<ExternalMemory> {
        self.memory.part(slot.offset, slot.bytes)
    }

    /// Copies into a slot.
    pub(crate) fn copy_in(&self, slot: &Slot, bytes: &[u8]) -> Result<(), OutOfBounds> {
        self.region.copy_in(slot.offset, &bytes[..bytes.len().min(slot.bytes)])
    }

    /// Copies out of a slot.
    pub(crate) fn copy_out(&self, slot: &Slot, bytes: &mut [u8]) -> Result<(), OutOfBounds> {
        let length = bytes.len().min(slot.bytes);
        self.region.copy_out(slot.offset, &mut bytes[..length])
    }
}
