//! Contains the resources of one reactor that its requests use: devices, memory and connections.
//!
//! It is separate from the reactor's table of requests, so that a request can be borrowed together
//! with these resources.
//!
//! Invariants
//! - Every device operation and wire transfer carries the position of its request in the table, to
//!   which its completion is reported.
//! - Nothing here blocks.

use std::{os::fd::BorrowedFd, sync::Arc};

use az::SaturatingAs;
use rackscan_device::{
    Buffer, BufferPool, DeviceIndex, DeviceIo, Fsync, Interest, IoFault, IoMemory, Read, Repeat, SubmitError,
    Token, Watch, Write,
};
use rackscan_fabric::{Region, RegionSlice};
use rackscan_format::{
    ids::DeviceId,
    message::{LoadReport, Refusal, RefusalCode, Target},
    segment::Extent,
};
use rustix::io::Errno;

use super::{io::BridgeIo, links::Links, node_parts::NodeParts};
use crate::{
    ids::Place,
    link::{Link, WATCH},
    message_queue::MessageQueue,
    metrics::add,
    participant::ParticipantAccess,
    refusals::bad_memory,
    staging::{Slot, Staging},
    store::Publisher,
};

/// The result of submitting a device operation.
#[derive(Debug)]
pub(crate) enum Submitted {
    /// Its completion will be reported.
    Underway,
    /// The queue is full.
    NoRoom,
    /// It cannot be executed.
    Refused(Refusal),
}

/// The parts of one reactor.
pub(crate) struct Core {
    pub(crate) node: Arc<NodeParts>,
    pub(crate) publisher: Publisher,
    pub(crate) message_queue: Arc<MessageQueue>,
    pub(crate) io: BridgeIo,
    /// Slots of the device queue that are reserved for writes whose bytes are still coming from the
    /// requester.
    pub(crate) reserved: u32,
    /// Buffers for pages that are checked before they are written.
    pub(crate) pool: BufferPool,
    pub(crate) staging: Staging,
    /// Zeroes, for echo requests.
    pub(crate) echo: Region,
    /// Access to the participant of transactions.
    pub(crate) participant: ParticipantAccess,
    pub(crate) links: Links,
}

impl Core {
    /// The connection of a task, if it still exists.
    pub(crate) fn link(&mut self, place: Place) -> Option<&mut Link> {
        self.links.use_at(place.link)
    }

    /// Hands everything that was posted and held back to the wires.
    pub(crate) fn release(&mut self) {
        self.links.release();
    }

    /// The same for wires on which announcing takes no system call while the peer is awake.
    pub(crate) fn release_mapped(&mut self) {
        self.links.release_mapped();
    }

    /// Wakes the reactor's sleep when `fd` becomes readable.
    pub(crate) fn watch(&mut self, fd: BorrowedFd<'_>) -> Result<(), std::io::Error> {
        let (interest, repeat) = (Interest::Readable, Repeat::EveryChange);
        let watch = Watch { fd, interest, repeat, token: Token(WATCH) };
        self.io.watch(watch).map(drop).map_err(std::io::Error::other)
    }

    /// Whether a device operation would be accepted.
    pub(crate) fn has_room(&self) -> bool {
        self.io.in_flight() + self.reserved < self.io.depth()
    }

    /// Whether a slot of the device queue may be reserved for a write whose bytes are still coming.
    /// At most half of the slots are reserved, so that requesters whose bytes do not come leave
    /// slots to others.
    pub(crate) fn may_reserve(&self) -> bool {
        self.has_room() && self.reserved < self.io.depth().div_ceil(2)
    }

    /// Whether a waiting task may be waiting for memory that its own connection holds.
    pub(crate) fn waits_for_itself(&mut self, place: Place) -> bool {
        self.link(place).is_some_and(|link| link.staged_bytes > 0)
    }

    /// Reads an extent of a device.
    pub(crate) fn read(&mut self, place: Place, part: u32, extent: Extent, into: IoMemory) -> Submitted {
        let read = Read {
            device: DeviceIndex(extent.device.0.into()),
            offset_bytes: extent.offset_bytes,
            length_bytes: extent.length_bytes,
            into,
            token: Token(place.operation(part)),
        };
        match self.io.submit_read(read) {
            Ok(()) => Submitted::Underway,
            Err(refused) => submitted(refused.reason),
        }
    }

    /// Writes an extent of a device. The caller calls [`Core::written`] when the write has ended.
    pub(crate) fn write(&mut self, place: Place, part: u32, extent: Extent, from: IoMemory) -> Submitted {
        self.written(&extent);
        let write = Write {
            device: DeviceIndex(extent.device.0.into()),
            offset_bytes: extent.offset_bytes,
            length_bytes: extent.length_bytes,
            from,
            token: Token(place.operation(part)),
        };
        match self.io.submit_write(write) {
            Ok(()) => Submitted::Underway,
            Err(refused) => submitted(refused.reason),
        }
    }

