//! Tests that a rebuild brings every lost cell to the replacement node, and how much each node
//! sends and receives. Method: the rebuild is carried out on random bytes, slice by slice in the
//! order of [`Rebuild::at`], for one lost node in every rotation and every pair of lost nodes, with
//! 2 to 17 nodes. Surviving nodes have what they stored, and keep what they have read for as long
//! as the rebuild says; what arrives is forgotten after one tick; replacement nodes have only what
//! arrives.

mod filled;

use filled::{Bytes, CELL_BYTES, filled, repaired, survivors, xor};
use rackscan_stripe::{Cell, Column, Geometry, Lost, Node, Parity, Rebuild, StepId, StripeError};
use std::collections::{BTreeMap, BTreeSet};

const SLICES: usize = 4;
const SLICE_BYTES: usize = CELL_BYTES / SLICES;

/// What was read, sent and received, in bytes, and what the new nodes have got.
#[derive(Default)]
struct Carried {
    read: BTreeMap<Cell, usize>,
    sent: BTreeMap<Node, usize>,
    received: BTreeMap<Node, usize>,
    got: BTreeMap<(Node, Cell), Vec<u8>>,
}

struct Relays<'a> {
    geometry: &'a Geometry,
    rebuild: &'a Rebuild,
    stripe: u64,
    lost: Lost,
    /// The whole stripe, with which payloads are compared.
    bytes: Bytes,
    /// What survivors have stored.
    stored: Bytes,
    /// For how many ticks a cell's slices are held.
    held: BTreeMap<Cell, usize>,
    /// Slices of cells that were read and are held, with the tick of reading.
    read: BTreeMap<(Cell, usize), usize>,
    /// What has arrived at the last tick.
    arrived: BTreeMap<(Node, StepId, usize), Vec<u8>>,
    carried: Carried,
}

impl Relays<'_> {
    fn run(mut self) -> Carried {
        let ticks = (SLICES + self.rebuild.hops()).saturating_sub(1);
        for tick in 0..ticks {
            let sending: Vec<(StepId, usize)> = self.rebuild.at(tick, SLICES).collect();
            let mut arriving = BTreeMap::new();
            for (id, slice) in sending {
                let payload = self.payload(tick, (id, slice));
                let to = self.deliver((id, slice), &payload);
                arriving.insert((to, id, slice), payload);
            }
            self.arrived = arriving;
            let held = &self.held;
            self.read.retain(|(cell, _), since| tick + 1 < *since + held[cell]);
        }
        assert_eq!(self.rebuild.at(ticks, SLICES).count(), 0, "whole after hops and slices");
        assert!(self.read.is_empty(), "nothing is held for longer than it is needed");
        self.carried
    }

    fn node(&self, column: Column) -> Node {
        self.geometry.node_of(self.stripe, column).expect("a column of the stripe")
    }

    fn payload(&mut self, tick: usize, (id, slice): (StepId, usize)) -> Vec<u8> {
        let step = &self.rebuild.steps()[usize::from(id.0)];
        let range = slice * SLICE_BYTES..(slice + 1) * SLICE_BYTES;
        let mut sum = vec![0; SLICE_BYTES];
        let mut add = |bytes: &[u8]| sum.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum ^= byte);
        for cell in &step.reads {
            assert_eq!(cell.column, step.from, "it is read where it is");
            self.read.entry((*cell, slice)).or_insert_with(|| {
                *self.carried.read.entry(*cell).or_default() += SLICE_BYTES;
                tick
            });
            add(&self.stored[cell][range.clone()]);
        }
        for input in &step.inputs {
            add(self.arrived.get(&(self.node(step.from), *input, slice)).expect("it has just arrived"));
        }
        assert_eq!(sum, xor(&self.bytes, &step.carries)[range], "a step carries what it says");
        sum
    }

    /// Says where it arrives.
    fn deliver(&mut self, (id, slice): (StepId, usize), payload: &[u8]) -> Node {
        let step = &self.rebuild.steps()[usize::from(id.0)];
        let (from, to) = (self.node(step.from), self.node(step.to));
        assert_ne!(from, to);
        *self.carried.sent.entry(from).or_default() += SLICE_BYTES;
        *self.carried.received.entry(to).or_default() += SLICE_BYTES;
        let brings = self.rebuild.rebuilt().iter().find(|rebuilt| rebuilt.by == id);
        assert_eq!(
            brings.is_some(),
            self.lost.has(step.to),
            "new nodes receive their cells and nothing else"
        );
        if let Some(rebuilt) = brings {
            assert_eq!(rebuilt.cell.column, step.to);
            let got = self.carried.got.entry((to, rebuilt.cell)).or_insert_with(|| vec![0; CELL_BYTES]);
            got[slice * SLICE_BYTES..][..SLICE_BYTES].copy_from_slice(payload);
        }
        to
    }
}

