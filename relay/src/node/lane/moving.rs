//! How far is a cell on its way between memory and a device, and how does it go on?
//!
//! Invariants
//! - Operations begin in the order of bytes and may end in any; what counts is up to where all have
//!   ended.
//! - An operation is of neighbouring slices in memory and on the device, and waits for some of
//!   them, but never for more than half of a ring: what it waits for can always come.

use std::collections::VecDeque;

use rackscan_device::SubmitError;
use rackscan_stripe::Cell;

use super::{Input, Underway};
use crate::{
    error::Failure,
    limits::{SECTOR_BYTES, STORE_BYTES_MAX},
    message::Cause,
    node::{
        disk::{For, Job},
        session::{Hands, Parts},
    },
    plan::Plan,
    shape::Layout,
    store::{Place, StripeName},
};

/// Operations wait for so many bytes of neighbouring slices, or half of a ring.
const STORE_BYTES_MIN: usize = 256 << 10;

/// A cell that is being read, or kept.
#[derive(Debug)]
pub(super) struct Moving {
    pub(super) cell: Cell,
    places: Vec<Place>,
    placed_bytes: u64,
    /// Up to where operations were begun, and up to where all have ended.
    begun_bytes: u64,
    ended_bytes: u64,
    /// Where operations end that were begun, and whether they have.
    jobs: VecDeque<(u64, bool)>,
    /// The CRC-32C of the slices so far.
    pub(super) checksum: u32,
}

/// These cells, with a list of places for each; what is wrong if they are none.
pub(super) fn all(cells: &[Cell], places: Vec<Vec<Place>>, cell_bytes: u64) -> Result<Vec<Moving>, String> {
    if places.len() != cells.len() {
        return Err(format!("the store gave {} places for {} cells", places.len(), cells.len()));
    }
    if let Some(wrong) = places.iter().find(|places| !fit(places, cell_bytes)) {
        return Err(format!("the store gave {wrong:?} for a cell of {cell_bytes} bytes"));
    }
    Ok(cells.iter().zip(places).map(|(cell, places)| Moving::new(*cell, places)).collect())
}

/// Whether places are whole sectors, and together not longer than a cell.
fn fit(places: &[Place], cell_bytes: u64) -> bool {
    let whole = |bytes: u64| bytes.is_multiple_of(SECTOR_BYTES as u64);
    let total = places.iter().try_fold(0_u64, |sum, place| sum.checked_add(place.length_bytes));
    let sound =
        |place: &Place| whole(place.offset_bytes) && whole(place.length_bytes) && place.length_bytes > 0;
    total.is_some_and(|total| total <= cell_bytes) && places.iter().all(sound)
}

impl Moving {
    fn new(cell: Cell, places: Vec<Place>) -> Self {
        let placed_bytes = places.iter().map(|place| place.length_bytes).sum();
        let (begun_bytes, ended_bytes, jobs) = (0, 0, VecDeque::new());
        Self { cell, places, placed_bytes, begun_bytes, ended_bytes, jobs, checksum: 0 }
    }

    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    /// Up to where operations were begun.
    pub(super) fn begun_bytes(&self) -> u64 {
        self.begun_bytes
    }

    /// Up to where all operations have ended.
    pub(super) fn ended_bytes(&self) -> u64 {
        self.ended_bytes
    }

    /// The place of the byte that is next, and how far into it that is; `None` behind the last
    /// place.
    pub(super) fn next_place(&self) -> Option<(Place, u64)> {
        let (mut before, byte) = (0, self.begun_bytes);
        for place in &self.places {
            if byte < before + place.length_bytes {
                return Some((*place, byte - before));
            }
            before += place.length_bytes;
        }
        None
    }

    /// Whether no place is left for what comes next.
    pub(super) fn is_behind_places(&self) -> bool {
        self.begun_bytes >= self.placed_bytes
    }

    /// An operation was begun, up to this byte.
    pub(super) fn begin(&mut self, end_bytes: u64) {
        self.begun_bytes = end_bytes;
        self.jobs.push_back((end_bytes, false));
    }

    /// The operation up to this byte has ended.
    pub(super) fn ended(&mut self, end_bytes: u64) {
        if let Some(job) = self.jobs.iter_mut().find(|(end, _)| *end == end_bytes) {
            job.1 = true;
        }
        while let Some((end, true)) = self.jobs.front().copied() {
            self.ended_bytes = end;
            self.jobs.pop_front();
        }
    }

    /// No operation is needed up to this byte.
    pub(super) fn skip(&mut self, end_bytes: u64) {
        if end_bytes > self.begun_bytes {
            self.begin(end_bytes);
            self.ended(end_bytes);
        }
    }
}

