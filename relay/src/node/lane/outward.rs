//! How does a stripe go on: to other nodes, and to the devices, out of the slots where its slices
//! lie?
//!
//! Invariants
//! - A slice is sent when its receiver has room, and written when that is worth it, or nothing more
//!   will come.
//! - What was written is checksummed afterwards, and only then not needed any more.

use super::Underway;
use crate::{
    error::Failure,
    link::Bytes,
    message::Cause,
    node::{
        disk::For,
        session::{Hands, Parts},
    },
    plan::Plan,
    rings::{Outbound, RingsFault},
};

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
        let Some((region, offset)) = self.region(lane, (plan, source), slice, parts) else {
            return Ok(false);
        };
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
            while !self.kept[keep].is_behind_places() {
                let waiting = there - self.kept[keep].begun_bytes();
                let is_worth_it = there == self.cell_bytes || waiting >= self.worth(parts.layout);
                if waiting == 0 || !is_worth_it || !hands.disk.has_room(hands.io) {
                    break;
                }
                let what = (For::Kept(keep), keeping.source);
                if !self.move_next(lane, plan, (what, there), parts, hands)? {
                    break;
                }
                moved = true;
            }
            if self.kept[keep].is_behind_places() {
                self.kept[keep].skip(there);
            }
        }
        Ok(moved)
    }

    /// Checksums what was written, and lets go of it.
    pub(super) fn check(&mut self, lane: usize, plan: &Plan, parts: &mut Parts<'_>) -> Result<bool, Failure> {
        let mut moved = false;
        for (keep, keeping) in plan.keeps.iter().enumerate() {
            loop {
                let slice = self.progress.kept(keep);
                let is_written = self.bytes(slice + 1, parts.layout) <= self.kept[keep].ended_bytes();
                if slice == self.progress.slices() || !is_written {
                    break;
                }
                let length = parts.layout.slice_length(self.cell_bytes, slice);
                let source = (plan, keeping.source);
                let Some((region, offset)) = self.region(lane, source, slice, parts) else { break };
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
                let before = self.kept[keep].checksum;
                self.kept[keep].checksum = parts.layout.append(before, found, length);
                self.progress.keep(keep);
                parts.counters.kept_bytes += length as u64;
                moved = true;
            }
        }
        Ok(moved)
    }
}