/// Carries a rebuild out, and compares what comes of it with the stripe, and what it took with what
/// was promised.
fn rebuild_on_bytes(geometry: &Geometry, stripe: u64, lost_nodes: &[Node]) {
    let lost = geometry.lost_with(stripe, lost_nodes).expect("nodes of the stripe");
    let rebuild = Rebuild::new(geometry, lost).expect("no more are lost than may be");
    let bytes = filled(geometry, 0x57_0050 + stripe);
    let (stored, plan) = (survivors(&bytes, lost), geometry.rebuild(lost));
    assert_eq!(repaired(stored.clone(), &plan.repairs), bytes);
    let held = rebuild.reads().iter().map(|cell| (*cell, rebuild.slices_held(*cell))).collect();
    let (read, arrived, carried) = (BTreeMap::new(), BTreeMap::new(), Carried::default());
    let bytes_of_all = bytes.clone();
    let relays = Relays {
        geometry,
        rebuild: &rebuild,
        stripe,
        lost,
        bytes: bytes_of_all,
        stored,
        held,
        read,
        arrived,
        carried,
    };
    let carried = relays.run();
    let of =
        format!("{}, {} nodes without {lost_nodes:?}, stripe {stripe}", geometry.parity(), geometry.nodes());
    let node = |column: Column| geometry.node_of(stripe, column).expect("a column of the stripe");
    let wanted = bytes.into_iter().filter(|(cell, _)| lost.has(cell.column));
    let wanted: BTreeMap<(Node, Cell), Vec<u8>> =
        wanted.map(|(cell, bytes)| ((node(cell.column), cell), bytes)).collect();
    assert!(carried.got == wanted, "{of}");
    assert_eq!(rebuild.bound(), wanted.len());
    // Each cell that the plan reads is read once, and no other.
    let read: Vec<(Cell, usize)> = carried.read.into_iter().collect();
    let expected: Vec<(Cell, usize)> = plan.reads.iter().map(|cell| (*cell, CELL_BYTES)).collect();
    assert_eq!(read, expected, "{of}");
    assert!((rebuild.reads_per_cell() - plan.reads_per_cell()).abs() < 1e-9);
    for (column, load) in geometry.columns().zip(rebuild.loads()) {
        let bytes = |of: &BTreeMap<Node, usize>| of.get(&node(column)).copied().unwrap_or(0);
        let (sent, received) = (bytes(&carried.sent), bytes(&carried.received));
        assert_eq!((sent, received), (load.sent * CELL_BYTES, load.received * CELL_BYTES));
        assert!(sent.max(received) <= rebuild.bound() * CELL_BYTES, "{of}");
        if lost.has(column) {
            assert_eq!(load.received, geometry.slots(column), "each rebuilt byte is received once");
        }
    }
}

fn geometries() -> impl Iterator<Item = Geometry> {
    let two = (3..=17).map(|nodes| Geometry::new(nodes).expect("a number of nodes"));
    let one = (2..=17).map(|nodes| Geometry::with_parity(nodes, Parity::Xor).expect("a number of nodes"));
    two.chain(one)
}

