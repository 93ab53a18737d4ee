//! Transfers raw pages into the target, which is memory of the requester.
//!
//! ```text
//! in the cache                     cache slot ------------------ wire --> target
//! to be cached                     device --> cache slot ------- wire --> target
//! not cached, target mapped        device -------------------------------> target     (no copy, no processor)
//! not cached, other wires          device --> staging ---------- wire --> target
//! ```
//!
//! Invariants
//! - Every page is looked up by its identity and every target is checked before the first read
//!   begins.
//! - The reply follows the last byte. A read that fails ends the request after those in flight.
//! - The cache decides about a page when its turn comes, so a fetch holds few cache slots at a
//!   time.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use az::SaturatingAs;
use rackscan_cache::{Fill, Look, Pin};
use rackscan_device::{ExternalMemory, IoFault, IoMemory};
use rackscan_fabric::{Access, OperationError};
use rackscan_format::{
    ids::{SegmentId, TableId},
    limits::SECTOR_BYTES,
    message::{Answer, CachePlace, Cost, PageWanted, Refusal, RefusalCode, Target},
    segment::{Extent, SegmentDirectory},
};

use crate::{
    bridge::{Core, Submitted},
    limits::{COALESCED_BYTES_MAX, READS_PER_FETCH_MAX},
    metrics::add,
    staging::Slot,
    store::StoredSegment,
    task::{Place, Progress, Work, bad_memory, malformed},
};

/// The parameters of a fetch.
pub(crate) struct Wanted {
    pub(crate) table: TableId,
    pub(crate) segment: SegmentId,
    pub(crate) pages: Vec<PageWanted>,
    pub(crate) target: Target,
}

/// One transfer: a page, or several that are adjacent both on the device and in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Planned {
    extent: Extent,
    target_offset: u64,
    pages: u32,
    /// The position of its first page in the request.
    position: usize,
}

/// How uncached pages reach the target.
enum Route {
    Mapped(ExternalMemory),
    Staged,
}

/// The memory between the device and the target.
enum Via {
    /// Nothing.
    Direct,
    Staging(Slot),
    /// A cache slot that the device fills.
    Filling(Fill),
    /// A cache slot that holds the page.
    Cached(Pin),
}

/// A transfer in flight.
struct Part {
    planned: Planned,
    /// Taken when the transfer has ended.
    via: Option<Via>,
}

/// A transfer, and the decision of the cache about it.
type Decided = (Planned, Option<Look>);

/// The result of an attempt to begin a transfer.
enum Begun {
    Underway,
    NoRoom(Decided),
    Refused(Refusal),
}

struct Fetch {
    // Keeps the extents from being reused.
    _segment: Arc<StoredSegment>,
    pages: Vec<Planned>,
    next: usize,
    /// Transfers that the cache has already decided about: one that found no room, and the page
    /// after it that cannot be joined.
    ahead: VecDeque<Decided>,
    parts: Vec<Part>,
    under_way: u32,
    route: Route,
    target: Target,
    cost: Cost,
    places: Vec<Option<CachePlace>>,
    /// Positions of the pages that were in the cache.
    cached: Vec<u16>,
    failed: Option<Refusal>,
    began: Instant,
}

/// Begins to serve the request.
pub(crate) fn start(core: &mut Core, place: Place, wanted: &Wanted) -> Result<Box<dyn Work>, Refusal> {
    let Wanted { table, segment, pages, target } = wanted;
    let (_, stored) = core.node.store.segment(*table, *segment)?;
    let planned = plan(stored.directory(), pages, target)?;
    let route = route(core, place, target)?;
    Ok(Box::new(Fetch {
        _segment: stored,
        next: 0,
        ahead: VecDeque::new(),
        parts: Vec::with_capacity(planned.len()),
        under_way: 0,
        route,
        target: *target,
        cost: Cost::default(),
        places: vec![None; planned.len()],
        cached: Vec::new(),
        pages: planned,
        failed: None,
        began: Instant::now(),
    }))
}

fn route(core: &mut Core, place: Place, target: &Target) -> Result<Route, Refusal> {
    let Some(link) = core.link(place) else { return Err(bad_memory("the connection is gone")) };
    if !link.maps_memory() {
        return Ok(Route::Staged);
    }
    if !target.offset_bytes.is_multiple_of(SECTOR_BYTES.into()) {
        let text = format!(
            "the target of a fetch begins at byte {}, expected a multiple of {SECTOR_BYTES}",
            target.offset_bytes
        );
        return Err(malformed(text));
    }
    let mapped = link.map(target, Access::Write).and_then(rackscan_fabric::RawSlice::into_shared_bytes);
    let bytes = mapped.ok_or_else(|| {
        bad_memory(format!(
            "the target {:#018x}, bytes {}..+{}, is not registered for writing on this connection",
            target.key, target.offset_bytes, target.length_bytes
        ))
    })?;
    Ok(Route::Mapped(ExternalMemory::of_bytes(Arc::new(bytes))))
}

