//! How does a stripe pass through one node?
//!
//! ```text
//! slices arrive in rings --> sums of them in slots of our own --> sent on, out of the slot where they lie
//!                       \                                    \--> written to a device out of it, checksummed, flushed
//!                        `-- the ring's tail is the least of all of these; the sender is told
//! ```
//!
//! A slice that is kept is checksummed when its write has ended, over the memory that was written: had its slot been used again too early, by anybody, it would be seen. Writes wait
//! until some neighbouring slices are there, but never for more than half of a ring, so that what they wait for can always come.
//!
//! Invariants
//! - One step of [`Underway::advance`] never waits, and does at most what fits the rings.
//! - `Stored` is said when every kept cell is checksummed and flushed, and every slice that others need has gone.

mod inward;
mod outward;

use std::collections::VecDeque;

use rackscan_fabric::Region;
use rackscan_stripe::{Cell, Column, Geometry, Node, Sender};

use super::{
    disk::{Flush, Job},
    session::{Hands, Parts},
};
use crate::{
    checksum,
    error::Failure,
    limits::SECTOR_BYTES,
    message::Begin,
    plan::Origin,
    progress::Progress,
    shape::Layout,
    store::{Place, StoredCell, StripeName},
};

/// A cell that is being kept.
#[derive(Debug)]
struct Kept {
    cell: Cell,
    places: Vec<Place>,
    /// Bytes whose write was begun, and whose write has ended.
    begun_bytes: u64,
    written_bytes: u64,
    /// Where writes end that were begun, and whether they have.
    writes: VecDeque<(u64, bool)>,
    checksums: Vec<u32>,
}

/// A stripe that passes.
#[derive(Debug)]
pub(super) struct Underway {
    pub(super) name: StripeName,
    column: usize,
    cell_bytes: u64,
    progress: Progress,
    /// Which link and ring each origin arrives by, and where each send goes.
    inputs: Vec<(usize, usize)>,
    outputs: Vec<(usize, usize)>,
    /// Of each source the checksums of the slices in its slots.
    checksums: Vec<Vec<u32>>,
    kept: Vec<Kept>,
    flushes: Option<Vec<Flush>>,
}

/// A link by place: the client's, then those of the members.
pub(super) fn in_index(member: Option<usize>) -> usize {
    member.map_or(0, |member| member + 1)
}

/// The inverse.
fn of_index(index: usize) -> Option<usize> {
    index.checked_sub(1)
}

impl Underway {
    /// A stripe begins at a node with this column of it.
    pub(super) fn new(
        layout: &Layout,
        name: StripeName,
        column: Column,
        begin: &Begin,
        places: Vec<Vec<Place>>,
    ) -> Result<Self, String> {
        let plan = &layout.columns[usize::from(column.0)];
        if places.len() != plan.keeps.len() {
            return Err(format!("the store gave {} places for {} cells", places.len(), plan.keeps.len()));
        }
        if let Some(wrong) = places.iter().find(|places| !are_whole(places, begin.cell_bytes)) {
            return Err(format!("the store gave {wrong:?} for a cell of {} bytes", begin.cell_bytes));
        }
        let (geometry, slots) = (&layout.geometry, layout.slots());
        let slices = layout.slices(begin.cell_bytes);
        let input = |origin: &Origin| match *origin {
            Origin::Arrives { from: Sender::Column(from), ring } => {
                (in_index(Some(member_of(geometry, name.stripe, from))), ring)
            }
            Origin::Arrives { ring, .. } => (in_index(None), ring),
            // Only the client has data without anybody's help.
            Origin::Data { cell } => (in_index(None), cell),
        };
        let kept = plan.keeps.iter().zip(places).map(|(keeping, places)| Kept {
            cell: keeping.cell,
            places,
            begun_bytes: 0,
            written_bytes: 0,
            writes: VecDeque::new(),
            checksums: Vec::new(),
        });
        Ok(Self {
            name,
            column: usize::from(column.0),
            cell_bytes: begin.cell_bytes,
            progress: Progress::new(plan, slices, slots),
            inputs: plan.origins.iter().map(input).collect(),
            outputs: plan
                .sends
                .iter()
                .map(|send| (member_of(geometry, name.stripe, send.to), send.ring))
                .collect(),
            checksums: vec![vec![0; slots as usize]; plan.sources()],
            kept: kept.collect(),
            flushes: None,
        })
    }

    /// Does whatever can be done. Whether anything was.
    pub(super) fn advance(
        &mut self,
        lane: usize,
        parts: &mut Parts<'_>,
        hands: &mut Hands<'_>,
    ) -> Result<bool, Failure> {
        let layout = parts.layout;
        let plan = &layout.columns[self.column];
        let mut moved = self.take_arrivals(lane, parts)?;
        moved |= self.sum(lane, plan, parts)?;
        moved |= self.send(lane, plan, parts, hands)?;
        moved |= self.store(lane, plan, parts, hands)?;
        moved |= self.check(lane, plan, parts)?;
        Ok(moved | self.give_credits(lane, plan, parts, hands))
    }

    /// A slice of a send has gone.
    pub(super) fn sent(&mut self, send: usize) -> bool {
        self.progress.sent(send)
    }