fn nodes(geometry: &Geometry) -> impl Iterator<Item = Node> + use<> {
    (0..=geometry.last_column().0).map(Node)
}

#[test]
fn a_lost_node_is_rebuilt_in_every_rotation() {
    for geometry in geometries() {
        for stripe in 0..geometry.nodes() as u64 {
            for node in nodes(&geometry) {
                rebuild_on_bytes(&geometry, stripe, &[node]);
            }
        }
    }
}

#[test]
fn two_lost_nodes_are_rebuilt_at_once_each_receiving_only_its_own_cells() {
    for geometry in geometries().filter(|geometry| geometry.parity() == Parity::TwoD) {
        let stripes = (0..geometry.nodes() as u64).cycle();
        let pairs = nodes(&geometry).flat_map(|one| nodes(&geometry).map(move |other| [one, other]));
        for (pair, stripe) in pairs.filter(|[one, other]| one < other).zip(stripes) {
            rebuild_on_bytes(&geometry, stripe, &pair);
        }
    }
}

#[test]
fn no_load_is_above_the_bound_for_any_number_of_nodes_and_what_arrives_is_sent_on_at_once() {
    for geometry in (3..=64).map(|nodes| Geometry::new(nodes).unwrap()) {
        let (first, middle, last) = (Column(0), Column(geometry.last_column().0 / 2), geometry.last_column());
        for lost in [vec![middle], vec![last], vec![first, middle], vec![middle, last]] {
            let lost = geometry.lost(&lost).unwrap();
            let rebuild = Rebuild::new(&geometry, lost).unwrap();
            let loads = rebuild.loads();
            assert!(loads.iter().all(|load| load.sent.max(load.received) <= rebuild.bound()));
            for step in rebuild.steps() {
                let arrived = step.inputs.iter().map(|input| &rebuild.steps()[usize::from(input.0)]);
                assert!(arrived.clone().all(|input| input.depth + 1 == step.depth && input.to == step.from));
                assert!(arrived.count() <= 2 && step.reads.len() <= 1);
            }
        }
    }
}

#[test]
fn more_lost_nodes_than_parities_are_refused_and_none_is_nothing_to_do() {
    let two = Geometry::new(6).unwrap();
    let one = Geometry::with_parity(6, Parity::Xor).unwrap();
    for (geometry, lost) in [(&two, 3), (&one, 2)] {
        let columns: Vec<Column> = geometry.columns().take(lost).collect();
        let error = Rebuild::new(geometry, geometry.lost(&columns).unwrap()).unwrap_err();
        assert_eq!(error, StripeError::TooManyLost { found: lost, parity: geometry.parity(), nodes: 6 });
        let nothing = Rebuild::new(geometry, Lost::NONE).unwrap();
        assert_eq!((nothing.steps().len(), nothing.hops(), nothing.bound()), (0, 0, 0));
    }
    let error = Rebuild::new(&one, one.lost(&[Column(0), Column(1)]).unwrap()).unwrap_err();
    assert!(
        error.to_string().starts_with("2 nodes of a stripe over 6 are lost, and parity xor makes up for 1")
    );
}

/// The most that a survivor receives.
fn most_received(geometry: &Geometry, rebuild: &Rebuild) -> usize {
    let new: BTreeSet<Column> = rebuild.rebuilt().iter().map(|rebuilt| rebuilt.cell.column).collect();
    let survivors = geometry.columns().zip(rebuild.loads()).filter(|(column, _)| !new.contains(column));
    survivors.map(|(_, load)| load.received).max().unwrap_or(0)
}

/// Nodes; of all single losses: cells rebuilt, cells that survivors send to each other and to the
/// new node; the most that one survivor sends for a lost node over the rotation; hops; the most
/// slices of a cell that are held; the most that a survivor receives for a stripe.
type Relayed = (usize, usize, usize, usize, usize, usize, usize);

