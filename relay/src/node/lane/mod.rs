//! Moves one stripe through one node: receives its slices or reads them from devices, sums them,
//! sends them on, and writes them to devices.
//!
//! ```text
//! 1  slices arrive in rings; slices of held cells are read from devices into slots of the node
//! 2  sums of them are computed into further slots of the node
//! 3  slices and sums are sent to other nodes, out of the slots where they lie
//! 4  slices and sums of kept cells are written to devices out of these slots, checksummed, flushed
//! 5  a slot is reused when 2, 3 and 4 are done with its slice; if it is in a ring, the sender gets credit
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `inward` | finds slices in rings, sums slices, grants credit |
//! | `reading` | reads held cells from devices |
//! | `outward` | sends slices; writes and checks kept cells |
//! | `moving` | counts how many bytes of a cell have been read or written |
//! | `submit` | submits device operations |
//!
//! The checksum of a slice is computed after its write to the device has ended, over the memory
//! that was written. If a place had reused the slot too early, this checksum would differ from the
//! expected one. A write waits until several neighbouring slices are there. It never waits for more
//! slices than half of a ring, because a ring has room for these: so they can always arrive.
//!
//! Invariants
//! - One call of [`ActiveStripe::advance`] never waits, and does at most what fits into the rings.
//! - The message `Stored` is sent when every kept cell has been checksummed and flushed, and every
//!   slice that other nodes need has been sent.

mod inward;
mod moving;
mod outward;
mod reading;
mod submit;

use rackscan_fabric::Region;
use rackscan_stripe::{Cell, Column, Geometry, Sender};

use self::moving::CellTransfer;
use super::{
    disk::{Flush, Job, JobCell},
    shared::{NodeShared, SessionShared},
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
    /// A cell that the node reads from its devices, by index among these.
    Held(usize),
}

/// A stripe in progress at this node.
#[derive(Debug)]
pub(super) struct ActiveStripe {
    pub(super) name: StripeName,
    column: usize,
    cell_bytes: u64,
    progress: Progress,
    /// For each origin where it comes from, and for each send its member and ring.
    inputs: Vec<Input>,
    outputs: Vec<(usize, usize)>,
    /// For each source, the checksums of the slices in its slots.
    checksums: Vec<Vec<u32>>,
    kept: Vec<CellTransfer>,
    held: Vec<CellTransfer>,
    guard: Option<Guard>,
    flushes: Option<Vec<Flush>>,
}

/// The index of an incoming link: the client's first, then those of the members.
pub(super) fn in_index(member: Option<usize>) -> usize {
    member.map_or(0, |member| member + 1)
}

/// The inverse of [`in_index`].
fn of_index(index: usize) -> Option<usize> {
    index.checked_sub(1)
}