/// The transfers of `pages` into a target, one per page, in device order.
fn plan(
    directory: &SegmentDirectory,
    pages: &[PageWanted],
    target: &Target,
) -> Result<Vec<Planned>, Refusal> {
    let mut planned = Vec::with_capacity(pages.len());
    for (position, wanted) in pages.iter().enumerate() {
        let &PageWanted { column, page, target_offset_bytes } = wanted;
        let entry = directory.page(column, page).ok_or_else(|| {
            let (table, segment) = (directory.table, directory.segment);
            let text = format!("segment {segment} of table {table} has no page {page} of column {column}");
            Refusal::new(RefusalCode::NotFound, text)
        })?;
        let length = u64::from(entry.extent.length_bytes);
        let fits = target_offset_bytes.checked_add(length).is_some_and(|end| end <= target.length_bytes);
        if !fits || !target_offset_bytes.is_multiple_of(SECTOR_BYTES.into()) {
            return Err(malformed(format!(
                "page {page} of column {column} ({length} bytes) is to go to byte {target_offset_bytes} of a target of {} bytes; \
                 expected it inside the target and at a multiple of {SECTOR_BYTES}",
                target.length_bytes
            )));
        }
        planned.push(Planned {
            extent: entry.extent,
            target_offset: target_offset_bytes,
            pages: 1,
            position,
        });
    }
    planned.sort_unstable_by_key(|page| (page.extent.device, page.extent.offset_bytes));
    Ok(planned)
}

impl Planned {
    /// Appends the next transfer to this one; see `may_join`.
    fn join(&mut self, next: &Self) {
        self.extent.length_bytes += next.extent.length_bytes;
        self.pages += next.pages;
    }

    /// Whether the next transfer is adjacent both on the device and in the target.
    fn may_join(&self, next: &Self) -> bool {
        self.extent.device == next.extent.device
            && self.extent.end_bytes() == Some(next.extent.offset_bytes)
            && self.target_offset + u64::from(self.extent.length_bytes) == next.target_offset
            && self.extent.length_bytes + next.extent.length_bytes <= COALESCED_BYTES_MAX
    }
}

impl Fetch {
    fn fail(&mut self, refusal: Refusal) {
        self.failed.get_or_insert(refusal);
    }

    /// Chooses the next transfer. Joins adjacent pages that the cache does not keep.
    fn decide(&mut self, core: &Core) -> Option<Decided> {
        let cache = core.node.cache.as_ref();
        let looked = |page: &Planned| match cache.map(|cache| cache.look(&page.extent)) {
            None | Some(Look::Bypass) => None,
            kept => kept,
        };
        let (mut first, look) = if let Some(ahead) = self.ahead.pop_front() {
            ahead
        } else {
            let page = *self.pages.get(self.next)?;
            self.next += 1;
            let look = looked(&page);
            (page, look)
        };
        while look.is_none()
            && self.ahead.is_empty()
            && let Some(next) = self.pages.get(self.next).copied()
            && first.may_join(&next)
        {
            self.next += 1;
            match looked(&next) {
                None => first.join(&next),
                kept => self.ahead.push_back((next, kept)),
            }
        }
        Some((first, look))
    }

