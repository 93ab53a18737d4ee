//! Starts clusters that contain TPC-H, for tests.
//!
//! Storage nodes run inside the test's process, with device files below Cargo's folder for
//! temporary files: `O_DIRECT` needs a filesystem on a disk. All files are removed when the cluster
//! is dropped.

use rackscan_client::{Cluster, ClusterOptions, NodeEndpoint};
use rackscan_datasets::{LoadOptions, tpch};
use rackscan_engine::{Engine, EngineOptions};
use rackscan_fabric::{Address, ClusterKey, WallClock, Wire};
use rackscan_format::ids::NodeId;
use rackscan_planner::Policy;
use rackscan_storage_node::{ByteSize, ClusterId, Config, DeviceConfig, Node, NodeHandle};
use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// How tables are cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) segment_rows: u32,
    pub(crate) page_size: u32,
}

/// Running nodes.
pub(crate) struct TestCluster {
    nodes: Vec<Option<NodeHandle>>,
    key: ClusterKey,
    data: TempDir,
    _sockets: TempDir,
}

impl TestCluster {
    /// Starts `nodes` empty nodes that listen on both wires.
    pub(crate) fn start(nodes: u16) -> Outcome<Self> {
        Self::start_with(nodes, |_| ())
    }

    /// The same with nodes that are configured in another way.
    pub(crate) fn start_with(nodes: u16, change: impl Fn(&mut Config)) -> Outcome<Self> {
        let data = TempDir::new_in(env!("CARGO_TARGET_TMPDIR"))?;
        // A socket's path may have about 100 bytes, which a build folder deep in a home
        // folder exceeds.
        let sockets = TempDir::new()?;
        let key = ClusterKey::generate()?;
        fs::write(data.path().join("key"), key.to_hex())?;
        let nodes = (0..nodes).map(|node| start_node(node, data.path(), sockets.path(), &change).map(Some));
        let nodes = nodes.collect::<Outcome<_>>()?;
        Ok(Self { nodes, key, data, _sockets: sockets })
    }

    /// A client over one wire.
    pub(crate) async fn connect(&self, wire: Wire) -> Outcome<Cluster> {
        self.connect_by(wire, WallClock::default()).await
    }

    /// The same on a host with this clock.
    pub(crate) async fn connect_by(&self, wire: Wire, wall: WallClock) -> Outcome<Cluster> {
        let endpoints = self.nodes.iter().enumerate().filter_map(|(id, node)| {
            let addresses = node.as_ref()?.addresses().to_vec();
            Some(NodeEndpoint { id: NodeId(u16::try_from(id).ok()?), addresses })
        });
        let mut options = ClusterOptions::new(endpoints.collect(), self.key.clone());
        options.wire = Some(wire);
        options.memory_bytes = 64 << 20;
        options.wall = wall;
        Ok(Cluster::connect(options).await?)
    }

    /// Loads all of TPC-H at scale factor 0.01.
    pub(crate) async fn load(&self, shape: Shape) -> Outcome<()> {
        let cluster = self.connect(Wire::Shm).await?;
        let Shape { segment_rows, page_size } = shape;
        let options = LoadOptions { segment_rows, page_size, ..LoadOptions::default() };
        tpch::load(&cluster, 0.01, &[], &options, &|_| ()).await?;
        Ok(())
    }

    /// An engine over one wire.
    pub(crate) async fn engine(&self, wire: Wire, options: EngineOptions) -> Outcome<Engine> {
        Ok(Engine::open(self.connect(wire).await?, options).await?)
    }

    /// The device files of a node.
    pub(crate) fn devices(&self, node: usize) -> [PathBuf; 2] {
        ["device0", "device1"].map(|name| self.data.path().join(format!("node{node}")).join(name))
    }

    /// Stops a node and waits until it is gone.
    pub(crate) fn stop(&mut self, node: usize) -> Outcome<()> {
        if let Some(handle) = self.nodes[node].take() {
            handle.stop();
            handle.wait()?;
        }
        Ok(())
    }
}

fn start_node(node: u16, data: &Path, sockets: &Path, change: &impl Fn(&mut Config)) -> Outcome<NodeHandle> {
    let folder = data.join(format!("node{node}"));
    fs::create_dir_all(&folder)?;
    let device = |name: &str| DeviceConfig {
        path: folder.join(name),
        size: Some(ByteSize(256 << 20)),
        reserve: false,
    };
    let cluster = ClusterId::of_name("test");
    let mut config = Config::new(NodeId(node), cluster, folder.clone(), device("device0"), data.join("key"));
    config.devices.push(device("device1"));
    config.listen = vec![
        Address::Shm { path: sockets.join(format!("node{node}")) },
        Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 },
    ];
    config.memory_budget = ByteSize(160 << 20);
    config.scan_workers = 1;
    change(&mut config);
    Ok(Node::start(config)?)
}

/// An engine's options under one policy, with both cores of a small machine.
pub(crate) fn options(policy: Policy) -> EngineOptions {
    EngineOptions { policy, threads: 2, ..EngineOptions::default() }
}
