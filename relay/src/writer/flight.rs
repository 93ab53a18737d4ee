//! Sends one stripe from the client to the nodes, and checks what they report as stored.
//!
//! Data is sent from registered memory of the caller. If the data of a cell is shorter than the
//! cell, zeros follow, from a region of zeros: the slice in which the data ends is sent by two
//! writes, the second of which carries the checksum. With [`Way::Naive`](rackscan_stripe::Way), the
//! client computes sums into slots of the writer.
//!
//! Invariants
//! - The checksum of each slice of data is computed once. The checksums of sums, and those that
//!   nodes must report, are derived from these.
//! - Steps are served in turn, one slice each, so that all transfers run at once.

use rackscan_fabric::{OutOfBounds, Region, RegionSlice};
use rackscan_format::ids::NodeId;
use rackscan_stripe::{Cell, Node};

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
    task::Task,
};
use std::collections::BTreeMap;

/// The writer's link to a node, and the rings there.
#[derive(Debug)]
pub(super) struct NodeLink {
    pub(super) node: NodeId,
    pub(super) link: Link,
    pub(super) rings: Outgoing,
    pub(super) is_ready: bool,
    /// Whether a slice waits for credit there.
    pub(super) waits: bool,
}

/// What the stripes of a writer share.
pub(super) struct Shared<'a> {
    pub(super) layout: &'a Layout,
    pub(super) reached: &'a mut [NodeLink],
    /// Slots of sums.
    pub(super) sums: Option<&'a Region>,
    /// Zeros of the length of a slice.
    pub(super) zeros: &'a Region,
    pub(super) counters: &'a mut Counters,
}

