//! Submits the next device operation of a cell: a read into the cell's slots, or a write out of
//! them.
//!
//! Invariant: an operation covers slices that are neighbours both in memory and on the device. It
//! waits until several such slices can be moved at once, but never for more than half of a ring. A
//! ring has room for these, so they can always come.

use rackscan_device::SubmitError;

use super::{ActiveStripe, Input};
use crate::{
    error::Failure,
    limits::STORE_BYTES_MAX,
    message::Cause,
    node::{
        disk::{Job, JobCell},
        shared::{NodeShared, SessionShared},
    },
    plan::Plan,
    shape::Layout,
    store::StripeName,
};

/// The bytes of neighbouring slices that an operation waits for, unless half of a ring is less.
const STORE_BYTES_MIN: usize = 256 << 10;

impl ActiveStripe {
    /// The bytes that an operation waits for.
    pub(super) fn operation_bytes_min(&self, layout: &Layout) -> u64 {
        (STORE_BYTES_MIN as u64).min(layout.shape.slots as u64 / 2 * layout.shape.slice_bytes as u64)
    }

    /// The number of slices, beginning with this one, that are contiguous in memory.
    fn contiguous(&self, lane: usize, source: usize, slice: u32, shared: &SessionShared<'_>) -> u32 {
        match self.inputs.get(source) {
            Some(Input::Ring { from, ring }) => shared.incoming[*from]
                .as_ref()
                .map_or(1, |arriving| arriving.rings.contiguous(lane, *ring, slice)),
            Some(Input::Held(_)) | None => shared.layout.slots() - slice % shared.layout.slots(),
        }
    }

    /// Begins the next operation of a cell whose slots hold, or have room for, its bytes up to
    /// `until_bytes`. Returns false if it has to wait.
    pub(super) fn move_next(
        &mut self,
        lane: usize,
        plan: &Plan,
        ((cell, source), until_bytes): ((JobCell, usize), u64),
        shared: &SessionShared<'_>,
        node: &mut NodeShared<'_>,
    ) -> Result<bool, Failure> {
        let moving = match cell {
            JobCell::Kept(at) => &self.kept[at],
            JobCell::Held(at) => &self.held[at],
        };
        let (from, Some((place, within))) = (moving.begun_bytes(), moving.next_place()) else {
            return Ok(false);
        };
        let slice_bytes = shared.layout.shape.slice_bytes as u64;
        let slice = u32::try_from(from / slice_bytes).expect("a cell has at most SLICES_MAX slices");
        let end = [
            until_bytes,
            (u64::from(slice) + u64::from(self.contiguous(lane, source, slice, shared))) * slice_bytes,
            from + place.length_bytes - within,
            from + (STORE_BYTES_MAX as u64).max(slice_bytes),
        ];
        let end = end.into_iter().min().unwrap_or(from);
        let length = usize::try_from(end - from).expect("at most the longest operation");
        let Some((slots, offset)) = self.place(lane, (plan, source), slice, shared) else { return Ok(false) };
        let offset = offset + usize::try_from(from % slice_bytes).expect("below the length of a slice");
        let Some(memory) = slots.memory().part(offset, length) else { return Ok(false) };
        let StripeName { session, stripe } = self.name;
        let job = Job { session, lane, stripe, cell, end_bytes: end, _guard: self.guard.clone() };
        let target = (place.device, place.offset_bytes + within);
        match node.disk.submit(node.io, job, target, memory) {
            Ok(()) => {
                match cell {
                    JobCell::Kept(at) => self.kept[at].begin(end),
                    JobCell::Held(at) => self.held[at].begin(end),
                }
                Ok(true)
            }
            Err(SubmitError::QueueFull { .. }) => Ok(false),
            Err(error) => Err(Failure::new(Some(shared.me), Cause::Disk, error)),
        }
    }
}
