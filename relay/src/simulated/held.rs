//! Tests nodes that compute cells from cells that they have stored: each disk ends with exactly its
//! cells, no bytes pass through the client, and the bytes that are read, sent and received are
//! those of the plans.

use rackscan_device::sim::FaultRates;
use rackscan_fabric::sim::{Fault, Moment, Seed, SimConfig};
use rackscan_stripe::{Node as Turn, Parity, Rebuild, Schedule, Way};

use super::cluster::{Cluster, place_of};
use crate::{Cause, LostMembers, Shape, Task, plan::Plan, shape::Layout};

const KIB: u64 = 1024;

fn shape(parity: Parity, task: Task) -> Shape {
    Shape { parity, task, cell_bytes_max: 48 * KIB, slice_bytes: 8192, lanes: 2, slots: 3 }
}

fn lost(places: &[usize]) -> Task {
    Task::Rebuild(LostMembers::of(places))
}

fn run(seed: Seed, nodes: usize, shape: Shape, stripes: &[(u64, u64)]) -> Cluster {
    let mut cluster =
        Cluster::holding(seed, nodes, shape, stripes, (SimConfig::default(), FaultRates::default()));
    let mut writer = cluster.open();
    assert!(writer.is_open(), "{:?}", writer.end());
    cluster.write(&mut writer, stripes);
    cluster.assert_all_stored();
    assert_eq!(cluster.ended.len(), stripes.len());
    assert_eq!(writer.counters().sent_bytes, 0, "no byte of a stripe passes the client");
    drop(writer);
    cluster.settle();
    cluster
}

fn sum(cluster: &Cluster, of: impl Fn(&crate::Counters) -> u64) -> u64 {
    cluster.nodes.iter().flatten().map(|node| of(&node.counters())).sum()
}

#[test]
fn nodes_that_have_their_data_keep_its_parities_whatever_the_rotation_and_the_length() {
    let lengths = [20 * KIB, 4 * KIB, 48 * KIB, 12 * KIB, 8 * KIB, 40 * KIB, 16 * KIB];
    for (parity, nodes) in [
        (Parity::TwoD, 3),
        (Parity::TwoD, 4),
        (Parity::TwoD, 5),
        (Parity::TwoD, 7),
        (Parity::Xor, 2),
        (Parity::Xor, 5),
    ] {
        let stripes: Vec<(u64, u64)> = (0..).zip(lengths).take(nodes.max(4)).collect();
        let shape = shape(parity, Task::Protect);
        let mut cluster = run(Seed::new(nodes as u64), nodes, shape, &stripes);
        let total: u64 = stripes.iter().map(|(_, bytes)| bytes).sum();
        let schedule = Schedule::new(&cluster.geometry, Way::Relay);
        let sent: usize = schedule.loads().iter().map(|load| load.sent).sum();
        assert_eq!(sum(&cluster, |counters| counters.sent_bytes), sent as u64 * total);
        let parities = cluster.geometry.equations().len() as u64;
        assert_eq!(sum(&cluster, |counters| counters.stored_bytes), parities * total);
        // Each data cell is read once, as far as it has data.
        assert!(
            sum(&cluster, |counters| counters.read_bytes) <= cluster.geometry.data().len() as u64 * total
        );
        cluster.assert_stored_is_there();
    }
}

#[test]
fn lost_cells_come_back_to_one_and_to_two_members_in_every_rotation() {
    let losses: [&[usize]; 6] = [&[0], &[2], &[1, 3], &[0, 1], &[3], &[2, 3]];
    for (nodes, parity) in [(4, Parity::TwoD), (5, Parity::TwoD), (4, Parity::Xor)] {
        for places in losses.iter().filter(|places| places.len() <= parity.lost_max()) {
            let stripes: Vec<(u64, u64)> =
                (0..nodes as u64).map(|stripe| (stripe, (12 + 4 * stripe) * KIB)).collect();
            let mut cluster = run(Seed::new(7), nodes, shape(parity, lost(places)), &stripes);
            let (mut read, mut sent, mut stored) = (0, 0, 0);
            let turns: Vec<Turn> = places.iter().map(|place| Turn(u8::try_from(*place).unwrap())).collect();
            for (stripe, bytes) in &stripes {
                let columns = cluster.geometry.lost_with(*stripe, &turns).unwrap();
                let rebuild = Rebuild::new(&cluster.geometry, columns).unwrap();
                read += rebuild.reads().len() as u64 * bytes;
                sent += rebuild.loads().iter().map(|load| load.sent as u64).sum::<u64>() * bytes;
                stored += rebuild.rebuilt().len() as u64 * bytes;
            }
            assert_eq!(sum(&cluster, |counters| counters.sent_bytes), sent);
            assert_eq!(sum(&cluster, |counters| counters.stored_bytes), stored);
            assert!(sum(&cluster, |counters| counters.read_bytes) <= read, "each cell is read once");
            cluster.assert_stored_is_there();
        }
    }
}

