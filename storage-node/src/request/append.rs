//! Writes bytes of a client to the devices: a segment of a load, parity cells of a load, or
//! repaired places of a stripe set (a place is a page or a parity cell at its fixed extent,
//! `store/places`).
//!
//! The node reads ("pulls") the bytes from the source, which is memory of the client:
//!
//! ```text
//! directory  pulled, decoded, verified; only for a segment           (directory)
//! extents    allocated round-robin over the devices; a repair uses the existing extents
//! pages      pulled, checked, written; several pages at the same time (pull -> check -> store)
//! ```
//!
//! Invariants
//! - A page is written only if its checksum, its identity and its rows match the directory. Readers
//!   make the same checks.
//! - Pages are checked in private memory, because the client can change its own memory at any time.
//! - When a request fails, its extents are freed as soon as no write to them is in flight.
//! - A request that waits holds no memory that others wait for: a page reserves its slot in the
//!   device's queue before it takes memory.

mod directory;
mod repair;

use std::sync::Arc;

use az::SaturatingAs;
use rackscan_device::{Buffer, IoFault, IoMemory};
use rackscan_fabric::{Access, OperationError, RawSlice};
use rackscan_format::{
    codec,
    ids::TableId,
    limits::{CELL_BYTES_MAX, CELL_BYTES_MIN, SECTOR_BYTES},
    message::{Answer, AppendParity, Refusal, RefusalCode, Repair, Target},
    page::PageView,
};

use crate::{
    bridge::{Core, Submitted},
    limits::PAGES_PER_APPEND_MAX,
    metrics::add,
    staging::Slot,
    store::{Arrived, ParityPiece, StoredSegment, parity_directory, parity_lengths},
    task::{Place, Progress, Work, bad_memory, malformed},
};
use directory::Page;
use repair::Repairing;

/// The part number of the directory's transfer; pages have the numbers below.
const DIRECTORY: u32 = u32::MAX;

/// The kind of append.
enum What {
    /// A segment, whose pages identify themselves.
    Segment,
    /// Parity cells with these checksums.
    Parity { set: u32, first_cell: u32, checksums: Vec<u32> },
    /// Bytes for places of a stripe set.
    Places(Repairing),
}

struct Append {
    what: What,
    load: TableId,
    directory_bytes: usize,
    source: Target,
    /// The source, if it is mapped here.
    mapped: Option<RawSlice>,
    directory_slot: Option<Slot>,
    segment: Option<Arc<StoredSegment>>,
    /// Whether the list of pages is complete.
    is_planned: bool,
    pages: Vec<Page>,
    next: usize,
    /// Pages that are pulled into the slot and then written from the buffer. Each has reserved a
    /// slot in the device's queue.
    pulling: Vec<Option<(Slot, Buffer)>>,
    under_way: usize,
    stored_bytes: u64,
    failed: Option<Refusal>,
}

/// Begins to append a segment.
pub(crate) fn start(
    core: &mut Core,
    place: Place,
    load: TableId,
    directory_bytes: u32,
    source: Target,
) -> Result<Box<dyn Work>, Refusal> {
    let directory_bytes = directory::check_length(directory_bytes, &source)?;
    begin(core, place, load, directory_bytes, source, What::Segment).map(|append| Box::new(append) as _)
}

/// Begins to store parity cells. They have no directory: the request describes them.
pub(crate) fn parity(core: &mut Core, place: Place, request: AppendParity) -> Result<Box<dyn Work>, Refusal> {
    let AppendParity { load, set, first_cell, cell_bytes, checksums, source } = request;
    let (cells, found) = (checksums.len(), source.length_bytes);
    let expected = cells as u64 * u64::from(cell_bytes);
    if !(CELL_BYTES_MIN..=CELL_BYTES_MAX).contains(&cell_bytes)
        || !cell_bytes.is_power_of_two()
        || found != expected
    {
        return Err(malformed(format!(
            "{cells} parity cells of {cell_bytes} bytes are in a source of {found} bytes; expected a power of two from {CELL_BYTES_MIN} to \
             {CELL_BYTES_MAX} as the size of a cell, and a source of exactly the cells"
        )));
    }
    let mut append = begin(core, place, load, 0, source, What::Parity { set, first_cell, checksums })?;
    let directory = parity_directory(load, first_cell, &parity_lengths(cells, cell_bytes));
    match core.node.store.allocate(directory) {
        Ok(segment) => append.plan_pages(Arc::new(segment)),
        Err(refusal) => append.fail(refusal),
    }
    Ok(Box::new(append))
}

