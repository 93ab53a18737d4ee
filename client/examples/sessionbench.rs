//! What do point reads cost by messages and out of slots, and what the question whether nodes live?
//!
//! Four nodes in this process, so that their threads share its processors: what is to be compared is the lines of one run.
//! `cargo run --release -p rackscan-client --example sessionbench -- <folder on a disk>`

use std::{
    error::Error,
    path::Path,
    time::{Duration, Instant},
};

use rackscan_client::{Lines, LinesOptions, NodeEndpoint, Operations, Session, SessionOptions};
use rackscan_fabric::{Address, ClusterKey, Wire};
use rackscan_format::ids::NodeId;
use rackscan_ramp::item::{Key, Value};
use rackscan_storage_node::{ByteSize, ClusterId, Config, DeviceConfig, Node, NodeHandle};

const NODES: u16 = 4;
const KEYS: usize = 1000;
const VALUE_BYTES: usize = 1000;
const TIME: Duration = Duration::from_secs(1);

type Failure = Box<dyn Error>;

fn start(folder: &Path, node: u16) -> Result<(NodeHandle, NodeEndpoint), Failure> {
    let path = |name: &str| folder.join(format!("{name}{node}"));
    let device = DeviceConfig { path: path("device"), size: Some(ByteSize(16 << 20)), reserve: true };
    let mut config =
        Config::new(NodeId(node), ClusterId(1), path("data"), device, folder.join("cluster.key"));
    config.listen =
        vec![Address::Shm { path: path("socket") }, Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 }];
    (config.memory_budget, config.cache) = (ByteSize(96 << 20), Some(ByteSize(0)));
    (config.transactions, config.scan_workers) = (Some(ByteSize(16 << 20)), 1);
    let handle = Node::start(config)?;
    let endpoint = NodeEndpoint { id: NodeId(node), addresses: handle.addresses().to_vec() };
    Ok((handle, endpoint))
}

/// Microseconds that one call takes, over [`TIME`].
fn us(mut call: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    let begun = Instant::now();
    let mut calls = 0_u32;
    while begun.elapsed() < TIME {
        call()?;
        calls += 1;
    }
    Ok(begun.elapsed().as_secs_f64() * 1e6 / f64::from(calls))
}

fn main() -> Result<(), Failure> {
    let folder = std::env::args().nth(1).ok_or("name a folder on a disk, for the nodes")?;
    let folder = tempfile::TempDir::new_in(folder)?;
    let key = ClusterKey::from_bytes([7; 32]);
    std::fs::write(folder.path().join("cluster.key"), key.to_hex())?;
    let (mut handles, mut nodes) = (Vec::new(), Vec::new());
    for node in 0..NODES {
        let (handle, endpoint) = start(folder.path(), node)?;
        handles.push(handle);
        nodes.push(endpoint);
    }
    let keys: Vec<Key> =
        (0..KEYS).map(|number| Key::new(format!("user{number}").as_bytes())).collect::<Result<_, _>>()?;
    let value = Value::new(&[7; VALUE_BYTES])?;
    for wire in [Wire::Shm, Wire::Tcp] {
        let patience = Duration::from_secs(5);
        let lines = LinesOptions {
            nodes: nodes.clone(),
            key: key.clone(),
            wire: Some(wire),
            memory_bytes: 4 << 20,
            patience,
        };
        let mut asked = Lines::connect(lines.clone())?;
        let of_all: Vec<usize> = (0..usize::from(NODES)).collect();
        println!(
            "{wire:?}: do {NODES} nodes live? {:.2} us",
            us(|| { if asked.are_there(&of_all) { Ok(()) } else { Err("a node is away".into()) } })?
        );
        for operations in Operations::ALL {
            let mut session =
                Session::open(SessionOptions { operations, ..SessionOptions::new(lines.clone()) })?;
            for some in keys.chunks(100) {
                session.write(some.iter().map(|key| (key.clone(), value.clone())).collect())?;
                session.read(some)?;
            }
            for size in [1, 4, 8] {
                let (mut at, mut one_sided, mut read) = (0, 0, 0);
                let took = us(|| {
                    at = (at + size) % (KEYS - size);
                    let found = session.read(&keys[at..at + size])?;
                    (one_sided, read) = (one_sided + found.one_sided, read + size);
                    Ok(())
                })?;
                let share = 100.0 * one_sided as f64 / read as f64;
                println!("{wire:?} {operations}: {size} keys in {took:.1} us, {share:.1} % out of slots");
            }
            session.close();
        }
    }
    for handle in handles {
        handle.stop();
        handle.wait()?;
    }
    Ok(())
}
