//! How does a segment of a load get onto the devices?
//!
//! ```text
//! directory  pulled from the source, unsealed, verified        (directory)
//! extents    allocated, round the devices
//! pages      pulled, checked, written, several at a time       (pull -> check -> store)
//! ```
//!
//! Invariants
//! - No page is written whose checksum, identity and rows are not those of the directory: what a reader will check is
//!   checked before it is stored.
//! - Pages are checked in private memory, which the source's owner cannot change afterwards.
//! - Whatever fails, the extents are free again once nothing is being written to them.

mod directory;

use std::{collections::VecDeque, sync::Arc};

use rackscan_device::{Buffer, IoFault, IoMemory};
use rackscan_fabric::{Access, OperationError, RawSlice};
use rackscan_format::{
    ids::TableId,
    limits::SECTOR_BYTES,
    message::{Answer, Refusal, Target},
    page::PageView,
};

use crate::{
    bridge::{Core, Submitted},
    limits::PAGES_PER_APPEND_MAX,
    metrics::add,
    staging::Slot,
    store::StoredSegment,
    task::{Place, Progress, Work, bad_memory, malformed},
};
use directory::Page;

/// The part of an append that is its directory; pages have the parts below.
const DIRECTORY: u32 = u32::MAX;

/// A page on its way.
enum Moving {
    /// Comes over the wire into the slot; goes on in the buffer.
    Pulling(Slot, Buffer),
    /// Checked, waits for room at the device.
    Ready(Buffer),
    /// Being written.
    Storing,
}

struct Append {
    load: TableId,
    directory_bytes: usize,
    source: Target,
    /// The source, where it is mapped here.
    mapped: Option<RawSlice>,
    directory_slot: Option<Slot>,
    segment: Option<Arc<StoredSegment>>,
    pages: Vec<Page>,
    next: usize,
    moving: Vec<Option<Moving>>,
    ready: VecDeque<usize>,
    under_way: usize,
    stored_bytes: u64,
    failed: Option<Refusal>,
}

/// Begins to serve it.
pub(crate) fn start(
    core: &mut Core,
    place: Place,
    load: TableId,
    directory_bytes: u32,
    source: Target,
) -> Result<Box<dyn Work>, Refusal> {
    let directory_bytes = directory::check_length(directory_bytes, &source)?;
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
    core.node.store.begin_append(load, from)?;
    Ok(Box::new(Append {
        load,
        directory_bytes,
        source,
        mapped,
        directory_slot: None,
        segment: None,
        pages: Vec::new(),
        next: 0,
        moving: Vec::new(),
        ready: VecDeque::new(),
        under_way: 0,
        stored_bytes: 0,
        failed: None,
    }))
}

impl Append {
    fn fail(&mut self, refusal: Refusal) {
        self.failed.get_or_insert(refusal);
    }

    /// Makes the plan from the directory's bytes and takes the extents.
    fn plan(&mut self, core: &Core, bytes: &[u8]) -> Result<(), Refusal> {
        let directory = directory::open(bytes, self.load, self.directory_bytes, &self.source)?;
        let segment = Arc::new(core.node.store.allocate(directory)?);
        self.pages = directory::pages(segment.directory(), self.directory_bytes);
        self.moving = self.pages.iter().map(|_| None).collect();
        self.segment = Some(segment);
        Ok(())
    }

    /// Gets the directory: at once where the source is mapped, else by asking for it. False if there is no memory now.
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

    /// Begins with the next page. False if there is no memory now.
    fn pull(&mut self, core: &mut Core, place: Place) -> Result<bool, Refusal> {
        let index = self.next;
        let (length, source_offset) =
            (self.pages[index].extent.length_bytes as usize, self.pages[index].source_offset);
        let Some(mut buffer) = core.take_buffer(length) else { return Ok(false) };
        if let Some(mapped) = &self.mapped {
            let offset = usize::try_from(source_offset).unwrap_or(usize::MAX);
            let copied = mapped.copy_out(offset, &mut buffer[..length]);
            add(&core.node.metrics.wire_read_bytes, length as u64);
            let checked = copied
                .map_err(|error| bad_memory(error.to_string()))
                .and_then(|()| self.check(index, &buffer));
            if let Err(refusal) = checked {
                core.return_buffer(buffer);
                return Err(refusal);
            }
            self.moving[index] = Some(Moving::Ready(buffer));
            self.ready.push_back(index);
        } else {
            let Some(slot) = core.take_slot(place, length) else {
                core.return_buffer(buffer);
                return Ok(false);
            };
            let part = u32::try_from(index).unwrap_or(u32::MAX);
            let into = core.staging.slice(&slot, length);
            let asked = into
                .map_err(|error| bad_memory(error.to_string()))
                .and_then(|into| core.fetch(place, part, &self.source, source_offset, into));
            if let Err(refusal) = asked {
                core.give_back(place, &slot);
                core.return_buffer(buffer);
                return Err(refusal);
            }
            self.moving[index] = Some(Moving::Pulling(slot, buffer));
            self.under_way += 1;
        }
        self.next += 1;
        Ok(true)
    }

