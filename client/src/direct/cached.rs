//! Reads the parts of a direct line's requests out of the node's cache one-sidedly.
//!
//! If the cache is mapped into this process, a part is read at once. Otherwise two reads are posted
//! together, and their bytes are verified when both have ended. A part that must not be used is
//! requested from the node instead; the caller notices only the longer time.
//!
//! Invariants
//! - A part is used only after a private copy of it has passed verification.
//! - The reads in flight are bounded: at most one part for each request that may be outstanding.

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
struct PartRead {
    id: u64,
    part: RawRead,
    place: CachePlace,
    remaining: u8,
    failed: bool,
}

/// The line's knowledge of the node's cache, and the parts under way.
#[derive(Debug)]
pub(super) struct Cached {
    opened: Opened,
    book: Book<Extent>,
    /// Headers, one for each part under way; only the reads write here.
    headers: Region,
    /// Parts under way, by the index of their header.
    under_way: Vec<Option<PartRead>>,
    /// Private memory in which a part is verified.
    private: Vec<u8>,
    used: Vec<CachePlace>,
}

/// The outcome of an attempt to read a part one-sidedly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TakeOutcome {
    /// It is in the line's memory.
    Here,
    /// It is being read.
    Underway,
    /// It must be requested.
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
        let under_way = vec![None; DIRECT_DEPTH_MAX];
        let book = Book::new(BOOK_PAGES_MAX);
        Ok(Self { opened, book, headers, under_way, private: Vec::new(), used: Vec::new() })
    }

    /// Records where the only part of a request lies, if the node named its place.
    pub(super) fn learn(&mut self, part: RawRead, places: &[Option<CachePlace>]) {
        if let [Some(place)] = places {
            self.book.learn(extent_of(&part), *place);
        }
    }

    /// Reads a part one-sidedly, if its place is known.
    pub(super) fn take(
        &mut self,
        id: u64,
        part: &RawRead,
        region: &Region,
        connection: &mut Connection,
    ) -> TakeOutcome {
        let extent = extent_of(part);
        let Some(place) = self.book.find(&extent).filter(|place| self.opened.view.holds(*place, &extent))
        else {
            return TakeOutcome::Unknown;
        };
        let taken = match &self.opened.mapped {
            Some(mapped) => {
                self.private.resize(extent.length_bytes as usize, 0);
                match self.opened.view.take_mapped(mapped, place, &extent, &mut self.private) {
                    Some(Ok(())) => copy_in(region, part, &self.private).then_some(TakeOutcome::Here),
                    Some(Err(_)) | None => None,
                }
            }
            None => self.post(id, part, place, region, connection),
        };
        match taken {
            Some(TakeOutcome::Here) => self.used.push(place),
            Some(_) => {}
            None => self.book.forget(&extent),
        }
        taken.unwrap_or(TakeOutcome::Unknown)
    }

    fn post(
        &mut self,
        id: u64,
        part: &RawRead,
        place: CachePlace,
        region: &Region,
        connection: &mut Connection,
    ) -> Option<TakeOutcome> {
        let free = self.under_way.iter().position(Option::is_none)?;
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
        let remaining = u8::try_from(accepted).expect("the accepted reads of a part: at most two");
        self.under_way[free] = Some(PartRead { id, part: *part, place, remaining, failed: remaining < 2 });
        Some(TakeOutcome::Underway)
    }

    /// Handles the end of a read. If it was the last one of a part, returns the part, and whether
    /// it is in the line's memory.
    pub(super) fn completed(
        &mut self,
        name: u64,
        is_done: bool,
        region: &Region,
    ) -> Option<(u64, RawRead, bool)> {
        let index = usize::try_from(name).ok()?.checked_sub(1)?;
        let under_way = self.under_way.get_mut(index)?.as_mut()?;
        under_way.remaining -= 1;
        under_way.failed |= !is_done;
        if under_way.remaining > 0 {
            return None;
        }
        let PartRead { id, part, place, failed, .. } = self.under_way[index].take()?;
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
        let offset = usize::try_from(part.target_offset_bytes);
        let offset = offset.expect("the target of a part: it was checked to lie in the memory");
        region.copy_out(offset, &mut self.private).is_ok()
            && self.headers.copy_out(index * HEADER_BYTES, &mut header).is_ok()
            && self.opened.view.verify(&self.private, &header, place, &extent_of(part)).is_ok()
            // Copied back from the private copy, because the node may write the line's memory.
            && copy_in(region, part, &self.private)
    }

    /// Takes the uses to tell the node now, if there are enough.
    pub(super) fn take_due(&mut self) -> Option<Vec<CachePlace>> {
        (self.used.len() >= CACHE_USED_TOLD).then(|| std::mem::take(&mut self.used))
    }

    /// Takes all uses that the node was not told of.
    pub(super) fn take_all(&mut self) -> Option<Vec<CachePlace>> {
        (!self.used.is_empty()).then(|| std::mem::take(&mut self.used))
    }
}

fn copy_in(region: &Region, part: &RawRead, bytes: &[u8]) -> bool {
    usize::try_from(part.target_offset_bytes).is_ok_and(|offset| region.copy_in(offset, bytes).is_ok())
}
