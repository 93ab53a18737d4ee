//! Tests that a place may die at any step of a run: the others learn which one it was, nothing
//! waits forever, and a stripe is reported as stored only if it is on all its disks.

use std::time::{Duration, Instant};

use rackscan_device::sim::FaultRates;
use rackscan_fabric::sim::{Fault, Moment, Seed, SimConfig};
use rackscan_format::ids::NodeId;
use rackscan_stripe::{Parity, Way};

use super::cluster::{CLIENT, Cluster, Filled, Ledger, TURNS_MAX, place_of};
use crate::{Cause, SessionEnd, Shape, Stripe, Task, Who};

const STRIPES: [(u64, u64); 2] = [(0, 8192), (1, 4096)];

fn shape(way: Way) -> Shape {
    let task = Task::Write(way);
    Shape { parity: Parity::TwoD, task, cell_bytes_max: 16384, slice_bytes: 4096, lanes: 2, slots: 1 }
}

/// Steps of a run without a loss.
fn steps(seed: Seed, nodes: usize, way: Way) -> u64 {
    let mut cluster = Cluster::new(seed, nodes, shape(way));
    let mut writer = cluster.open();
    cluster.write(&mut writer, &STRIPES);
    cluster.assert_all_stored();
    cluster.net.steps()
}

fn assert_names(end: &SessionEnd, victim: Option<usize>, cluster: &Cluster) {
    let who = match victim {
        None => Who::Client,
        Some(node) => Who::Node {
            node: NodeId(u16::try_from(node * 10).unwrap()),
            address: cluster.members[node].address.to_string(),
        },
    };
    assert_eq!(end.who, who, "{end}");
    assert!(matches!(end.cause, Cause::Lost | Cause::Unreachable), "{end}");
}

fn kill_node(seed: Seed, nodes: usize, way: Way, victim: usize, step: u64) -> bool {
    let mut cluster = Cluster::new(seed, nodes, shape(way));
    cluster.net.plan(Moment::Step(step), Fault::Crash { place: place_of(victim) });
    let mut writer = cluster.open();
    if writer.is_open() {
        cluster.write(&mut writer, &STRIPES);
    }
    for ended in cluster.ended.values() {
        if let Err(end) = &ended.outcome {
            assert_names(end, Some(victim), &cluster);
        }
    }
    let was_lost = writer.end().is_some();
    if let Some(end) = writer.end() {
        assert_names(end, Some(victim), &cluster);
        cluster.settle();
        for node in 0..nodes {
            let ends = cluster.nodes[node].as_mut().map(|node| node.take_ended()).unwrap_or_default();
            ends.iter().for_each(|end| assert_names(end, Some(victim), &cluster));
        }
    }
    drop(writer);
    cluster.settle();
    cluster.assert_stored_is_there();
    was_lost
}

#[test]
fn a_node_that_dies_at_any_step_is_named_by_all_and_no_stripe_lies() {
    // Every step of a run of three nodes, of longer ones some; the nodes take turns to be the
    // victim.
    for (way, nodes, stride) in [(Way::Relay, 3, 1), (Way::Naive, 3, 13), (Way::Relay, 4, 17)] {
        let seed = Seed::new(nodes as u64);
        let steps = steps(seed, nodes, way);
        let (mut lost, mut tried) = (0, 0);
        for step in (0..steps).step_by(stride) {
            let victim = usize::try_from(step).unwrap() % nodes;
            lost += usize::from(kill_node(seed, nodes, way, victim, step));
            tried += 1;
        }
        assert!(lost * 2 > tried, "{lost} of {tried}");
    }
}

