//! Tracks the parity cells of a load: which are stored, and which a relayed stripe is writing.
//!
//! ```text
//! appended  ------------------------------------> written
//! reserved  --claim--> being written  --stored--> written
//!    ^                      |
//!    +-- claim is dropped --+
//! ```
//!
//! A claim ([`ParityClaim`]) is the right of one stripe to write reserved cells. It lasts until the
//! stripe's last device operation has ended, even if the stripe was aborted before: an operation
//! that is still in flight would overwrite what another stripe writes there.
//!
//! Invariants
//! - A cell is written once, by one stripe at a time, and only with cells of the size that was
//!   reserved.
//! - What a stripe has written counts only for the load for which the stripe began, not for a later
//!   load with the same number.

use std::sync::Arc;

use rackscan_format::{
    ids::TableId,
    message::{Refusal, RefusalCode},
    segment::Extent,
};

use super::{Load, Loads, aborted};
use crate::store::protected::{ParityClaim, ParityPiece, PieceCell};

/// Neighbouring cells of parity of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParityCells {
    pub(crate) load: TableId,
    /// The number of the set among those of the load.
    pub(crate) set: u32,
    /// The index of the first one among all that the node keeps of the set.
    pub(crate) first_cell: u32,
    pub(crate) cells: usize,
}

impl ParityCells {
    fn malformed(&self, cell: u64, why: impl std::fmt::Display) -> Refusal {
        let Self { load, set, .. } = self;
        Refusal::new(RefusalCode::Malformed, format!("cell {cell} of parity of set {load}.{set} {why}"))
    }

    /// Their indexes.
    fn numbers(&self) -> impl Iterator<Item = u64> + use<> {
        let first = u64::from(self.first_cell);
        first..first + self.cells as u64
    }
}

impl Load {
    /// The piece that contains a cell, and the cell's index in it.
    fn piece(&mut self, set: u32, cell: u64) -> Option<(&mut Arc<ParityPiece>, usize)> {
        let cell = u32::try_from(cell).ok()?;
        let ((_, first), piece) = self.parity.range_mut((set, 0)..=(set, cell)).next_back()?;
        let within = usize::try_from(cell - first).ok()?;
        (within < piece.cells.len()).then_some((piece, within))
    }

    /// The extent of a reserved cell that no stripe is writing; else why not.
    fn free_cell(&mut self, wanted: &ParityCells, cell: u64, cell_bytes: u64) -> Result<Extent, Refusal> {
        let Some((piece, within)) = self.piece(wanted.set, cell) else {
            return Err(wanted.malformed(cell, "is not reserved here"));
        };
        match &piece.cells[within] {
            PieceCell::Written(_) => return Err(wanted.malformed(cell, "has been written before")),
            PieceCell::Reserved(claim) if claim.strong_count() > 0 => {
                let mut busy = wanted.malformed(cell, "is being written by another stripe");
                busy.code = RefusalCode::Busy;
                return Err(busy);
            }
            PieceCell::Reserved(_) => {}
        }
        let extent = piece.extents().nth(within);
        extent.filter(|extent| u64::from(extent.length_bytes) == cell_bytes).ok_or_else(|| {
            let reserved = extent.map_or(0, |extent| extent.length_bytes);
            wanted.malformed(cell, format!("has {reserved} bytes here, the stripe's cells have {cell_bytes}"))
        })
    }
}

impl Loads {
    /// Adds cells of parity that have arrived, or were reserved.
    pub(in crate::store) fn end_parity(
        &mut self,
        load: TableId,
        (set, first_cell): (u32, u32),
        piece: ParityPiece,
    ) -> Result<(), Refusal> {
        let Some(entry) = self.loads.get_mut(&load) else { return Err(aborted(load)) };
        entry.appending = entry.appending.saturating_sub(1);
        let last = u64::from(first_cell) + (piece.cells.len() as u64).saturating_sub(1);
        let outcome = if entry.aborted {
            Err(aborted(load))
        } else if let Ok(last_cell) = u32::try_from(last) {
            let before = entry.piece(set, first_cell.into()).map(|_| first_cell);
            let behind = entry.parity.range((set, first_cell)..=(set, last_cell)).next();
            match before.or(behind.map(|((_, first), _)| *first)) {
                None => {
                    entry.parity.insert((set, first_cell), Arc::new(piece));
                    Ok(())
                }
                Some(cell) => {
                    let text = format!("parity cell {cell} of set {set} of load {load} has arrived before");
                    Err(Refusal::new(RefusalCode::Malformed, text))
                }
            }
        } else {
            let text =
                format!("parity cell {last} of set {set} of load {load}, expected at most cell {}", u32::MAX);
            Err(Refusal::new(RefusalCode::Malformed, text))
        };
        self.settle(load);
        outcome
    }

    /// Claims these cells for a stripe. Returns their extents.
    pub(in crate::store) fn claim_parity(
        &mut self,
        wanted: &ParityCells,
        cell_bytes: u64,
    ) -> Result<(Vec<Extent>, Arc<ParityClaim>), Refusal> {
        let entry = self.loads.get_mut(&wanted.load).filter(|entry| !entry.aborted);
        let entry = entry.ok_or_else(|| aborted(wanted.load))?;
        let extents = wanted.numbers().map(|cell| entry.free_cell(wanted, cell, cell_bytes));
        let extents = extents.collect::<Result<Vec<_>, _>>()?;
        let mut piece_of = |cell| entry.piece(wanted.set, cell).map(|(piece, _)| Arc::clone(piece.stored()));
        let mut held: Vec<Arc<_>> = wanted.numbers().filter_map(&mut piece_of).collect();
        held.dedup_by(|one, other| Arc::ptr_eq(one, other));
        let claim = Arc::new(ParityClaim { _pieces: held });
        for cell in wanted.numbers() {
            if let Some((piece, within)) = entry.piece(wanted.set, cell) {
                Arc::make_mut(piece).cells[within] = PieceCell::Reserved(Arc::downgrade(&claim));
            }
        }
        Ok((extents, claim))
    }

    /// Records that a stripe has written its cells, with these checksums.
    pub(in crate::store) fn parity_stored(
        &mut self,
        written: &ParityCells,
        claim: &Arc<ParityClaim>,
        checksums: &[u32],
    ) -> Result<(), Refusal> {
        let entry = self.loads.get_mut(&written.load).filter(|entry| !entry.aborted);
        let entry = entry.ok_or_else(|| aborted(written.load))?;
        let is_ours =
            |cell: &PieceCell| matches!(cell, PieceCell::Reserved(by) if by.as_ptr() == Arc::as_ptr(claim));
        let mut cells = written.numbers();
        if !cells.all(|cell| entry.piece(written.set, cell).is_some_and(|(p, at)| is_ours(&p.cells[at]))) {
            return Err(aborted(written.load));
        }
        for (cell, checksum) in written.numbers().zip(checksums) {
            if let Some((piece, within)) = entry.piece(written.set, cell) {
                Arc::make_mut(piece).cells[within] = PieceCell::Written(*checksum);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
