//! How does a stripe go on: to other nodes, and to the devices, out of the slots where its slices lie?
//!
//! Invariants
//! - A slice is sent when its receiver has room, and written when that is worth it, or nothing more will come.
//! - What was written is checksummed afterwards, and only then not needed any more.

use rackscan_device::SubmitError;

use super::Underway;
use crate::{
    error::Failure,
    limits::STORE_BYTES_MAX,
    link::Bytes,
    message::Cause,
    node::{
        disk::Job,
        session::{Hands, Parts},
    },
    plan::Plan,
    rings::{Outbound, RingsFault},
    store::{Place, StripeName},
};

/// Writes wait for so many bytes of neighbouring slices, or half of a ring.
const STORE_BYTES_MIN: usize = 256 << 10;

impl Underway {
    /// One slice of each send by turns, so that all relays run at once.
    pub(super) fn send(
        &mut self,
        lane: usize,
        plan: &Plan,
        parts: &mut Parts<'_>,
        hands: &mut Hands<'_>,
    ) -> Result<bool, Failure> {
        let mut moved = false;
        loop {
            let mut any = false;
            for send in 0..plan.sends.len() {
                any |= self.send_next(lane, (plan, send), parts, hands)?;
            }
            if !any {
                return Ok(moved);
            }
            moved = true;
        }
    }

    fn send_next(
        &mut self,
        lane: usize,
        (plan, send): (&Plan, usize),
        parts: &mut Parts<'_>,
        hands: &mut Hands<'_>,
    ) -> Result<bool, Failure> {
        let Some(slice) = self.progress.next_send(plan, send) else { return Ok(false) };
        let (member, ring) = self.outputs[send];
        let source = plan.sends[send].source;
        let length = parts.layout.slice_length(self.cell_bytes, slice);
        let Some((region, offset)) = self.place(lane, source, slice, parts) else { return Ok(false) };
        let last = region.slice(offset, length).map_err(|error| parts.broken(&error))?;
        let Some(leaving) = &mut parts.outgoing[member] else { return Ok(false) };
        let Some(link) = hands.links.get_mut(leaving.link) else { return Ok(false) };
        if !link.has_room_for_a_slice() {
            return Ok(false);
        }
        let fault = |error: RingsFault| Failure::new(Some(member), Cause::Violation, error);
        if !leaving.rings.has_room(lane, ring).map_err(fault)? {
            parts.counters.waits_for_credit += u64::from(!std::mem::replace(&mut leaving.waits, true));
            return Ok(false);
        }
        leaving.waits = false;
        let checksum = self.checksums[source][slice as usize % parts.layout.shape.slots];
        let bytes = Bytes { first: None, last };
        let outbound = Outbound { ring, stripe: self.name.stripe, slice, bytes, checksum };
        leaving.rings.send(link, (lane, send), outbound);
        self.progress.posted(send);
        parts.counters.sent_bytes += length as u64;
        Ok(true)
    }

    /// Gives neighbouring slices of kept cells to the devices.
    pub(super) fn store(
        &mut self,
        lane: usize,
        plan: &Plan,
        parts: &mut Parts<'_>,
        hands: &mut Hands<'_>,
    ) -> Result<bool, Failure> {
        let mut moved = false;
        for (keep, keeping) in plan.keeps.iter().enumerate() {
            let there = self.bytes(self.progress.there(keeping.source), parts.layout);
            if self.kept[keep].places.is_empty() {
                self.kept[keep].written_bytes = there;
                continue;
            }
            while self.kept[keep].begun_bytes < there && hands.disk.has_room(hands.io) {
                if !self.store_next(lane, (keep, keeping.source), there, parts, hands)? {
                    break;
                }
                moved = true;
            }
        }
        Ok(moved)
    }

