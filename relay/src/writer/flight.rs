//! How does a stripe leave its client?
//!
//! Data lies in registered memory of the caller's and is sent out of it. Where a cell's data ends before the cell does, zeros follow, out of a region of zeros: the slice in
//! which that happens is two writes, the last of which carries the checksum. Sums (of `naive`) are computed into slots of the writer's own.
//!
//! Invariants
//! - A slice of data is checksummed once; checksums of sums follow from those, and so does what nodes must have stored.
//! - One slice of each step by turns, so that all relays run at once.

use rackscan_fabric::{OutOfBounds, Region, RegionSlice};
use rackscan_format::ids::NodeId;
use rackscan_stripe::Node;

use crate::{
    checksum,
    counters::Counters,
    error::Failure,
    link::{Bytes, Link},
    message::Cause,
    node::member_of,
    plan::Plan,
    progress::Progress,
    rings::{Outbound, Outgoing},
    shape::Layout,
};

/// A node of the session, as the writer has it.
#[derive(Debug)]
pub(super) struct Reached {
    pub(super) node: NodeId,
    pub(super) link: Link,
    pub(super) rings: Outgoing,
    pub(super) is_ready: bool,
    /// Whether a slice waits for room there.
    pub(super) waits: bool,
}

/// What the stripes of a writer share.
pub(super) struct Shared<'a> {
    pub(super) layout: &'a Layout,
    pub(super) reached: &'a mut [Reached],
    /// Slots of sums.
    pub(super) sums: Option<&'a Region>,
    /// As many zeros as a slice has bytes.
    pub(super) zeros: &'a Region,
    pub(super) counters: &'a mut Counters,
}

/// A stripe on its way.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) stripe: u64,
    cell_bytes: u64,
    data: Vec<RegionSlice>,
    progress: Progress,
    /// Where each send goes: which member, in which ring.
    outputs: Vec<(usize, usize)>,
    /// Of each data cell the checksums of its first slices; of each sum those in its slots.
    checksums: Vec<Vec<u32>>,
    /// Which members have stored it.
    stored: Vec<bool>,
}

impl Flight {
    pub(super) fn new(layout: &Layout, stripe: u64, cell_bytes: u64, data: Vec<RegionSlice>) -> Self {
        let plan = &layout.client;
        let mut progress = Progress::new(plan, layout.slices(cell_bytes), layout.slots());
        (0..plan.origins.len()).for_each(|cell| progress.whole(cell));
        let mut checksums = vec![Vec::new(); plan.origins.len()];
        checksums.resize(plan.sources(), vec![0; layout.shape.slots]);
        let output = |to| member_of(&layout.geometry, stripe, to);
        Self {
            stripe,
            cell_bytes,
            data,
            progress,
            outputs: plan.sends.iter().map(|send| (output(send.to), send.ring)).collect(),
            checksums,
            stored: vec![false; layout.nodes()],
        }
    }

    /// A member has stored its cells, which have these digests. They are compared with what follows from the checksums of the data: so a sum that lacks an input, or has
    /// one twice, is found, although every place on its way did what it was told.
    pub(super) fn stored(&mut self, layout: &Layout, member: usize, digests: &[u32]) -> Result<(), Failure> {
        let violation = |why: &str| Failure::new(Some(member), Cause::Violation, why);
        let node = Node(u8::try_from(member).unwrap_or(u8::MAX));
        let column =
            layout.geometry.column_of(self.stripe, node).map_err(|error| violation(&error.to_string()))?;
        let cells = &layout.made_of[usize::from(column.0)];
        if cells.len() != digests.len() {
            return Err(violation("it has stored another number of cells than it keeps"));
        }
        for (index, (cells, found)) in cells.iter().zip(digests).enumerate() {
            let expected = self.digest(layout, cells);
            let expected = expected.ok_or_else(|| violation("it has stored what was not sent yet"))?;
            if expected != *found {
                let cell = layout.columns[usize::from(column.0)].keeps[index].cell;
                let (column, slot, stripe) = (cell.column.0, cell.slot, self.stripe);
                let why = format!(
                    "cell {column}.{slot} of stripe {stripe} is not the XOR of its data: its checksums have the CRC {found:08x}, expected {expected:08x}"
                );
                return Err(Failure::new(Some(member), Cause::Checksum, why));
            }
        }
        match self.stored.get_mut(member) {
            Some(stored) if !*stored => *stored = true,
            _ => return Err(violation("it has stored a stripe twice")),
        }
        Ok(())
    }

