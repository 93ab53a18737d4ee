//! How does a stripe come in from the node's own devices?
//!
//! A held cell is read into slots of the node's own, as far ahead as there are slots that nobody
//! needs any more. Where its places end, zeros follow.
//!
//! Invariants
//! - A slice counts as there when all of its bytes have come, in the order of slices; its checksum
//!   is computed over what came.
//! - A slot is read into when all that need the slice before are done with it.

use super::Underway;
use crate::{
    error::Failure,
    node::{
        disk::For,
        session::{Hands, Parts},
    },
    plan::Plan,
};

impl Underway {
    /// The source of a held cell: they stand behind those that arrive.
    fn held_source(&self, held: usize) -> usize {
        self.inputs.len() - self.held.len() + held
    }

    /// Slices of which all bytes have come.
    pub(super) fn take_read(
        &mut self,
        lane: usize,
        plan: &Plan,
        parts: &mut Parts<'_>,
    ) -> Result<bool, Failure> {
        let mut moved = false;
        for held in 0..self.held.len() {
            let source = self.held_source(held);
            loop {
                let slice = self.progress.there(source);
                let has_come = self.bytes(slice + 1, parts.layout) <= self.held[held].ended_bytes();
                if slice == self.progress.slices() || !has_come {
                    break;
                }
                let length = parts.layout.slice_length(self.cell_bytes, slice);
                let Some((region, offset)) = self.region(lane, (plan, source), slice, parts) else { break };
                let found = region.crc32c_append(0, offset, length).map_err(|error| parts.broken(&error))?;
                let slot = slice as usize % parts.layout.shape.slots;
                self.checksums[source][slot] = found;
                let before = self.held[held].checksum;
                self.held[held].checksum = parts.layout.append(before, found, length);
                self.progress.arrived(source);
                moved = true;
            }
        }
        Ok(moved)
    }

    /// Asks the devices for what there is room for.
    pub(super) fn read(
        &mut self,
        lane: usize,
        plan: &Plan,
        parts: &mut Parts<'_>,
        hands: &mut Hands<'_>,
    ) -> Result<bool, Failure> {
        let mut moved = false;
        for held in 0..self.held.len() {
            let source = self.held_source(held);
            let free_to = self.progress.tail(plan, source).saturating_add(parts.layout.slots());
            let room = self.bytes(free_to, parts.layout);
            while self.held[held].begun_bytes() < room {
                if self.held[held].is_behind_places() {
                    self.zero(lane, plan, (held, room), parts)?;
                    moved = true;
                    break;
                }
                let free = room - self.held[held].begun_bytes();
                let is_worth_it = room == self.cell_bytes || free >= self.worth(parts.layout);
                if !is_worth_it || !hands.disk.has_room(hands.io) {
                    break;
                }
                if !self.move_next(lane, plan, ((For::Held(held), source), room), parts, hands)? {
                    break;
                }
                moved = true;
            }
        }
        Ok(moved)
    }

    /// Fills the slots up to this byte with zeros.
    fn zero(
        &mut self,
        lane: usize,
        plan: &Plan,
        (held, until_bytes): (usize, u64),
        parts: &Parts<'_>,
    ) -> Result<(), Failure> {
        let slice_bytes = parts.layout.shape.slice_bytes as u64;
        let (source, mut at) = (self.held_source(held), self.held[held].begun_bytes());
        while at < until_bytes {
            let slice = u32::try_from(at / slice_bytes).unwrap_or(u32::MAX);
            let end = until_bytes.min((u64::from(slice) + 1) * slice_bytes);
            let Some((region, offset)) = self.region(lane, (plan, source), slice, parts) else {
                return Ok(());
            };
            let offset = offset + usize::try_from(at % slice_bytes).unwrap_or(0);
            let length = usize::try_from(end - at).unwrap_or(0);
            region.zero(offset, length).map_err(|error| parts.broken(&error))?;
            at = end;
        }
        self.held[held].skip(until_bytes);
        Ok(())
    }
}
