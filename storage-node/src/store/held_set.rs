//! Contains this node's part of a stripe set, and records whether its places are lost.
//!
//! A place is a page or a parity cell at its fixed extent (`places`). A set is adopted when the
//! node takes its part over again after it has lost the bytes (`publish/repaired`).
//!
//! Invariants
//! - A set is complete as long as one table has it. It includes its parity and all pages of its
//!   segments, even those that no table has any more.
//! - All places of an adopted set count as lost until the whole set is found whole, at most until
//!   the node stops: after a restart, the node does not know which places are whole.
//! - One stripe at a time writes to a place. The place is free for the next stripe when the last
//!   device operation has ended.
//! - The page cache has no page of a place that is being written: it drops what overlaps the place
//!   before the write, and again when the last device operation has ended.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use rackscan_format::{
    ids::{SegmentId, TableId},
    message::{Refusal, RefusalCode, Verified},
    segment::{Extent, SegmentDirectory},
    stripe_set::{NodeStream, ParityCell, SetId, StripeSet},
};

use super::{
    allocate::{MetadataShare, Space, StoredSegment},
    catalog_content::NodeSetRef,
    error::MetadataFull,
    table_segment::TableSegment,
};
use crate::refusals::malformed;

/// The part of a stripe set on this node.
#[derive(Debug)]
pub(crate) struct HeldSet {
    id: SetId,
    segments: Vec<Arc<StoredSegment>>,
    /// The number of pages before each segment, and at last of all.
    starts: Vec<u64>,
    cells: Vec<ParityCell>,
    /// They own the extents of the cells.
    _parity: Vec<Arc<StoredSegment>>,
    /// Present while the set was adopted and not found whole since.
    lost: Mutex<Option<Lost>>,
}

impl HeldSet {
    pub(super) fn new(
        id: SetId,
        segments: Vec<Arc<StoredSegment>>,
        cells: Vec<ParityCell>,
        parity: Vec<Arc<StoredSegment>>,
    ) -> Self {
        let mut starts = vec![0_u64];
        for segment in &segments {
            let pages: usize = segment.directory().chunks.iter().map(|chunk| chunk.pages.len()).sum();
            starts.push(starts.last().copied().unwrap_or(0) + pages as u64);
        }
        Self { id, segments, starts, cells, _parity: parity, lost: Mutex::default() }
    }

    pub(crate) fn id(&self) -> SetId {
        self.id
    }

    /// The directories of its segments, in the order of the stream.
    pub(super) fn directories(&self) -> impl Iterator<Item = &Arc<SegmentDirectory>> {
        self.segments.iter().map(|segment| segment.directory())
    }

    /// The number of pages of its stream.
    pub(super) fn pages(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Their extents, in order.
    pub(super) fn pages_in_order(&self) -> impl Iterator<Item = Extent> {
        let chunks = self.segments.iter().flat_map(|segment| &segment.directory().chunks);
        chunks.flat_map(|chunk| &chunk.pages).map(|page| page.extent)
    }

    /// The cells of parity, in order.
    pub(super) fn cells(&self) -> &[ParityCell] {
        &self.cells
    }

    /// The segment in which a page of the stream lies, and the page's number among all of the
    /// segment's.
    pub(super) fn page_at(&self, number: u64) -> Option<(&Arc<SegmentDirectory>, usize)> {
        let at = self.starts.partition_point(|start| *start <= number).checked_sub(1)?;
        let directory = self.segments.get(at)?.directory();
        Some((directory, usize::try_from(number - self.starts[at]).ok()?))
    }

    /// Whether it equals what a map says of this node.
    pub(super) fn is(&self, set: &StripeSet, stream: &NodeStream) -> bool {
        let named = self.segments.iter().map(|segment| segment.directory());
        self.id == set.id
            && self.cells == stream.parity
            && self.segments.len() == stream.segments.len()
            && named.zip(&stream.segments).all(|(directory, named)| named.is_of(directory))
    }

    /// Whether segments that were written under this table lie in it.
    pub(super) fn has_of(&self, table: TableId) -> bool {
        self.segments.iter().any(|segment| segment.directory().table == table)
    }

    /// The names of its segments, in the order of the stream, and its cells.
    pub(super) fn content(&self) -> (impl Iterator<Item = (TableId, SegmentId)>, &[ParityCell]) {
        let name = |segment: &Arc<StoredSegment>| (segment.directory().table, segment.directory().segment);
        (self.segments.iter().map(name), self.cells())
    }

    /// Its catalog entry in a table that has these segments.
    pub(super) fn in_table(&self, segments: &BTreeMap<SegmentId, TableSegment>) -> NodeSetRef<'_> {
        let has = |directory: &SegmentDirectory| {
            segments.get(&directory.segment).is_some_and(|known| known.directory().table == directory.table)
        };
        let directories = self.segments.iter().map(|segment| &**segment.directory());
        NodeSetRef {
            id: self.id,
            segments: self.content().0.collect(),
            beside: directories.filter(|directory| !has(directory)).collect(),
            parity: &self.cells,
        }
    }

