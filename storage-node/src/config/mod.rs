//! Defines the configuration of a node: its keys, their defaults and their bounds.
//!
//! ```toml
//! node = 0
//! cluster = "demo"                  # or a number; nodes and devices of other clusters are refused
//! data_dir = "node0"                # the catalog and the log of transactions
//! devices = [{ path = "node0/device0", size = "64GiB" }]
//! listen = ["shm:node0/socket", "tcp:127.0.0.1:7410"]
//! key_file = "cluster.key"          # 64 hexadecimal digits
//! memory_budget = "512MiB"          # optional, as everything below
//! cache = "64MiB"                   # of the memory budget, for pages that are read often; "0" for no cache
//! transactions = "32MiB"            # of the memory budget, for keys and their versions; "0" keeps no keys
//! transactions_log = "1GiB"         # the maximum size of their log on the disk; by default it may fill the disk
//! log_replicas_min = 1              # replicas on other nodes that must have a record before it is acknowledged; with fewer available, writes are refused. By default 1 with three nodes or more, else 0
//! transactions_nice = 0             # the nice value of the threads that write the log and log replicas and that talk to other nodes: up to 19, which lets queries on the same host run first
//! reactors = 1
//! scan_workers = 2
//! pin_cores = [0, 1]
//! bridge = "reactor"                # or "static", "dynamic": which threads serve connections and which wait for devices
//! io = "uring"                      # of reactors: or "pread"
//! io_threads = 4                    # for each reactor or poller that reads by pread
//! pollers = 4                       # of the bridges "static" and "dynamic", in place of reactors
//! scratch = "1GiB"                  # an area of the first device for experiments of the laboratory; none by default
//! relay = ["shm:node0/relay"]       # addresses of the node's relays, which compute parity together with other nodes; each has its own thread; none by default. Without relays, clients compute the parity of their loads themselves
//! relay_memory = "64MiB"            # of the memory budget, for stripes that are relayed; this is the default for each address
//! peers = [{ node = 1, addresses = ["shm:node1/socket", "tcp:127.0.0.1:7411"] }]   # the other nodes; without them, this node ends no transactions of lost clients, and its log has no replicas
//! connections = 3600                # maximum number of connected clients and nodes, at most 3840 per reactor, with up to 96 KiB each in addition to the memory budget (384 KiB each if the node listens at a `verbs` address)
//! members = [0, 1]                  # all nodes of the cluster; a data folder records this list once, and refuses a different one
//! private_rings = 4                 # receive rings of a reactor for clients that send often; the others share one
//! volatile = true                   # for experiments: the data folder may be in memory (tmpfs), and is lost with the host
//! scan_cpu_ms = 5000                # processor time of one scan; a scan that takes more is bounced, and the engine scans the segment
//! scan_memory = "64MiB"             # stored pages and groups that one scan may hold; a scan that needs more is bounced too
//! ```
//!
//! Invariants
//! - Every key has its default in one place, here. An unknown key is an error.
//! - Every value is within the bounds of `limits` once [`Config::check`] has passed; nothing starts
//!   without it.

mod bytes;
mod cluster;
mod error;
mod load;

pub use bytes::ByteSize;
pub use cluster::ClusterId;
pub use error::ConfigError;

use std::{path::PathBuf, time::Duration};

use rackscan_fabric::{Address, WallClock};
use rackscan_format::{
    ids::NodeId,
    message::{BridgeKind, BridgeStatus, IoKind},
};
use serde::{Deserialize, Serialize};

use crate::limits;

/// One device of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceConfig {
    /// A file or a block device. A file that does not exist is created at the first start.
    pub path: PathBuf,
    /// The size of a file to be created; needed only then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<ByteSize>,
    /// Whether a file to be created reserves all its disk space at once. Otherwise it takes space
    /// as pages are written, and a load fails when the filesystem is full.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reserve: bool,
}

/// Another node of the cluster. An entry for this node itself is ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerConfig {
    /// Its id.
    pub node: NodeId,
    /// Its addresses; the first one is used.
    #[serde(with = "load::addresses")]
    pub addresses: Vec<Address>,
    /// The addresses where it relays stripes.
    #[serde(default, with = "load::addresses", skip_serializing_if = "Vec::is_empty")]
    pub relay: Vec<Address>,
}

/// How long a node whose log has a damaged end waits for nodes that may have the rest of it, before
/// it continues without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPatience {
    /// For the others, once one of them has answered.
    pub others: Duration,
    /// For the first one.
    pub first: Duration,
}

