//! Measures how many reads of several keys a session does in a second: by messages, by post boxes,
//! and one-sidedly out of slots.
//!
//! Run: `cargo run --release -p rackscan-client --example sessionbench [-- TURNS]`. Four nodes in
//! this process keep values of 1 KB. The ways alternate in short turns over the same keys, so that
//! other load of the machine affects all of them. Figures are medians of turns; ratios, to messages
//! over `shm`, are medians of the ratios of turns of one round.

use std::{
    error::Error,
    time::{Duration, Instant},
};

use rackscan_client::{LinesOptions, NodeEndpoint, Operations, Session, SessionOptions};
use rackscan_fabric::{
    Address, ClusterKey, Wire,
    sim::{Random, Seed},
};
use rackscan_format::ids::NodeId;
use rackscan_ramp::item::{Key, Value};
use rackscan_storage_node::{ByteSize, ClusterId, Config, DeviceConfig, Node, NodeHandle};

type Outcome<T> = Result<T, Box<dyn Error>>;

const NODES: u16 = 4;
const KEYS: usize = 1000;
const VALUE_BYTES: usize = 1000;
const TURN: Duration = Duration::from_millis(50);
const TURNS_DEFAULT: usize = 21;
const READ_KEYS: [usize; 2] = [4, 8];
const WAYS: [(Operations, Wire); 4] = [
    (Operations::Messages, Wire::Shm),
    (Operations::Messages, Wire::Tcp),
    (Operations::Posted, Wire::Shm),
    (Operations::OneSided, Wire::Shm),
];

fn cluster_key() -> ClusterKey {
    ClusterKey::from_bytes([9; 32])
}

fn start(folder: &std::path::Path, node: u16) -> Outcome<NodeHandle> {
    let path = |name: &str| folder.join(format!("{name}{node}"));
    let device = DeviceConfig { path: path("device"), size: Some(ByteSize(16 << 20)), reserve: true };
    let mut config =
        Config::new(NodeId(node), ClusterId(99), path("data"), device, folder.join("cluster.key"));
    config.listen =
        vec![Address::Shm { path: path("socket") }, Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 }];
    config.memory_budget = ByteSize(96 << 20);
    config.cache = Some(ByteSize(0));
    config.transactions = Some(ByteSize(16 << 20));
    config.scan_workers = 1;
    Ok(Node::start(config)?)
}

fn session(nodes: &[NodeHandle], (operations, wire): (Operations, Wire)) -> Outcome<Session> {
    let endpoint = |(node, handle): (u16, &NodeHandle)| NodeEndpoint {
        id: NodeId(node),
        addresses: handle.addresses().to_vec(),
    };
    let nodes = (0..).zip(nodes).map(endpoint).collect();
    let patience = Duration::from_secs(10);
    let lines = LinesOptions {
        nodes,
        key: cluster_key(),
        wire: Some(wire),
        memory_bytes: 4 << 20,
        patience,
        posts: false,
    };
    Ok(Session::open(SessionOptions { operations, ..SessionOptions::new(lines) })?)
}

/// Reads in a second.
fn turn(session: &mut Session, keys: &[Key], at_once: usize, random: &mut Random) -> Outcome<f64> {
    let (begun, mut reads) = (Instant::now(), 0_u32);
    while begun.elapsed() < TURN {
        let wanted: Vec<Key> = (0..at_once).map(|_| keys[random.index(keys.len())].clone()).collect();
        session.read(&wanted)?;
        reads += 1;
    }
    Ok(f64::from(reads) / begun.elapsed().as_secs_f64())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() -> Outcome<()> {
    let turns = std::env::args().nth(1).map_or(Ok(TURNS_DEFAULT), |text| text.parse())?;
    // Beside the build, because /tmp may be a tmpfs, where direct IO is refused.
    let folder = tempfile::TempDir::new_in(".")?;
    std::fs::write(folder.path().join("cluster.key"), cluster_key().to_hex())?;
    let nodes = (0..NODES).map(|node| start(folder.path(), node)).collect::<Outcome<Vec<_>>>()?;
    let mut sessions = WAYS.map(|way| session(&nodes, way)).into_iter().collect::<Outcome<Vec<_>>>()?;
    let keys = (0..KEYS).map(|number| Key::new(format!("key{number}").as_bytes()));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    let value = Value::new(&[7; VALUE_BYTES])?;
    for some in keys.chunks(50) {
        sessions[0].write(some.iter().map(|key| (key.clone(), value.clone())).collect())?;
    }
    for session in &mut sessions {
        // Where they are is learnt by reading.
        for some in keys.chunks(50) {
            session.read(some)?;
        }
    }
    let mut random = Random::new(Seed::new(0x5eed_0023));
    for at_once in READ_KEYS {
        let mut figures = vec![Vec::new(); WAYS.len()];
        for round in 0..turns {
            for step in 0..WAYS.len() {
                // Each follows each.
                let way = (round + step * if round % 2 == 0 { 1 } else { 3 }) % WAYS.len();
                figures[way].push(turn(&mut sessions[way], &keys, at_once, &mut random)?);
            }
        }
        for ((operations, wire), found) in WAYS.iter().zip(&figures) {
            let ratios = found.iter().zip(&figures[0]).map(|(found, base)| found / base).collect();
            let per_second = median(found.clone());
            println!(
                "{at_once} keys, {operations} over {wire:?}: {per_second:.0} reads/s, {:.2} of get/put over shm",
                median(ratios)
            );
        }
    }
    sessions.into_iter().for_each(Session::close);
    for node in nodes {
        node.stop();
        node.wait()?;
    }
    Ok(())
}