    /// The number of places.
    pub(crate) fn places(&self) -> u64 {
        self.pages() + self.cells().len() as u64
    }

    fn lost(&self) -> MutexGuard<'_, Option<Lost>> {
        // Nothing panics while it holds this lock in the middle of a change.
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the set as adopted: all of its places are lost.
    pub(super) fn mark_adopted(&self, space: &Arc<Space>) -> Result<(), MetadataFull> {
        let memory = space.share(self.places() * size_of::<LostPlace>() as u64)?;
        let pages = self.pages_in_order().map(|extent| LostPlace { extent, parity: None });
        let cells = self.cells().iter();
        let cells = cells.map(|cell| LostPlace { extent: cell.extent, parity: Some(cell.checksum) });
        let mut places: Vec<LostPlace> = pages.chain(cells).collect();
        places.sort_unstable_by_key(|place| (place.extent.device, place.extent.offset_bytes));
        *self.lost() = Some(Lost { places, claims: Vec::new(), whole_to: 0, _memory: memory });
        Ok(())
    }

    /// Records the result of verifying places from this one on.
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

    /// Claims the places that a stripe is to write. Refused unless the set was adopted, every
    /// extent lies in places of the set, a cell of parity is written as a whole, and no other
    /// stripe is writing there.
    pub(super) fn claim(
        self: &Arc<Self>,
        kept: &[Vec<Extent>],
        space: &Arc<Space>,
    ) -> Result<Arc<PlacesClaim>, Refusal> {
        let set = self.id;
        let mut lost = self.lost();
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
        let claim = PlacesClaim { set: Arc::clone(self), space: Arc::clone(space), extents, parity };
        let claim = Arc::new(claim);
        claim.withdraw();
        known.claims.push(Arc::downgrade(&claim));
        known.whole_to = 0;
        Ok(claim)
    }
}

/// The known losses of a set that was adopted and has not been found whole since.
#[derive(Debug)]
struct Lost {
    /// All places, ordered by device and offset.
    places: Vec<LostPlace>,
    /// The claims of stripes that write to them.
    claims: Vec<Weak<PlacesClaim>>,
    /// All places before this one were found whole in sequence, and no stripe has begun since.
    whole_to: u64,
    _memory: MetadataShare,
}

#[derive(Debug, Clone, Copy)]
struct LostPlace {
    extent: Extent,
    /// The CRC-32C of a cell of parity.
    parity: Option<u32>,
}

/// Places that a stripe is being written to. When the last device operation of the stripe has
/// ended, they can be claimed again, and their extents freed.
#[derive(Debug)]
pub(crate) struct PlacesClaim {
    set: Arc<HeldSet>,
    space: Arc<Space>,
    extents: Vec<Extent>,
    /// The expected checksum of each cell that is written, if it is a cell of parity.
    parity: Vec<Option<u32>>,
}

impl PlacesClaim {
    /// Checks the checksums of what was written. All of it is on the disk.
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

impl Lost {
    /// The places that an extent covers, if it covers nothing else.
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

    /// The checksum that a cell must have if it is one of parity. The outer `None` means that the
    /// cell may not be written there.
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