    /// A write has ended.
    pub(super) fn written(&mut self, job: &Job) {
        let Some(kept) = self.kept.get_mut(job.keep) else { return };
        if let Some(write) = kept.writes.iter_mut().find(|(end, _)| *end == job.end_bytes) {
            write.1 = true;
        }
        while let Some((end, true)) = kept.writes.front().copied() {
            kept.written_bytes = end;
            kept.writes.pop_front();
        }
    }

    /// Whether everything has been done that needs no flush.
    fn is_through(&self) -> bool {
        self.progress.is_through()
    }

    /// Asks for flushes once, and says whether they have all ended.
    pub(super) fn is_durable(&mut self, hands: &mut Hands<'_>) -> bool {
        if !self.is_through() {
            return false;
        }
        let kept = &self.kept;
        let flushes = self.flushes.get_or_insert_with(|| {
            let mut devices: Vec<_> =
                kept.iter().flat_map(|kept| &kept.places).map(|place| place.device).collect();
            devices.sort_unstable();
            devices.dedup();
            devices.into_iter().map(|device| hands.disk.want(device)).collect()
        });
        flushes.iter().all(|flush| hands.disk.is_flushed(*flush))
    }

    /// Whether it waits for a flush of this device, or has yet to be flushed there.
    pub(super) fn needs(&self, device: rackscan_device::DeviceIndex) -> bool {
        self.kept.iter().flat_map(|kept| &kept.places).any(|place| place.device == device)
    }

    /// Whom it waits for, and why: who has not sent a slice, or else takes none, or else our own devices.
    pub(super) fn awaited(&self, layout: &Layout, me: usize) -> (Option<usize>, &'static str) {
        let slices = self.progress.slices();
        let missing = (0..self.inputs.len()).find(|source| self.progress.there(*source) < slices);
        if let Some(source) = missing {
            return (of_index(self.inputs[source].0), "it has sent nothing of a stripe");
        }
        let plan = &layout.columns[self.column];
        match (0..self.outputs.len()).find(|send| self.progress.next_send(plan, *send).is_some()) {
            Some(send) => (Some(self.outputs[send].0), "it has taken nothing of a stripe"),
            None => (Some(me), "it has stored nothing of a stripe"),
        }
    }

    /// What was kept, and the digest of each cell's checksums.
    pub(super) fn stored_cells(&self, layout: &Layout) -> (Vec<StoredCell>, Vec<u32>) {
        let whole = |kept: &Kept| {
            let slices = (0..).zip(&kept.checksums);
            slices.fold(0, |whole, (slice, checksum)| {
                let length = layout.slice_length(self.cell_bytes, slice);
                crc32c::crc32c_combine(whole, *checksum, length)
            })
        };
        let cell = |kept: &Kept| StoredCell { cell: kept.cell, checksum: whole(kept) };
        let digest = |kept: &Kept| checksum::digest(kept.checksums.iter().copied());
        (self.kept.iter().map(cell).collect(), self.kept.iter().map(digest).collect())
    }

    /// The rings are for the next stripe.
    pub(super) fn leave_rings(&self, lane: usize, parts: &mut Parts<'_>) {
        for (from, ring) in &self.inputs {
            if let Some(arriving) = &mut parts.incoming[*from] {
                arriving.rings.inlet(lane, *ring).end_stripe(self.progress.slices());
            }
        }
    }

    /// Where a slice of a source lies.
    fn place<'a>(
        &self,
        lane: usize,
        source: usize,
        slice: u32,
        parts: &'a Parts<'_>,
    ) -> Option<(&'a Region, usize)> {
        match self.inputs.get(source) {
            Some((from, ring)) => {
                let rings = &parts.incoming[*from].as_ref()?.rings;
                Some((rings.slots().region(), rings.offset(lane, *ring, slice)))
            }
            None => {
                let sums = parts.sums?;
                Some((sums.region(), {
                    let of = (lane, source - self.inputs.len());
                    parts.layout.sum_offset(parts.layout.sums, of, slice)
                }))
            }
        }
    }

    /// Bytes of the first so many slices of a cell.
    fn bytes(&self, slices: u32, layout: &Layout) -> u64 {
        (u64::from(slices) * layout.shape.slice_bytes as u64).min(self.cell_bytes)
    }
}

/// Which member has a column in a stripe.
pub(crate) fn member_of(geometry: &Geometry, stripe: u64, column: Column) -> usize {
    // A column of the geometry has a node.
    usize::from(geometry.node_of(stripe, column).unwrap_or(Node(column.0)).0)
}

/// Whether places are whole sectors, as long as a cell together; none at all are right, too.
fn are_whole(places: &[Place], cell_bytes: u64) -> bool {
    let whole = |bytes: u64| bytes.is_multiple_of(SECTOR_BYTES as u64);
    let total = places.iter().try_fold(0_u64, |sum, place| sum.checked_add(place.length_bytes));
    let sound =
        |place: &Place| whole(place.offset_bytes) && whole(place.length_bytes) && place.length_bytes > 0;
    places.is_empty() || total == Some(cell_bytes) && places.iter().all(sound)
}