/// Begins to write lost or corrupt places of a stripe set again.
pub(crate) fn repair(core: &mut Core, place: Place, request: &Repair) -> Result<Box<dyn Work>, Refusal> {
    let (repairing, pages) = Repairing::of(&core.node.store, request)?;
    let what = What::Places(repairing);
    let mut append = begin(core, place, request.set.load, 0, request.source, what)?;
    append.plan_these(pages);
    Ok(Box::new(append))
}

fn begin(
    core: &mut Core,
    place: Place,
    load: TableId,
    directory_bytes: usize,
    source: Target,
    what: What,
) -> Result<Append, Refusal> {
    let Some(link) = core.link(place) else { return Err(bad_memory("the connection is gone")) };
    let mapped = if link.maps_memory() {
        let mapped = link.map(&source, Access::Read);
        Some(mapped.ok_or_else(|| {
            bad_memory(format!(
                "the source {:#018x}, bytes {}..+{}, is not registered for reading on this connection",
                source.key, source.offset_bytes, source.length_bytes
            ))
        })?)
    } else {
        None
    };
    let from = link.id();
    if !matches!(what, What::Places(_)) {
        core.node.store.begin_append(load, from)?;
    }
    Ok(Append {
        what,
        load,
        directory_bytes,
        source,
        mapped,
        directory_slot: None,
        segment: None,
        is_planned: false,
        pages: Vec::new(),
        next: 0,
        pulling: Vec::new(),
        under_way: 0,
        stored_bytes: 0,
        failed: None,
    })
}

impl Append {
    fn fail(&mut self, refusal: Refusal) {
        self.failed.get_or_insert(refusal);
    }

    /// Plans the pages from the bytes of the directory, and allocates the extents.
    fn plan(&mut self, core: &Core, bytes: &[u8]) -> Result<(), Refusal> {
        let directory = directory::open(bytes, self.load, self.directory_bytes, &self.source)?;
        self.plan_pages(Arc::new(core.node.store.allocate(directory)?));
        Ok(())
    }

    fn plan_pages(&mut self, segment: Arc<StoredSegment>) {
        self.plan_these(directory::pages(segment.directory(), self.directory_bytes));
        self.segment = Some(segment);
    }

    fn plan_these(&mut self, pages: Vec<Page>) {
        self.pulling = pages.iter().map(|_| None).collect();
        (self.pages, self.is_planned) = (pages, true);
    }

    /// Gets the directory: at once if the source is mapped, otherwise by a transfer. Returns false
    /// if there is no memory now.
    fn pull_directory(&mut self, core: &mut Core, place: Place) -> Result<bool, Refusal> {
        if let Some(mapped) = &self.mapped {
            let mut bytes = vec![0; self.directory_bytes];
            mapped.copy_out(0, &mut bytes).map_err(|error| bad_memory(error.to_string()))?;
            add(&core.node.metrics.wire_read_bytes, self.directory_bytes as u64);
            return self.plan(core, &bytes).map(|()| true);
        }
        let Some(slot) = core.take_slot(place, self.directory_bytes) else { return Ok(false) };
        let into = core.staging.slice(&slot, self.directory_bytes);
        let asked = into
            .map_err(|error| bad_memory(error.to_string()))
            .and_then(|into| core.fetch(place, DIRECTORY, &self.source, 0, into));
        if let Err(refusal) = asked {
            core.give_back(place, &slot);
            return Err(refusal);
        }
        self.directory_slot = Some(slot);
        self.under_way += 1;
        Ok(true)
    }

    fn directory_arrived(&mut self, core: &mut Core, place: Place, outcome: Result<(), OperationError>) {
        let Some(slot) = self.directory_slot.take() else { return };
        let mut bytes = vec![0; self.directory_bytes];
        let copied = core.staging.copy_out(&slot, &mut bytes);
        core.give_back(place, &slot);
        let planned = outcome
            .map_err(|error| bad_memory(format!("reading the source: {error}")))
            .and_then(|()| copied.map_err(|error| bad_memory(error.to_string())))
            .and_then(|()| self.plan(core, &bytes));
        if let Err(refusal) = planned {
            self.fail(refusal);
        }
    }

    /// Begins with the next page. Returns false if there is no queue slot or memory now.
    fn pull(&mut self, core: &mut Core, place: Place) -> Result<bool, Refusal> {
        if !core.may_reserve() {
            return Ok(false);
        }
        core.reserved += 1;
        let begun = self.pull_reserved(core, place);
        if !matches!(begun, Ok(true)) {
            core.reserved -= 1;
        }
        begun
    }