    /// The digest of the XOR of data cells; nothing if some of them were not sent yet.
    fn digest(&self, layout: &Layout, cells: &[usize]) -> Option<u32> {
        let slices = self.progress.slices();
        let all = cells.iter().all(|cell| self.checksums[*cell].len() == slices as usize);
        let last = checksum::of_zeros(layout.slice_length(self.cell_bytes, slices - 1));
        let whole = if slices > 1 { checksum::of_zeros(layout.shape.slice_bytes) } else { last };
        let sum = |slice: u32| {
            let zeros = if slice + 1 == slices { last } else { whole };
            checksum::of_sum(zeros, cells.iter().map(|cell| self.checksums[*cell][slice as usize]))
        };
        all.then(|| checksum::digest((0..slices).map(sum)))
    }

    /// Whether all have.
    pub(super) fn is_stored(&self) -> bool {
        self.stored.iter().all(|stored| *stored)
    }

    /// Whether all that we sent has completed.
    pub(super) fn is_through(&self) -> bool {
        self.progress.is_through()
    }

    /// A slice of a send has gone.
    pub(super) fn sent(&mut self, send: usize) -> bool {
        self.progress.sent(send)
    }

    /// Sends whatever can go, at most one slice of each step. Whether any went.
    pub(super) fn advance(&mut self, lane: usize, shared: &mut Shared<'_>) -> Result<bool, Failure> {
        let plan = &shared.layout.client;
        let mut moved = self.sum(lane, plan, shared)?;
        for send in 0..plan.sends.len() {
            moved |= self.send_next(lane, (plan, send), shared)?;
        }
        Ok(moved)
    }

    fn sum(&mut self, lane: usize, plan: &Plan, shared: &mut Shared<'_>) -> Result<bool, Failure> {
        let Some(sums) = shared.sums else { return Ok(false) };
        let mut moved = false;
        for (sum, inputs) in plan.sums.iter().enumerate() {
            let Some(slice) = self.progress.next_sum(plan, sum) else { continue };
            let length = shared.layout.slice_length(self.cell_bytes, slice);
            let offset = shared.layout.sum_offset(plan.sums.len(), (lane, sum), slice);
            self.sum_into((sums, offset), inputs, slice, length, shared).map_err(|error| broken(&error))?;
            let mut of_inputs = Vec::with_capacity(inputs.len());
            for input in inputs {
                of_inputs.push(self.checksum(*input, slice, shared).map_err(|error| broken(&error))?);
            }
            let checksum = checksum::of_sum(checksum::of_zeros(length), of_inputs.into_iter());
            let source = plan.origins.len() + sum;
            let slot = slice as usize % shared.layout.shape.slots;
            self.checksums[source][slot] = checksum;
            self.progress.arrived(source);
            shared.counters.xored_bytes += (length * inputs.len()) as u64;
            moved = true;
        }
        Ok(moved)
    }

    /// Sums a slice of data cells, each of which may end within it.
    fn sum_into(
        &self,
        (target, offset): (&Region, usize),
        inputs: &[usize],
        slice: u32,
        length: usize,
        shared: &Shared<'_>,
    ) -> Result<(), OutOfBounds> {
        let lengths = inputs.iter().map(|input| self.data_length(*input, slice, length, shared.layout));
        let mut ends: Vec<usize> = lengths.chain([length]).collect();
        ends.sort_unstable();
        ends.dedup();
        let at = slice as usize * shared.layout.shape.slice_bytes;
        let mut start = 0;
        for end in ends {
            let reaches = |input: &&usize| self.data_length(**input, slice, length, shared.layout) >= end;
            let place = |input: &usize| (self.data[*input].region(), self.data[*input].offset() + at + start);
            let sources: Vec<(&Region, usize)> = inputs.iter().filter(reaches).map(place).collect();
            target.xor_from(offset + start, &sources, end - start)?;
            start = end;
        }
        Ok(())
    }

