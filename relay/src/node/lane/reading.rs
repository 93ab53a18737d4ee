//! Reads the held cells of a stripe (those that the node has stored before) from the node's
//! devices.
//!
//! A cell is read ahead into slots of the node, as far as slots are free. If the extents of a cell
//! are shorter than the cell, zeros follow.
//!
//! Invariants
//! - A slice counts as present when all of its bytes and all slices before it have been read. Its
//!   checksum is computed over the bytes that were read.
//! - A slot is read into only when all readers of its previous slice are done with it.

use super::ActiveStripe;
use crate::{
    error::Failure,
    node::{
        disk::JobCell,
        shared::{NodeShared, SessionShared},
    },
    plan::Plan,
};

impl ActiveStripe {
    /// The source of a held cell. These follow the sources that arrive.
    fn held_source(&self, held: usize) -> usize {
        self.inputs.len() - self.held.len() + held
    }

    /// Takes the slices whose bytes have all been read.
    pub(super) fn take_read(
        &mut self,
        lane: usize,
        plan: &Plan,
        shared: &mut SessionShared<'_>,
    ) -> Result<bool, Failure> {
        let mut moved = false;
        for held in 0..self.held.len() {
            let source = self.held_source(held);
            loop {
                let slice = self.progress.there(source);
                let has_come = self.bytes(slice + 1, shared.layout) <= self.held[held].ended_bytes();
                if slice == self.progress.slices() || !has_come {
                    break;
                }
                let length = shared.layout.slice_length(self.cell_bytes, slice);
                let Some((region, offset)) = self.region(lane, (plan, source), slice, shared) else { break };
                let found = region.crc32c_append(0, offset, length).map_err(|error| shared.broken(&error))?;
                let slot = slice as usize % shared.layout.shape.slots;
                self.checksums[source][slot] = found;
                let before = self.held[held].checksum;
                self.held[held].checksum = shared.layout.append(before, found, length);
                self.progress.arrived(source);
                moved = true;
            }
        }
        Ok(moved)
    }

    /// Begins reads as far as there are free slots.
    pub(super) fn read(
        &mut self,
        lane: usize,
        plan: &Plan,
        shared: &mut SessionShared<'_>,
        node: &mut NodeShared<'_>,
    ) -> Result<bool, Failure> {
        let mut moved = false;
        for held in 0..self.held.len() {
            let source = self.held_source(held);
            let free_to = self.progress.tail(plan, source).saturating_add(shared.layout.slots());
            let room = self.bytes(free_to, shared.layout);
            while self.held[held].begun_bytes() < room {
                if self.held[held].is_behind_places() {
                    self.zero(lane, plan, (held, room), shared)?;
                    moved = true;
                    break;
                }
                let free = room - self.held[held].begun_bytes();
                let is_enough = room == self.cell_bytes || free >= self.operation_bytes_min(shared.layout);
                if !is_enough || !node.disk.has_room(node.io) {
                    break;
                }
                if !self.move_next(lane, plan, ((JobCell::Held(held), source), room), shared, node)? {
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
        shared: &SessionShared<'_>,
    ) -> Result<(), Failure> {
        let slice_bytes = shared.layout.shape.slice_bytes as u64;
        let (source, mut at) = (self.held_source(held), self.held[held].begun_bytes());
        while at < until_bytes {
            let slice = u32::try_from(at / slice_bytes).expect("a cell has at most SLICES_MAX slices");
            let end = until_bytes.min((u64::from(slice) + 1) * slice_bytes);
            let Some((region, offset)) = self.region(lane, (plan, source), slice, shared) else {
                return Ok(());
            };
            let offset = offset + usize::try_from(at % slice_bytes).expect("below the length of a slice");
            let length = usize::try_from(end - at).expect("at most the length of a slice");
            region.zero(offset, length).map_err(|error| shared.broken(&error))?;
            at = end;
        }
        self.held[held].skip(until_bytes);
        Ok(())
    }
}