#[test]
fn held_cells_get_through_rings_of_any_size() {
    let stripes = [(5, 48 * KIB), (6, 4 * KIB), (7, 28 * KIB), (8, 12 * KIB)];
    Seed::each(4, |seed| {
        for (slots, slice_bytes, lanes) in [(1, 4096, 1), (2, 8192, 3), (4, 4096, 2), (16, 16384, 6)] {
            for task in [Task::Protect, lost(&[1]), lost(&[0, 3])] {
                let shape = Shape { slots, slice_bytes, lanes, ..shape(Parity::TwoD, task) };
                run(seed, 4, shape, &stripes).assert_stored_is_there();
            }
        }
    })
    .unwrap();
}

#[test]
fn a_node_that_dies_at_any_step_of_what_nodes_do_among_themselves_is_named_and_no_stripe_lies() {
    let stripes = [(0, 12 * KIB), (1, 8 * KIB)];
    for task in [Task::Protect, lost(&[1])] {
        let shape = Shape { slice_bytes: 4096, slots: 1, ..shape(Parity::TwoD, task) };
        let seed = Seed::new(3);
        let steps = run(seed, 3, shape, &stripes).net.steps();
        let mut lost = 0;
        for step in (0..steps).step_by(3) {
            let victim = usize::try_from(step).unwrap() % 3;
            let usual = (SimConfig::default(), FaultRates::default());
            let mut cluster = Cluster::holding(seed, 3, shape, &stripes, usual);
            cluster.net.plan(Moment::Step(step), Fault::Crash { place: place_of(victim) });
            let mut writer = cluster.open();
            if writer.is_open() {
                cluster.write(&mut writer, &stripes);
            }
            if let Some(end) = writer.end() {
                lost += 1;
                assert!(matches!(end.cause, Cause::Lost | Cause::Unreachable), "{end}");
            }
            drop(writer);
            cluster.settle();
            cluster.assert_stored_is_there();
        }
        assert!(lost * 6 > steps, "{lost} of {steps}");
    }
}

#[test]
fn a_device_that_does_not_read_ends_the_session_and_its_node_is_named() {
    let stripes: Vec<(u64, u64)> = (0..6).map(|stripe| (stripe, 16 * KIB)).collect();
    let faults = FaultRates { read_error: 50_000, ..FaultRates::default() };
    let mut found = 0;
    Seed::each(12, |seed| {
        let shape = shape(Parity::TwoD, Task::Protect);
        let mut cluster = Cluster::holding(seed, 4, shape, &stripes, (SimConfig::default(), faults));
        let mut writer = cluster.open();
        cluster.write(&mut writer, &stripes);
        if let Some(end) = writer.end() {
            assert!(end.cause == Cause::Disk, "{end}");
            found += 1;
        }
        drop(writer);
        cluster.settle();
        cluster.assert_stored_is_there();
    })
    .unwrap();
    assert!(found > 0, "no device failed");
}

/// Runs with a defect in every node's plans; how many sessions ended because a checksum was wrong.
fn spoiled(task: Task, seeds: u64, spoil: impl Fn(&mut Plan)) -> usize {
    let stripes = [(0, 40 * KIB), (1, 48 * KIB)];
    let (mut found, shape) = (0, Shape { slice_bytes: 4096, slots: 2, ..shape(Parity::TwoD, task) });
    Seed::each(seeds, |seed| {
        let usual = (SimConfig::default(), FaultRates::default());
        let mut cluster = Cluster::holding(seed, 4, shape, &stripes, usual);
        let mut layout = Layout::new(shape, 4).unwrap();
        layout.rotations.iter_mut().flat_map(|rotation| &mut rotation.columns).for_each(&spoil);
        let layout = std::sync::Arc::new(layout);
        for node in cluster.nodes.iter_mut().flatten() {
            node.layouts.made.push(std::sync::Arc::clone(&layout));
        }
        let mut writer = cluster.open();
        cluster.write(&mut writer, &stripes);
        if let Some(end) = writer.end() {
            assert_eq!(end.cause, Cause::Checksum, "{end}");
            found += 1;
        }
        drop(writer);
        cluster.settle();
        cluster.assert_stored_is_there();
    })
    .unwrap();
    found
}

#[test]
fn a_sum_that_misses_what_was_read_is_found_by_the_client() {
    for task in [Task::Protect, lost(&[2])] {
        let found = spoiled(task, 4, |plan| {
            let held = plan.origins.len() - plan.held.len();
            for (sum, inputs) in plan.sums.iter_mut().enumerate() {
                if let Some(at) = inputs.iter().position(|input| *input >= held) {
                    let missed = inputs.remove(at);
                    plan.readers[missed].retain(|reader| *reader != crate::plan::Reader::Sum(sum));
                }
            }
        });
        assert_eq!(found, 4, "{task:?}: nobody on the way can see it");
    }
}

#[test]
fn a_slot_that_is_read_into_too_early_is_found() {
    let found = spoiled(Task::Protect, 24, |plan| {
        let held = plan.origins.len() - plan.held.len();
        plan.readers[held..plan.origins.len()].iter_mut().for_each(Vec::clear);
    });
    let is_one_seed = Seed::from_environment().unwrap().is_some();
    assert!(is_one_seed || found * 4 > 24, "only {found} of 24 were found");
}
