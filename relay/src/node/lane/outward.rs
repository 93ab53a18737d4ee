//! Sends the slices of a stripe to other nodes, and writes them to this node's devices, directly
//! out of the slots where they lie.
//!
//! Invariants
//! - A slice is sent when its receiver has room for it. It is written when enough neighbouring
//!   slices are there for a long write, or when no more slices of the cell will come.
//! - After a slice has been written, its checksum is computed over its slot and compared with the
//!   expected one. Only then may the slot be reused.

use super::ActiveStripe;
use crate::{
    error::Failure,
    link::Bytes,
    message::Cause,
    node::{
        disk::JobCell,
        shared::{NodeShared, SessionShared},
    },
    plan::Plan,
    rings::{Outbound, RingsFault},
};

impl ActiveStripe {
    /// Sends one slice of each step in turn, so that all transfers run at once.
    pub(super) fn send(
        &mut self,
        lane: usize,
        plan: &Plan,
        shared: &mut SessionShared<'_>,
        node: &mut NodeShared<'_>,
    ) -> Result<bool, Failure> {
        let mut moved = false;
        loop {
            let mut any = false;
            for send in 0..plan.sends.len() {
                any |= self.send_next(lane, (plan, send), shared, node)?;
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
        shared: &mut SessionShared<'_>,
        node: &mut NodeShared<'_>,
    ) -> Result<bool, Failure> {
        let Some(slice) = self.progress.next_send(plan, send) else { return Ok(false) };
        let (member, ring) = self.outputs[send];
        let source = plan.sends[send].source;
        let length = shared.layout.slice_length(self.cell_bytes, slice);
        let Some((region, offset)) = self.region(lane, (plan, source), slice, shared) else {
            return Ok(false);
        };
        let last = region.slice(offset, length).map_err(|error| shared.broken(&error))?;
        let Some(leaving) = &mut shared.outgoing[member] else { return Ok(false) };
        let Some(link) = node.links.get_mut(leaving.link) else { return Ok(false) };
        if !link.has_room_for_a_slice() {
            return Ok(false);
        }
        let fault = |error: RingsFault| Failure::new(Some(member), Cause::Violation, error);
        if !leaving.rings.has_room(lane, ring).map_err(fault)? {
            shared.counters.waits_for_credit += u64::from(!std::mem::replace(&mut leaving.waits, true));
            return Ok(false);
        }
        leaving.waits = false;
        let checksum = self.checksums[source][slice as usize % shared.layout.shape.slots];
        let bytes = Bytes { first: None, last };
        let outbound = Outbound { ring, stripe: self.name.stripe, slice, bytes, checksum };
        leaving.rings.send(link, (lane, send), outbound);
        self.progress.posted(send);
        shared.counters.sent_bytes += length as u64;
        Ok(true)
    }

    /// Writes neighbouring slices of kept cells to the devices.
    pub(super) fn store(
        &mut self,
        lane: usize,
        plan: &Plan,
        shared: &mut SessionShared<'_>,
        node: &mut NodeShared<'_>,
    ) -> Result<bool, Failure> {
        let mut moved = false;
        for (keep, keeping) in plan.keeps.iter().enumerate() {
            let there = self.bytes(self.progress.there(keeping.source), shared.layout);
            while !self.kept[keep].is_behind_places() {
                let waiting = there - self.kept[keep].begun_bytes();
                let is_enough =
                    there == self.cell_bytes || waiting >= self.operation_bytes_min(shared.layout);
                if waiting == 0 || !is_enough || !node.disk.has_room(node.io) {
                    break;
                }
                let what = (JobCell::Kept(keep), keeping.source);
                if !self.move_next(lane, plan, (what, there), shared, node)? {
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

    /// Checks what was written, and frees its slots.
    pub(super) fn check(
        &mut self,
        lane: usize,
        plan: &Plan,
        shared: &mut SessionShared<'_>,
    ) -> Result<bool, Failure> {
        let mut moved = false;
        for (keep, keeping) in plan.keeps.iter().enumerate() {
            loop {
                let slice = self.progress.kept(keep);
                let is_written = self.bytes(slice + 1, shared.layout) <= self.kept[keep].ended_bytes();
                if slice == self.progress.slices() || !is_written {
                    break;
                }
                let length = shared.layout.slice_length(self.cell_bytes, slice);
                let source = (plan, keeping.source);
                let Some((region, offset)) = self.region(lane, source, slice, shared) else { break };
                let found = region.crc32c_append(0, offset, length).map_err(|error| shared.broken(&error))?;
                let expected = self.checksums[keeping.source][slice as usize % shared.layout.shape.slots];
                if found != expected {
                    let cell = keeping.cell;
                    let why = format!(
                        "slice {slice} of cell {}.{} of stripe {} has checksum {found:08x}, expected {expected:08x}",
                        cell.column.0, cell.slot, self.name.stripe
                    );
                    return Err(Failure::new(Some(shared.me), Cause::Checksum, why));
                }
                let before = self.kept[keep].checksum;
                self.kept[keep].checksum = shared.layout.append(before, found, length);
                self.progress.keep(keep);
                shared.counters.kept_bytes += length as u64;
                moved = true;
            }
        }
        Ok(moved)
    }
}
