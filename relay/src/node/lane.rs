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

use std::collections::VecDeque;

use rackscan_device::SubmitError;
use rackscan_fabric::Region;
use rackscan_stripe::{Cell, Column, Geometry, Node, Sender};

use super::{
    disk::{Flush, Job},
    session::{Hands, Parts},
};
use crate::{
    checksum,
    error::Failure,
    limits::{SECTOR_BYTES, STORE_BYTES_MAX},
    link::Bytes,
    message::{Begin, Cause},
    plan::{Origin, Plan},
    progress::Progress,
    rings::{Outbound, RingsFault},
    shape::Layout,
    store::{Place, StoredCell, StripeName},
};

/// Writes wait for so many bytes of neighbouring slices, or half of a ring.
const STORE_BYTES_MIN: usize = 256 << 10;

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

    /// The checksums of what was kept.
    pub(super) fn stored_cells(&mut self) -> Vec<StoredCell> {
        let cell =
            |kept: &mut Kept| StoredCell { cell: kept.cell, checksums: std::mem::take(&mut kept.checksums) };
        self.kept.iter_mut().map(cell).collect()
    }

    /// The rings are for the next stripe.
    pub(super) fn leave_rings(&self, lane: usize, parts: &mut Parts<'_>) {
        for (from, ring) in &self.inputs {
            if let Some(arriving) = &mut parts.incoming[*from] {
                arriving.rings.inlet(lane, *ring).end_stripe(self.progress.slices());
            }
        }
    }

    fn take_arrivals(&mut self, lane: usize, parts: &mut Parts<'_>) -> Result<bool, Failure> {
        let mut moved = false;
        for (source, (from, ring)) in self.inputs.iter().enumerate() {
            let Some(arriving) = &mut parts.incoming[*from] else { continue };
            let inlet = arriving.rings.inlet(lane, *ring);
            while self.progress.there(source) < self.progress.slices() {
                let Some(arrived) = inlet.take() else { break };
                let expected = self.progress.there(source);
                let of_this = u64::from(arrived.name.stripe) == self.name.stripe & 0xFFFF;
                if arrived.name.slice != expected || !of_this {
                    let why = format!(
                        "slice {} of a stripe that ends in {:#06x} came where slice {expected} of stripe {} was due",
                        arrived.name.slice, arrived.name.stripe, self.name.stripe
                    );
                    return Err(Failure::new(arriving.member, Cause::Violation, why));
                }
                let slots = &mut self.checksums[source];
                let slot = expected as usize % slots.len();
                slots[slot] = arrived.checksum;
                self.progress.arrived(source);
                parts.counters.received_bytes += parts.layout.slice_length(self.cell_bytes, expected) as u64;
                moved = true;
            }
        }
        Ok(moved)
    }

    fn sum(&mut self, lane: usize, plan: &Plan, parts: &mut Parts<'_>) -> Result<bool, Failure> {
        let mut moved = false;
        for (sum, inputs) in plan.sums.iter().enumerate() {
            while let Some(slice) = self.progress.next_sum(plan, sum) {
                let length = parts.layout.slice_length(self.cell_bytes, slice);
                let places: Option<Vec<(&Region, usize)>> =
                    inputs.iter().map(|input| self.place(lane, *input, slice, parts)).collect();
                let target = self.place(lane, plan.origins.len() + sum, slice, parts);
                let (Some(places), Some((region, offset))) = (places, target) else { break };
                region.xor_from(offset, &places, length).map_err(|error| parts.broken(&error))?;
                let slot = slice as usize % parts.layout.shape.slots;
                let of_inputs = inputs.iter().map(|input| self.checksums[*input][slot]);
                let checksum = checksum::of_sum(parts.zeros(length), of_inputs);
                let source = plan.origins.len() + sum;
                self.checksums[source][slot] = checksum;
                self.progress.arrived(source);
                parts.counters.xored_bytes += (length * inputs.len()) as u64;
                moved = true;
            }
        }
        Ok(moved)
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

    /// One slice of each send by turns, so that all relays run at once.
    fn send(
        &mut self,
        lane: usize,
        plan: &Plan,
        parts: &mut Parts<'_>,
        hands: &mut Hands<'_>,
    ) -> Result<bool, Failure> {
        let mut moved = false;
        loop {
            let mut any = false;
            for send in 0..plan.sends.len() {
                any |= self.send_next(lane, (plan, send), parts, hands)?;
            }
            if !any {
                return Ok(moved);
            }
            moved = true;
        }
    }

    fn send_next(
        &mut self,
        lane: usize,
        (plan, send): (&Plan, usize),
        parts: &mut Parts<'_>,
        hands: &mut Hands<'_>,
    ) -> Result<bool, Failure> {
        let Some(slice) = self.progress.next_send(plan, send) else { return Ok(false) };
        let (member, ring) = self.outputs[send];
        let source = plan.sends[send].source;
        let length = parts.layout.slice_length(self.cell_bytes, slice);
        let Some((region, offset)) = self.place(lane, source, slice, parts) else { return Ok(false) };
        let last = region.slice(offset, length).map_err(|error| parts.broken(&error))?;
        let Some(leaving) = &mut parts.outgoing[member] else { return Ok(false) };
        let Some(link) = hands.links.get_mut(leaving.link) else { return Ok(false) };
        if !link.has_room_for_a_slice() {
            return Ok(false);
        }
        let fault = |error: RingsFault| Failure::new(Some(member), Cause::Violation, error);
        if !leaving.rings.has_room(lane, ring).map_err(fault)? {
            parts.counters.waits_for_credit += u64::from(!std::mem::replace(&mut leaving.waits, true));
            return Ok(false);
        }
        leaving.waits = false;
        let checksum = self.checksums[source][slice as usize % parts.layout.shape.slots];
        let bytes = Bytes { first: None, last };
        let outbound = Outbound { ring, stripe: self.name.stripe, slice, bytes, checksum };
        leaving.rings.send(link, (lane, send), outbound);
        self.progress.posted(send);
        parts.counters.sent_bytes += length as u64;
        Ok(true)
    }

    /// Gives neighbouring slices of kept cells to the devices.
    fn store(
        &mut self,
        lane: usize,
        plan: &Plan,
        parts: &mut Parts<'_>,
        hands: &mut Hands<'_>,
    ) -> Result<bool, Failure> {
        let mut moved = false;
        for (keep, keeping) in plan.keeps.iter().enumerate() {
            let there = self.bytes(self.progress.there(keeping.source), parts.layout);
            if self.kept[keep].places.is_empty() {
                self.kept[keep].written_bytes = there;
                continue;
            }
            while self.kept[keep].begun_bytes < there && hands.disk.has_room(hands.io) {
                if !self.store_next(lane, (keep, keeping.source), there, parts, hands)? {
                    break;
                }
                moved = true;
            }
        }
        Ok(moved)
    }

    /// Begins the next write of a cell of which so many bytes are there; false if that is not worth it yet, or has to wait.
    fn store_next(
        &mut self,
        lane: usize,
        (keep, source): (usize, usize),
        there: u64,
        parts: &Parts<'_>,
        hands: &mut Hands<'_>,
    ) -> Result<bool, Failure> {
        let slice_bytes = parts.layout.shape.slice_bytes as u64;
        let from = self.kept[keep].begun_bytes;
        let worth = (STORE_BYTES_MIN as u64).min(parts.layout.shape.slots as u64 / 2 * slice_bytes);
        if there < self.cell_bytes && there - from < worth {
            return Ok(false);
        }
        let slice = u32::try_from(from / slice_bytes).unwrap_or(u32::MAX);
        let run = match self.inputs.get(source) {
            Some((link, ring)) => {
                parts.incoming[*link].as_ref().map_or(1, |arriving| arriving.rings.run(lane, *ring, slice))
            }
            None => parts.layout.slots() - slice % parts.layout.slots(),
        };
        let Some((place, within)) = place_of(&self.kept[keep].places, from) else { return Ok(false) };
        let end = [
            there,
            (u64::from(slice) + u64::from(run)) * slice_bytes,
            from + place.length_bytes - within,
            from + (STORE_BYTES_MAX as u64).max(slice_bytes),
        ];
        let end = end.into_iter().min().unwrap_or(from);
        let length = usize::try_from(end - from).unwrap_or(0);
        let offset =
            self.memory_offset(lane, source, slice, parts) + usize::try_from(from % slice_bytes).unwrap_or(0);
        let slots = match self.inputs.get(source) {
            Some((link, _)) => parts.incoming[*link].as_ref().map(|arriving| arriving.rings.slots()),
            None => parts.sums,
        };
        let Some(memory) = slots.and_then(|slots| slots.memory().part(offset, length)) else {
            return Ok(false);
        };
        let StripeName { session, stripe } = self.name;
        let job = Job { session, lane, stripe, keep, end_bytes: end };
        let target = (place.device, place.offset_bytes + within);
        match hands.disk.write(hands.io, job, target, memory) {
            Ok(()) => {
                self.kept[keep].begun_bytes = end;
                self.kept[keep].writes.push_back((end, false));
                Ok(true)
            }
            Err(SubmitError::QueueFull { .. }) => Ok(false),
            Err(error) => Err(Failure::new(Some(parts.me), Cause::Disk, error)),
        }
    }

    fn memory_offset(&self, lane: usize, source: usize, slice: u32, parts: &Parts<'_>) -> usize {
        self.place(lane, source, slice, parts).map_or(0, |(_, offset)| offset)
    }

    /// Checksums what was written, and lets go of it.
    fn check(&mut self, lane: usize, plan: &Plan, parts: &mut Parts<'_>) -> Result<bool, Failure> {
        let mut moved = false;
        for (keep, keeping) in plan.keeps.iter().enumerate() {
            loop {
                let slice = self.progress.kept(keep);
                let is_written = self.bytes(slice + 1, parts.layout) <= self.kept[keep].written_bytes;
                if slice == self.progress.slices() || !is_written {
                    break;
                }
                let length = parts.layout.slice_length(self.cell_bytes, slice);
                let Some((region, offset)) = self.place(lane, keeping.source, slice, parts) else { break };
                let found = region.crc32c_append(0, offset, length).map_err(|error| parts.broken(&error))?;
                let expected = self.checksums[keeping.source][slice as usize % parts.layout.shape.slots];
                if found != expected {
                    let cell = keeping.cell;
                    let why = format!(
                        "slice {slice} of cell {}.{} of stripe {} has checksum {found:08x}, expected {expected:08x}",
                        cell.column.0, cell.slot, self.name.stripe
                    );
                    return Err(Failure::new(Some(parts.me), Cause::Checksum, why));
                }
                self.kept[keep].checksums.push(found);
                self.progress.keep(keep);
                parts.counters.kept_bytes += length as u64;
                moved = true;
            }
        }
        Ok(moved)
    }

    /// Bytes of the first so many slices of a cell.
    fn bytes(&self, slices: u32, layout: &Layout) -> u64 {
        (u64::from(slices) * layout.shape.slice_bytes as u64).min(self.cell_bytes)
    }

    fn give_credits(
        &mut self,
        lane: usize,
        plan: &Plan,
        parts: &mut Parts<'_>,
        hands: &mut Hands<'_>,
    ) -> bool {
        let mut moved = false;
        for (source, (from, ring)) in self.inputs.iter().enumerate() {
            let Some(arriving) = &mut parts.incoming[*from] else { continue };
            let Some(link) = hands.links.get_mut(arriving.link) else { continue };
            let tail = self.progress.tail(plan, source);
            moved |= arriving.rings.give_credit(link, lane, *ring, tail);
        }
        moved
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

/// The place that has this byte of a cell, and how far into it that is.
fn place_of(places: &[Place], byte: u64) -> Option<(Place, u64)> {
    let mut before = 0;
    for place in places {
        if byte < before + place.length_bytes {
            return Some((*place, byte - before));
        }
        before += place.length_bytes;
    }
    None
}