#[test]
fn a_client_that_dies_at_any_step_leaves_no_session_behind() {
    let seed = Seed::new(0x37);
    let nodes = 3;
    for step in 0..steps(seed, nodes, Way::Relay) {
        let mut cluster = Cluster::new(seed, nodes, shape(Way::Relay));
        cluster.net.plan(Moment::Step(step), Fault::Crash { place: CLIENT.to_owned() });
        let mut writer = cluster.open();
        if writer.is_open() {
            cluster.write_while(&mut writer, &STRIPES, |cluster| cluster.net.crashes(CLIENT) == 0);
        }
        if cluster.net.crashes(CLIENT) == 0 {
            // Its crash would have come behind the end.
            cluster.net.crash(CLIENT);
        }
        drop(writer);
        // What never began is no session; the rest ends.
        for _ in 0..2000 {
            cluster.turn();
        }
        cluster.settle();
        for node in 0..nodes {
            for end in cluster.nodes[node].as_mut().unwrap().take_ended() {
                assert_names(&end, None, &cluster);
            }
            let ledger: &Ledger = cluster.nodes[node].as_mut().unwrap().store();
            assert!(ledger.stored.len() + ledger.given_up.len() == ledger.what.len(), "each ends once");
        }
        cluster.assert_stored_is_there();
    }
}

#[test]
fn after_a_loss_the_session_can_be_opened_again_and_the_stripes_be_written() {
    Seed::each(6, |seed| {
        let mut cluster = Cluster::new(seed, 4, shape(Way::Relay));
        let mut writer = cluster.open();
        let victim = usize::try_from(seed.number() % 4).unwrap();
        cluster.net.plan(
            Moment::Step(cluster.net.steps() + 100 + seed.number() % 400),
            Fault::Crash { place: place_of(victim) },
        );
        cluster.write(&mut writer, &STRIPES);
        drop(writer);
        cluster.settle();
        if cluster.nodes[victim].is_none() {
            cluster.restart(victim, seed.number());
        }
        cluster.ended.clear();
        let again = [(10, 8192), (11, 4096), (12, 16384)];
        let mut writer = cluster.open();
        cluster.write(&mut writer, &again);
        cluster.assert_all_stored();
        assert_eq!(cluster.ended.len(), again.len());
        cluster.left.clear();
        cluster.assert_stored_is_there();
    })
    .unwrap();
}

#[test]
fn a_network_that_is_cut_between_two_nodes_ends_the_session_and_names_one_of_them() {
    Seed::each(12, |seed| {
        let mut cluster = Cluster::new(seed, 4, shape(Way::Relay));
        let cut = Fault::Cut { one: place_of(1), other: place_of(3) };
        cluster.net.plan(Moment::Step(100 + seed.number() % 2000), cut);
        let mut writer = cluster.open();
        if writer.is_open() {
            cluster.write(&mut writer, &STRIPES);
        }
        if let Some(end) = writer.end() {
            let named = [1, 3].map(|node| NodeId(node * 10));
            assert!(matches!(&end.who, Who::Node { node, .. } if named.contains(node)), "{end}");
        }
        drop(writer);
        cluster.settle();
        cluster.assert_stored_is_there();
    })
    .unwrap();
}

#[test]
fn a_store_that_is_full_refuses_and_is_named() {
    let mut cluster = Cluster::new(Seed::new(1), 4, shape(Way::Relay));
    cluster.nodes[2].as_mut().unwrap().store().full_from = Some(2);
    let mut writer = cluster.open();
    cluster.write(&mut writer, &[(0, 4096), (1, 8192)]);
    cluster.assert_all_stored();
    cluster.write(&mut writer, &[(2, 4096)]);
    let end = cluster.ended[&2].outcome.clone().unwrap_err();
    assert_eq!((end.cause, end.why.as_str()), (Cause::Refused, "it is full"));
    assert!(matches!(end.who, Who::Node { node: NodeId(20), .. }), "{end}");
    cluster.settle();
    cluster.assert_stored_is_there();
}