impl Default for LogPatience {
    fn default() -> Self {
        Self { others: limits::LOST_END_OTHERS_TIME, first: limits::LOST_END_FIRST_TIME }
    }
}

/// The configuration of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Its id in the cluster.
    pub node: NodeId,
    /// Its cluster: a number, or a name that stands for one.
    pub cluster: ClusterId,
    /// The folder of its catalog and its transaction log.
    pub data_dir: PathBuf,
    /// Its devices; pages are striped over them. New devices may be appended, none may be removed.
    pub devices: Vec<DeviceConfig>,
    /// The addresses where it listens, on one or several wires.
    #[serde(with = "load::addresses")]
    pub listen: Vec<Address>,
    /// The addresses where it relays stripes, each with a thread of its own; may be empty. Other
    /// nodes find them by their `peers`.
    #[serde(default, with = "load::addresses", skip_serializing_if = "Vec::is_empty")]
    pub relay: Vec<Address>,
    /// The part of the memory budget for stripes that are being relayed, divided among the
    /// addresses: `RELAY_BYTES_MIN` to `RELAY_BYTES_MAX` for each, by default
    /// `RELAY_BYTES_DEFAULT`; none without `relay`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay_memory: Option<ByteSize>,
    /// The file of the cluster's key.
    pub key_file: PathBuf,
    /// All memory that it may use for buffers, scans and metadata.
    #[serde(default = "defaults::memory_budget")]
    pub memory_budget: ByteSize,
    /// The part of the budget for the page cache; 0 for none. By default an eighth, or what the
    /// other parts leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<ByteSize>,
    /// The part of the budget for the keys of transactions; 0 for none. By default a sixteenth, or
    /// what the other parts and the cache leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transactions: Option<ByteSize>,
    /// The maximum bytes of the transaction log; beyond it, nothing is prepared until the log has
    /// been compacted. By default it may fill the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transactions_log: Option<ByteSize>,
    /// Replicas of the log in other nodes that must have a record before it is acknowledged; while
    /// fewer are available, writes are refused. At most as many as the log has: two, or one in a
    /// cluster of two nodes. By default 1 with at least two other nodes, else 0: then the loss of
    /// this node's disk may lose acknowledged records, and a person decides whether the node
    /// continues without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_replicas_min: Option<u8>,
    /// The niceness, 0 to 19, of the threads that write transaction logs and their copies and that
    /// send to other nodes. A value above 0 is for hosts that also run queries, which then get the
    /// processors first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub transactions_nice: u8,
    /// The clock to which the clocks of clients are compared; not read from a file.
    #[serde(skip)]
    pub wall: WallClock,
    /// The other nodes of the cluster. A node that knows them ends transactions whose coordinator
    /// is unavailable; a node without peers leaves them in doubt. The next two of them in the ring
    /// of ids keep copies of its log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeerConfig>,
    /// The ids of all nodes of the cluster, including this one. If it is empty, the node uses the
    /// members that its data folder records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<NodeId>,
    /// Threads that serve connections and read devices.
    #[serde(default = "defaults::reactors")]
    pub reactors: u16,
    /// Threads that scan; by default as many as there are cores.
    #[serde(default = "defaults::scan_workers")]
    pub scan_workers: u16,
    /// Which threads connect the connections to the devices.
    #[serde(default)]
    pub bridge: BridgeKind,
    /// How reactors read devices; the other bridges read with threads of their own.
    #[serde(default)]
    pub io: IoKind,
    /// Threads that read devices for each reactor (with `io = "pread"`) or poller (of the bridge
    /// `static`).
    #[serde(default = "defaults::io_threads")]
    pub io_threads: u16,
    /// Threads that serve connections with the bridges `static` and `dynamic`. Connections are
    /// distributed among them, one to each as long as there are enough.
    #[serde(default = "defaults::pollers")]
    pub pollers: u16,
    /// Bytes of an area of the first device that any client may write; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch: Option<ByteSize>,
    /// Cores to pin threads to, round robin: reactors (or pollers) first, then scan workers, then
    /// the threads that read devices, poller by poller. No thread is pinned if it is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pin_cores: Vec<usize>,
    /// The maximum number of connections. Each takes up to [`limits::CONNECTION_BYTES`] in addition
    /// to the memory budget, or up to [`limits::ADAPTER_CONNECTION_BYTES`] where the node listens
    /// at a `verbs` address.
    #[serde(default = "defaults::connections")]
    pub connections: u32,
    /// Receive rings of each reactor for clients that send often; all others share one.
    #[serde(default = "defaults::private_rings")]
    pub private_rings: u16,
    /// Reads and writes in flight per reactor.
    #[serde(default = "defaults::reactor_depth")]
    pub reactor_depth: u32,
    /// Reads in flight per scan worker.
    #[serde(default = "defaults::scan_depth")]
    pub scan_depth: u32,
    /// The maximum number of scans that wait for a worker. Further scans are refused, and the
    /// engine fetches the segment instead.
    #[serde(default = "defaults::scan_queue")]
    pub scan_queue: u16,
    /// The maximum milliseconds of processor time of one scan of a segment. A scan that takes more
    /// is refused, and the engine fetches the segment instead.
    #[serde(default = "defaults::scan_cpu_ms")]
    pub scan_cpu_ms: u32,
    /// The maximum bytes of stored pages and groups that one scan of a segment holds. A scan that
    /// needs more is refused as well.
    #[serde(default = "defaults::scan_memory")]
    pub scan_memory: ByteSize,
    /// Whether the data folder may be in memory: for experiments, because what it acknowledges is
    /// lost with the host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub volatile: bool,
    /// How long the node waits for the rest of a log whose end is damaged. Cannot be set in a file,
    /// where it always has the default.
    #[serde(skip)]
    pub log_patience: LogPatience,
}

