//! How does a direct line take parts out of its node's cache without asking?
//!
//! Where the cache is mapped here, at once; elsewhere by two reads that are posted at once and
//! judged when they are done. A part that must not be used is asked for after all, and the caller
//! notices nothing but the time.
//!
//! Invariants
//! - A part counts only when a private copy of it has passed verification.
//! - What is under way is bounded: at most one part for each request that may be outstanding.

use rackscan_cache::{
    Book,
    limits::{BOOK_PAGES_MAX, HEADER_BYTES},
};
use rackscan_fabric::{Connection, Region};
use rackscan_format::{
    message::{CachePlace, RawRead},
    segment::Extent,
};

use super::DirectError;
use crate::{
    cache::Opened,
    limits::{CACHE_USED_TOLD, DIRECT_DEPTH_MAX},
};

/// A part that is being read one-sidedly.
#[derive(Debug, Clone, Copy)]
struct Taking {
    id: u64,
    part: RawRead,
    place: CachePlace,
    left: u8,
    failed: bool,
}

/// The node's cache as the line sees it.
#[derive(Debug)]
pub(super) struct Cached {
    opened: Opened,
    book: Book<Extent>,
    /// Headers, one for each part under way; nobody else may write here.
    headers: Region,
    /// Parts under way, by the place of their header.
    taking: Vec<Option<Taking>>,
    /// Where a part is verified.
    private: Vec<u8>,
    used: Vec<CachePlace>,
}

/// What became of an attempt to take a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is in the line's memory.
    Here,
    /// It is being read.
    Underway,
    /// It must be asked for.
    Unknown,
}

fn extent_of(part: &RawRead) -> Extent {
    let &RawRead { device, offset_bytes, length_bytes, .. } = part;
    Extent { device, offset_bytes, length_bytes }
}

impl Cached {
    pub(super) fn new(opened: Opened) -> Result<Self, DirectError> {
        let bytes = (DIRECT_DEPTH_MAX * HEADER_BYTES).next_multiple_of(4096);
        let headers = Region::allocate(bytes).map_err(|source| DirectError::Memory { bytes, source })?;
        let taking = vec![None; DIRECT_DEPTH_MAX];
        let book = Book::new(BOOK_PAGES_MAX);
        Ok(Self { opened, book, headers, taking, private: Vec::new(), used: Vec::new() })
    }

    /// The node says where the only part of a request lies.
    pub(super) fn learn(&mut self, part: RawRead, places: &[Option<CachePlace>]) {
        if let [Some(place)] = places {
            self.book.learn(extent_of(&part), *place);
        }
    }

    /// Takes a part, if it is known where it lies.
    pub(super) fn take(
        &mut self,
        id: u64,
        part: &RawRead,
        region: &Region,
        connection: &mut Connection,
    ) -> Taken {
        let extent = extent_of(part);
        let Some(place) = self.book.find(&extent).filter(|place| self.opened.view.holds(*place, &extent))
        else {
            return Taken::Unknown;
        };
        let taken = match &self.opened.mapped {
            Some(mapped) => {
                self.private.resize(extent.length_bytes as usize, 0);
                match self.opened.view.take_mapped(mapped, place, &extent, &mut self.private) {
                    Some(Ok(())) => copy_in(region, part, &self.private).then_some(Taken::Here),
                    Some(Err(_)) | None => None,
                }
            }
            None => self.post(id, part, place, region, connection),
        };
        match taken {
            Some(Taken::Here) => self.used.push(place),
            Some(_) => {}
            None => self.book.forget(&extent),
        }
        taken.unwrap_or(Taken::Unknown)
    }

    fn post(
        &mut self,
        id: u64,
        part: &RawRead,
        place: CachePlace,
        region: &Region,
        connection: &mut Connection,
    ) -> Option<Taken> {
        let free = self.taking.iter().position(Option::is_none)?;
        let offset = usize::try_from(part.target_offset_bytes).ok()?;
        let page = region.slice(offset, part.length_bytes as usize).ok()?;
        let header = self.headers.slice(free * HEADER_BYTES, HEADER_BYTES).ok()?;
        // Sends of a line are named 0.
        let name = free as u64 + 1;
        let reads = self.opened.view.reads_apart(place, page, header).map(|read| (name, read));
        let accepted = connection.post_batch(&reads).map_or_else(|error| error.accepted, |()| 2);
        if accepted == 0 {
            return None;
        }
        let left = u8::try_from(accepted).unwrap_or(2);
        self.taking[free] = Some(Taking { id, part: *part, place, left, failed: left < 2 });
        Some(Taken::Underway)
    }

    /// A read has ended. Returns a part of which it was the last, and whether that is in the line's
    /// memory.
    pub(super) fn completed(
        &mut self,
        name: u64,
        is_done: bool,
        region: &Region,
    ) -> Option<(u64, RawRead, bool)> {
        let index = usize::try_from(name).ok()?.checked_sub(1)?;
        let taking = self.taking.get_mut(index)?.as_mut()?;
        taking.left -= 1;
        taking.failed |= !is_done;
        if taking.left > 0 {
            return None;
        }
        let Taking { id, part, place, failed, .. } = self.taking[index].take()?;
        let extent = extent_of(&part);
        let is_here = !failed && self.verify(index, &part, place, region);
        if is_here {
            self.used.push(place);
        } else {
            self.book.forget(&extent);
        }
        Some((id, part, is_here))
    }

    fn verify(&mut self, index: usize, part: &RawRead, place: CachePlace, region: &Region) -> bool {
        let mut header = [0; HEADER_BYTES];
        self.private.resize(part.length_bytes as usize, 0);
        let offset = usize::try_from(part.target_offset_bytes).unwrap_or(usize::MAX);
        region.copy_out(offset, &mut self.private).is_ok()
            && self.headers.copy_out(index * HEADER_BYTES, &mut header).is_ok()
            && self.opened.view.verify(&self.private, &header, place, &extent_of(part)).is_ok()
            // Back from the private copy: the node may write this memory.
            && copy_in(region, part, &self.private)
    }

    /// Places to tell the node now.
    pub(super) fn told(&mut self) -> Option<Vec<CachePlace>> {
        (self.used.len() >= CACHE_USED_TOLD).then(|| std::mem::take(&mut self.used))
    }

    /// All places that were not told.
    pub(super) fn untold(&mut self) -> Option<Vec<CachePlace>> {
        (!self.used.is_empty()).then(|| std::mem::take(&mut self.used))
    }
}

fn copy_in(region: &Region, part: &RawRead, bytes: &[u8]) -> bool {
    usize::try_from(part.target_offset_bytes).is_ok_and(|offset| region.copy_in(offset, bytes).is_ok())
}