/// A stripe in progress.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) stripe: u64,
    cell_bytes: u64,
    data: Vec<RegionSlice>,
    progress: Progress,
    /// For each send, its member and ring.
    outputs: Vec<(usize, usize)>,
    /// For each data cell, the checksums of its slices so far; for each sum, those of the slices in
    /// its slots.
    checksums: Vec<Vec<u32>>,
    /// For each data cell, the checksum of all its slices so far.
    so_far: Vec<u32>,
    /// For each cell that exists at the beginning, its checksum, if known.
    known: Vec<Option<u32>>,
    /// The checksums that members report of the cells that they keep.
    kept: BTreeMap<Cell, u32>,
    /// The checksum of a cell of zeros.
    of_zeros: u32,
    /// For each member, whether it has stored the stripe.
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
            so_far: vec![0; plan.origins.len()],
            known: vec![None; layout.rotation(stripe).initial.len()],
            kept: BTreeMap::new(),
            of_zeros: layout.zeros_of_cell(cell_bytes),
            stored: vec![false; layout.nodes()],
        }
    }

    /// Takes the checksums of the cells that a member has stored and read. They are compared with
    /// those that follow from the cells that existed at the beginning. This finds a sum that lacks
    /// an input, or has one twice, even if every place did what its plan says.
    pub(super) fn stored(
        &mut self,
        layout: &Layout,
        member: usize,
        kept: &[u32],
        held: &[u32],
    ) -> Result<(), Failure> {
        let violation = |why: &str| Failure::new(Some(member), Cause::Violation, why);
        if self.stored.get(member) != Some(&false) {
            return Err(violation("the node reported a stripe as stored twice"));
        }
        let column = self.column_of(layout, member)?;
        let rotation = layout.rotation(self.stripe);
        let plan = &rotation.columns[column];
        if plan.keeps.len() != kept.len() || plan.held.len() != held.len() {
            return Err(violation("the node stored or read another number of cells than its plan requires"));
        }
        for (cell, checksum) in plan.held.iter().zip(held) {
            if let Ok(at) = rotation.initial.binary_search(cell) {
                self.known[at] = Some(*checksum);
            }
        }
        self.kept.extend(plan.keeps.iter().map(|keeping| keeping.cell).zip(kept.iter().copied()));
        match layout.shape.task {
            Task::Write(_) => self.check(layout, member)?,
            Task::Protect | Task::Rebuild(_) => {
                // The expected checksums are known only when all other members have reported what
                // they read.
                let mut others = self.stored.iter().enumerate().filter(|(other, _)| *other != member);
                if others.all(|(_, stored)| *stored) {
                    (0..layout.nodes()).try_for_each(|member| self.check(layout, member))?;
                }
            }
        }
        self.stored[member] = true;
        Ok(())
    }

    fn column_of(&self, layout: &Layout, member: usize) -> Result<usize, Failure> {
        let node = Node(u8::try_from(member).expect("the index of a member is below NODES_MAX"));
        let column = layout.geometry.column_of(self.stripe, node);
        let column = column.map_err(|error| Failure::new(Some(member), Cause::Violation, error))?;
        Ok(usize::from(column.0))
    }

    /// Checks the checksums of the cells that a member keeps.
    fn check(&self, layout: &Layout, member: usize) -> Result<(), Failure> {
        let (rotation, column) = (layout.rotation(self.stripe), self.column_of(layout, member)?);
        for (keeping, made_of) in rotation.columns[column].keeps.iter().zip(&rotation.made_of[column]) {
            let found = self.kept.get(&keeping.cell).copied();
            let parts: Option<Vec<u32>> = made_of.iter().map(|at| self.known[*at]).collect();
            let Some(parts) = parts else {
                let why = "the node reported cells as stored that were not sent completely";
                return Err(Failure::new(Some(member), Cause::Violation, why));
            };
            let expected = checksum::of_sum(self.of_zeros, parts.into_iter());
            if found != Some(expected) {
                let (Cell { column, slot }, stripe, found) = (keeping.cell, self.stripe, found.unwrap_or(0));
                let why = format!(
                    "cell {}.{slot} of stripe {stripe} is not the XOR of its data: its CRC is {found:08x}, expected {expected:08x}",
                    column.0
                );
                return Err(Failure::new(Some(member), Cause::Checksum, why));
            }
        }
        Ok(())
    }

    /// The known checksums of cells that members keep or read, ascending.
    pub(super) fn checksums(&self, layout: &Layout) -> Vec<(Cell, u32)> {
        let there = layout.rotation(self.stripe).initial.iter().zip(&self.known);
        let mut all: BTreeMap<Cell, u32> =
            there.filter_map(|(cell, known)| Some((*cell, (*known)?))).collect();
        all.extend(&self.kept);
        all.into_iter().collect()
    }

    /// Whether all members have stored it.
    pub(super) fn is_stored(&self) -> bool {
        self.stored.iter().all(|stored| *stored)
    }

    /// Whether all that the client sends has completed.
    pub(super) fn is_through(&self) -> bool {
        self.progress.is_through()
    }

    /// Takes note that a slice of a send has completed.
    pub(super) fn sent(&mut self, send: usize) -> bool {
        self.progress.sent(send)
    }

    /// Sends at most one slice of each step, as far as possible. Returns whether any was sent.
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
            let offset = shared.layout.own_offset(plan.sums.len(), (lane, sum), slice);
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

    /// Sums a slice of data cells, any of which may end within it.
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

    /// The length of the data in a slice.
    fn data_length(&self, cell: usize, slice: u32, length: usize, layout: &Layout) -> usize {
        let before = slice as usize * layout.shape.slice_bytes;
        self.data[cell].len().saturating_sub(before).min(length)
    }

    /// The checksum of a slice of a source. That of data is computed on first use.
    fn checksum(&mut self, source: usize, slice: u32, shared: &Shared<'_>) -> Result<u32, OutOfBounds> {
        let slot = slice as usize;
        let Some(data) = self.data.get(source) else {
            return Ok(self.checksums[source][slot % shared.layout.shape.slots]);
        };
        while self.checksums[source].len() <= slot {
            let next = u32::try_from(self.checksums[source].len()).expect("at most SLICES_MAX slices");
            let length = shared.layout.slice_length(self.cell_bytes, next);
            let of_data = self.data_length(source, next, length, shared.layout);
            let at = data.offset() + (next as usize * shared.layout.shape.slice_bytes).min(data.len());
            let checksum = data.region().crc32c_append(0, at, of_data)?;
            let checksum = checksum::append_zeros(checksum, length - of_data);
            self.checksums[source].push(checksum);
            self.so_far[source] = shared.layout.append(self.so_far[source], checksum, length);
            if next + 1 == self.progress.slices() {
                let cell = shared.layout.geometry.data()[source];
                if let Ok(at) = shared.layout.rotation(self.stripe).initial.binary_search(&cell) {
                    self.known[at] = Some(self.so_far[source]);
                }
            }
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
            let offset = shared.layout.own_offset(shared.layout.client.sums.len(), (lane, sum), slice);
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

/// A failure of the writer itself.
fn broken(error: &OutOfBounds) -> Failure {
    Failure::new(None, Cause::Violation, error)
}