impl Underway {
    /// How many bytes an operation waits for.
    pub(super) fn worth(&self, layout: &Layout) -> u64 {
        (STORE_BYTES_MIN as u64).min(layout.shape.slots as u64 / 2 * layout.shape.slice_bytes as u64)
    }

    /// How many slices, this one included, lie one behind the other.
    fn run(&self, lane: usize, source: usize, slice: u32, parts: &Parts<'_>) -> u32 {
        match self.inputs.get(source) {
            Some(Input::Ring { from, ring }) => {
                parts.incoming[*from].as_ref().map_or(1, |arriving| arriving.rings.run(lane, *ring, slice))
            }
            Some(Input::Held(_)) | None => parts.layout.slots() - slice % parts.layout.slots(),
        }
    }

    /// Begins the next operation of a cell of which slots hold, or have room for, so many bytes;
    /// false if it has to wait.
    pub(super) fn move_next(
        &mut self,
        lane: usize,
        plan: &Plan,
        ((cell, source), until_bytes): ((For, usize), u64),
        parts: &Parts<'_>,
        hands: &mut Hands<'_>,
    ) -> Result<bool, Failure> {
        let moving = match cell {
            For::Kept(at) => &self.kept[at],
            For::Held(at) => &self.held[at],
        };
        let (from, Some((place, within))) = (moving.begun_bytes(), moving.next_place()) else {
            return Ok(false);
        };
        let slice_bytes = parts.layout.shape.slice_bytes as u64;
        let slice = u32::try_from(from / slice_bytes).unwrap_or(u32::MAX);
        let end = [
            until_bytes,
            (u64::from(slice) + u64::from(self.run(lane, source, slice, parts))) * slice_bytes,
            from + place.length_bytes - within,
            from + (STORE_BYTES_MAX as u64).max(slice_bytes),
        ];
        let end = end.into_iter().min().unwrap_or(from);
        let length = usize::try_from(end - from).unwrap_or(0);
        let Some((slots, offset)) = self.place(lane, (plan, source), slice, parts) else { return Ok(false) };
        let offset = offset + usize::try_from(from % slice_bytes).unwrap_or(0);
        let Some(memory) = slots.memory().part(offset, length) else { return Ok(false) };
        let StripeName { session, stripe } = self.name;
        let job = Job { session, lane, stripe, cell, end_bytes: end, _guard: self.guard.clone() };
        let target = (place.device, place.offset_bytes + within);
        match hands.disk.submit(hands.io, job, target, memory) {
            Ok(()) => {
                match cell {
                    For::Kept(at) => self.kept[at].begin(end),
                    For::Held(at) => self.held[at].begin(end),
                }
                Ok(true)
            }
            Err(SubmitError::QueueFull { .. }) => Ok(false),
            Err(error) => Err(Failure::new(Some(parts.me), Cause::Disk, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use rackscan_device::DeviceIndex;
    use rackscan_stripe::Column;

    use super::*;

    const CELL: Cell = Cell { column: Column(0), slot: 0 };

    fn place(offset_bytes: u64, length_bytes: u64) -> Place {
        Place { device: DeviceIndex(0), offset_bytes, length_bytes }
    }

    #[test]
    fn operations_that_end_in_any_order_count_from_the_beginning() {
        let mut moving = Moving::new(CELL, vec![place(0, 8192), place(40960, 4096)]);
        moving.begin(4096);
        moving.begin(8192);
        assert_eq!(moving.next_place(), Some((place(40960, 4096), 0)));
        moving.begin(12288);
        assert!(moving.is_behind_places());
        moving.skip(20480);
        assert_eq!((moving.begun_bytes(), moving.ended_bytes()), (20480, 0));
        moving.ended(8192);
        assert_eq!(moving.ended_bytes(), 0);
        moving.ended(4096);
        assert_eq!(moving.ended_bytes(), 8192);
        moving.ended(12288);
        assert_eq!(moving.ended_bytes(), 20480);
    }

    #[test]
    fn places_that_are_no_whole_sectors_or_longer_than_a_cell_are_refused() {
        let all = |places| all(&[CELL], vec![places], 8192);
        assert!(all(vec![]).is_ok() && all(vec![place(0, 4096), place(8192, 4096)]).is_ok());
        for wrong in [place(512, 4096), place(0, 512), place(0, 0), place(0, 12288)] {
            assert!(all(vec![wrong]).is_err(), "{wrong:?}");
        }
        assert!(all(vec![place(0, 8192), place(0, 4096)]).is_err());
        assert!(all(vec![place(0, 4096), place(0, u64::MAX - 4095)]).is_err());
        assert!(super::all(&[CELL], vec![], 8192).is_err());
    }
}