    fn pull_reserved(&mut self, core: &mut Core, place: Place) -> Result<bool, Refusal> {
        let index = self.next;
        let Page { extent, source_offset, .. } = self.pages[index];
        let length = extent.length_bytes as usize;
        let Some(mut buffer) = core.take_buffer(length) else { return Ok(false) };
        self.next += 1;
        if let Some(mapped) = &self.mapped {
            let offset = source_offset.saturating_as::<usize>();
            let copied = mapped.copy_out(offset, &mut buffer[..length]);
            add(&core.node.metrics.wire_read_bytes, length as u64);
            self.store(core, place, index, buffer, copied.map_err(|error| bad_memory(error.to_string())));
            return Ok(true);
        }
        let Some(slot) = core.take_slot(place, length) else {
            core.return_buffer(buffer);
            self.next = index;
            return Ok(false);
        };
        let part = u32::try_from(index).expect("a segment has at most COLUMNS_MAX * CHUNK_PAGES_MAX pages");
        let into = core.staging.slice(&slot, length);
        let asked = into
            .map_err(|error| bad_memory(error.to_string()))
            .and_then(|into| core.fetch(place, part, &self.source, source_offset, into));
        if let Err(refusal) = asked {
            core.give_back(place, &slot);
            core.return_buffer(buffer);
            return Err(refusal);
        }
        self.pulling[index] = Some((slot, buffer));
        self.under_way += 1;
        Ok(true)
    }

    /// Checks that the bytes are the page that the directory describes.
    fn check(&self, index: usize, bytes: &[u8]) -> Result<(), Refusal> {
        let page = &self.pages[index];
        let bytes = &bytes[..page.extent.length_bytes as usize];
        if let What::Places(repairing) = &self.what {
            return repairing.check(index, bytes);
        }
        if let What::Parity { set, first_cell, checksums } = &self.what {
            let (found, expected) = (codec::checksum(bytes), checksums.get(index).copied());
            if Some(found) == expected {
                return Ok(());
            }
            return Err(malformed(format!(
                "cell {} of parity of set {}.{set} as appended has checksum {found:08x}, expected {:08x}",
                *first_cell as usize + index,
                self.load,
                expected.unwrap_or(0)
            )));
        }
        let view = PageView::open(bytes, &page.identity);
        view.and_then(|view| view.expect_rows(page.first_row, page.rows))
            .map_err(|fault| malformed(format!("{} as appended: {fault}", page.identity)))
    }

    fn page_arrived(
        &mut self,
        core: &mut Core,
        place: Place,
        index: usize,
        outcome: Result<(), OperationError>,
    ) {
        let Some((slot, mut buffer)) = self.pulling.get_mut(index).and_then(Option::take) else { return };
        let length = self.pages[index].extent.length_bytes as usize;
        let copied = core.staging.copy_out(&slot, &mut buffer[..length]);
        core.give_back(place, &slot);
        let pulled = outcome
            .map_err(|error| bad_memory(format!("reading the source: {error}")))
            .and_then(|()| copied.map_err(|error| bad_memory(error.to_string())));
        self.store(core, place, index, buffer, pulled);
    }

    /// Checks a page and writes it to its extent.
    fn store(
        &mut self,
        core: &mut Core,
        place: Place,
        index: usize,
        buffer: Buffer,
        pulled: Result<(), Refusal>,
    ) {
        core.reserved -= 1;
        if let Err(refusal) = pulled.and_then(|()| self.check(index, &buffer)) {
            self.fail(refusal);
        }
        if self.failed.is_some() {
            return core.return_buffer(buffer);
        }
        let Page { extent, .. } = self.pages[index];
        let part = u32::try_from(index).expect("a segment has at most COLUMNS_MAX * CHUNK_PAGES_MAX pages");
        let refusal = match core.write(place, part, extent, IoMemory::Buffer(buffer)) {
            Submitted::Underway => {
                self.under_way += 1;
                return;
            }
            // Cannot happen while there is room for it; if it does, a retry is the right reaction.
            Submitted::NoRoom => Refusal::new(RefusalCode::Busy, "the device's queue is full"),
            Submitted::Refused(refusal) => refusal,
        };
        // The buffer was dropped with the refused request, so its share is no longer in use.
        core.node.metrics.memory_returned(u64::from(extent.length_bytes));
        self.fail(refusal);
    }