const RELAYED: [Relayed; 15] = [
    (3, 6, 6, 3, 1, 1, 0),
    (4, 13, 23, 8, 2, 2, 2),
    (5, 20, 60, 16, 3, 3, 3),
    (6, 31, 111, 24, 4, 4, 3),
    (7, 42, 210, 37, 5, 5, 5),
    (8, 59, 287, 48, 6, 6, 5),
    (9, 74, 452, 63, 7, 7, 6),
    (10, 91, 683, 81, 8, 8, 7),
    (11, 110, 990, 102, 9, 9, 9),
    (12, 133, 1264, 124, 10, 10, 9),
    (13, 156, 1716, 145, 11, 11, 11),
    (14, 185, 1951, 170, 12, 12, 11),
    (15, 212, 2540, 197, 13, 13, 12),
    (16, 241, 3252, 227, 14, 14, 13),
    (17, 272, 4080, 259, 15, 15, 15),
];

#[test]
fn rebuilds_carry_as_much_as_is_written_here() {
    let mut found = Vec::new();
    for nodes in 3..=17 {
        let geometry = Geometry::new(nodes).unwrap();
        let (mut rebuilt, mut sent, mut hops, mut held, mut received) = (0, 0, 0, 0, 0);
        // By the survivor's distance from the lost node, which it keeps over the rotation.
        let mut by_distance: BTreeMap<usize, usize> = BTreeMap::new();
        for (at, column) in geometry.columns().enumerate() {
            let rebuild = Rebuild::new(&geometry, geometry.lost(&[column]).unwrap()).unwrap();
            rebuilt += rebuild.bound();
            hops = hops.max(rebuild.hops());
            held = rebuild.reads().iter().map(|cell| rebuild.slices_held(*cell)).fold(held, usize::max);
            received = received.max(most_received(&geometry, &rebuild));
            for (other, load) in rebuild.loads().iter().enumerate() {
                *by_distance.entry((other + nodes - at) % nodes).or_default() += load.sent;
                sent += load.sent;
            }
        }
        let most = by_distance.values().copied().max().unwrap();
        assert!(most <= rebuilt);
        found.push((nodes, rebuilt, sent, most, hops, held, received));
    }
    assert_eq!(found, RELAYED);
}

/// Nodes; of all pairs of lost nodes: the most hops; the most slices of a cell that are held; the
/// most that a survivor receives for a stripe.
const RELAYED_FOR_TWO: [(usize, usize, usize, usize); 4] =
    [(4, 7, 7, 3), (5, 13, 13, 6), (8, 25, 25, 12), (17, 73, 73, 30)];

#[test]
fn rebuilds_of_two_nodes_take_as_long_as_is_written_here() {
    let most = |nodes: usize| {
        let geometry = Geometry::new(nodes).unwrap();
        let pairs = geometry.columns().flat_map(|one| geometry.columns().map(move |other| [one, other]));
        let most = pairs.filter(|[one, other]| one < other).fold((0, 0, 0), |most, pair| {
            let rebuild = Rebuild::new(&geometry, geometry.lost(&pair).unwrap()).unwrap();
            let held = rebuild.reads().iter().map(|cell| rebuild.slices_held(*cell)).max();
            (
                most.0.max(rebuild.hops()),
                most.1.max(held.unwrap_or(0)),
                most.2.max(most_received(&geometry, &rebuild)),
            )
        });
        (nodes, most.0, most.1, most.2)
    };
    assert_eq!([4, 5, 8, 17].map(most), RELAYED_FOR_TWO);
}

#[test]
fn what_a_rebuild_sends_is_a_cell_of_each_chain_and_node_once() {
    for geometry in geometries() {
        for column in geometry.columns() {
            let rebuild = Rebuild::new(&geometry, geometry.lost(&[column]).unwrap()).unwrap();
            let pairs: BTreeSet<(Cell, Column)> =
                rebuild.steps().iter().map(|step| (step.toward, step.from)).collect();
            assert_eq!(pairs.len(), rebuild.steps().len());
        }
    }
}
