//! Promise: a node has exactly the threads of its configured bridge, on the configured cores, and
//! reports them.

use std::{collections::BTreeMap, fs};

use rackscan_device::allowed_cores;
use rackscan_format::{
    ids::NodeId,
    message::{BridgeKind, BridgeStatus, IoKind},
};

use crate::support::node::{BRIDGES, NodeFolder};

/// This node's threads that read devices, by name, and the cores on which each may run. A number of
/// its own tells it from the nodes of other tests.
fn io_threads(node: NodeId) -> BTreeMap<String, String> {
    let prefix = format!("n{node}-io");
    let mut found = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").expect("/proc is mounted") {
        let task = task.expect("a task").path();
        // A thread may end while it is looked at.
        let Ok(name) = fs::read_to_string(task.join("comm")) else { continue };
        let Ok(status) = fs::read_to_string(task.join("status")) else { continue };
        let cores = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        if name.starts_with(&prefix) {
            found.insert(name.trim().to_owned(), cores.unwrap_or_default().trim().to_owned());
        }
    }
    found
}

#[test]
fn a_node_says_which_bridge_it_has_and_has_its_threads() {
    for (id, bridge) in (40..).zip(BRIDGES) {
        let node_folder = NodeFolder::new();
        let mut config = node_folder.config_over(bridge);
        config.node = NodeId(id);
        let node = node_folder.start_with(config).expect("the node starts");
        let status = node.shm().status();
        let (expected, pollers, threads) = match (bridge.kind, bridge.io) {
            (BridgeKind::Reactor, IoKind::Uring) => (0, 1, vec![]),
            (BridgeKind::Reactor, IoKind::Pread) => (3, 1, vec!["io0.0", "io0.1", "io0.2"]),
            (BridgeKind::Static, _) => (3, 2, vec!["io0.0", "io0.1", "io0.2", "io1.0", "io1.1", "io1.2"]),
            (BridgeKind::Dynamic, _) => (0, 2, vec![]),
        };
        let (kind, io) = (bridge.kind, bridge.io);
        assert_eq!(status.bridge, BridgeStatus { kind, io, io_threads: expected });
        assert_eq!(status.reactors, pollers, "{bridge:?}");
        let threads: Vec<String> = threads.into_iter().map(|thread| format!("n{id}-{thread}")).collect();
        assert_eq!(io_threads(NodeId(id)).into_keys().collect::<Vec<_>>(), threads, "{bridge:?}");
        node.stop();
        assert_eq!(io_threads(NodeId(id)), BTreeMap::new(), "{bridge:?}: threads outlived their node");
    }
}

#[test]
fn threads_that_read_devices_take_their_turn_of_the_cores() {
    let node_folder = NodeFolder::new();
    let mut config = node_folder.config_over(BRIDGES[2]);
    config.node = NodeId(50);
    config.pin_cores = allowed_cores();
    let cores = config.pin_cores.clone();
    let node = node_folder.start_with(config).expect("the node starts");
    // Two pollers and one scan worker come first.
    let expected: Vec<String> = (3..9).map(|thread| cores[thread % cores.len()].to_string()).collect();
    assert_eq!(io_threads(NodeId(50)).into_values().collect::<Vec<_>>(), expected);
    node.stop();
}

#[test]
fn a_core_that_does_not_exist_stops_the_start_over_every_bridge() {
    for bridge in BRIDGES {
        let node_folder = NodeFolder::new();
        let mut config = node_folder.config_over(bridge);
        // Enough good ones for the threads that are there in any case.
        config.pin_cores = vec![allowed_cores()[0]; 3];
        config.pin_cores.push(100_000);
        let started = node_folder.start_with(config);
        let needs_it = bridge.kind != BridgeKind::Reactor || bridge.io != IoKind::Uring;
        match started {
            Ok(node) => {
                assert!(!needs_it, "{bridge:?} started");
                node.stop();
            }
            Err(error) => assert!(needs_it && error.to_string().contains("100000"), "{bridge:?}: {error}"),
        }
    }
}
