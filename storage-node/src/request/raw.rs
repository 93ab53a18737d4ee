//! Copies uninterpreted parts of devices to a requester, or bytes of a requester to the scratch
//! area (the part of a device that experiments may overwrite).
//!
//! The routes are those of pages (`fetch`): through the cache, directly between the device and the
//! requester's memory if that memory is mapped here (`shm`), otherwise through staging memory.
//! Unlike pages, parts are never joined: each part is one device operation.
//!
//! Invariants
//! - Every part is checked against device, alignment, scratch area and memory before the first
//!   operation begins.
//! - The reply is sent after the last byte. When an operation fails, the request ends after its
//!   operations in flight have ended.
//! - A request that waits holds no memory that others wait for: a staged write reserves its slot in
//!   the device's queue before it takes staging memory, so its bytes never wait there.

use std::sync::Arc;

use az::SaturatingAs;
use rackscan_cache::{Fill, Look, Pin};
use rackscan_device::{ExternalMemory, IoFault, IoMemory};
use rackscan_fabric::{Access, OperationError, RegionSlice};
use rackscan_format::{
    ids::DeviceId,
    limits::RAW_BYTES_MAX,
    message::{Answer, CachePlace, Cost, RawRead, RawWrite, Refusal, RefusalCode, Target},
    segment::Extent,
};

use crate::{
    bridge::{Core, Submitted},
    metrics::add,
    staging::Slot,
    store::RawRoom,
    task::{Place, Progress, Work, bad_memory, malformed},
};

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// From the device to the requester.
    Read,
    /// From the requester to the scratch area.
    Write,
}

/// One device operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    extent: Extent,
    /// The offset in the requester's memory.
    memory_offset: u64,
}

/// How uncached bytes pass between the device and the requester's memory.
enum Route {
    Mapped(ExternalMemory),
    Staged,
}

/// The memory that holds the bytes of a part in flight, if it is not the requester's.
enum Via {
    Staging(Slot),
    /// A cache slot that the device fills.
    Filling(Fill),
    /// A cache slot that holds the bytes.
    Cached(Pin),
}

struct Raw {
    direction: Direction,
    parts: Vec<Part>,
    next: usize,
    /// Parts in flight.
    under_way: usize,
    /// Per part; empty while all parts pass directly between the device and the requester's memory.
    vias: Vec<Option<Via>>,
    /// The decision of the cache about the next part, if it was made and the part found no room.
    looked: Option<Look>,
    /// The places of parts in the cache; empty while no part is in the cache.
    places: Vec<Option<CachePlace>>,
    route: Route,
    memory: Target,
    cost: Cost,
    failed: Option<Refusal>,
}

/// Begins to read.
pub(crate) fn read(
    core: &mut Core,
    place: Place,
    reads: &[RawRead],
    target: &Target,
) -> Result<Box<dyn Work>, Refusal> {
    let parts = reads.iter().map(|read| {
        let &RawRead { device, offset_bytes, length_bytes, target_offset_bytes } = read;
        Part { extent: Extent { device, offset_bytes, length_bytes }, memory_offset: target_offset_bytes }
    });
    start(core, place, Direction::Read, parts.collect(), target)
}

/// Begins to write.
pub(crate) fn write(
    core: &mut Core,
    place: Place,
    writes: &[RawWrite],
    source: &Target,
) -> Result<Box<dyn Work>, Refusal> {
    let parts = writes.iter().map(|write| {
        let &RawWrite { device, offset_bytes, length_bytes, source_offset_bytes } = write;
        Part { extent: Extent { device, offset_bytes, length_bytes }, memory_offset: source_offset_bytes }
    });
    start(core, place, Direction::Write, parts.collect(), source)
}

fn start(
    core: &mut Core,
    place: Place,
    direction: Direction,
    parts: Vec<Part>,
    memory: &Target,
) -> Result<Box<dyn Work>, Refusal> {
    let store = &core.node.store;
    for part in &parts {
        check(direction, *part, memory, |device| store.raw_room(device)).map_err(malformed)?;
    }
    let route = route(core, place, direction, memory)?;
    Ok(Box::new(Raw {
        direction,
        parts,
        next: 0,
        under_way: 0,
        vias: Vec::new(),
        looked: None,
        places: Vec::new(),
        route,
        memory: *memory,
        cost: Cost::default(),
        failed: None,
    }))
}

