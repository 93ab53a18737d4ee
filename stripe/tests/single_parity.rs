//! Tests stripes with one parity like those with two. Method: every loss of one and two nodes and
//! every schedule for 2 to 17 nodes and every rotation, on random bytes; the layout for every
//! number of nodes; the paper's figure 5, step by step.

mod carried;
mod filled;

use carried::carry_out;
use filled::{CELL_BYTES, filled, repaired, survivors, xor};
use rackscan_stripe::{
    Cell, Column, Geometry, Load, Node, Parity, Role, Schedule, Sender, Shown, Way,
    limits::{NODES_MAX, XOR_NODES_MIN},
};
use std::collections::{BTreeMap, BTreeSet};

fn geometries(most: usize) -> impl Iterator<Item = Geometry> {
    (XOR_NODES_MIN..=most).map(|nodes| Geometry::with_parity(nodes, Parity::Xor).expect("a number of nodes"))
}

fn nodes(geometry: &Geometry) -> impl Iterator<Item = Node> + use<> {
    (0..=geometry.last_column().0).map(Node)
}

#[test]
fn a_stripe_is_one_row_of_a_cell_per_node_with_its_parity_in_the_last_column() {
    for geometry in geometries(NODES_MAX) {
        assert_eq!((geometry.rows(), geometry.diagonals()), (1, 0));
        let cells: Vec<Cell> = geometry.columns().map(|column| Cell { column, slot: 0 }).collect();
        assert_eq!(geometry.cells().collect::<Vec<_>>(), cells);
        let [row] = geometry.equations() else { panic!("one equation") };
        assert_eq!(row.cells().collect::<Vec<_>>(), cells);
        assert_eq!(geometry.data(), row.data);
        for (ordinal, cell) in (0..).zip(geometry.data()) {
            assert_eq!(geometry.role(*cell), Ok(Role::Data { ordinal }));
        }
        assert_eq!(geometry.role(row.parity), Ok(Role::HorizontalParity { row: 0 }));
        assert!(geometry.role(Cell { column: Column(0), slot: 1 }).is_err());
        let count = geometry.nodes() as f64;
        assert!((geometry.stored_per_data() - count / (count - 1.0)).abs() < 1e-9);
    }
}

#[test]
fn over_n_stripes_each_node_keeps_the_parity_once() {
    for geometry in geometries(NODES_MAX) {
        let nodes_with_cells: BTreeSet<Node> = (0..geometry.nodes() as u64)
            .map(|stripe| geometry.node_of(stripe, geometry.last_column()).unwrap())
            .collect();
        assert_eq!(nodes_with_cells.len(), geometry.nodes());
    }
}

#[test]
fn whichever_node_is_lost_comes_back_from_all_others() {
    for geometry in geometries(17) {
        for (stripe, node) in (0..geometry.nodes() as u64).flat_map(|s| nodes(&geometry).map(move |n| (s, n)))
        {
            let bytes = filled(&geometry, 0x57_0040 + stripe);
            let lost = geometry.lost_with(stripe, &[node]).unwrap();
            for plan in [geometry.recovery(lost), geometry.rebuild(lost)] {
                assert_eq!((plan.reads.len(), plan.beyond.len()), (geometry.nodes() - 1, 0));
                assert_eq!(repaired(survivors(&bytes, lost), &plan.repairs), bytes);
            }
            let degraded = geometry.degraded(lost);
            for (cell, expected) in &bytes {
                let sources = degraded.sources(*cell).unwrap().unwrap();
                assert_eq!(xor(&survivors(&bytes, lost), &sources), *expected);
                assert_eq!(sources.len(), if lost.has(cell.column) { geometry.nodes() - 1 } else { 1 });
            }
        }
    }
}

#[test]
fn of_two_lost_nodes_nothing_comes_back_and_nothing_is_made_up() {
    for geometry in geometries(17) {
        for (one, other) in
            geometry.columns().flat_map(|one| geometry.columns().map(move |other| (one, other)))
        {
            if one >= other {
                continue;
            }
            let lost = geometry.lost(&[one, other]).unwrap();
            let gone: Vec<Cell> = [one, other].map(|column| Cell { column, slot: 0 }).into();
            for plan in [geometry.recovery(lost), geometry.rebuild(lost)] {
                assert_eq!((plan.repairs.len(), plan.reads.len()), (0, 0));
                assert_eq!(plan.beyond, gone);
            }
            let degraded = geometry.degraded(lost);
            for cell in geometry.cells() {
                assert_eq!(degraded.sources(cell).unwrap().is_none(), lost.has(cell.column));
            }
        }
    }
}