    /// How much of a slice is data.
    fn data_length(&self, cell: usize, slice: u32, length: usize, layout: &Layout) -> usize {
        let before = slice as usize * layout.shape.slice_bytes;
        self.data[cell].len().saturating_sub(before).min(length)
    }

    /// The checksum of a slice of a source; of data it is computed when it is asked for first.
    fn checksum(&mut self, source: usize, slice: u32, shared: &Shared<'_>) -> Result<u32, OutOfBounds> {
        let slot = slice as usize;
        let Some(data) = self.data.get(source) else {
            return Ok(self.checksums[source][slot % shared.layout.shape.slots]);
        };
        while self.checksums[source].len() <= slot {
            let next = u32::try_from(self.checksums[source].len()).unwrap_or(u32::MAX);
            let length = shared.layout.slice_length(self.cell_bytes, next);
            let of_data = self.data_length(source, next, length, shared.layout);
            let at = data.offset() + (next as usize * shared.layout.shape.slice_bytes).min(data.len());
            let checksum = data.region().crc32c_append(0, at, of_data)?;
            self.checksums[source].push(checksum::append_zeros(checksum, length - of_data));
        }
        Ok(self.checksums[source][slot])
    }

    fn send_next(
        &mut self,
        lane: usize,
        (plan, send): (&Plan, usize),
        shared: &mut Shared<'_>,
    ) -> Result<bool, Failure> {
        let Some(slice) = self.progress.next_send(plan, send) else { return Ok(false) };
        let (member, ring) = self.outputs[send];
        let reached = &mut shared.reached[member];
        if !reached.link.has_room_for_a_slice() {
            return Ok(false);
        }
        let fault = |error| Failure::new(Some(member), Cause::Violation, error);
        if !reached.rings.has_room(lane, ring).map_err(fault)? {
            shared.counters.waits_for_credit += u64::from(!std::mem::replace(&mut reached.waits, true));
            return Ok(false);
        }
        reached.waits = false;
        let source = plan.sends[send].source;
        let length = shared.layout.slice_length(self.cell_bytes, slice);
        let checksum = self.checksum(source, slice, shared).map_err(|error| broken(&error))?;
        let bytes = self.bytes(lane, source, slice, length, shared).map_err(|error| broken(&error))?;
        let outbound = Outbound { ring, stripe: self.stripe, slice, bytes, checksum };
        let reached = &mut shared.reached[member];
        reached.rings.send(&mut reached.link, (lane, send), outbound);
        self.progress.posted(send);
        shared.counters.sent_bytes += length as u64;
        Ok(true)
    }

    fn bytes(
        &self,
        lane: usize,
        source: usize,
        slice: u32,
        length: usize,
        shared: &Shared<'_>,
    ) -> Result<Bytes, OutOfBounds> {
        let Some(data) = self.data.get(source) else {
            let sum = source - self.data.len();
            let offset = shared.layout.sum_offset(shared.layout.client.sums.len(), (lane, sum), slice);
            let sums = shared.sums.unwrap_or(shared.zeros);
            return Ok(Bytes { first: None, last: sums.slice(offset, length)? });
        };
        let of_data = self.data_length(source, slice, length, shared.layout);
        if of_data == 0 {
            return Ok(Bytes { first: None, last: shared.zeros.slice(0, length)? });
        }
        let at = data.offset() + slice as usize * shared.layout.shape.slice_bytes;
        let first = data.region().slice(at, of_data)?;
        if of_data == length {
            return Ok(Bytes { first: None, last: first });
        }
        Ok(Bytes { first: Some(first), last: shared.zeros.slice(0, length - of_data)? })
    }
}

/// Something is wrong with the writer itself.
fn broken(error: &OutOfBounds) -> Failure {
    Failure::new(None, Cause::Violation, error)
}
