//! What may stripes that are relayed write here, beside the scratch area?
//!
//! ```text
//! Parity    cells that a load reserved                        -> checksums of the load                    (loads/parity)
//! Rebuild   places of a set that this node has adopted and    -> corrupt or whole, as they verify
//!           of which nobody has found since that it is whole
//! ```
//!
//! Who rebuilds has survivors' bytes put where the lost ones were, cell by cell, and nobody looks
//! at pages meanwhile. So that is only possible where all is lost anyway: a place of a set that may
//! be whole takes nothing but its bytes ([`super::places`]), which a relay cannot know.
//!
//! Invariants
//! - What is known of a set that was adopted is known for this life of the node only: after a
//!   restart its places may be whole.
//! - One stripe at a time writes to a place. A place is free for the next one when the last device
//!   operation has ended.
//! - The page cache has nothing of a place that is being written to: it forgets what overlaps it
//!   before, and when the last device operation has ended.

use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use rackscan_format::{
    ids::TableId,
    message::{Refusal, RefusalCode, ReserveParity, Verified},
    segment::Extent,
    stripe_set::SetId,
};

use super::{
    ConnectionId, HeldSet, ParityCells, ParityClaim, ParityPiece, Store,
    allocate::{MetadataFull, MetadataShare, Space, StoredSegment},
    parity_directory, parity_lengths,
};

/// What is known of a set that was adopted and has not been found whole since.
#[derive(Debug)]
pub(super) struct Lost {
    /// All places, in the order of the devices.
    places: Vec<LostPlace>,
    /// Stripes that write to them.
    claims: Vec<Weak<PlacesClaim>>,
    /// All places before this one were found whole, one behind the other, and no stripe has begun
    /// since.
    whole_to: u64,
    _memory: MetadataShare,
}

#[derive(Debug, Clone, Copy)]
struct LostPlace {
    extent: Extent,
    /// The CRC-32C of a cell of parity.
    parity: Option<u32>,
}

/// Places that a stripe is being written to. They are free for another one, and their room for
/// something else, when the last device operation of the stripe has ended.
#[derive(Debug)]
pub(crate) struct PlacesClaim {
    set: Arc<HeldSet>,
    space: Arc<Space>,
    extents: Vec<Extent>,
    /// Of each cell that is written, its checksum if it is a cell of parity.
    parity: Vec<Option<u32>>,
}

impl PlacesClaim {
    /// Whether what was written may lie there; all of it is on the disk.
    pub(crate) fn check(&self, checksums: &[u32]) -> Result<(), Refusal> {
        self.withdraw();
        for (found, expected) in checksums.iter().zip(&self.parity) {
            if let Some(expected) = expected.filter(|expected| expected != found) {
                return Err(malformed(format!(
                    "what was rebuilt of set {} is not its parity: a cell has checksum {found:08x}, expected {expected:08x}",
                    self.set.id()
                )));
            }
        }
        Ok(())
    }

    fn withdraw(&self) {
        self.extents.iter().for_each(|extent| self.space.withdraw(extent));
    }
}

impl Drop for PlacesClaim {
    fn drop(&mut self) {
        self.withdraw();
    }
}

impl HeldSet {
    fn lost(&self) -> MutexGuard<'_, Option<Lost>> {
        // Nothing in here panics half way through a change.
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It was adopted: all of its places are lost.
    pub(super) fn adopted(&self, space: &Arc<Space>) -> Result<(), MetadataFull> {
        let memory = space.share(self.places() * size_of::<LostPlace>() as u64)?;
        let pages = self.pages_in_order().map(|extent| LostPlace { extent, parity: None });
        let cells = self.cells().iter();
        let cells = cells.map(|cell| LostPlace { extent: cell.extent, parity: Some(cell.checksum) });
        let mut places: Vec<LostPlace> = pages.chain(cells).collect();
        places.sort_unstable_by_key(|place| (place.extent.device, place.extent.offset_bytes));
        *self.lost() = Some(Lost { places, claims: Vec::new(), whole_to: 0, _memory: memory });
        Ok(())
    }

    /// Places from this one on were read and held against the catalog.
    pub(crate) fn verified(&self, from: u64, found: &Verified) {
        let mut lost = self.lost();
        let Some(known) = lost.as_mut() else { return };
        known.claims.retain(|claim| claim.strong_count() > 0);
        if !known.claims.is_empty() || !found.corrupt.is_empty() {
            known.whole_to = 0;
        } else if from <= known.whole_to {
            known.whole_to = known.whole_to.max(from + found.places);
        }
        if known.whole_to >= self.places() {
            tracing::info!(set = %self.id(), "a set that was adopted is whole");
            *lost = None;
        }
    }
}

impl Lost {
    /// Which places an extent covers, if it covers nothing else.
    fn covered(&self, extent: &Extent) -> Option<&[LostPlace]> {
        let end = extent.end_bytes()?;
        let key = |place: &LostPlace| (place.extent.device, place.extent.offset_bytes);
        let at = (extent.device, extent.offset_bytes);
        let first = self.places.partition_point(|place| key(place) <= at).checked_sub(1)?;
        let behind = self.places.partition_point(|place| key(place) < (extent.device, end));
        let covered = self.places.get(first..behind)?;
        let mut next =
            covered.first().filter(|place| place.extent.device == extent.device)?.extent.offset_bytes;
        for place in covered {
            if place.extent.offset_bytes != next {
                return None;
            }
            next = place.extent.end_bytes()?;
        }
        (next >= end).then_some(covered)
    }