/// The defaults.
mod defaults {
    use super::ByteSize;
    use az::SaturatingAs;

    pub(super) fn memory_budget() -> ByteSize {
        ByteSize(512 << 20)
    }

    pub(super) fn reactors() -> u16 {
        1
    }

    pub(super) fn scan_workers() -> u16 {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        cores.saturating_as::<u16>().min(super::limits::SCAN_WORKERS_MAX)
    }

    pub(super) fn io_threads() -> u16 {
        4
    }

    pub(super) fn pollers() -> u16 {
        4
    }

    pub(super) fn connections() -> u32 {
        super::limits::CONNECTIONS_DEFAULT
    }

    pub(super) fn private_rings() -> u16 {
        4
    }

    pub(super) fn reactor_depth() -> u32 {
        128
    }

    pub(super) fn scan_depth() -> u32 {
        64
    }

    pub(super) fn scan_queue() -> u16 {
        32
    }

    pub(super) fn scan_cpu_ms() -> u32 {
        super::limits::SCAN_CPU_MS_DEFAULT
    }

    pub(super) fn scan_memory() -> ByteSize {
        ByteSize(super::limits::SCAN_MEMORY_BYTES_DEFAULT)
    }
}

impl Config {
    /// A node with one device file and one address, and the defaults for everything else.
    #[must_use]
    pub fn new(
        node: NodeId,
        cluster: ClusterId,
        data_dir: PathBuf,
        device: DeviceConfig,
        key_file: PathBuf,
    ) -> Self {
        Self {
            node,
            cluster,
            data_dir,
            devices: vec![device],
            listen: Vec::new(),
            relay: Vec::new(),
            relay_memory: None,
            key_file,
            memory_budget: defaults::memory_budget(),
            cache: None,
            transactions: None,
            transactions_log: None,
            log_replicas_min: None,
            transactions_nice: 0,
            wall: WallClock::default(),
            peers: Vec::new(),
            members: Vec::new(),
            reactors: defaults::reactors(),
            scan_workers: defaults::scan_workers(),
            bridge: BridgeKind::default(),
            io: IoKind::default(),
            io_threads: defaults::io_threads(),
            pollers: defaults::pollers(),
            scratch: None,
            pin_cores: Vec::new(),
            connections: defaults::connections(),
            private_rings: defaults::private_rings(),
            reactor_depth: defaults::reactor_depth(),
            scan_depth: defaults::scan_depth(),
            scan_queue: defaults::scan_queue(),
            scan_cpu_ms: defaults::scan_cpu_ms(),
            scan_memory: defaults::scan_memory(),
            volatile: false,
            log_patience: LogPatience::default(),
        }
    }

    /// Bytes of the memory budget that all relays together use for stripes; 0 without relays.
    #[must_use]
    pub fn relay_bytes(&self) -> u64 {
        let relays = self.relay.len() as u64;
        match self.relay_memory {
            Some(asked) if relays > 0 => asked.0,
            _ => relays * limits::RELAY_BYTES_DEFAULT,
        }
    }

