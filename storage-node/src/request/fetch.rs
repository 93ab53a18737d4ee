//! How do raw pages get into the requester's memory?
//!
//! Where that memory is mapped here (`shm`), the device reads straight into it: no copy, no processor. Elsewhere the pages
//! pass through staging memory, from where the wire takes them.
//!
//! Invariants
//! - Every page is looked up by its identity and every target checked before the first read begins.
//! - The reply follows the last byte. A read that fails ends the request after those under way.

use std::sync::Arc;

use rackscan_device::{ExternalMemory, IoFault, IoMemory};
use rackscan_fabric::{Access, OperationError};
use rackscan_format::{
    ids::{SegmentId, TableId},
    limits::SECTOR_BYTES,
    message::{Answer, Cost, PageWanted, Refusal, RefusalCode, Target},
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

/// What is asked for.
pub(crate) struct Wanted {
    pub(crate) table: TableId,
    pub(crate) segment: SegmentId,
    pub(crate) pages: Vec<PageWanted>,
    pub(crate) target: Target,
}

/// One read of a device: a page, or several that are neighbours on the device and in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PlannedRead {
    extent: Extent,
    target_offset: u64,
    pages: u32,
}

/// How pages reach the target.
enum Route {
    Mapped(ExternalMemory),
    Staged,
}

struct Fetch {
    // Keeps the extents from being used anew.
    _segment: Arc<StoredSegment>,
    reads: Vec<PlannedRead>,
    next: usize,
    under_way: u32,
    slots: Vec<Option<Slot>>,
    route: Route,
    target: Target,
    cost: Cost,
    failed: Option<Refusal>,
}

/// Begins to serve it.
pub(crate) fn start(core: &mut Core, place: Place, wanted: &Wanted) -> Result<Box<dyn Work>, Refusal> {
    let Wanted { table, segment, pages, target } = wanted;
    let (_, stored) = core.node.store.segment(*table, *segment)?;
    let reads = plan(stored.directory(), pages, target)?;
    let route = route(core, place, target)?;
    let slots = reads.iter().map(|_| None).collect();
    Ok(Box::new(Fetch {
        _segment: stored,
        reads,
        next: 0,
        under_way: 0,
        slots,
        route,
        target: *target,
        cost: Cost::default(),
        failed: None,
    }))
}

fn route(core: &mut Core, place: Place, target: &Target) -> Result<Route, Refusal> {
    let Some(link) = core.link(place) else { return Err(bad_memory("the connection is gone")) };
    if !link.maps_memory() {
        return Ok(Route::Staged);
    }
    if !target.offset_bytes.is_multiple_of(SECTOR_BYTES.into()) {
        let text = format!(
            "a fetch's target at byte {}, expected a multiple of {SECTOR_BYTES}",
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

/// The reads that bring `pages` into a target, neighbours joined.
fn plan(
    directory: &SegmentDirectory,
    pages: &[PageWanted],
    target: &Target,
) -> Result<Vec<PlannedRead>, Refusal> {
    let mut reads = Vec::with_capacity(pages.len());
    for wanted in pages {
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
                "page {page} of column {column} ({length} bytes) at byte {target_offset_bytes} of a target of {} bytes, \
                 expected it inside and at a multiple of {SECTOR_BYTES}",
                target.length_bytes
            )));
        }
        reads.push(PlannedRead { extent: entry.extent, target_offset: target_offset_bytes, pages: 1 });
    }
    reads.sort_unstable_by_key(|read| (read.extent.device, read.extent.offset_bytes));
    Ok(join(reads))
}

/// Joins reads of neighbouring extents whose places in the target are neighbours too.
fn join(reads: Vec<PlannedRead>) -> Vec<PlannedRead> {
    let mut joined: Vec<PlannedRead> = Vec::with_capacity(reads.len());
    for read in reads {
        if let Some(last) = joined.last_mut() {
            let length = last.extent.length_bytes + read.extent.length_bytes;
            let neighbours = last.extent.device == read.extent.device
                && last.extent.end_bytes() == Some(read.extent.offset_bytes)
                && last.target_offset + u64::from(last.extent.length_bytes) == read.target_offset;
            if neighbours && length <= COALESCED_BYTES_MAX {
                last.extent.length_bytes = length;
                last.pages += read.pages;
                continue;
            }
        }
        joined.push(read);
    }
    joined
}