    /// Whether the bytes are the page that the directory promises.
    fn check(&self, index: usize, bytes: &[u8]) -> Result<(), Refusal> {
        let page = &self.pages[index];
        let view = PageView::open(&bytes[..page.extent.length_bytes as usize], &page.identity);
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
        let Some(Moving::Pulling(slot, mut buffer)) = self.moving.get_mut(index).and_then(Option::take)
        else {
            return;
        };
        let length = self.pages[index].extent.length_bytes as usize;
        let copied = core.staging.copy_out(&slot, &mut buffer[..length]);
        core.give_back(place, &slot);
        let checked = outcome
            .map_err(|error| bad_memory(format!("reading the source: {error}")))
            .and_then(|()| copied.map_err(|error| bad_memory(error.to_string())))
            .and_then(|()| self.check(index, &buffer));
        match checked {
            Ok(()) => {
                self.moving[index] = Some(Moving::Ready(buffer));
                self.ready.push_back(index);
            }
            Err(refusal) => {
                core.return_buffer(buffer);
                self.fail(refusal);
            }
        }
    }

    /// Writes the pages that are checked, as far as the ring has room.
    fn store(&mut self, core: &mut Core, place: Place) {
        while let Some(index) = self.ready.front().copied() {
            if !core.has_room() && self.failed.is_none() {
                return;
            }
            self.ready.pop_front();
            let Some(Moving::Ready(buffer)) = self.moving[index].take() else { continue };
            if self.failed.is_some() {
                core.return_buffer(buffer);
                continue;
            }
            let part = u32::try_from(index).unwrap_or(u32::MAX);
            match core.write(place, part, self.pages[index].extent, IoMemory::Buffer(buffer)) {
                Submitted::Underway => {
                    self.moving[index] = Some(Moving::Storing);
                    self.under_way += 1;
                }
                Submitted::NoRoom(memory) => {
                    if let Ok(buffer) = memory.into_buffer() {
                        self.moving[index] = Some(Moving::Ready(buffer));
                        self.ready.push_front(index);
                    }
                    return;
                }
                Submitted::Refused(refusal) => {
                    // The buffer went with the refused request; its share is no longer in use.
                    let bytes = u64::from(self.pages[index].extent.length_bytes);
                    core.node.metrics.memory_returned(bytes);
                    self.fail(refusal);
                }
            }
        }
    }

    fn end(&mut self, core: &Core) -> Result<Answer, Refusal> {
        let segment = self.segment.take();
        if let Some(refusal) = self.failed.take() {
            // The extents go back here, when nothing is being written to them.
            drop(segment);
            let _ = core.node.store.end_append(self.load, None);
            return Err(refusal);
        }
        core.node.store.end_append(self.load, segment)?;
        Ok(Answer::Appended { stored_bytes: self.stored_bytes })
    }
}

impl Work for Append {
    fn advance(&mut self, core: &mut Core, place: Place) -> Progress {
        if core.link(place).is_none() {
            self.fail(bad_memory("the connection is gone"));
        }
        if self.failed.is_none() && self.segment.is_none() && self.directory_slot.is_none() {
            match self.pull_directory(core, place) {
                Ok(true) => {}
                Ok(false) => return Progress::Starved,
                Err(refusal) => self.fail(refusal),
            }
        }
        self.store(core, place);
        while self.failed.is_none()
            && self.next < self.pages.len()
            && self.under_way + self.ready.len() < PAGES_PER_APPEND_MAX
        {
            match self.pull(core, place) {
                Ok(true) => self.store(core, place),
                Ok(false) => break,
                Err(refusal) => {
                    self.fail(refusal);
                    self.store(core, place);
                }
            }
        }
        if self.under_way > 0 {
            return Progress::Working;
        }
        let done = self.segment.is_some() && self.next == self.pages.len() && self.ready.is_empty();
        if self.failed.is_none() && !done {
            return Progress::Starved;
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
        self.moving[part as usize] = None;
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
