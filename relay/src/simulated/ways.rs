//! Tests every [`Way`] of writing a stripe, every rotation and many lengths: each disk ends with
//! exactly its cells, and each place has sent and received what the schedule says.

use rackscan_fabric::sim::{Seed, SimConfig};
use rackscan_stripe::{Geometry, Load, Node as Turn, Parity, Schedule, Way};

use super::cluster::{Cluster, Filled};
use crate::{Counters, Shape, Task};

const KIB: u64 = 1024;

fn shape(parity: Parity, way: Way) -> Shape {
    let task = Task::Write(way);
    Shape { parity, task, cell_bytes_max: 48 * KIB, slice_bytes: 8192, lanes: 2, slots: 3 }
}

/// Writes stripes over the network of a seed, and compares everything.
fn run(seed: Seed, nodes: usize, shape: Shape, stripes: &[(u64, u64)]) {
    let mut cluster = Cluster::new(seed, nodes, shape);
    let mut writer = cluster.open();
    assert!(writer.is_open(), "{:?}", writer.end());
    cluster.write(&mut writer, stripes);
    cluster.assert_all_stored();
    assert_eq!(cluster.ended.len(), stripes.len());
    let Task::Write(way) = shape.task else { unreachable!("nobody else writes") };
    compare_bytes(&cluster, way, writer.counters(), stripes);
    drop(writer);
    cluster.settle();
    cluster.assert_stored_is_there();
}

fn compare_bytes(cluster: &Cluster, way: Way, client: Counters, stripes: &[(u64, u64)]) {
    let schedule = Schedule::new(&cluster.geometry, way);
    let total: u64 = stripes.iter().map(|(_, cell_bytes)| cell_bytes).sum();
    assert_eq!(client.sent_bytes, schedule.client().sent as u64 * total);
    let cells = match way {
        Way::Bare | Way::Relay => cluster.geometry.data().len(),
        Way::Naive => cluster.geometry.cells().count(),
    };
    assert_eq!(client.sent_bytes, cells as u64 * total);
    assert_eq!(client.stripes, stripes.len() as u64);
    let loads = schedule.loads();
    for (node, relay) in cluster.nodes.iter().enumerate() {
        let turn = Turn(u8::try_from(node).unwrap());
        let load = |stripe| loads[usize::from(cluster.geometry.column_of(stripe, turn).unwrap().0)];
        let sum = |of: fn(Load) -> usize| {
            stripes.iter().map(|(stripe, bytes)| of(load(*stripe)) as u64 * bytes).sum::<u64>()
        };
        let counters = relay.as_ref().unwrap().counters();
        assert_eq!(counters.sent_bytes, sum(|load| load.sent), "node {node}");
        assert_eq!(counters.received_bytes, sum(|load| load.received), "node {node}");
        assert_eq!(counters.kept_bytes, counters.stored_bytes);
        // The fabric agrees: slices, eight bytes of name for each, and sixteen of credit for some
        // that came.
        assert!(counters.written_bytes >= counters.sent_bytes);
        let beside = counters.written_bytes - counters.sent_bytes;
        assert!(beside <= counters.sent_bytes / 4096 * 8 + counters.received_bytes / 4096 * 16, "{beside}");
    }
}

#[test]
fn each_disk_ends_with_exactly_its_cells_by_every_way_in_every_rotation() {
    let two = [3, 4, 5, 7].map(|nodes| (Parity::TwoD, nodes));
    let one = [2, 5].map(|nodes| (Parity::Xor, nodes));
    for (parity, nodes) in two.into_iter().chain(one) {
        for way in [Way::Bare, Way::Naive, Way::Relay] {
            let stripes: Vec<(u64, u64)> = (0..nodes as u64).map(|stripe| (stripe, 20 * KIB)).collect();
            run(Seed::new(nodes as u64), nodes, shape(parity, way), &stripes);
        }
    }
}