    /// Makes durable what was written, if that is not left to somebody else. True when nothing is
    /// left to be flushed.
    fn flush(&mut self, core: &mut Core, place: Place) -> bool {
        let What::Places(repairing) = &mut self.what else { return true };
        while let Some(device) = repairing.devices.last().copied() {
            if !core.has_room() {
                return false;
            }
            match core.flush(place, u32::MAX, device) {
                Submitted::Underway => {
                    repairing.devices.pop();
                    self.under_way += 1;
                }
                Submitted::NoRoom => return false,
                Submitted::Refused(refusal) => {
                    self.failed.get_or_insert(refusal);
                    return self.under_way == 0;
                }
            }
        }
        self.under_way == 0
    }

    fn end(&mut self, core: &Core) -> Result<Answer, Refusal> {
        let segment = self.segment.take();
        if matches!(self.what, What::Places(_)) {
            return self.failed.take().map_or(Ok(Answer::Done), Err);
        }
        if let Some(refusal) = self.failed.take() {
            // Frees the extents: no write to them is in flight.
            drop(segment);
            let _ = core.node.store.end_append(self.load, None);
            return Err(refusal);
        }
        match (std::mem::replace(&mut self.what, What::Segment), segment) {
            (What::Parity { set, first_cell, checksums }, Some(stored)) => {
                let pages = stored.directory().chunks.iter().flat_map(|chunk| &chunk.pages);
                let extents = pages.map(|page| page.extent).collect();
                let piece = ParityPiece::appended(stored, checksums);
                core.node.store.end_parity(self.load, set, first_cell, piece)?;
                Ok(Answer::ParityPlaced { extents })
            }
            (_, segment) => {
                core.node.store.end_append(self.load, segment.map(Arrived::appended))?;
                Ok(Answer::Appended { stored_bytes: self.stored_bytes })
            }
        }
    }
}

impl Work for Append {
    fn advance(&mut self, core: &mut Core, place: Place) -> Progress {
        if core.link(place).is_none() {
            self.fail(bad_memory("the connection is gone"));
        }
        if self.failed.is_none() && !self.is_planned && self.directory_slot.is_none() {
            match self.pull_directory(core, place) {
                Ok(true) => {}
                Ok(false) => return Progress::Starved,
                Err(refusal) => self.fail(refusal),
            }
        }
        while self.failed.is_none() && self.next < self.pages.len() && self.under_way < PAGES_PER_APPEND_MAX {
            match self.pull(core, place) {
                Ok(true) => {}
                Ok(false) => break,
                Err(refusal) => self.fail(refusal),
            }
        }
        if self.under_way > 0 {
            return Progress::Working;
        }
        let done = self.is_planned && self.next == self.pages.len();
        if self.failed.is_none() && !(done && self.flush(core, place)) {
            return if self.under_way > 0 { Progress::Working } else { Progress::Starved };
        }
        Progress::Finished(self.end(core))
    }

    fn device_done(
        &mut self,
        core: &mut Core,
        _place: Place,
        part: u32,
        memory: IoMemory,
        outcome: Result<(), Box<IoFault>>,
    ) {
        self.under_way -= 1;
        let page = &self.pages[part as usize];
        core.written(&page.extent);
        let bytes = u64::from(page.extent.length_bytes);
        if let Ok(buffer) = memory.into_buffer() {
            core.return_buffer(buffer);
        }
        match outcome {
            Ok(()) => {
                self.stored_bytes += bytes;
                add(&core.node.metrics.disk_written_bytes, bytes);
            }
            Err(fault) => {
                let refusal = core.storage_fault(&page.identity, &fault);
                self.fail(refusal);
            }
        }
    }

    fn flushed(&mut self, core: &mut Core, outcome: Result<(), Box<IoFault>>) {
        self.under_way -= 1;
        if let Err(fault) = outcome {
            // Earlier writes may be lost without any other sign.
            let reason = format!("flushing a device failed: {fault}");
            core.node.lifecycle.fail(&reason);
            self.fail(Refusal::new(RefusalCode::Storage, reason));
        }
    }

    fn wire_done(&mut self, core: &mut Core, place: Place, part: u32, outcome: Result<(), OperationError>) {
        self.under_way -= 1;
        if part == DIRECTORY {
            self.directory_arrived(core, place, outcome);
        } else {
            self.page_arrived(core, place, part as usize, outcome);
        }
    }
}

const _: () = assert!(SECTOR_BYTES as usize == rackscan_device::limits::IO_ALIGN_BYTES);