/// Checks that a part can be executed; the error says why not.
fn check(
    direction: Direction,
    part: Part,
    memory: &Target,
    room: impl Fn(DeviceId) -> Option<RawRoom>,
) -> Result<(), String> {
    let Part { extent: Extent { device, offset_bytes, length_bytes }, memory_offset } = part;
    let what = match direction {
        Direction::Read => "a raw read",
        Direction::Write => "a raw write",
    };
    let named = || format!("{what} of {length_bytes} bytes at byte {offset_bytes} of device {device}");
    let length = u64::from(length_bytes);
    let Some(room) = room(device) else {
        return Err(format!("{}: this node has no such device", named()));
    };
    let align = u64::from(room.align_bytes);
    if length_bytes == 0 || length_bytes > RAW_BYTES_MAX {
        return Err(format!("{}: expected 1 to {RAW_BYTES_MAX} bytes", named()));
    }
    if !offset_bytes.is_multiple_of(align) || !length.is_multiple_of(align) {
        return Err(format!("{}: expected multiples of {align}, the device's alignment", named()));
    }
    if offset_bytes.checked_add(length).is_none_or(|end| end > room.capacity_bytes) {
        return Err(format!("{}: the device has {} bytes", named(), room.capacity_bytes));
    }
    if direction == Direction::Write {
        match room.scratch {
            None => return Err(format!("{}: the device has no scratch area; configure scratch", named())),
            Some(area) if !area.holds(offset_bytes, length) => {
                let (begin, bytes) = (area.offset_bytes, area.length_bytes);
                return Err(format!("{}: the scratch area is bytes {begin}..+{bytes}", named()));
            }
            Some(_) => {}
        }
    }
    if memory_offset.checked_add(length).is_none_or(|end| end > memory.length_bytes) {
        let bytes = memory.length_bytes;
        return Err(format!("{}: does not fit at byte {memory_offset} of {bytes} bytes of memory", named()));
    }
    let address = memory.offset_bytes.checked_add(memory_offset);
    let memory_align = u64::from(room.memory_align_bytes);
    if address.is_none_or(|address| !address.is_multiple_of(memory_align)) {
        let begin = memory.offset_bytes;
        return Err(format!(
            "{}: its memory begins {memory_offset} bytes after byte {begin}, expected a multiple of {memory_align}",
            named()
        ));
    }
    Ok(())
}

fn route(core: &mut Core, place: Place, direction: Direction, memory: &Target) -> Result<Route, Refusal> {
    let Some(link) = core.link(place) else { return Err(bad_memory("the connection is gone")) };
    if !link.maps_memory() {
        return Ok(Route::Staged);
    }
    let access = match direction {
        Direction::Read => Access::Write,
        Direction::Write => Access::Read,
    };
    let Some(mapped) = link.map(memory, access) else {
        return Err(bad_memory(format!(
            "the memory {:#018x}, bytes {}..+{}, is not registered for {} on this connection",
            memory.key,
            memory.offset_bytes,
            memory.length_bytes,
            if direction == Direction::Read { "writing" } else { "reading" },
        )));
    };
    // Memory that is read-only here cannot be given to a device, which may write to any memory it
    // gets.
    let bytes = mapped.into_shared_bytes();
    Ok(bytes.map_or(Route::Staged, |bytes| Route::Mapped(ExternalMemory::of_bytes(Arc::new(bytes)))))
}

