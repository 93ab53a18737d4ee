//! Tests how much the client and each node send and receive. Method: the steps of the naive and the
//! relaying way are counted for every number of nodes.

use rackscan_stripe::{
    Geometry, Load, Schedule, Way,
    limits::{NODES_MAX, NODES_MIN},
};
use std::sync::LazyLock;

/// Of every number of nodes, the naive and the relaying schedule.
static SCHEDULES: LazyLock<Vec<(Geometry, [Schedule; 2])>> = LazyLock::new(|| {
    let geometries = (NODES_MIN..=NODES_MAX).map(|nodes| Geometry::new(nodes).expect("a number of nodes"));
    let schedules = |geometry: &Geometry| [Way::Naive, Way::Relay].map(|way| Schedule::new(geometry, way));
    geometries.map(|geometry| (geometry.clone(), schedules(&geometry))).collect()
});

fn most(loads: &[Load], of: fn(&Load) -> usize) -> usize {
    loads.iter().map(of).max().unwrap_or(0)
}

#[test]
fn no_load_is_above_the_bound_that_the_schedule_states() {
    for (geometry, schedules) in SCHEDULES.iter() {
        for schedule in schedules {
            let (way, nodes) = (schedule.way(), geometry.nodes());
            let (bound, loads) = (schedule.bound(), schedule.loads());
            assert_eq!(schedule.client().sent, bound.client);
            assert!(most(&loads, |load| load.received) <= bound.received, "{way:?}, {nodes} nodes");
            assert!(most(&loads, |load| load.sent) <= bound.sent, "{way:?}, {nodes} nodes");
            let received: usize = loads.iter().map(|load| load.received).sum();
            let sent: usize = loads.iter().map(|load| load.sent).sum();
            assert_eq!(received, schedule.client().sent + sent);
        }
    }
}

#[test]
fn a_relay_states_that_the_client_sends_its_data_and_no_node_more_than_2_5_of_n_minus_1_of_that() {
    for (geometry, [_, relay]) in SCHEDULES.iter() {
        let (bound, nodes) = (relay.bound(), geometry.nodes());
        assert_eq!(bound.client, geometry.data().len());
        assert_eq!(bound.sent, 2 * (nodes - 2));
        assert_eq!(bound.received, 5 * (nodes - 2) / 2);
        // So where links are alike, the client's is the first to be full.
        assert!(bound.received.max(bound.sent) <= bound.client, "{nodes} nodes");
    }
}

#[test]
fn a_naive_client_sends_what_is_stored() {
    for (geometry, [naive, _]) in SCHEDULES.iter() {
        let client = naive.client();
        let per_data = client.sent as f64 / geometry.data().len() as f64;
        assert!((per_data - geometry.stored_per_data()).abs() < 1e-9);
        // Each data cell is XORed into two parities, the first ones into nothing.
        let parities = geometry.equations().len();
        assert_eq!(client.xors, 2 * geometry.data().len() - parities);
    }
}

/// Nodes; data cells; cells that nodes send to each other; the most that one sends, receives, XORs;
/// hops.
type Relayed = (usize, usize, usize, usize, usize, usize, usize);

const RELAYED: [Relayed; 15] = [
    (3, 2, 4, 2, 2, 0, 2),
    (4, 6, 10, 4, 4, 2, 3),
    (5, 12, 18, 5, 7, 5, 4),
    (6, 20, 30, 7, 9, 8, 4),
    (7, 30, 43, 8, 12, 11, 4),
    (8, 42, 61, 10, 14, 13, 5),
    (9, 56, 79, 11, 16, 16, 5),
    (10, 72, 100, 13, 19, 19, 6),
    (11, 90, 126, 15, 21, 18, 6),
    (12, 110, 150, 15, 24, 23, 7),
    (13, 132, 179, 16, 26, 25, 7),
    (14, 156, 213, 18, 28, 27, 8),
    (15, 182, 248, 20, 30, 27, 8),
    (16, 210, 283, 21, 32, 30, 8),
    (17, 240, 319, 21, 35, 30, 9),
];

#[test]
fn relays_carry_as_much_as_is_written_here() {
    let mut found = Vec::new();
    for (geometry, [_, schedule]) in SCHEDULES.iter().take(RELAYED.len()) {
        let (loads, nodes) = (schedule.loads(), geometry.nodes());
        let relayed = loads.iter().map(|load| load.sent).sum();
        let (sent, received) = (most(&loads, |load| load.sent), most(&loads, |load| load.received));
        let xors = most(&loads, |load| load.xors);
        found.push((nodes, geometry.data().len(), relayed, sent, received, xors, schedule.hops()));
    }
    assert_eq!(found, RELAYED);
}

#[test]
fn nodes_xor_in_all_as_often_as_a_naive_client_would() {
    // Each equation of k data cells needs k - 1 XORs, wherever they are done.
    for (geometry, [_, schedule]) in SCHEDULES.iter() {
        let xors: usize = schedule.loads().iter().map(|load| load.xors).sum();
        assert_eq!(
            (schedule.client().xors, xors),
            (0, 2 * geometry.data().len() - geometry.equations().len())
        );
    }
}
