//! Tests that a schedule brings every cell to its node. Method: the schedule is carried out on
//! random bytes, slice by slice in the order of [`Schedule::at`], for 3 to 17 nodes and every
//! rotation. A sender may use only slices that have arrived and are still kept; a node stores only
//! what arrives.

mod carried;
mod filled;

use carried::carry_out;
use filled::{CELL_BYTES, repaired, survivors};
use rackscan_stripe::{Cell, Geometry, Lost, Node, Parity, Schedule, Sender, StepId, Toward, Use, Way};
use std::collections::BTreeMap;

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
                    Way::Bare | Way::Relay => data_bytes,
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
fn what_is_not_protected_is_the_data_alone_and_comes_from_the_client() {
    for parity in [Parity::Xor, Parity::TwoD] {
        for nodes in parity.nodes_min()..=17 {
            let geometry = Geometry::with_parity(nodes, parity).unwrap();
            let schedule = Schedule::new(&geometry, Way::Bare);
            let kept: Vec<Cell> = schedule.kept().iter().map(|kept| kept.cell).collect();
            assert_eq!(kept, geometry.data());
            for (step, cell) in schedule.steps().iter().zip(geometry.data()) {
                assert_eq!((step.from, step.to, &step.carries), (Sender::Client, cell.column, &vec![*cell]));
            }
            assert_eq!((schedule.steps().len(), schedule.hops()), (geometry.data().len(), 1));
            assert_eq!(schedule.bound().client, geometry.data().len());
            let most = schedule.loads().iter().map(|load| load.received).max();
            assert_eq!(most, Some(schedule.bound().received));
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