impl Raw {
    /// Begins the next part. Returns false if there is no queue slot or memory for it now.
    fn begin(&mut self, core: &mut Core, place: Place) -> bool {
        let index = self.next;
        let Part { extent, memory_offset } = self.parts[index];
        let part = u32::try_from(index).expect("a request has fewer than 2^32 parts");
        let length = extent.length_bytes as usize;
        let look = self.look(core, &extent);
        if let Some(Look::Hit(pin)) = look {
            return self.begin_cached(core, place, part, pin);
        }
        if !self.has_room(core) {
            self.looked = look;
            return false;
        }
        let memory = match (look, &self.route) {
            (Some(Look::Fill(fill)), _) => {
                let memory = core.node.cache.as_ref().and_then(|cache| cache.memory(&fill));
                self.goes(index, Via::Filling(fill));
                memory
            }
            (_, Route::Mapped(mapped)) => mapped.part(memory_offset.saturating_as::<usize>(), length),
            (_, Route::Staged) => {
                let Some(slot) = core.take_slot(place, length) else {
                    self.looked = Some(Look::Bypass);
                    return false;
                };
                let memory = core.staging.memory(&slot);
                self.goes(index, Via::Staging(slot));
                memory
            }
        };
        let Some(memory) = memory.map(IoMemory::External) else {
            self.fail(bad_memory(format!("no {length} bytes at byte {memory_offset}")));
            return false;
        };
        let begun = match (self.direction, &self.route) {
            (Direction::Read, _) => core.read(place, part, extent, memory),
            (Direction::Write, Route::Mapped(_)) => core.write(place, part, extent, memory),
            (Direction::Write, Route::Staged) => {
                drop(memory);
                let fetched = self.slice(core, part);
                match fetched.and_then(|into| core.fetch(place, part, &self.memory, memory_offset, into)) {
                    Ok(()) => {
                        core.reserved += 1;
                        Submitted::Underway
                    }
                    Err(refusal) => Submitted::Refused(refusal),
                }
            }
        };
        match begun {
            Submitted::Underway => {
                self.next += 1;
                self.under_way += 1;
                return true;
            }
            Submitted::NoRoom => {
                self.looked = match self.arrives(index) {
                    Some(Via::Filling(fill)) => Some(Look::Fill(fill)),
                    Some(via) => {
                        self.goes(index, via);
                        Some(Look::Bypass)
                    }
                    None => Some(Look::Bypass),
                };
            }
            Submitted::Refused(refusal) => self.fail(refusal),
        }
        self.release(core, place, part);
        false
    }

    /// Whether the device's queue has a slot for a part, or a slot that can be reserved.
    fn has_room(&self, core: &Core) -> bool {
        let reserves = self.direction == Direction::Write && matches!(self.route, Route::Staged);
        if reserves { core.may_reserve() } else { core.has_room() }
    }

    /// The decision of the cache about the next part to be read; made once per part.
    fn look(&mut self, core: &Core, extent: &Extent) -> Option<Look> {
        let cache = core.node.cache.as_ref().filter(|_| self.direction == Direction::Read)?;
        self.looked.take().or_else(|| Some(cache.look(extent)))
    }

    /// Sends a part from the cache. Returns false if that is not possible.
    fn begin_cached(&mut self, core: &mut Core, place: Place, part: u32, pin: Pin) -> bool {
        self.cost.pages_cached += 1;
        self.note_place(part, &pin);
        self.goes(part as usize, Via::Cached(pin));
        let sent = self.send(core, place, part);
        let is_sent = sent.is_ok();
        match sent {
            Ok(()) => {
                self.next += 1;
                self.under_way += 1;
            }
            Err(refusal) => {
                self.fail(refusal);
                self.release(core, place, part);
            }
        }
        is_sent
    }

    /// Records that a part passes through `via`.
    fn goes(&mut self, index: usize, via: Via) {
        if self.vias.is_empty() {
            self.vias.resize_with(self.parts.len(), || None);
        }
        self.vias[index] = Some(via);
    }

    /// What a part passes through, if it does not pass directly.
    fn via(&self, part: u32) -> Option<&Via> {
        self.vias.get(part as usize)?.as_ref()
    }

    /// Takes what a part passed through.
    fn arrives(&mut self, index: usize) -> Option<Via> {
        self.vias.get_mut(index)?.take()
    }

    /// Records the place of a part in the cache, for the reply.
    fn note_place(&mut self, part: u32, pin: &Pin) {
        if self.places.is_empty() {
            self.places = vec![None; self.parts.len()];
        }
        self.places[part as usize] = pin.place();
    }

    /// Begins to send a part whose bytes are in its slot.
    fn send(&mut self, core: &mut Core, place: Place, part: u32) -> Result<(), Refusal> {
        let bytes = self.slice(core, part)?;
        core.send(place, part, bytes, &self.memory, self.parts[part as usize].memory_offset)
    }

