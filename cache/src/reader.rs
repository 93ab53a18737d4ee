//! Reads pages out of the cache of another process, and verifies them.
//!
//! Invariants
//! - The header is read after the page. If the header has the expected version, the slot had that
//!   version while the page was read.
//! - Bytes are used only after [`View::verify`] of a private copy, or after [`View::verify_header`]
//!   and the caller's own checksum.

use std::sync::atomic::{Ordering, fence};

use rackscan_fabric::{Operation, OutOfBounds, RawSlice, Region, RegionSlice, RemoteRegion};
use rackscan_format::{
    message::{CachePlace, CacheRegion},
    segment::Extent,
};

use crate::{
    limits::HEADER_BYTES,
    slot::{Geometry, Unusable, verify, verify_header},
};

/// The cache of a node, as one connection to it sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    memory: RemoteRegion,
    geometry: Geometry,
    epoch: u64,
}

impl View {
    /// The view of a cache that a node describes; `None` if the description is inconsistent.
    #[must_use]
    pub fn new(region: &CacheRegion) -> Option<Self> {
        let geometry = Geometry::of_frames(region.frames)?;
        let memory = RemoteRegion {
            key: region.memory.key,
            address: region.memory.offset_bytes,
            length: region.memory.length_bytes,
        };
        let fits = memory.length == geometry.region_bytes() as u64;
        fits.then_some(Self { memory, geometry, epoch: region.epoch })
    }

    /// The memory as the fabric names it.
    #[must_use]
    pub fn memory(&self) -> &RemoteRegion {
        &self.memory
    }

    /// Whether a page of this extent fits at that place. Checks a place that a node named.
    #[must_use]
    pub fn holds(&self, place: CachePlace, extent: &Extent) -> bool {
        self.geometry.holds(place.frame, extent.length_bytes)
    }

    /// Bytes of the reader's memory that a page and its header take.
    #[must_use]
    pub fn needed_bytes(extent: &Extent) -> usize {
        extent.length_bytes as usize + HEADER_BYTES
    }

    /// The two reads that copy the page and then its header to `offset` of `into`. Post them on one
    /// connection, in this order.
    ///
    /// # Errors
    /// If page and header do not fit there.
    pub fn reads(
        &self,
        place: CachePlace,
        extent: &Extent,
        into: &Region,
        offset: usize,
    ) -> Result<[Operation<'static>; 2], OutOfBounds> {
        let length = extent.length_bytes as usize;
        let (page, header) = (into.slice(offset, length)?, into.slice(offset + length, HEADER_BYTES)?);
        Ok(self.reads_apart(place, page, header))
    }

    /// Like [`View::reads`], with separate targets; `header` has the length of a header.
    #[must_use]
    pub fn reads_apart(
        &self,
        place: CachePlace,
        page: RegionSlice,
        header: RegionSlice,
    ) -> [Operation<'static>; 2] {
        let (from, header_from) =
            (self.geometry.payload_offset(place.frame), self.geometry.header_offset(place.frame));
        [(from, page), (header_from, header)].map(|(source_offset, target)| Operation::Read {
            source: self.memory,
            source_offset: source_offset as u64,
            target,
        })
    }

    /// Checks that a private copy of what [`View::reads`] read is the page.
    ///
    /// # Errors
    /// Why the copy must not be used.
    pub fn verify(
        &self,
        page: &[u8],
        header: &[u8; HEADER_BYTES],
        place: CachePlace,
        extent: &Extent,
    ) -> Result<(), Unusable> {
        verify(header, page, self.epoch, place, extent)
    }

    /// [`View::verify`] without the checksum, for a caller that computes an equally strong checksum
    /// of the bytes itself.
    ///
    /// # Errors
    /// Why the bytes must not be used, whatever their checksum.
    pub fn verify_header(
        &self,
        header: &[u8; HEADER_BYTES],
        place: CachePlace,
        extent: &Extent,
    ) -> Result<(), Unusable> {
        verify_header(header, self.epoch, place, extent)
    }

    /// Copies a page out of a cache that is mapped into this process, and verifies the copy. `page`
    /// has the extent's length; `None` if the place lies outside of the memory.
    #[must_use]
    pub fn take_mapped(
        &self,
        mapped: &RawSlice,
        place: CachePlace,
        extent: &Extent,
        page: &mut [u8],
    ) -> Option<Result<(), Unusable>> {
        let header = self.copy_mapped(mapped, place, extent, page)?;
        Some(self.verify(page, &header, place, extent))
    }

    /// Copies a page and its header out of a cache that is mapped into this process. The caller
    /// must verify the header. `page` has the extent's length; `None` if the place lies outside of
    /// the memory.
    #[must_use]
    pub fn copy_mapped(
        &self,
        mapped: &RawSlice,
        place: CachePlace,
        extent: &Extent,
        page: &mut [u8],
    ) -> Option<[u8; HEADER_BYTES]> {
        if !self.holds(place, extent) || page.len() != extent.length_bytes as usize {
            return None;
        }
        mapped.copy_out(self.geometry.payload_offset(place.frame), page).ok()?;
        // The header is loaded after the page.
        fence(Ordering::SeqCst);
        let mut header = [0; HEADER_BYTES];
        mapped.copy_out(self.geometry.header_offset(place.frame), &mut header).ok()?;
        Some(header)
    }
}
