//! Carries out schedules on random bytes, slice by slice in the order of [`Schedule::at`]. A sender
//! may use only slices that have arrived and are still kept; a node stores only what arrives.

use crate::filled::{CELL_BYTES, filled, xor};
use rackscan_stripe::{Cell, Geometry, Node, Schedule, Sender, Step, StepId, Use};
use std::collections::BTreeMap;

/// Into how many slices a cell is cut.
pub(crate) const SLICES: usize = 4;
/// Bytes of a slice.
pub(crate) const SLICE_BYTES: usize = CELL_BYTES / SLICES;

/// What was sent and received, in bytes, and what every node stores.
#[derive(Default)]
pub(crate) struct Carried {
    pub(crate) client_sent: usize,
    pub(crate) sent: BTreeMap<Node, usize>,
    pub(crate) received: BTreeMap<Node, usize>,
    pub(crate) stored: BTreeMap<(Node, Cell), Vec<u8>>,
}

struct Transfer<'a> {
    geometry: &'a Geometry,
    schedule: &'a Schedule,
    stripe: u64,
    /// The client's memory.
    data: BTreeMap<Cell, Vec<u8>>,
    /// Slices that have arrived and are held, with the tick at which they came.
    held: BTreeMap<(Node, StepId, usize), (usize, Vec<u8>)>,
    carried: Carried,
}

impl Transfer<'_> {
    fn run(mut self) -> Carried {
        let ticks = SLICES + self.schedule.hops() - 1;
        for tick in 0..ticks {
            let sending: Vec<(StepId, usize)> = self.schedule.at(tick, SLICES).collect();
            let payloads: Vec<_> = sending.iter().map(|(step, slice)| self.payload(*step, *slice)).collect();
            for ((id, slice), payload) in sending.into_iter().zip(payloads) {
                self.arrive(tick, (id, slice), payload);
            }
            // What has been held for as long as the schedule says is overwritten.
            let held_ticks =
                |id: &StepId| self.schedule.slices_held(&self.schedule.steps()[usize::from(id.0)]);
            self.held.retain(|(_, id, _), (since, _)| tick < *since + held_ticks(id));
        }
        assert_eq!(self.schedule.at(ticks, SLICES).count(), 0, "whole after hops and slices");
        self.carried
    }

    fn node(&self, step: &Step) -> Option<Node> {
        match step.from {
            Sender::Client => None,
            Sender::Column(column) => self.geometry.node_of(self.stripe, column).ok(),
        }
    }

    fn payload(&self, id: StepId, slice: usize) -> Vec<u8> {
        let step = &self.schedule.steps()[usize::from(id.0)];
        let range = slice * SLICE_BYTES..(slice + 1) * SLICE_BYTES;
        let carried = xor(&self.data, &step.carries)[range].to_vec();
        let Some(node) = self.node(step) else {
            assert_eq!(step.inputs, []);
            return carried;
        };
        let mut sum = vec![0; SLICE_BYTES];
        for input in &step.inputs {
            let (_, bytes) = self.held.get(&(node, *input, slice)).expect("the slice is held by the sender");
            sum.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum ^= byte);
        }
        assert_eq!(sum, carried, "a step carries what it says");
        sum
    }

    fn arrive(&mut self, tick: usize, (id, slice): (StepId, usize), payload: Vec<u8>) {
        let step = &self.schedule.steps()[usize::from(id.0)];
        let to = self.geometry.node_of(self.stripe, step.to).expect("a column of the stripe");
        match self.node(step) {
            None => self.carried.client_sent += SLICE_BYTES,
            Some(node) => *self.carried.sent.entry(node).or_default() += SLICE_BYTES,
        }
        *self.carried.received.entry(to).or_default() += SLICE_BYTES;
        for used in &step.uses {
            if let Use::Keep(cell) = used {
                let stored = self.carried.stored.entry((to, *cell)).or_insert_with(|| vec![0; CELL_BYTES]);
                let slice = &mut stored[slice * SLICE_BYTES..][..SLICE_BYTES];
                slice.iter_mut().zip(&payload).for_each(|(stored, byte)| *stored ^= byte);
            }
        }
        self.held.insert((to, id, slice), (tick, payload));
    }
}

/// Carries out a schedule, and compares what each node stores with the whole stripe.
pub(crate) fn carry_out(geometry: &Geometry, schedule: &Schedule, stripe: u64) -> Carried {
    let bytes = filled(geometry, 0x57_0010 + stripe);
    let mut data = bytes.clone();
    data.retain(|cell, _| geometry.data().contains(cell));
    let (held, carried) = (BTreeMap::new(), Carried::default());
    let carried = Transfer { geometry, schedule, stripe, data, held, carried }.run();
    let expected: BTreeMap<(Node, Cell), Vec<u8>> = bytes
        .into_iter()
        .map(|(cell, bytes)| ((geometry.node_of(stripe, cell.column).expect("a column"), cell), bytes))
        .collect();
    assert!(carried.stored == expected, "{} nodes, stripe {stripe}", geometry.nodes());
    carried
}