    /// Connections of each relay that may belong to no session: forwarding nodes may connect before
    /// the client does, and stay after it.
    #[must_use]
    pub fn relay_links(&self) -> usize {
        (self.peers.len() + limits::RELAY_LINKS_SPARE).min(rackscan_relay::limits::EARLY_MAX)
    }

    /// Replicas of the log in other nodes that must have a record before it is acknowledged.
    #[must_use]
    pub fn log_replicas_min(&self) -> usize {
        let others = self.peers.iter().filter(|peer| peer.node != self.node).count();
        self.log_replicas_min.map_or(usize::from(others >= 2), usize::from)
    }

    /// Threads that serve connections.
    #[must_use]
    pub fn pollers(&self) -> u16 {
        match self.bridge {
            BridgeKind::Reactor => self.reactors,
            BridgeKind::Static | BridgeKind::Dynamic => self.pollers,
        }
    }

    /// The bridge and the threads that it uses.
    #[must_use]
    pub fn bridge_status(&self) -> BridgeStatus {
        let (io, io_threads) = match (self.bridge, self.io) {
            (BridgeKind::Reactor, IoKind::Uring) => (IoKind::Uring, 0),
            (BridgeKind::Dynamic, _) => (IoKind::Pread, 0),
            (BridgeKind::Reactor, IoKind::Pread) | (BridgeKind::Static, _) => {
                (IoKind::Pread, self.io_threads)
            }
        };
        BridgeStatus { kind: self.bridge, io, io_threads }
    }

    /// The core of the thread with this number, in the order of [`Config::pin_cores`].
    pub(crate) fn core_of(&self, thread: usize) -> Option<usize> {
        self.pin_cores.get(thread % self.pin_cores.len().max(1)).copied()
    }

    /// The cores of the threads that read devices for one poller, in turn.
    pub(crate) fn cores_of_io(&self, poller: u16) -> Vec<usize> {
        let before = usize::from(self.pollers()) + usize::from(self.scan_workers);
        let each = usize::from(self.bridge_status().io_threads).max(1);
        let first = before + usize::from(poller) * each;
        (0..self.pin_cores.len()).filter_map(|thread| self.core_of(first + thread)).collect()
    }
}

fn is_zero(value: &u8) -> bool {
    *value == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_take_the_cores_in_turn_pollers_first_and_those_that_read_devices_last() {
        let device = DeviceConfig { path: "device".into(), size: None, reserve: false };
        let mut config = Config::new(NodeId(0), ClusterId(1), "data".into(), device, "key".into());
        assert_eq!((config.core_of(0), config.cores_of_io(0)), (None, vec![]));
        config.pin_cores = vec![0, 1, 2, 3, 4];
        (config.bridge, config.pollers, config.io_threads, config.scan_workers) =
            (BridgeKind::Static, 2, 2, 1);
        assert_eq!([config.core_of(0), config.core_of(1), config.core_of(2)], [Some(0), Some(1), Some(2)]);
        assert_eq!(config.cores_of_io(0)[..2], [3, 4]);
        assert_eq!(config.cores_of_io(1)[..2], [0, 1]);
        config.bridge = BridgeKind::Dynamic;
        assert_eq!(
            (config.cores_of_io(0), config.cores_of_io(1)),
            (vec![3, 4, 0, 1, 2], vec![4, 0, 1, 2, 3])
        );
    }

    #[test]
    fn a_relay_of_default_size_holds_two_sessions_in_which_loads_of_five_nodes_are_protected() {
        use rackscan_relay::Shape;
        use rackscan_stripe::{Parity, Way};

        let device = DeviceConfig { path: "device".into(), size: None, reserve: false };
        let mut config = Config::new(NodeId(0), ClusterId(1), "data".into(), device, "key".into());
        assert_eq!(config.relay_bytes(), 0);
        config.relay = vec!["shm:a".parse().unwrap(), "tcp:127.0.0.1:1".parse().unwrap()];
        let each = config.relay_bytes() / 2;
        assert_eq!(each, limits::RELAY_BYTES_DEFAULT);
        // With rings from a client, which such a session does not need.
        let shape = Shape::new(Parity::TwoD, Way::Relay, rackscan_format::limits::CELL_BYTES_MAX.into());
        assert_eq!((shape.slice_bytes, shape.slots, shape.lanes), (64 << 10, 8, 2));
        let needed = shape.node_bytes(5).unwrap();
        assert!(2 * needed <= each, "{needed} bytes each");
        config.relay_memory = Some(ByteSize(10 << 20));
        assert_eq!(config.relay_bytes(), 10 << 20);
    }
}