impl ActiveStripe {
    /// Begins a stripe, of which this node has the given column.
    pub(super) fn new(
        layout: &Layout,
        name: StripeName,
        column: Column,
        begin: &Begin,
        places: Places,
    ) -> Result<Self, String> {
        let plan = &layout.rotation(name.stripe).columns[usize::from(column.0)];
        let (geometry, slots) = (&layout.geometry, layout.slots());
        let slices = layout.slices(begin.cell_bytes);
        let input = |origin: &Origin| match *origin {
            Origin::Arrives { from: Sender::Column(from), ring } => {
                Input::Ring { from: in_index(Some(member_of(geometry, name.stripe, from))), ring }
            }
            Origin::Arrives { ring, .. } => Input::Ring { from: in_index(None), ring },
            // Only the client has data cells as origins, so this arm is not used at a node.
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
            kept: moving::begin_all(&kept, places.kept, begin.cell_bytes)?,
            held: moving::begin_all(&plan.held, places.held, begin.cell_bytes)?,
            guard: places.guard,
            flushes: None,
        })
    }

    /// Advances as far as possible. Returns whether there was progress.
    pub(super) fn advance(
        &mut self,
        lane: usize,
        shared: &mut SessionShared<'_>,
        node: &mut NodeShared<'_>,
    ) -> Result<bool, Failure> {
        let layout = shared.layout;
        let plan = &layout.rotation(self.name.stripe).columns[self.column];
        let mut moved = self.take_arrivals(lane, shared)?;
        moved |= self.take_read(lane, plan, shared)?;
        moved |= self.read(lane, plan, shared, node)?;
        moved |= self.sum(lane, plan, shared)?;
        moved |= self.send(lane, plan, shared, node)?;
        moved |= self.store(lane, plan, shared, node)?;
        moved |= self.check(lane, plan, shared)?;
        Ok(moved | self.give_credits(lane, plan, shared, node))
    }

    /// Takes note that a slice of a send has completed.
    pub(super) fn sent(&mut self, send: usize) -> bool {
        self.progress.sent(send)
    }

    /// Takes note that a read or a write has ended.
    pub(super) fn moved(&mut self, job: &Job) {
        let moving = match job.cell {
            JobCell::Kept(at) => self.kept.get_mut(at),
            JobCell::Held(at) => self.held.get_mut(at),
        };
        if let Some(moving) = moving {
            moving.ended(job.end_bytes);
        }
    }

    /// Whether everything but flushes has been done.
    fn is_through(&self) -> bool {
        self.progress.is_through()
    }

    /// Requests flushes once everything else is done, and returns whether they have all ended.
    pub(super) fn is_durable(&mut self, node: &mut NodeShared<'_>) -> bool {
        if !self.is_through() {
            return false;
        }
        let kept = &self.kept;
        let flushes = self.flushes.get_or_insert_with(|| {
            let mut devices: Vec<_> =
                kept.iter().flat_map(|kept| kept.places()).map(|place| place.device).collect();
            devices.sort_unstable();
            devices.dedup();
            devices.into_iter().map(|device| node.disk.want(device)).collect()
        });
        flushes.iter().all(|flush| node.disk.is_flushed(*flush))
    }

    /// Whether it waits for a flush of this device, or has yet to be flushed there.
    pub(super) fn needs(&self, device: rackscan_device::DeviceIndex) -> bool {
        self.kept.iter().flat_map(|kept| kept.places()).any(|place| place.device == device)
    }

    /// The place that it waits for, and why: a sender of a missing slice, or else a receiver
    /// without room, or else this node's devices.
    pub(super) fn awaited(&self, layout: &Layout, me: usize) -> (Option<usize>, &'static str) {
        let slices = self.progress.slices();
        let missing = (0..self.inputs.len()).find(|source| self.progress.there(*source) < slices);
        if let Some(source) = missing {
            return match self.inputs[source] {
                Input::Ring { from, .. } => (of_index(from), "no slice of a stripe came from it"),
                Input::Held(_) => (Some(me), "its devices returned no slice of a stripe"),
            };
        }
        let plan = &layout.rotation(self.name.stripe).columns[self.column];
        match (0..self.outputs.len()).find(|send| self.progress.next_send(plan, *send).is_some()) {
            Some(send) => (Some(self.outputs[send].0), "it granted no credit for a stripe"),
            None => (Some(me), "its devices stored nothing of a stripe"),
        }
    }

    /// The checksums of the kept cells.
    pub(super) fn stored_cells(&self) -> Vec<StoredCell> {
        let cell = |kept: &CellTransfer| StoredCell { cell: kept.cell, checksum: kept.checksum };
        self.kept.iter().map(cell).collect()
    }

    /// The checksums of the cells that were read, in the order of cells.
    pub(super) fn held_checksums(&self) -> Vec<u32> {
        self.held.iter().map(|held| held.checksum).collect()
    }

    /// Leaves the rings to the next stripe of the lane.
    pub(super) fn leave_rings(&self, lane: usize, shared: &mut SessionShared<'_>) {
        for input in &self.inputs {
            if let Input::Ring { from, ring } = *input
                && let Some(arriving) = &mut shared.incoming[from]
            {
                arriving.rings.inlet(lane, ring).end_stripe(self.progress.slices());
            }
        }
    }

    /// The slots and the offset at which a slice of a source lies.
    fn place<'a>(
        &self,
        lane: usize,
        (plan, source): (&Plan, usize),
        slice: u32,
        shared: &'a SessionShared<'_>,
    ) -> Option<(&'a Slots, usize)> {
        let own = match self.inputs.get(source) {
            Some(Input::Ring { from, ring }) => {
                let rings = &shared.incoming[*from].as_ref()?.rings;
                return Some((rings.slots(), rings.offset(lane, *ring, slice)));
            }
            Some(Input::Held(held)) => *held,
            None => plan.held.len() + source - self.inputs.len(),
        };
        Some((shared.own?, shared.layout.own_offset(shared.layout.own, (lane, own), slice)))
    }

    /// The memory and the offset at which a slice of a source lies.
    fn region<'a>(
        &self,
        lane: usize,
        source: (&Plan, usize),
        slice: u32,
        shared: &'a SessionShared<'_>,
    ) -> Option<(&'a Region, usize)> {
        self.place(lane, source, slice, shared).map(|(slots, offset)| (slots.region(), offset))
    }

    /// The bytes of the first `slices` slices of a cell.
    fn bytes(&self, slices: u32, layout: &Layout) -> u64 {
        (u64::from(slices) * layout.shape.slice_bytes as u64).min(self.cell_bytes)
    }
}

/// The member that has a column of a stripe.
pub(crate) fn member_of(geometry: &Geometry, stripe: u64, column: Column) -> usize {
    let node = geometry.node_of(stripe, column).expect("the column is one of this geometry");
    usize::from(node.0)
}
