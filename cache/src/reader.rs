//! How is a page taken out of another process's cache?
//!
//! Invariants
//! - The header is read after the page: a version that is the expected one then was so all the
//!   while.
//! - What was read counts only after [`View::verify`] of a private copy, or after
//!   [`View::verify_header`] and a checksum of its own.

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
    /// What a node said of its cache; `None` if it makes no sense.
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

    /// Whether a page of this extent can lie there; a node may say anything.
    #[must_use]
    pub fn holds(&self, place: CachePlace, extent: &Extent) -> bool {
        self.geometry.holds(place.frame, extent.length_bytes)
    }

    /// Bytes of our memory that taking a page needs.
    #[must_use]
    pub fn needed_bytes(extent: &Extent) -> usize {
        extent.length_bytes as usize + HEADER_BYTES
    }

    /// The two reads that bring page and header, one behind the other, to `offset` of `into`. They
    /// are to be posted on one connection, in this order.
    ///
    /// # Errors
    /// When they do not fit there.
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

    /// As [`View::reads`], with a place for each; `header` has the length of a header.
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

    /// Whether a private copy of what [`View::reads`] brought is the page.
    ///
    /// # Errors
    /// Why it must not be used.
    pub fn verify(
        &self,
        page: &[u8],
        header: &[u8; HEADER_BYTES],
        place: CachePlace,
        extent: &Extent,
    ) -> Result<(), Unusable> {
        verify(header, page, self.epoch, place, extent)
    }

    /// [`View::verify`] without the bytes, for who works out a checksum of their own that says as
    /// much: then they need not be summed twice.
    ///
    /// # Errors
    /// Why the bytes must not be used, whatever they are.
    pub fn verify_header(
        &self,
        header: &[u8; HEADER_BYTES],
        place: CachePlace,
        extent: &Extent,
    ) -> Result<(), Unusable> {
        verify_header(header, self.epoch, place, extent)
    }

    /// Takes a page where the cache is mapped here: copies it into private memory and verifies it
    /// there. `page` has the extent's length; `None` if the place lies outside of the memory.
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

    /// Copies a page into private memory where the cache is mapped here, and its header, which is
    /// to be verified. `page` has the extent's length; `None` if the place lies outside of the
    /// memory.
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