    /// The checksum that a cell must have if it is one of parity; nothing of a cell that may not be
    /// written there.
    fn expected(&self, extents: &[Extent]) -> Option<Option<u32>> {
        let mut parity = None;
        for extent in extents {
            for place in self.covered(extent)? {
                match place.parity {
                    Some(checksum) if extents.len() == 1 && place.extent == *extent => {
                        parity = Some(checksum)
                    }
                    Some(_) => return None,
                    None => {}
                }
            }
        }
        Some(parity)
    }
}

fn overlap(one: &Extent, other: &Extent) -> bool {
    let end = |extent: &Extent| extent.end_bytes().unwrap_or(u64::MAX);
    one.device == other.device && one.offset_bytes < end(other) && other.offset_bytes < end(one)
}

impl Store {
    /// Takes room for cells of parity of a load.
    pub(crate) fn reserve_parity(
        &self,
        request: &ReserveParity,
        from: ConnectionId,
    ) -> Result<Vec<Extent>, Refusal> {
        let ReserveParity { load, set, first_cell, cells, cell_bytes } = *request;
        let cells = usize::try_from(cells).unwrap_or(usize::MAX);
        self.begin_append(load, from)?;
        let stored = self.allocate(parity_directory(load, first_cell, &parity_lengths(cells, cell_bytes)));
        let stored: Arc<StoredSegment> = match stored {
            Ok(stored) => Arc::new(stored),
            Err(refusal) => {
                // Why there is no room says more than that the load is gone, too.
                let _ = self.end_append(load, None);
                return Err(refusal);
            }
        };
        let piece = ParityPiece::reserved(stored, cells);
        let extents = piece.extents().collect();
        self.end_parity(load, set, first_cell, piece)?;
        Ok(extents)
    }

    /// A stripe begins to write reserved cells of parity: where they lie.
    pub(crate) fn claim_parity(
        &self,
        wanted: &ParityCells,
        cell_bytes: u64,
    ) -> Result<(Vec<Extent>, Arc<ParityClaim>), Refusal> {
        self.loads().claim_parity(wanted, cell_bytes)
    }

    /// A stripe has written them.
    pub(crate) fn parity_stored(
        &self,
        written: &ParityCells,
        claim: &Arc<ParityClaim>,
        checksums: &[u32],
    ) -> Result<(), Refusal> {
        self.loads().parity_stored(written, claim, checksums)
    }

    /// A stripe begins to write these cells to places of a set that this node has lost.
    pub(crate) fn claim_places(
        &self,
        (table, set): (TableId, SetId),
        kept: &[Vec<Extent>],
    ) -> Result<Arc<PlacesClaim>, Refusal> {
        let published = self.published();
        let sets = published.tables.get(&table).filter(|known| known.committed).map(|known| &known.sets);
        let held = sets.and_then(|sets| sets.iter().find(|held| held.id() == set));
        let held = held.ok_or_else(|| {
            let text = format!("no table {table} with stripe set {set} is published here");
            Refusal::new(RefusalCode::NotFound, text)
        })?;
        let mut lost = held.lost();
        let Some(known) = lost.as_mut() else {
            return Err(malformed(format!(
                "set {set} was not adopted since this node started, or has been found whole since: its places take only their bytes; repair those that are \
                 corrupt"
            )));
        };
        let expected = kept.iter().map(|extents| known.expected(extents));
        let parity = expected.collect::<Option<Vec<_>>>().ok_or_else(|| {
            malformed(format!(
                "a stripe is to write elsewhere than to places of set {set}, or to a part of a cell of parity"
            ))
        })?;
        let extents: Vec<Extent> = kept.iter().flatten().copied().collect();
        let twice = |(at, extent): (usize, &Extent)| extents[..at].iter().any(|other| overlap(extent, other));
        if extents.iter().enumerate().any(twice) {
            return Err(malformed(format!("a stripe is to write twice to a place of set {set}")));
        }
        known.claims.retain(|claim| claim.strong_count() > 0);
        let under_way: Vec<Arc<PlacesClaim>> = known.claims.iter().filter_map(Weak::upgrade).collect();
        let busy = |claim: &Arc<PlacesClaim>| {
            claim.extents.iter().any(|one| extents.iter().any(|other| overlap(one, other)))
        };
        if under_way.iter().any(busy) {
            let text = format!("a place of set {set} is being written by another stripe; ask again");
            return Err(Refusal::new(RefusalCode::Busy, text));
        }
        let (set, space) = (Arc::clone(held), Arc::clone(&self.space));
        let claim = Arc::new(PlacesClaim { set, space, extents, parity });
        claim.withdraw();
        known.claims.push(Arc::downgrade(&claim));
        known.whole_to = 0;
        Ok(claim)
    }
}

fn malformed(text: String) -> Refusal {
    Refusal::new(RefusalCode::Malformed, text)
}

#[cfg(test)]
pub(crate) mod tests;
