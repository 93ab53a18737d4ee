//! Does a schedule bring every cell to its node? Method: it is carried out on random bytes, slice by slice in the order of
//! [`Schedule::at`], for 3 to 17 nodes and every rotation. Whoever sends has nothing but what arrived in slices that are still held; who stores has
//! nothing but what arrives.

mod filled;

use filled::{CELL_BYTES, filled, repaired, survivors, xor};
use rackscan_stripe::{Cell, Geometry, Lost, Node, Schedule, Sender, Step, StepId, Toward, Use, Way};
use std::collections::BTreeMap;

const SLICES: usize = 4;
const SLICE_BYTES: usize = CELL_BYTES / SLICES;

/// What was sent and received, in bytes, and what every node stores.
#[derive(Default)]
struct Carried {
    client_sent: usize,
    sent: BTreeMap<Node, usize>,
    received: BTreeMap<Node, usize>,
    stored: BTreeMap<(Node, Cell), Vec<u8>>,
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
fn carry_out(geometry: &Geometry, schedule: &Schedule, stripe: u64) -> Carried {
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

#[test]
fn each_node_ends_with_exactly_its_cells_and_a_relaying_client_sends_its_data_once() {
    for nodes in 3..=17 {
        let geometry = Geometry::new(nodes).unwrap();
        let data_bytes = geometry.data().len() * CELL_BYTES;
        for way in [Way::Naive, Way::Relay] {
            let schedule = Schedule::new(&geometry, way);
            let mut over_the_rotation: BTreeMap<Node, (usize, usize)> = BTreeMap::new();
            for stripe in 0..nodes as u64 {
                let carried = carry_out(&geometry, &schedule, stripe);
                let expected = match way {
                    Way::Naive => geometry.cells().count() * CELL_BYTES,
                    Way::Relay => data_bytes,
                };
                assert_eq!(carried.client_sent, expected);
                for node in (0..geometry.last_column().0 + 1).map(Node) {
                    let load = schedule.loads()[usize::from(geometry.column_of(stripe, node).unwrap().0)];
                    let sent = carried.sent.get(&node).copied().unwrap_or(0);
                    let received = carried.received[&node];
                    assert_eq!((sent, received), (load.sent * CELL_BYTES, load.received * CELL_BYTES));
                    assert!(received <= schedule.bound().received * CELL_BYTES);
                    assert!(sent <= schedule.bound().sent * CELL_BYTES);
                    let total = over_the_rotation.entry(node).or_default();
                    *total = (total.0 + sent, total.1 + received);
                }
            }
            let totals: Vec<(usize, usize)> = over_the_rotation.values().copied().collect();
            assert!(totals.iter().all(|total| *total == totals[0]), "all nodes carry the same");
            let average = schedule.average();
            let cells = |bytes: usize| bytes as f64 / (CELL_BYTES * nodes) as f64;
            assert!((cells(totals[0].0) - average.sent).abs() < 1e-9);
            assert!((cells(totals[0].1) - average.received).abs() < 1e-9);
        }
    }
}

#[test]
fn what_arrives_is_used_and_nothing_is_sent_twice_to_the_same_node() {
    for nodes in 3..=24 {
        let geometry = Geometry::new(nodes).unwrap();
        for way in [Way::Naive, Way::Relay] {
            let schedule = Schedule::new(&geometry, way);
            let mut sent = BTreeMap::new();
            for (id, step) in (0..).map(StepId).zip(schedule.steps()) {
                assert!(!step.uses.is_empty(), "{nodes} nodes, {id:?}");
                assert!(step.inputs.iter().all(|input| *input < id));
                assert!(Sender::Column(step.to) != step.from);
                let earlier = sent.insert((step.from, step.to, &step.carries), id);
                assert!(earlier.is_none(), "{nodes} nodes: {earlier:?} and {id:?} send the same");
            }
        }
    }
}

#[test]
fn cells_that_join_go_once_and_all_others_twice() {
    for nodes in 3..=24 {
        let geometry = Geometry::new(nodes).unwrap();
        let schedule = Schedule::new(&geometry, Way::Relay);
        for (id, step) in (0..).map(StepId).zip(&schedule.steps()[..geometry.data().len()]) {
            let by: Vec<Toward> = schedule
                .steps()
                .iter()
                .filter(|other| other.inputs.contains(&id))
                .map(|other| other.toward)
                .collect();
            assert!(step.uses.contains(&Use::Keep(step.carries[0])) && step.uses.len() == by.len() + 1);
            match by[..] {
                [Toward::BothParities] | [Toward::HorizontalParity { .. }, Toward::DiagonalParity { .. }] => {
                }
                _ => panic!("{nodes} nodes, {id:?} goes on as {by:?}"),
            }
        }
    }
}

#[test]
fn what_nodes_stored_gives_two_lost_ones_back() {
    let geometry = Geometry::new(7).unwrap();
    let carried = carry_out(&geometry, &Schedule::new(&geometry, Way::Relay), 5);
    let bytes: BTreeMap<Cell, Vec<u8>> =
        carried.stored.into_iter().map(|((_, cell), bytes)| (cell, bytes)).collect();
    let lost: Lost = geometry.lost_with(5, &[Node(0), Node(6)]).unwrap();
    assert_eq!(repaired(survivors(&bytes, lost), &geometry.recovery(lost).repairs), bytes);
}