    /// Writes a part whose bytes are in its slot.
    fn write_fetched(&mut self, core: &mut Core, place: Place, part: u32) -> Result<(), Refusal> {
        let extent = self.parts[part as usize].extent;
        let memory = match self.via(part) {
            Some(Via::Staging(slot)) => core.staging.memory(slot),
            Some(Via::Filling(_) | Via::Cached(_)) | None => None,
        };
        let memory = memory.ok_or_else(|| bad_memory("a write without a slot"))?;
        match core.write(place, part, extent, IoMemory::External(memory)) {
            Submitted::Underway => Ok(()),
            // Cannot happen after a reservation; if it does, a retry is the right reaction.
            Submitted::NoRoom => Err(Refusal::new(RefusalCode::Busy, "the device's queue is full")),
            Submitted::Refused(refusal) => Err(refusal),
        }
    }

    /// The bytes of a part in its slot, as the wire needs them.
    fn slice(&self, core: &Core, part: u32) -> Result<RegionSlice, Refusal> {
        let length = self.parts[part as usize].extent.length_bytes as usize;
        let slice = match self.via(part) {
            Some(Via::Staging(slot)) => core.staging.slice(slot, length),
            Some(Via::Cached(pin)) => pin.slice(),
            Some(Via::Filling(_)) | None => return Err(bad_memory("a part without a slot")),
        };
        slice.map_err(|error| bad_memory(error.to_string()))
    }

    fn release(&mut self, core: &mut Core, place: Place, part: u32) {
        // Cache slots release themselves when they are dropped.
        if let Some(Via::Staging(slot)) = self.arrives(part as usize) {
            core.give_back(place, &slot);
        }
    }

    fn ended(&mut self, core: &mut Core, place: Place, part: u32) {
        self.under_way -= 1;
        self.release(core, place, part);
    }

    fn fail(&mut self, refusal: Refusal) {
        self.failed.get_or_insert(refusal);
    }

    fn count(&mut self, core: &Core, bytes: u64, is_direct: bool) {
        self.cost.pages_read += 1;
        self.cost.disk_bytes += bytes;
        let (metrics, mapped) = (&core.node.metrics, is_direct);
        match self.direction {
            Direction::Read => {
                add(&metrics.pages_read, 1);
                add(&metrics.disk_read_bytes, bytes);
                add(&metrics.wire_written_bytes, if mapped { bytes } else { 0 });
            }
            Direction::Write => {
                add(&metrics.disk_written_bytes, bytes);
                add(&metrics.wire_read_bytes, if mapped { bytes } else { 0 });
            }
        }
    }
}

impl Work for Raw {
    fn advance(&mut self, core: &mut Core, place: Place) -> Progress {
        if core.link(place).is_none() {
            self.fail(bad_memory("the connection is gone"));
        }
        while self.failed.is_none() && self.next < self.parts.len() {
            if !self.begin(core, place) {
                break;
            }
        }
        if self.under_way > 0 {
            return Progress::Working;
        }
        if let Some(refusal) = self.failed.take() {
            return Progress::Finished(Err(refusal));
        }
        if self.next < self.parts.len() {
            return Progress::Starved;
        }
        let places = std::mem::take(&mut self.places);
        Progress::Finished(Ok(Answer::Transferred { cost: self.cost, places }))
    }

    fn device_done(
        &mut self,
        core: &mut Core,
        place: Place,
        part: u32,
        _memory: IoMemory,
        outcome: Result<(), Box<IoFault>>,
    ) {
        let extent = self.parts[part as usize].extent;
        if self.direction == Direction::Write {
            core.written(&extent);
        }
        let via = self.arrives(part as usize);
        let is_direct = via.is_none();
        match via {
            Some(Via::Filling(fill)) if outcome.is_ok() => {
                let pin = fill.publish();
                self.note_place(part, &pin);
                self.goes(part as usize, Via::Cached(pin));
            }
            Some(via) => self.goes(part as usize, via),
            None => {}
        }
        match outcome {
            Err(fault) => {
                let what = if self.direction == Direction::Read { "a raw read" } else { "a raw write" };
                self.fail(core.storage_fault(&what, &fault));
            }
            Ok(()) => {
                self.count(core, extent.length_bytes.into(), is_direct);
                if self.direction == Direction::Read && !is_direct {
                    match self.send(core, place, part) {
                        Ok(()) => return,
                        Err(refusal) => self.fail(refusal),
                    }
                }
            }
        }
        self.ended(core, place, part);
    }