#[test]
fn each_node_ends_with_exactly_its_cell_and_a_relaying_client_sends_its_data_once() {
    for geometry in geometries(17) {
        for way in [Way::Naive, Way::Relay] {
            let schedule = Schedule::new(&geometry, way);
            let cells = match way {
                Way::Naive => geometry.nodes(),
                Way::Bare | Way::Relay => geometry.nodes() - 1,
            };
            let mut over_the_rotation: BTreeMap<Node, (usize, usize)> = BTreeMap::new();
            for stripe in 0..geometry.nodes() as u64 {
                let carried = carry_out(&geometry, &schedule, stripe);
                assert_eq!(carried.client_sent, cells * CELL_BYTES);
                for node in nodes(&geometry) {
                    let sent = carried.sent.get(&node).copied().unwrap_or(0);
                    let received = carried.received[&node];
                    assert!(sent <= schedule.bound().sent * CELL_BYTES);
                    assert!(received <= schedule.bound().received * CELL_BYTES);
                    let total = over_the_rotation.entry(node).or_default();
                    *total = (total.0 + sent, total.1 + received);
                }
            }
            let totals: BTreeSet<(usize, usize)> = over_the_rotation.into_values().collect();
            assert_eq!(totals.len(), 1, "all nodes carry the same");
        }
    }
}

#[test]
fn a_relay_sends_no_node_more_than_its_cell_and_what_passes() {
    for geometry in geometries(NODES_MAX) {
        let schedule = Schedule::new(&geometry, Way::Relay);
        let nodes = geometry.nodes();
        let middle = Load { sent: 1, received: 2, xors: 1 };
        let mut expected = vec![middle; nodes];
        expected[0] = Load { sent: 1, received: 1, xors: 0 };
        expected[nodes - 1] = Load { sent: 0, received: 1, xors: 0 };
        assert_eq!(schedule.loads(), expected);
        let bound = schedule.bound();
        let most = schedule.loads().iter().map(|load| load.received).max();
        assert_eq!((bound.client, bound.sent, Some(bound.received)), (nodes - 1, 1, most));
        assert_eq!(schedule.hops(), nodes);
    }
}

#[test]
fn three_nodes_are_written_as_figure_5_says() {
    let geometry = Geometry::with_parity(3, Parity::Xor).unwrap();
    let naive = Schedule::new(&geometry, Way::Naive);
    // Half as much again as the data, so that two thirds of the link are left for it.
    assert_eq!((naive.client().sent, geometry.data().len()), (3, 2));
    let relay = Schedule::new(&geometry, Way::Relay);
    let steps: Vec<(Sender, u8, usize)> =
        relay.steps().iter().map(|step| (step.from, step.to.0, step.carries.len())).collect();
    let [zero, one] = [0, 1].map(|column| Sender::Column(Column(column)));
    // The client to 0 and 1; 0 to 1 as it is; 1 to p, XORed.
    assert_eq!(steps, [(Sender::Client, 0, 1), (Sender::Client, 1, 1), (zero, 1, 1), (one, 2, 2)]);
    let shown = Shown::new(&geometry, 0, Some(&relay)).to_string();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(
        lines[0],
        "stripe 0 over 3 nodes: 2 data cells and one parity, 1.500 bytes stored per byte of data"
    );
    assert_eq!(lines[2..4], ["cell  node 0  node 1  node 2", "   0  A       B       A+B"]);
    assert_eq!(
        lines[13..18],
        [
            "        sends  of link  receives  of link  XORs",
            "client      2    1.000         0    0.000     0",
            "node 0      1    0.500         1    0.500     0",
            "node 1      1    0.500         2    1.000     1",
            "node 2      0    0.000         1    0.500     0",
        ]
    );
}

#[test]
fn parities_are_called_what_people_write() {
    for parity in [Parity::Xor, Parity::TwoD] {
        let geometry = Geometry::with_parity(4, parity).unwrap();
        let json = serde_json::to_value(Shown::new(&geometry, 0, None)).unwrap();
        assert_eq!(json["parity"], parity.to_string());
    }
    assert_eq!(Parity::TwoD.to_string(), "2d-xor");
}