    /// Flushes a device, which makes completed writes durable.
    pub(crate) fn flush(&mut self, place: Place, part: u32, device: DeviceId) -> Submitted {
        let flush = Fsync { device: DeviceIndex(device.0.into()), token: Token(place.operation(part)) };
        match self.io.submit_fsync(flush) {
            Ok(()) => Submitted::Underway,
            Err(refused) => submitted(refused.reason),
        }
    }

    /// Invalidates an extent in all caches. Called before a write and after it, because a read in
    /// between may find the old bytes.
    pub(crate) fn written(&self, extent: &Extent) {
        if let Some(cache) = &self.node.cache {
            cache.pages().withdraw(extent);
        }
    }

    /// The refusal of a request after a device fault. A fault that leaves the state of the device
    /// unknown stops the node.
    pub(crate) fn storage_fault(&self, what: &dyn std::fmt::Display, fault: &IoFault) -> Refusal {
        if fault.must_stop() {
            self.node.lifecycle.fail(&fault.to_string());
        }
        if let IoFault::Os { source: Errno::NOSPC | Errno::DQUOT, .. } = fault {
            let node = self.node.config.node;
            let text =
                format!("the disk of node {node} is full: {what}: {fault}; free some space there and repeat");
            return Refusal::new(RefusalCode::Full, text);
        }
        Refusal::new(RefusalCode::Storage, format!("{what}: {fault}"))
    }

    /// Allocates staging memory for a task. `None` if there is none, or if its connection already
    /// holds too much.
    pub(crate) fn take_slot(&mut self, place: Place, bytes: usize) -> Option<Slot> {
        let half = self.staging.total_bytes() / 2;
        let held = self.link(place)?.staged_bytes;
        if held > 0 && held + bytes > half {
            return None;
        }
        let slot = self.staging.take(bytes)?;
        if let Some(link) = self.link(place) {
            link.staged_bytes += slot.bytes();
        }
        Some(slot)
    }

    /// Returns staging memory.
    pub(crate) fn give_back(&mut self, place: Place, slot: &Slot) {
        self.staging.give_back(slot);
        if let Some(link) = self.link(place) {
            link.staged_bytes -= slot.bytes();
        }
    }

    /// Allocates a buffer for a page that is to be checked and written.
    pub(crate) fn take_buffer(&self, bytes: usize) -> Option<Buffer> {
        let buffer = self.pool.take(bytes).ok()?;
        self.node.metrics.memory_taken(buffer.len() as u64);
        Some(buffer)
    }

    /// Returns a buffer.
    pub(crate) fn return_buffer(&self, buffer: Buffer) {
        self.node.metrics.memory_returned(buffer.len() as u64);
        drop(buffer);
    }

    /// Begins a write into the requester's memory.
    pub(crate) fn send(
        &mut self,
        place: Place,
        part: u32,
        source: RegionSlice,
        target: &Target,
        target_offset: u64,
    ) -> Result<(), Refusal> {
        let bytes = source.len() as u64;
        let Some(link) = self.link(place) else { return Err(lost()) };
        let posted = link.write(place.operation(part), source, target, target_offset);
        posted.map_err(|error| bad_memory(format!("writing the target: {error}")))?;
        add(&self.node.metrics.wire_written_bytes, bytes);
        Ok(())
    }

    /// Begins a read from the requester's memory.
    pub(crate) fn fetch(
        &mut self,
        place: Place,
        part: u32,
        source: &Target,
        source_offset: u64,
        into: RegionSlice,
    ) -> Result<(), Refusal> {
        let bytes = into.len() as u64;
        let Some(link) = self.link(place) else { return Err(lost()) };
        let posted = link.read(place.operation(part), source, source_offset, into);
        posted.map_err(|error| bad_memory(format!("reading the source: {error}")))?;
        add(&self.node.metrics.wire_read_bytes, bytes);
        Ok(())
    }

    /// How busy the node is.
    pub(crate) fn load_report(&self) -> LoadReport {
        let (queued, running) = self.node.scans.load();
        let short = |count: usize| count.saturating_as::<u16>();
        LoadReport {
            scans_queued: short(queued),
            scans_running: short(running),
            scan_workers: self.node.config.scan_workers,
            reads_in_flight: short(self.io.in_flight() as usize),
            cpu_milli: self.node.cpu_share.milli(),
        }
    }
}

fn submitted(reason: SubmitError) -> Submitted {
    match reason {
        SubmitError::QueueFull { .. } => Submitted::NoRoom,
        reason => Submitted::Refused(Refusal::new(RefusalCode::Storage, reason.to_string())),
    }
}

/// The result of a request whose connection is lost; nobody will read it.
pub(crate) fn lost() -> Refusal {
    bad_memory("the connection is gone")
}
