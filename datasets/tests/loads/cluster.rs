//! The nodes into which the tests load, and a client of them.
//!
//! The nodes run inside the test's process, with device files below Cargo's folder for temporary
//! files: `O_DIRECT` needs a filesystem on a disk. Everything is removed when the cluster is
//! dropped.

use std::{
    error::Error,
    fs,
    path::Path,
    sync::{Mutex, PoisonError},
};

use rackscan_client::{Cluster, ClusterOptions, NodeEndpoint};
use rackscan_fabric::{Address, ClusterKey};
use rackscan_format::ids::NodeId;
use rackscan_storage_node::{ByteSize, ClusterId, Config, DeviceConfig, Node, NodeHandle};
use tempfile::TempDir;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Running nodes and a client of them.
pub(crate) struct TestCluster {
    pub(crate) cluster: Cluster,
    options: ClusterOptions,
    nodes: Mutex<Vec<NodeHandle>>,
    data: TempDir,
    _sockets: TempDir,
}

impl TestCluster {
    /// Starts `nodes` empty nodes.
    pub(crate) async fn start(nodes: u16) -> Outcome<Self> {
        let data = TempDir::new_in(env!("CARGO_TARGET_TMPDIR"))?;
        // A socket's path may have about 100 bytes, which a build folder deep in a home
        // folder exceeds.
        let sockets = TempDir::new()?;
        let key = ClusterKey::generate()?;
        fs::write(data.path().join("key"), key.to_hex())?;
        let nodes = (0..nodes).map(|node| start_node(node, data.path(), sockets.path()));
        let nodes = nodes.collect::<Outcome<Vec<_>>>()?;
        let endpoint = |(id, node): (u16, &NodeHandle)| NodeEndpoint {
            id: NodeId(id),
            addresses: node.addresses().to_vec(),
        };
        let mut options = ClusterOptions::new((0..).zip(&nodes).map(endpoint).collect(), key);
        options.memory_bytes = 64 << 20;
        let cluster = Cluster::connect(options.clone()).await?;
        Ok(Self { cluster, options, nodes: Mutex::new(nodes), data, _sockets: sockets })
    }

    /// Another client, with other options.
    pub(crate) async fn another(&self, change: impl FnOnce(&mut ClusterOptions)) -> Outcome<Cluster> {
        let mut options = self.options.clone();
        change(&mut options);
        Ok(Cluster::connect(options).await?)
    }

    /// Stops the last node that runs.
    pub(crate) fn stop_one(&self) {
        let stopped = self.nodes.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(node) = stopped {
            node.stop();
        }
    }

    /// A folder for the test's files.
    pub(crate) fn folder(&self) -> &Path {
        self.data.path()
    }
}

fn start_node(node: u16, data: &Path, sockets: &Path) -> Outcome<NodeHandle> {
    let folder = data.join(format!("node{node}"));
    fs::create_dir_all(&folder)?;
    let device =
        DeviceConfig { path: folder.join("device"), size: Some(ByteSize(256 << 20)), reserve: false };
    let cluster = ClusterId::of_name("test");
    let mut config = Config::new(NodeId(node), cluster, folder, device, data.join("key"));
    config.listen = vec![
        Address::Shm { path: sockets.join(format!("node{node}")) },
        Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 },
    ];
    config.memory_budget = ByteSize(160 << 20);
    config.scan_workers = 1;
    Ok(Node::start(config)?)
}