impl Fetch {
    /// Memory for a read: a part of the target, or a slot. `None` if there is no slot now.
    fn memory(&mut self, core: &mut Core, place: Place, index: usize) -> Option<IoMemory> {
        let PlannedRead { extent, target_offset, .. } = self.reads[index];
        let length = extent.length_bytes as usize;
        match &self.route {
            Route::Mapped(target) => {
                let offset = usize::try_from(target_offset).ok()?;
                target.part(offset, length).map(IoMemory::External)
            }
            Route::Staged => {
                let slot = core.take_slot(place, length)?;
                let memory = core.staging.memory(&slot).map(IoMemory::External);
                self.slots[index] = Some(slot);
                memory
            }
        }
    }

    fn release(&mut self, core: &mut Core, place: Place, index: usize) {
        if let Some(slot) = self.slots.get_mut(index).and_then(Option::take) {
            core.give_back(place, &slot);
        }
    }

    fn fail(&mut self, refusal: Refusal) {
        self.failed.get_or_insert(refusal);
    }

    /// A page is where the wire can take it.
    fn send(&mut self, core: &mut Core, place: Place, part: u32) -> Result<(), Refusal> {
        let index = part as usize;
        let PlannedRead { extent, target_offset, .. } = self.reads[index];
        let Some(slot) = self.slots[index].as_ref() else { return Err(bad_memory("a read without a slot")) };
        let source = core.staging.slice(slot, extent.length_bytes as usize);
        let source = source.map_err(|error| bad_memory(error.to_string()))?;
        core.send(place, part, source, &self.target, target_offset)
    }
}

impl Work for Fetch {
    fn advance(&mut self, core: &mut Core, place: Place) -> Progress {
        if core.link(place).is_none() {
            self.fail(bad_memory("the connection is gone"));
        }
        while self.failed.is_none() && self.next < self.reads.len() && self.under_way < READS_PER_FETCH_MAX {
            let index = self.next;
            let memory = if core.has_room() { self.memory(core, place, index) } else { None };
            let Some(memory) = memory else { break };
            let part = u32::try_from(index).unwrap_or(u32::MAX);
            match core.read(place, part, self.reads[index].extent, memory) {
                Submitted::Underway => {
                    self.next += 1;
                    self.under_way += 1;
                }
                Submitted::NoRoom(_) => {
                    self.release(core, place, index);
                    break;
                }
                Submitted::Refused(refusal) => {
                    self.release(core, place, index);
                    self.fail(refusal);
                }
            }
        }
        if self.under_way > 0 {
            return Progress::Working;
        }
        if let Some(refusal) = self.failed.take() {
            return Progress::Finished(Err(refusal));
        }
        if self.next < self.reads.len() {
            return Progress::Starved;
        }
        Progress::Finished(Ok(Answer::Fetched { cost: self.cost }))
    }

    fn device_done(
        &mut self,
        core: &mut Core,
        place: Place,
        part: u32,
        _memory: IoMemory,
        outcome: Result<(), Box<IoFault>>,
    ) {
        let PlannedRead { extent, pages, .. } = self.reads[part as usize];
        let bytes = u64::from(extent.length_bytes);
        let sent = match outcome {
            Err(fault) => Err(core.storage_fault(&"a fetch", &fault)),
            Ok(()) => {
                self.cost.pages_read += pages;
                self.cost.disk_bytes += bytes;
                add(&core.node.metrics.pages_read, pages.into());
                add(&core.node.metrics.disk_read_bytes, bytes);
                match self.route {
                    Route::Staged => self.send(core, place, part),
                    Route::Mapped(_) => {
                        add(&core.node.metrics.wire_written_bytes, bytes);
                        self.under_way -= 1;
                        return;
                    }
                }
            }
        };
        if let Err(refusal) = sent {
            self.under_way -= 1;
            self.release(core, place, part as usize);
            self.fail(refusal);
        }
    }

    fn wire_done(&mut self, core: &mut Core, place: Place, part: u32, outcome: Result<(), OperationError>) {
        self.under_way -= 1;
        self.release(core, place, part as usize);
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

    #[test]
    fn neighbours_on_the_device_and_in_the_target_are_read_at_once() {
        let directory =
            directory(&[(0, 65_536, 4096), (0, 69_632, 8192), (1, 77_824, 4096), (0, 77_824, 4096)]);
        let pages = [wanted(0, 0), wanted(1, 4096), wanted(2, 12_288), wanted(3, 16_384)];
        let reads = plan(&directory, &pages, &TARGET).unwrap();
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
        let reads = plan(&directory(&extents), &pages, &target).unwrap();
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