#[test]
fn cells_of_any_length_get_through_rings_of_any_size() {
    let lengths = [4 * KIB, 8 * KIB, 12 * KIB, 48 * KIB, 4 * KIB, 40 * KIB];
    let stripes: Vec<(u64, u64)> = (7..).zip(lengths).collect();
    Seed::each(4, |seed| {
        for (slots, slice_bytes, lanes) in [(1, 4096, 1), (2, 8192, 3), (4, 4096, 2), (16, 16384, 6)] {
            let shape = Shape { slots, slice_bytes, lanes, ..shape(Parity::TwoD, Way::Relay) };
            run(seed, 4, shape, &stripes);
        }
    })
    .unwrap();
}

#[test]
fn many_stripes_over_few_lanes_are_each_stored_once() {
    let stripes: Vec<(u64, u64)> = (100..160).map(|stripe| (stripe, 4 * KIB * (1 + stripe % 5))).collect();
    for way in [Way::Naive, Way::Relay] {
        run(Seed::new(9), 4, Shape { lanes: 3, slots: 2, ..shape(Parity::TwoD, way) }, &stripes[..24]);
    }
    let calm = Shape { lanes: 1, ..shape(Parity::Xor, Way::Relay) };
    let mut cluster = Cluster::over(Seed::new(1), 3, calm, SimConfig::calm(), Default::default());
    let mut writer = cluster.open();
    cluster.write(&mut writer, &stripes[..8]);
    cluster.assert_all_stored();
    cluster.assert_stored_is_there();
}

#[test]
fn a_client_that_leaves_ends_its_session_and_another_can_be_opened() {
    let mut cluster = Cluster::new(Seed::new(5), 5, shape(Parity::TwoD, Way::Relay));
    for round in 0..3 {
        let mut writer = cluster.open();
        cluster.write(&mut writer, &[(10 * round, 12 * KIB), (10 * round + 1, 8 * KIB)]);
        drop(writer);
        cluster.settle();
    }
    cluster.assert_all_stored();
    assert_eq!(cluster.ended.len(), 6);
    assert_eq!(cluster.net.registrations(), 0, "all memory was given back");
    cluster.assert_stored_is_there();
}

#[test]
fn a_stripe_ends_when_nothing_of_it_is_under_way_any_more() {
    Seed::each(8, |seed| {
        let mut cluster = Cluster::new(seed, 2, Shape { lanes: 1, ..shape(Parity::Xor, Way::Naive) });
        // Without disks a node has checked its cells as soon as they have arrived. It may report
        // this before the writer's own operations complete.
        cluster.nodes.iter_mut().flatten().for_each(|node| node.store().in_memory = true);
        let mut writer = cluster.open();
        for stripe in 0..30 {
            cluster.write(&mut writer, &[(stripe, 4 * KIB)]);
            assert_eq!(writer.slices_in_flight(), 0);
        }
        cluster.assert_all_stored();
    })
    .unwrap();
}

#[test]
fn two_clients_write_at_once_without_meeting() {
    let shape = shape(Parity::TwoD, Way::Relay);
    let mut cluster = Cluster::new(Seed::new(6), 4, shape);
    let (mut one, mut other) = (cluster.open(), cluster.open());
    let geometry = Geometry::new(4).unwrap();
    let filled = Filled::new(&geometry, Task::Write(Way::Relay), 77, 16 * KIB);
    let what: Vec<Vec<u8>> = (0..4).map(|node| format!("77 for {node}").into_bytes()).collect();
    other
        .write(&crate::Stripe { number: 77, cell_bytes: 16 * KIB, what: &what, data: &filled.data })
        .unwrap();
    cluster.filled.insert(77, filled);
    cluster.write(&mut one, &[(1, 20 * KIB), (2, 20 * KIB)]);
    cluster.write(&mut other, &[(78, 8 * KIB)]);
    cluster.assert_all_stored();
    assert_eq!(cluster.ended.keys().copied().collect::<Vec<_>>(), [1, 2, 77, 78]);
    cluster.assert_stored_is_there();
}