    /// Starts a transfer.
    fn begin(&mut self, core: &mut Core, place: Place, planned: Planned, look: Option<Look>) -> Begun {
        let part = u32::try_from(self.parts.len()).expect("at most FETCH_PAGES_MAX parts");
        let is_read = !matches!(look, Some(Look::Hit(_)));
        if is_read && !core.has_room() {
            return Begun::NoRoom((planned, look));
        }
        let length = planned.extent.length_bytes as usize;
        let (via, memory) = match look {
            Some(Look::Hit(pin)) => {
                self.cost.pages_cached += planned.pages;
                self.places[planned.position] = pin.place();
                self.cached.push(u16::try_from(planned.position).expect("below FETCH_PAGES_MAX"));
                self.parts.push(Part { planned, via: Some(Via::Cached(pin)) });
                return match self.send(core, place, part) {
                    Ok(()) => Begun::Underway,
                    Err(refusal) => Begun::Refused(refusal),
                };
            }
            Some(Look::Fill(fill)) => {
                let memory = core.node.cache.as_ref().and_then(|cache| cache.memory(&fill));
                (Via::Filling(fill), memory)
            }
            Some(Look::Bypass) | None => match &self.route {
                Route::Mapped(target) => {
                    let offset = planned.target_offset.saturating_as::<usize>();
                    (Via::Direct, target.part(offset, length))
                }
                Route::Staged => {
                    let Some(slot) = core.take_slot(place, length) else {
                        return Begun::NoRoom((planned, None));
                    };
                    let memory = core.staging.memory(&slot);
                    (Via::Staging(slot), memory)
                }
            },
        };
        let Some(memory) = memory else { return Begun::Refused(bad_memory("a read without memory")) };
        match core.read(place, part, planned.extent, IoMemory::External(memory)) {
            Submitted::Underway => {
                self.parts.push(Part { planned, via: Some(via) });
                Begun::Underway
            }
            Submitted::NoRoom => match via {
                Via::Filling(fill) => Begun::NoRoom((planned, Some(Look::Fill(fill)))),
                via => {
                    release(core, place, via);
                    Begun::NoRoom((planned, None))
                }
            },
            Submitted::Refused(refusal) => {
                release(core, place, via);
                Begun::Refused(refusal)
            }
        }
    }

    /// Sends a page that is in a slot.
    fn send(&mut self, core: &mut Core, place: Place, part: u32) -> Result<(), Refusal> {
        let Part { planned, via } = &self.parts[part as usize];
        let source = match via {
            Some(Via::Staging(slot)) => core.staging.slice(slot, planned.extent.length_bytes as usize),
            Some(Via::Cached(pin)) => pin.slice(),
            Some(Via::Direct | Via::Filling(_)) | None => return Err(bad_memory("a page without a slot")),
        };
        let source = source.map_err(|error| bad_memory(error.to_string()))?;
        core.send(place, part, source, &self.target, planned.target_offset)
    }

    /// Ends a transfer and releases its slot.
    fn ended(&mut self, core: &mut Core, place: Place, part: u32) {
        self.under_way -= 1;
        if let Some(via) = self.parts[part as usize].via.take() {
            release(core, place, via);
        }
    }

    /// Handles a completed read. Returns whether the page must now be sent.
    fn arrived(&mut self, core: &Core, part: u32) -> bool {
        let Planned { extent, pages, position, .. } = self.parts[part as usize].planned;
        let bytes = u64::from(extent.length_bytes);
        self.cost.pages_read += pages;
        self.cost.disk_bytes += bytes;
        self.cost.read_us = self.began.elapsed().as_micros().saturating_as::<u64>();
        add(&core.node.metrics.pages_read, pages.into());
        add(&core.node.metrics.disk_read_bytes, bytes);
        let via = &mut self.parts[part as usize].via;
        match via.take() {
            Some(Via::Filling(fill)) => {
                let pin = fill.publish();
                self.places[position] = pin.place();
                *via = Some(Via::Cached(pin));
                true
            }
            Some(Via::Direct) | None => {
                add(&core.node.metrics.wire_written_bytes, bytes);
                false
            }
            staged => {
                *via = staged;
                true
            }
        }
    }
}

fn release(core: &mut Core, place: Place, via: Via) {
    match via {
        Via::Staging(slot) => core.give_back(place, &slot),
        // Cache slots release themselves when they are dropped.
        Via::Direct | Via::Filling(_) | Via::Cached(_) => {}
    }
}

impl Work for Fetch {
    fn advance(&mut self, core: &mut Core, place: Place) -> Progress {
        if core.link(place).is_none() {
            self.fail(bad_memory("the connection is gone"));
        }
        while self.failed.is_none() && self.under_way < READS_PER_FETCH_MAX {
            let Some((planned, look)) = self.decide(core) else { break };
            match self.begin(core, place, planned, look) {
                Begun::Underway => self.under_way += 1,
                Begun::NoRoom(decided) => {
                    self.ahead.push_front(decided);
                    break;
                }
                Begun::Refused(refusal) => self.fail(refusal),
            }
        }
        if self.under_way > 0 {
            return Progress::Working;
        }
        if let Some(refusal) = self.failed.take() {
            return Progress::Finished(Err(refusal));
        }
        if !self.ahead.is_empty() || self.next < self.pages.len() {
            return Progress::Starved;
        }
        let places = std::mem::take(&mut self.places);
        let places = if places.iter().any(Option::is_some) { places } else { Vec::new() };
        Progress::Finished(Ok(Answer::Fetched {
            cost: self.cost,
            places,
            cached: std::mem::take(&mut self.cached),
        }))
    }