#[test]
fn a_device_that_fails_is_named_and_nothing_is_stored_that_it_lost() {
    let faults =
        FaultRates { write_error: 10_000, torn_write: 10_000, fsync_error: 20_000, ..FaultRates::default() };
    let (mut failed, mut stored) = (0, 0);
    Seed::each(16, |seed| {
        let mut cluster = Cluster::over(seed, 3, shape(Way::Relay), SimConfig::default(), faults);
        let mut writer = cluster.open();
        cluster.write(&mut writer, &[(0, 8192), (1, 8192), (2, 4096), (3, 4096)]);
        for ended in cluster.ended.values() {
            match &ended.outcome {
                Ok(()) => stored += 1,
                Err(end) => {
                    failed += 1;
                    assert_eq!(end.cause, Cause::Disk, "{end}");
                }
            }
        }
        drop(writer);
        cluster.settle();
        cluster.assert_stored_is_there();
    })
    .unwrap();
    let is_one_seed = Seed::from_environment().unwrap().is_some();
    assert!(is_one_seed || failed > 0 && stored > 0, "{failed} failed, {stored} stored");
}

#[test]
fn whatever_goes_wrong_by_chance_every_stripe_ends_and_none_lies() {
    let chance = rackscan_fabric::sim::Chance {
        loss_per_million: 60,
        crash_per_million: 30,
        faults_max: 2,
        ..Default::default()
    };
    let config = SimConfig { chance, ..SimConfig::default() };
    let mut ended_badly = 0;
    Seed::each(40, |seed| {
        let mut cluster = Cluster::over(seed, 5, shape(Way::Relay), config.clone(), FaultRates::default());
        let mut writer = cluster.open();
        if writer.is_open() {
            let stripes: Vec<(u64, u64)> = (0..6).map(|stripe| (stripe, 4096 * (1 + stripe % 3))).collect();
            cluster.write(&mut writer, &stripes);
        }
        ended_badly += usize::from(writer.end().is_some());
        drop(writer);
        for _ in 0..TURNS_MAX / 100 {
            cluster.turn();
        }
        cluster.settle();
        cluster.assert_stored_is_there();
    })
    .unwrap();
    let is_one_seed = Seed::from_environment().unwrap().is_some();
    assert!(is_one_seed || ended_badly > 5, "{ended_badly}");
}

#[test]
fn a_client_that_does_nothing_loses_its_session_and_one_that_writes_does_not() {
    let mut cluster = Cluster::new(Seed::new(3), 3, shape(Way::Relay));
    cluster.idle_after(Duration::from_millis(300));
    // As many stripes as there is time for; the disks are small.
    cluster.nodes.iter_mut().flatten().for_each(|node| node.store().in_memory = true);
    let (mut idle, mut busy) = (cluster.open(), cluster.open());
    let begun = Instant::now();
    for stripe in 0.. {
        cluster.write(&mut busy, &[(stripe, 8192)]);
        cluster.filled.clear();
        idle.turn();
        if begun.elapsed() > Duration::from_millis(900) && idle.end().is_some() {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it has done nothing for long enough");
    }
    cluster.assert_all_stored();
    let end = idle.end().unwrap();
    assert_eq!((&end.who, end.cause), (&Who::Client, Cause::Idle), "{end}");
    assert!(end.why.contains("no stripe was begun"), "{end}");
    assert!(busy.is_open(), "{:?}", busy.end());
}

#[test]
fn a_stripe_that_nobody_sends_ends_its_session_and_the_sender_is_named() {
    // Whoever looks first.
    for first in [0, 2] {
        let mut cluster = Cluster::new(Seed::new(4), 3, shape(Way::Relay));
        let mut writer = cluster.open();
        cluster.nodes[first].as_mut().unwrap().config.idle_max = Duration::from_millis(100);
        // Node 1 stays connected, but does nothing any more.
        let asleep = cluster.nodes[1].take();
        let filled = Filled::new(&cluster.geometry, Task::Write(Way::Relay), 0, 8192);
        let what = vec![Vec::new(); 3];
        writer.write(&Stripe { number: 0, cell_bytes: 8192, what: &what, data: &filled.data }).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while writer.end().is_none() {
            assert!(Instant::now() < deadline, "it hangs");
            cluster.turn();
            writer.turn();
        }
        let end = writer.end().unwrap();
        let is_named = matches!(end.who, Who::Node { node: NodeId(10), .. });
        assert!(is_named && end.cause == Cause::Idle, "node {first}: {end}");
        drop((writer, asleep));
    }
}
