//! Counts how many bytes of one cell have been read from a device, or written to it.
//!
//! Invariant: device operations begin in the order of the cell's bytes and may end in any order.
//! Bytes count as read or written only if all operations on earlier bytes of the cell have ended,
//! too.

use std::collections::VecDeque;

use rackscan_stripe::Cell;

use crate::{limits::SECTOR_BYTES, store::Place};

/// A cell that is being read, or written.
#[derive(Debug)]
pub(super) struct CellTransfer {
    pub(super) cell: Cell,
    places: Vec<Place>,
    placed_bytes: u64,
    /// The byte up to which operations were begun, and the one up to which all have ended.
    begun_bytes: u64,
    ended_bytes: u64,
    /// For each operation in progress, the byte at which it ends, and whether it has ended.
    jobs: VecDeque<(u64, bool)>,
    /// The CRC-32C of the slices so far.
    pub(super) checksum: u32,
}

/// Begins the transfers of these cells, with a list of places for each. An error says what is wrong
/// with the places.
pub(super) fn begin_all(
    cells: &[Cell],
    places: Vec<Vec<Place>>,
    cell_bytes: u64,
) -> Result<Vec<CellTransfer>, String> {
    if places.len() != cells.len() {
        return Err(format!(
            "the store returned lists of extents for {} cells, expected {}",
            places.len(),
            cells.len()
        ));
    }
    if let Some(wrong) = places.iter().find(|places| !fit(places, cell_bytes)) {
        return Err(format!(
            "the store returned {wrong:?} for a cell of {cell_bytes} bytes, expected whole sectors, \
             together not longer than the cell"
        ));
    }
    Ok(cells.iter().zip(places).map(|(cell, places)| CellTransfer::new(*cell, places)).collect())
}

/// Whether places are whole sectors, and together not longer than a cell.
fn fit(places: &[Place], cell_bytes: u64) -> bool {
    let whole = |bytes: u64| bytes.is_multiple_of(SECTOR_BYTES as u64);
    let total = places.iter().try_fold(0_u64, |sum, place| sum.checked_add(place.length_bytes));
    let sound =
        |place: &Place| whole(place.offset_bytes) && whole(place.length_bytes) && place.length_bytes > 0;
    total.is_some_and(|total| total <= cell_bytes) && places.iter().all(sound)
}

impl CellTransfer {
    fn new(cell: Cell, places: Vec<Place>) -> Self {
        let placed_bytes = places.iter().map(|place| place.length_bytes).sum();
        let (begun_bytes, ended_bytes, jobs) = (0, 0, VecDeque::new());
        Self { cell, places, placed_bytes, begun_bytes, ended_bytes, jobs, checksum: 0 }
    }

    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    /// The byte up to which operations were begun.
    pub(super) fn begun_bytes(&self) -> u64 {
        self.begun_bytes
    }

    /// The byte up to which all operations have ended.
    pub(super) fn ended_bytes(&self) -> u64 {
        self.ended_bytes
    }

    /// The place of the next byte, and its offset there; `None` after the last place.
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

    /// Whether operations have reached the end of the places.
    pub(super) fn is_behind_places(&self) -> bool {
        self.begun_bytes >= self.placed_bytes
    }

    /// Takes note that an operation was begun that ends at this byte.
    pub(super) fn begin(&mut self, end_bytes: u64) {
        self.begun_bytes = end_bytes;
        self.jobs.push_back((end_bytes, false));
    }

    /// Takes note that the operation that ends at this byte has ended.
    pub(super) fn ended(&mut self, end_bytes: u64) {
        if let Some(job) = self.jobs.iter_mut().find(|(end, _)| *end == end_bytes) {
            job.1 = true;
        }
        while let Some((end, true)) = self.jobs.front().copied() {
            self.ended_bytes = end;
            self.jobs.pop_front();
        }
    }

    /// Skips to this byte without an operation.
    pub(super) fn skip(&mut self, end_bytes: u64) {
        if end_bytes > self.begun_bytes {
            self.begin(end_bytes);
            self.ended(end_bytes);
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
        let mut moving = CellTransfer::new(CELL, vec![place(0, 8192), place(40960, 4096)]);
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
        let all = |places| begin_all(&[CELL], vec![places], 8192);
        assert!(all(vec![]).is_ok() && all(vec![place(0, 4096), place(8192, 4096)]).is_ok());
        for wrong in [place(512, 4096), place(0, 512), place(0, 0), place(0, 12288)] {
            assert!(all(vec![wrong]).is_err(), "{wrong:?}");
        }
        assert!(all(vec![place(0, 8192), place(0, 4096)]).is_err());
        assert!(all(vec![place(0, 4096), place(0, u64::MAX - 4095)]).is_err());
        assert!(super::begin_all(&[CELL], vec![], 8192).is_err());
    }
}
