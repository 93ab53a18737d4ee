//! Tests that sessions work with real storage nodes, which have devices and logs, in this process.

use std::sync::atomic::{AtomicU32, Ordering};

use rackscan_client::{NodeEndpoint, Operations, Session};
use rackscan_fabric::{Address, Wire};
use rackscan_format::ids::NodeId;
use rackscan_ramp::{algorithm::Algorithm, item::Value};
use rackscan_storage_node::{ByteSize, ClusterId, Config, DeviceConfig, Node, NodeHandle};
use tempfile::TempDir;

use crate::{
    node::key,
    sessions::{of, options_for, value},
    stress::{combinations, stress},
};

const NODES: u16 = 3;

/// An address of this machine at which nobody else listens or calls from: the port of a node that
/// is down stays free.
fn own_host() -> String {
    static HOSTS: AtomicU32 = AtomicU32::new(0);
    let (process, number) = (std::process::id(), HOSTS.fetch_add(1, Ordering::Relaxed));
    format!("127.{}.{}.{}", 1 + process / 256 % 254, process % 256, 1 + number % 254)
}

struct Nodes {
    /// Beside the build, because /tmp may be a tmpfs, where direct IO is refused.
    folder: TempDir,
    /// Sockets need short paths.
    sockets: TempDir,
    host: String,
    handles: Vec<Option<NodeHandle>>,
    endpoints: Vec<NodeEndpoint>,
}

impl Nodes {
    fn start() -> Self {
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("the build folder is writable");
        let sockets = TempDir::new().expect("the folder for temporary files is writable");
        std::fs::write(folder.path().join("cluster.key"), key().to_hex()).expect("the folder is writable");
        let mut nodes =
            Self { folder, sockets, host: own_host(), handles: Vec::new(), endpoints: Vec::new() };
        for node in 0..NODES {
            let handle = Node::start(nodes.config(node)).expect("the node starts");
            let addresses = handle.addresses().to_vec();
            nodes.endpoints.push(NodeEndpoint { id: NodeId(node), addresses });
            nodes.handles.push(Some(handle));
        }
        nodes
    }

    fn config(&self, node: u16) -> Config {
        let path = |name: &str| self.folder.path().join(format!("{name}{node}"));
        let device = DeviceConfig { path: path("device"), size: Some(ByteSize(16 << 20)), reserve: true };
        let key_file = self.folder.path().join("cluster.key");
        let mut config = Config::new(NodeId(node), ClusterId(99), path("data"), device, key_file);
        let port =
            |address: &Address| if let Address::Tcp { port, .. } = address { Some(*port) } else { None };
        let before = self.endpoints.get(usize::from(node));
        let port = before.and_then(|before| before.addresses.iter().find_map(port)).unwrap_or(0);
        config.listen = vec![
            Address::Shm { path: self.sockets.path().join(node.to_string()) },
            Address::Tcp { host: self.host.clone(), port },
        ];
        config.memory_budget = ByteSize(96 << 20);
        config.cache = Some(ByteSize(0));
        config.transactions = Some(ByteSize(16 << 20));
        config.scan_workers = 1;
        config
    }

    fn over(&self, wire: Wire) -> Vec<NodeEndpoint> {
        let mut endpoints = self.endpoints.clone();
        endpoints.iter_mut().for_each(|node| node.addresses.retain(|address| address.wire() == wire));
        endpoints
    }

    fn stop(&mut self, node: usize) {
        if let Some(handle) = self.handles[node].take() {
            handle.stop();
            handle.wait().expect("the node had no reason to stop by itself");
        }
    }

    fn start_again(&mut self, node: usize) {
        let config = self.config(u16::try_from(node).expect("a node"));
        self.handles[node] = Some(Node::start(config).expect("the node starts again"));
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        (0..self.handles.len()).for_each(|node| self.stop(node));
    }
}

#[test]
fn nobody_sees_a_part_of_a_transaction_on_real_nodes() {
    for wire in [Wire::Shm, Wire::Tcp] {
        for (algorithm, operations) in combinations() {
            // New ones each time: the history knows of no other transactions.
            let nodes = Nodes::start();
            stress(&format!("real {wire:?}"), &options_for(nodes.over(wire), algorithm, operations));
        }
    }
}

#[test]
fn what_real_nodes_acknowledged_is_there_when_they_are_back() {
    for wire in [Wire::Shm, Wire::Tcp] {
        let mut nodes = Nodes::start();
        let options = options_for(nodes.over(wire), Algorithm::Fast, Operations::OneSided);
        let mut session = Session::open(options.clone()).unwrap();
        let keys: Vec<_> = (0..20).map(|number| of(&format!("k{number}"))).collect();
        let large = Value::new(&vec![7; 100_000]).unwrap();
        session.write(keys.iter().map(|key| (key.clone(), large.clone())).collect()).unwrap();
        session.write(vec![(keys[3].clone(), value("small"))]).unwrap();
        session.read(&keys).unwrap();
        (0..usize::from(NODES)).for_each(|node| nodes.stop(node));
        assert!(session.read(&keys).is_err());
        (0..usize::from(NODES)).for_each(|node| nodes.start_again(node));
        let mut other = Session::open(options).unwrap();
        let read = other.read(&keys).unwrap();
        for (key, version) in &read.items {
            let expected = if *key == keys[3] { value("small") } else { large.clone() };
            assert!(version.value == expected, "{wire:?} {key}");
        }
    }
}
