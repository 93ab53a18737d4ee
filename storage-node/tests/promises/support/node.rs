//! Runs a node in its own folder, with small devices and the minimum of memory.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

use rackscan_fabric::{Address, ClusterKey};
use rackscan_format::{
    ids::NodeId,
    message::{BridgeKind, IoKind},
};
use rackscan_storage_node::{ByteSize, ClusterId, Config, DeviceConfig, Node, NodeHandle, StartError};
use tempfile::TempDir;

use super::client::Client;

pub(crate) const DEVICE_BYTES: u64 = 16 << 20;

/// Which threads stand between a node's connections and its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bridge {
    pub(crate) kind: BridgeKind,
    pub(crate) io: IoKind,
}

/// Every kind there is.
pub(crate) const BRIDGES: [Bridge; 4] = [
    Bridge { kind: BridgeKind::Reactor, io: IoKind::Uring },
    Bridge { kind: BridgeKind::Reactor, io: IoKind::Pread },
    Bridge { kind: BridgeKind::Static, io: IoKind::Pread },
    Bridge { kind: BridgeKind::Dynamic, io: IoKind::Pread },
];

/// An address of this machine at which nobody else listens or calls from: a port that was found
/// free there stays free.
pub(crate) fn own_host() -> String {
    static HOSTS: AtomicU32 = AtomicU32::new(0);
    let (process, number) = (std::process::id(), HOSTS.fetch_add(1, Ordering::Relaxed));
    format!("127.{}.{}.{}", 1 + process / 256 % 254, process % 256, 1 + number % 254)
}

/// A node's folder, which outlives the node.
pub(crate) struct NodeFolder {
    folder: TempDir,
    /// Sockets need short paths.
    sockets: TempDir,
    pub(crate) key: ClusterKey,
}

impl NodeFolder {
    pub(crate) fn new() -> Self {
        // Beside the build, because /tmp may be a tmpfs, where direct IO is refused.
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("the build folder is writable");
        let sockets = TempDir::new().expect("the folder for temporary files is writable");
        let key = ClusterKey::from_bytes([7; 32]);
        std::fs::write(folder.path().join("cluster.key"), key.to_hex()).expect("the folder is writable");
        Self { folder, sockets, key }
    }

    /// What a crash at this moment would leave: the files as they are, while the node runs.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self::new();
        std::fs::create_dir_all(copy.path("data")).expect("the folder is writable");
        for file in ["device0", "device1", "data/catalog"] {
            std::fs::copy(self.path(file), copy.path(file)).expect("the file can be copied");
        }
        copy
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where a relay may listen.
    pub(crate) fn relay_socket(&self) -> Address {
        Address::Shm { path: self.sockets.path().join("relay") }
    }

    pub(crate) fn device(&self, number: usize) -> PathBuf {
        self.path(&format!("device{number}"))
    }

    /// The same, with what the participant of transactions has on the disk.
    pub(crate) fn copy_with_keys(&self) -> Self {
        let copy = self.copy();
        for file in ["data/transactions.log", "data/transactions.life"] {
            std::fs::copy(self.path(file), copy.path(file)).expect("the file can be copied");
        }
        copy
    }

    /// The configuration of a node that keeps keys.
    pub(crate) fn config_with_keys(&self) -> Config {
        let mut config = self.config();
        (config.memory_budget, config.transactions) = (ByteSize(96 << 20), Some(ByteSize(32 << 20)));
        config
    }

    pub(crate) fn start_with_keys(&self) -> Running {
        self.start_with(self.config_with_keys()).expect("the node starts")
    }

    /// Two devices, both wires, the least memory.
    pub(crate) fn config(&self) -> Config {
        let device = |number| DeviceConfig {
            path: self.device(number),
            size: Some(ByteSize(DEVICE_BYTES)),
            reserve: true,
        };
        let mut config =
            Config::new(NodeId(3), ClusterId(99), self.path("data"), device(0), self.path("cluster.key"));
        config.devices.push(device(1));
        config.listen = vec![
            Address::Shm { path: self.sockets.path().join("node") },
            Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 },
        ];
        config.memory_budget = ByteSize(64 << 20);
        config.scan_workers = 1;
        config
    }

    /// The same, with the memory that two pollers need.
    pub(crate) fn config_over(&self, bridge: Bridge) -> Config {
        let mut config = self.config();
        let Bridge { kind, io } = bridge;
        (config.bridge, config.io, config.pollers, config.io_threads) = (kind, io, 2, 3);
        if kind != BridgeKind::Reactor {
            config.memory_budget = ByteSize(128 << 20);
        }
        config
    }

    pub(crate) fn start_over(&self, bridge: Bridge) -> Running {
        self.start_with(self.config_over(bridge)).expect("the node starts")
    }

    pub(crate) fn start(&self) -> Running {
        self.start_with(self.config()).expect("the node starts")
    }

    pub(crate) fn start_with(&self, config: Config) -> Result<Running, StartError> {
        Ok(Running { handle: Node::start(config)?, key: self.key.clone() })
    }
}

/// A node of this process.
pub(crate) struct Running {
    pub(crate) handle: NodeHandle,
    pub(crate) key: ClusterKey,
}

impl Running {
    pub(crate) fn shm(&self) -> Client {
        Client::connect(&self.handle.addresses()[0], &self.key)
    }

    pub(crate) fn tcp(&self) -> Client {
        Client::connect(&self.handle.addresses()[1], &self.key)
    }

    /// A client with little memory, over the wire with this number.
    pub(crate) fn small(&self, wire: usize) -> Client {
        Client::connect_with(&self.handle.addresses()[wire], &self.key, 4096)
    }

    /// One client over each wire.
    pub(crate) fn both(&self) -> [(&'static str, Client); 2] {
        [("shm", self.shm()), ("tcp", self.tcp())]
    }

    /// Stops in good order.
    pub(crate) fn stop(self) {
        self.handle.stop();
        self.handle.wait().expect("the node had no reason to stop by itself");
    }
}