    /// Begins the next write of a cell of which so many bytes are there; false if that is not worth it yet, or has to wait.
    fn store_next(
        &mut self,
        lane: usize,
        (keep, source): (usize, usize),
        there: u64,
        parts: &Parts<'_>,
        hands: &mut Hands<'_>,
    ) -> Result<bool, Failure> {
        let slice_bytes = parts.layout.shape.slice_bytes as u64;
        let from = self.kept[keep].begun_bytes;
        let worth = (STORE_BYTES_MIN as u64).min(parts.layout.shape.slots as u64 / 2 * slice_bytes);
        if there < self.cell_bytes && there - from < worth {
            return Ok(false);
        }
        let slice = u32::try_from(from / slice_bytes).unwrap_or(u32::MAX);
        let run = match self.inputs.get(source) {
            Some((link, ring)) => {
                parts.incoming[*link].as_ref().map_or(1, |arriving| arriving.rings.run(lane, *ring, slice))
            }
            None => parts.layout.slots() - slice % parts.layout.slots(),
        };
        let Some((place, within)) = place_of(&self.kept[keep].places, from) else { return Ok(false) };
        let end = [
            there,
            (u64::from(slice) + u64::from(run)) * slice_bytes,
            from + place.length_bytes - within,
            from + (STORE_BYTES_MAX as u64).max(slice_bytes),
        ];
        let end = end.into_iter().min().unwrap_or(from);
        let length = usize::try_from(end - from).unwrap_or(0);
        let offset =
            self.memory_offset(lane, source, slice, parts) + usize::try_from(from % slice_bytes).unwrap_or(0);
        let slots = match self.inputs.get(source) {
            Some((link, _)) => parts.incoming[*link].as_ref().map(|arriving| arriving.rings.slots()),
            None => parts.sums,
        };
        let Some(memory) = slots.and_then(|slots| slots.memory().part(offset, length)) else {
            return Ok(false);
        };
        let StripeName { session, stripe } = self.name;
        let job = Job { session, lane, stripe, keep, end_bytes: end };
        let target = (place.device, place.offset_bytes + within);
        match hands.disk.write(hands.io, job, target, memory) {
            Ok(()) => {
                self.kept[keep].begun_bytes = end;
                self.kept[keep].writes.push_back((end, false));
                Ok(true)
            }
            Err(SubmitError::QueueFull { .. }) => Ok(false),
            Err(error) => Err(Failure::new(Some(parts.me), Cause::Disk, error)),
        }
    }

    fn memory_offset(&self, lane: usize, source: usize, slice: u32, parts: &Parts<'_>) -> usize {
        self.place(lane, source, slice, parts).map_or(0, |(_, offset)| offset)
    }

    /// Checksums what was written, and lets go of it.
    pub(super) fn check(&mut self, lane: usize, plan: &Plan, parts: &mut Parts<'_>) -> Result<bool, Failure> {
        let mut moved = false;
        for (keep, keeping) in plan.keeps.iter().enumerate() {
            loop {
                let slice = self.progress.kept(keep);
                let is_written = self.bytes(slice + 1, parts.layout) <= self.kept[keep].written_bytes;
                if slice == self.progress.slices() || !is_written {
                    break;
                }
                let length = parts.layout.slice_length(self.cell_bytes, slice);
                let Some((region, offset)) = self.place(lane, keeping.source, slice, parts) else { break };
                let found = region.crc32c_append(0, offset, length).map_err(|error| parts.broken(&error))?;
                let expected = self.checksums[keeping.source][slice as usize % parts.layout.shape.slots];
                if found != expected {
                    let cell = keeping.cell;
                    let why = format!(
                        "slice {slice} of cell {}.{} of stripe {} has checksum {found:08x}, expected {expected:08x}",
                        cell.column.0, cell.slot, self.name.stripe
                    );
                    return Err(Failure::new(Some(parts.me), Cause::Checksum, why));
                }
                self.kept[keep].checksums.push(found);
                self.progress.keep(keep);
                parts.counters.kept_bytes += length as u64;
                moved = true;
            }
        }
        Ok(moved)
    }
}

/// The place that has this byte of a cell, and how far into it that is.
fn place_of(places: &[Place], byte: u64) -> Option<(Place, u64)> {
    let mut before = 0;
    for place in places {
        if byte < before + place.length_bytes {
            return Some((*place, byte - before));
        }
        before += place.length_bytes;
    }
    None
}