    fn device_done(
        &mut self,
        core: &mut Core,
        place: Place,
        part: u32,
        _memory: IoMemory,
        outcome: Result<(), Box<IoFault>>,
    ) {
        let sent = match outcome {
            Err(fault) => Err(core.storage_fault(&"a fetch", &fault)),
            Ok(()) if self.arrived(core, part) => self.send(core, place, part),
            Ok(()) => return self.ended(core, place, part),
        };
        if let Err(refusal) = sent {
            self.ended(core, place, part);
            self.fail(refusal);
        }
    }

    fn wire_done(&mut self, core: &mut Core, place: Place, part: u32, outcome: Result<(), OperationError>) {
        self.ended(core, place, part);
        if let Err(error) = outcome {
            self.fail(bad_memory(format!("writing the target: {error}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackscan_format::{
        ids::{ColumnId, DeviceId, PageNumber},
        segment::{ChunkDirectory, PageEntry},
        zone::Zone,
    };

    const TARGET: Target = Target { key: 1, offset_bytes: 0, length_bytes: 1 << 20 };

    fn directory(extents: &[(u8, u64, u32)]) -> SegmentDirectory {
        let page = |(device, offset_bytes, length_bytes): &(u8, u64, u32)| PageEntry {
            extent: Extent {
                device: DeviceId(*device),
                offset_bytes: *offset_bytes,
                length_bytes: *length_bytes,
            },
            first_row: 0,
            rows: 1,
            zone: Zone::default(),
        };
        let chunks = vec![ChunkDirectory { pages: extents.iter().map(page).collect() }];
        SegmentDirectory { table: TableId(1), segment: SegmentId(1), rows: 1, chunks }
    }

    fn wanted(page: u16, target_offset_bytes: u64) -> PageWanted {
        PageWanted { column: ColumnId(0), page: PageNumber(page), target_offset_bytes }
    }

    /// What is read if the cache keeps nothing.
    fn joined(pages: Vec<Planned>) -> Vec<Planned> {
        let mut joined: Vec<Planned> = Vec::new();
        for page in pages {
            match joined.last_mut().filter(|last| last.may_join(&page)) {
                Some(last) => last.join(&page),
                None => joined.push(page),
            }
        }
        joined
    }

    #[test]
    fn neighbours_on_the_device_and_in_the_target_are_read_at_once() {
        let directory =
            directory(&[(0, 65_536, 4096), (0, 69_632, 8192), (1, 77_824, 4096), (0, 77_824, 4096)]);
        let pages = [wanted(0, 0), wanted(1, 4096), wanted(2, 12_288), wanted(3, 16_384)];
        let reads = joined(plan(&directory, &pages, &TARGET).unwrap());
        let found: Vec<(u8, u64, u32, u64, u32)> = reads
            .iter()
            .map(|r| {
                (r.extent.device.0, r.extent.offset_bytes, r.extent.length_bytes, r.target_offset, r.pages)
            })
            .collect();
        assert_eq!(
            found,
            [(0, 65_536, 12_288, 0, 2), (0, 77_824, 4096, 16_384, 1), (1, 77_824, 4096, 12_288, 1)]
        );
    }

    #[test]
    fn joined_reads_stay_within_their_bound() {
        let extents: Vec<(u8, u64, u32)> = (0..10).map(|n| (0, 65_536 + n * 524_288, 524_288)).collect();
        let pages: Vec<PageWanted> = (0..10).map(|n| wanted(n, u64::from(n) * 524_288)).collect();
        let target = Target { length_bytes: 10 << 20, ..TARGET };
        let reads = joined(plan(&directory(&extents), &pages, &target).unwrap());
        assert_eq!(reads.len(), 5);
        assert!(reads.iter().all(|read| read.extent.length_bytes == COALESCED_BYTES_MAX));
    }

    #[test]
    fn pages_that_are_not_there_and_places_outside_of_the_target_are_refused() {
        let directory = directory(&[(0, 65_536, 8192)]);
        let code = |pages: &[PageWanted]| plan(&directory, pages, &TARGET).unwrap_err().code;
        assert_eq!(code(&[wanted(1, 0)]), RefusalCode::NotFound);
        let other_column = PageWanted { column: ColumnId(1), ..wanted(0, 0) };
        assert_eq!(code(&[other_column]), RefusalCode::NotFound);
        for offset in [1, 512, (1 << 20) - 4096, 1 << 20, u64::MAX - 4095] {
            assert_eq!(code(&[wanted(0, offset)]), RefusalCode::Malformed, "{offset}");
        }
        assert!(plan(&directory, &[wanted(0, (1 << 20) - 8192)], &TARGET).is_ok());
    }
}
