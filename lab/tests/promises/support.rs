//! Starts a real node with a scratch area in this process, over a temporary folder. Tests may write
//! and overwrite the scratch area, which is a part of a device.

use std::path::PathBuf;
use std::time::Duration;

use rackscan_fabric::{Address, ClusterKey, Wire};
use rackscan_format::ids::NodeId;
use rackscan_format::message::{BridgeKind, IoKind};
use rackscan_lab::{LineOptions, NodeHost, NodeShape, RunningNode};
use rackscan_storage_node::{ByteSize, ClusterId, Config, DeviceConfig, Node, NodeHandle};
use tempfile::TempDir;

const NODE: NodeId = NodeId(5);
pub(crate) const SCRATCH_BYTES: u64 = 8 << 20;
pub(crate) const REACTOR: NodeShape =
    NodeShape { bridge: BridgeKind::Reactor, io: IoKind::Uring, io_threads: 0, serving: 1, pin: false };

pub(crate) struct NodeFolder {
    folder: TempDir,
    /// Sockets need short paths.
    sockets: TempDir,
    key: ClusterKey,
    pub(crate) scratch: Option<u64>,
    pub(crate) device_bytes: u64,
    pub(crate) starts: u32,
    running: Option<(NodeShape, NodeHandle)>,
}

impl NodeFolder {
    pub(crate) fn new() -> Self {
        // In the build folder, because /tmp may be a tmpfs, which refuses direct IO.
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("the build folder is writable");
        let key = ClusterKey::from_bytes([9; 32]);
        std::fs::write(folder.path().join("cluster.key"), key.to_hex()).expect("the folder is writable");
        let sockets = TempDir::new().expect("the folder for temporary files is writable");
        Self {
            folder,
            sockets,
            key,
            scratch: Some(SCRATCH_BYTES),
            device_bytes: 24 << 20,
            starts: 0,
            running: None,
        }
    }

    pub(crate) fn device(&self) -> PathBuf {
        self.folder.path().join("device0")
    }

    pub(crate) fn addresses(&self) -> Vec<(Wire, Address)> {
        let (_, handle) = self.running.as_ref().expect("it runs");
        [Wire::Shm, Wire::Tcp].into_iter().zip(handle.addresses().iter().cloned()).collect()
    }

    pub(crate) fn line(&self, wire: Wire, depth: u32, batch: Option<u32>) -> LineOptions {
        let addresses = self.addresses();
        let (_, address) = addresses.iter().find(|(of, _)| *of == wire).expect("it listens on both wires");
        LineOptions {
            node: NODE,
            address: address.clone(),
            key: self.key.clone(),
            patience: Duration::from_secs(5),
            depth,
            slot_bytes: 65_536,
            batch,
            reads_cache: false,
        }
    }

    pub(crate) fn stop(&mut self) {
        if let Some((_, handle)) = self.running.take() {
            handle.stop();
            handle.wait().expect("the node had no reason to stop");
        }
    }

    /// A function that makes the node end, for another thread.
    pub(crate) fn stopper(&self) -> impl Fn() + Send + 'static {
        self.running.as_ref().expect("it runs").1.stopper()
    }
}

impl NodeHost for NodeFolder {
    fn start(&mut self, shape: &NodeShape) -> Result<RunningNode, String> {
        if self.running.as_ref().is_none_or(|(running, _)| running != shape) {
            self.stop();
            let path = |name: &str| self.folder.path().join(name);
            let device =
                DeviceConfig { path: self.device(), size: Some(ByteSize(self.device_bytes)), reserve: true };
            let mut config = Config::new(NODE, ClusterId(7), path("data"), device, path("cluster.key"));
            config.listen = vec![
                Address::Shm { path: self.sockets.path().join("node") },
                Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 },
            ];
            (config.bridge, config.io, config.pollers) = (shape.bridge, shape.io, shape.serving);
            config.io_threads = shape.io_threads.max(1);
            config.memory_budget = ByteSize(128 << 20);
            config.scan_workers = 1;
            config.scratch = self.scratch.map(ByteSize);
            let handle = Node::start(config).map_err(|error| error.to_string())?;
            self.starts += 1;
            self.running = Some((*shape, handle));
        }
        let addresses = self.addresses();
        let (pid, key, device) = (std::process::id(), self.key.clone(), self.device());
        let (pid, device) = (Some(pid), Some(device));
        Ok(RunningNode { pid, node: NODE, addresses, key, device, written_bytes: None })
    }
}

impl Drop for NodeFolder {
    fn drop(&mut self) {
        self.stop();
    }
}
