//! How does a stripe pass through one node?
//!
//! ```text
//! slices arrive in rings ----------+--> sums of them in slots of our own --> sent on, out of the slot where they lie
//! held cells are read from devices /                                     \--> written to a device out of it, checksummed, flushed
//!                 \-- a slot is used again when all of these are done with it; whoever sends into a ring is told
//! ```
//!
//! A slice that is kept is checksummed when its write has ended, over the memory that was written:
//! had its slot been used again too early, by anybody, it would be seen. Writes wait until some
//! neighbouring slices are there, but never for more than half of a ring, so that what they wait
//! for can always come.
//!
//! Invariants
//! - One step of [`Underway::advance`] never waits, and does at most what fits the rings.
//! - `Stored` is said when every kept cell is checksummed and flushed, and every slice that others
//!   need has gone.

mod inward;
mod moving;
mod outward;
mod reading;

use rackscan_fabric::Region;
use rackscan_stripe::{Cell, Column, Geometry, Node, Sender};

use self::moving::Moving;
use super::{
    disk::{Flush, For, Job},
    session::{Hands, Parts},
};
use crate::{
    error::Failure,
    message::Begin,
    plan::{Origin, Plan},
    progress::Progress,
    rings::Slots,
    shape::Layout,
    store::{Guard, Places, StoredCell, StripeName},
};

/// Where slices of an origin come from.
#[derive(Clone, Copy, Debug)]
enum Input {
    /// A ring of a link.
    Ring { from: usize, ring: usize },
    /// A cell that the node has, by its place among these.
    Held(usize),
}

/// A stripe that passes.
#[derive(Debug)]
pub(super) struct Underway {
    pub(super) name: StripeName,
    column: usize,
    cell_bytes: u64,
    progress: Progress,
    /// Where each origin comes from, and which member and ring each send goes to.
    inputs: Vec<Input>,
    outputs: Vec<(usize, usize)>,
    /// Of each source the checksums of the slices in its slots.
    checksums: Vec<Vec<u32>>,
    kept: Vec<Moving>,
    held: Vec<Moving>,
    guard: Option<Guard>,
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
        places: Places,
    ) -> Result<Self, String> {
        let plan = &layout.turn(name.stripe).columns[usize::from(column.0)];
        let (geometry, slots) = (&layout.geometry, layout.slots());
        let slices = layout.slices(begin.cell_bytes);
        let input = |origin: &Origin| match *origin {
            Origin::Arrives { from: Sender::Column(from), ring } => {
                Input::Ring { from: in_index(Some(member_of(geometry, name.stripe, from))), ring }
            }
            Origin::Arrives { ring, .. } => Input::Ring { from: in_index(None), ring },
            // Only the client has data without anybody's help.
            Origin::Data { cell } => Input::Ring { from: in_index(None), ring: cell },
            Origin::Held { cell } => Input::Held(cell),
        };
        let kept: Vec<Cell> = plan.keeps.iter().map(|keeping| keeping.cell).collect();
        let output = |to| member_of(geometry, name.stripe, to);
        Ok(Self {
            name,
            column: usize::from(column.0),
            cell_bytes: begin.cell_bytes,
            progress: Progress::new(plan, slices, slots),
            inputs: plan.origins.iter().map(input).collect(),
            outputs: plan.sends.iter().map(|send| (output(send.to), send.ring)).collect(),
            checksums: vec![vec![0; slots as usize]; plan.sources()],
            kept: moving::all(&kept, places.kept, begin.cell_bytes)?,
            held: moving::all(&plan.held, places.held, begin.cell_bytes)?,
            guard: places.guard,
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
        let plan = &layout.turn(self.name.stripe).columns[self.column];
        let mut moved = self.take_arrivals(lane, parts)?;
        moved |= self.take_read(lane, plan, parts)?;
        moved |= self.read(lane, plan, parts, hands)?;
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

    /// A read or a write has ended.
    pub(super) fn moved(&mut self, job: &Job) {
        let moving = match job.cell {
            For::Kept(at) => self.kept.get_mut(at),
            For::Held(at) => self.held.get_mut(at),
        };
        if let Some(moving) = moving {
            moving.ended(job.end_bytes);
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
                kept.iter().flat_map(|kept| kept.places()).map(|place| place.device).collect();
            devices.sort_unstable();
            devices.dedup();
            devices.into_iter().map(|device| hands.disk.want(device)).collect()
        });
        flushes.iter().all(|flush| hands.disk.is_flushed(*flush))
    }

    /// Whether it waits for a flush of this device, or has yet to be flushed there.
    pub(super) fn needs(&self, device: rackscan_device::DeviceIndex) -> bool {
        self.kept.iter().flat_map(|kept| kept.places()).any(|place| place.device == device)
    }

    /// Whom it waits for, and why: who has not sent a slice, or else takes none, or else our own
    /// devices.
    pub(super) fn awaited(&self, layout: &Layout, me: usize) -> (Option<usize>, &'static str) {
        let slices = self.progress.slices();
        let missing = (0..self.inputs.len()).find(|source| self.progress.there(*source) < slices);
        if let Some(source) = missing {
            return match self.inputs[source] {
                Input::Ring { from, .. } => (of_index(from), "it has sent nothing of a stripe"),
                Input::Held(_) => (Some(me), "it has read nothing of a stripe"),
            };
        }
        let plan = &layout.turn(self.name.stripe).columns[self.column];
        match (0..self.outputs.len()).find(|send| self.progress.next_send(plan, *send).is_some()) {
            Some(send) => (Some(self.outputs[send].0), "it has taken nothing of a stripe"),
            None => (Some(me), "it has stored nothing of a stripe"),
        }
    }

    /// The checksums of what was kept.
    pub(super) fn stored_cells(&self) -> Vec<StoredCell> {
        let cell = |kept: &Moving| StoredCell { cell: kept.cell, checksum: kept.checksum };
        self.kept.iter().map(cell).collect()
    }

    /// The checksums of what was read, in the order of cells.
    pub(super) fn held_checksums(&self) -> Vec<u32> {
        self.held.iter().map(|held| held.checksum).collect()
    }

    /// The rings are for the next stripe.
    pub(super) fn leave_rings(&self, lane: usize, parts: &mut Parts<'_>) {
        for input in &self.inputs {
            if let Input::Ring { from, ring } = *input
                && let Some(arriving) = &mut parts.incoming[from]
            {
                arriving.rings.inlet(lane, ring).end_stripe(self.progress.slices());
            }
        }
    }

    /// Where a slice of a source lies.
    fn place<'a>(
        &self,
        lane: usize,
        (plan, source): (&Plan, usize),
        slice: u32,
        parts: &'a Parts<'_>,
    ) -> Option<(&'a Slots, usize)> {
        let own = match self.inputs.get(source) {
            Some(Input::Ring { from, ring }) => {
                let rings = &parts.incoming[*from].as_ref()?.rings;
                return Some((rings.slots(), rings.offset(lane, *ring, slice)));
            }
            Some(Input::Held(held)) => *held,
            None => plan.held.len() + source - self.inputs.len(),
        };
        Some((parts.own?, parts.layout.own_offset(parts.layout.own, (lane, own), slice)))
    }

    /// The same as memory, to be read.
    fn region<'a>(
        &self,
        lane: usize,
        source: (&Plan, usize),
        slice: u32,
        parts: &'a Parts<'_>,
    ) -> Option<(&'a Region, usize)> {
        self.place(lane, source, slice, parts).map(|(slots, offset)| (slots.region(), offset))
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