    fn wire_done(&mut self, core: &mut Core, place: Place, part: u32, outcome: Result<(), OperationError>) {
        match (self.direction, outcome) {
            (Direction::Write, outcome) => {
                core.reserved -= 1;
                let read = outcome.map_err(|error| bad_memory(format!("reading the source: {error}")));
                match read.and_then(|()| self.write_fetched(core, place, part)) {
                    Ok(()) => return,
                    Err(refusal) => self.fail(refusal),
                }
            }
            (Direction::Read, Ok(())) => {}
            (Direction::Read, Err(error)) => self.fail(bad_memory(format!("writing the target: {error}"))),
        }
        self.ended(core, place, part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackscan_format::message::ScratchArea;

    const ROOM: RawRoom = RawRoom {
        capacity_bytes: 1 << 20,
        align_bytes: 512,
        memory_align_bytes: 4,
        scratch: Some(ScratchArea { offset_bytes: 65_536, length_bytes: 65_536 }),
    };
    const MEMORY: Target = Target { key: 1, offset_bytes: 4096, length_bytes: 65_536 };

    fn checked(
        direction: Direction,
        offset_bytes: u64,
        length_bytes: u32,
        memory: u64,
    ) -> Result<(), String> {
        let extent = Extent { device: DeviceId(0), offset_bytes, length_bytes };
        let room = |device: DeviceId| (device.0 == 0).then_some(ROOM);
        check(direction, Part { extent, memory_offset: memory }, &MEMORY, room)
    }

    #[test]
    fn parts_that_a_device_can_do_pass_and_others_are_refused_with_numbers() {
        use Direction::{Read, Write};
        for (direction, offset, length, memory) in [
            (Read, 0, 512, 0),
            (Read, (1 << 20) - 512, 512, 65_024),
            (Write, 65_536, 65_536, 0),
            (Read, 512, 1024, 4),
        ] {
            assert_eq!(checked(direction, offset, length, memory), Ok(()), "{direction:?} {offset}+{length}");
        }
        for (direction, offset, length, memory, part) in [
            (Read, 100, 512, 0, "multiples of 512"),
            (Read, 512, 100, 0, "multiples of 512"),
            (Read, 0, 0, 0, "expected 1 to 4194304"),
            (Read, 0, u32::MAX, 0, "expected 1 to 4194304"),
            (Read, 1 << 20, 512, 0, "has 1048576 bytes"),
            (Read, u64::MAX - 511, 512, 0, "has 1048576 bytes"),
            (Read, 0, 1024, 65_024, "65536 bytes of memory"),
            (Read, 0, 512, u64::MAX, "65536 bytes of memory"),
            (Read, 0, 512, 2, "multiple of 4"),
            (Write, 65_024, 1024, 0, "bytes 65536..+65536"),
            (Write, 0, 512, 0, "bytes 65536..+65536"),
            (Write, 131_072 - 512, 1024, 0, "bytes 65536..+65536"),
        ] {
            let refused = checked(direction, offset, length, memory).unwrap_err();
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[test]
    fn a_device_that_is_not_there_and_one_without_scratch_are_named() {
        let part = |device| Part {
            extent: Extent { device: DeviceId(device), offset_bytes: 65_536, length_bytes: 512 },
            memory_offset: 0,
        };
        let bare = |device: DeviceId| (device.0 == 0).then_some(RawRoom { scratch: None, ..ROOM });
        assert!(check(Direction::Read, part(1), &MEMORY, bare).unwrap_err().contains("no such device"));
        assert!(check(Direction::Write, part(0), &MEMORY, bare).unwrap_err().contains("configure scratch"));
        assert_eq!(check(Direction::Read, part(0), &MEMORY, bare), Ok(()));
    }
}
