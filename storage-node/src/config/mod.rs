//! What is a node told before it starts?
//!
//! ```toml
//! node = 0
//! cluster = "demo"                  # or a number; nodes and devices of other clusters are refused
//! data_dir = "node0"                # the catalog and the log of transactions
//! devices = [{ path = "node0/device0", size = "64GiB" }]
//! listen = ["shm:node0/socket", "tcp:127.0.0.1:7410"]
//! key_file = "cluster.key"          # 64 hexadecimal digits
//! memory_budget = "512MiB"          # optional, as everything below
//! cache = "64MiB"                   # of the memory budget, for pages that are wanted often; "0" for none
//! transactions = "32MiB"            # of the memory budget, for keys and their versions; "0" keeps no keys
//! transactions_log = "1GiB"         # the most that their log takes of the disk; without it, all there is
//! log_replicas_min = 1              # replicas in other nodes that have a record before it is acknowledged; below it writes are refused. Without it 1 where there are three nodes or more, else 0
//! transactions_nice = 0             # how nice the threads are that write transactions down, here and as copies: up to 19, where queries of the same host come first
//! reactors = 1
//! scan_workers = 2
//! pin_cores = [0, 1]
//! bridge = "reactor"                # or "static", "dynamic": who serves connections and who waits for devices
//! io = "uring"                      # below reactors: or "pread"
//! io_threads = 4                    # for each reactor or poller that reads by pread
//! pollers = 4                       # of the bridges "static" and "dynamic", in place of reactors
//! scratch = "1GiB"                  # an area of the first device for the laboratory; none by default
//! relay = ["shm:node0/relay"]       # where stripes are relayed, each with a thread of its own; nowhere by default. Without them loads are protected by their clients
//! relay_memory = "64MiB"            # of the memory budget, for stripes that pass; by default so much for each address
//! peers = [{ node = 1, addresses = ["shm:node1/socket", "tcp:127.0.0.1:7411"] }]   # the other nodes; without them this one ends nothing, and its log has no copies
//! connections = 3600                # clients and nodes that may be connected, with 96 KiB each beside the memory budget, taken as they use it
//! members = [0, 1]                  # all nodes of the cluster; a data folder records them once, and is refused with others
//! private_rings = 4                 # receive rings of a reactor for clients that ask often; the others share one
//! scan_cpu_ms = 5000                # processor time of one scan; one that takes more is bounced, and the engine scans the segment
//! scan_memory = "64MiB"             # stored pages and groups that one scan may hold; likewise
//! ```
//!
//! Invariants
//! - Every key has its default in one place, here. A key that is not known is an error.
//! - Every value is within the bounds of `limits` once [`Config::check`] has passed; nothing starts
//!   without it.

mod bytes;
mod cluster;
mod load;

pub use bytes::ByteSize;
pub use cluster::ClusterId;
pub use load::ConfigError;

use std::{path::PathBuf, time::Duration};

use rackscan_fabric::{Address, WallClock};
use rackscan_format::{
    ids::NodeId,
    message::{BridgeKind, BridgeStatus, IoKind},
};
use serde::{Deserialize, Serialize};

use crate::{limits, scan_pool::ScanQuota};

/// One device of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceConfig {
    /// A file or a block device. A file that does not exist is made at the first start.
    pub path: PathBuf,
    /// Size of a file to be made; needed only then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<ByteSize>,
    /// Whether a file to be made takes all its disk space at once; otherwise it takes it as pages
    /// are written, and a load fails when the filesystem is full.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reserve: bool,
}

/// Another node of the cluster, or this one, which is then not meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerConfig {
    /// Its id.
    pub node: NodeId,
    /// Where it listens; the first address is used.
    #[serde(with = "load::addresses")]
    pub addresses: Vec<Address>,
    /// Where it relays stripes.
    #[serde(default, with = "load::addresses", skip_serializing_if = "Vec::is_empty")]
    pub relay: Vec<Address>,
}

/// How long a node whose log has a damaged end waits for those that may have the rest of it, before
/// it goes on without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPatience {
    /// For the others, once one of them has said what it has.
    pub others: Duration,
    /// For the first one.
    pub first: Duration,
}

impl Default for LogPatience {
    fn default() -> Self {
        Self { others: limits::LOST_END_OTHERS_TIME, first: limits::LOST_END_FIRST_TIME }
    }
}

/// Everything a node is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Its id in the cluster.
    pub node: NodeId,
    /// Its cluster: a number, or a name that stands for one.
    pub cluster: ClusterId,
    /// The folder of its catalog and of its log of transactions.
    pub data_dir: PathBuf,
    /// Its devices; pages are striped over them. New ones may be added at the end, none may leave.
    pub devices: Vec<DeviceConfig>,
    /// Where it listens, on one wire or several at once.
    #[serde(with = "load::addresses")]
    pub listen: Vec<Address>,
    /// Where it relays stripes, each address with a thread of its own; nowhere if empty. Other
    /// nodes find it by their `peers`.
    #[serde(default, with = "load::addresses", skip_serializing_if = "Vec::is_empty")]
    pub relay: Vec<Address>,
    /// The part of the memory budget that stripes may take while they pass, divided among the
    /// addresses: from `RELAY_BYTES_MIN` for each to `RELAY_BYTES_MAX`, by default
    /// `RELAY_BYTES_DEFAULT` for each; none without `relay`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay_memory: Option<ByteSize>,
    /// The file of the cluster's key.
    pub key_file: PathBuf,
    /// All memory it may use for buffers, scans and metadata.
    #[serde(default = "defaults::memory_budget")]
    pub memory_budget: ByteSize,
    /// The part of it in which pages that are wanted often are kept: none if 0. By default an
    /// eighth, or what the rest can spare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<ByteSize>,
    /// The part of it in which keys of transactions are kept: none if 0. By default a sixteenth, or
    /// what the rest and the cache can spare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transactions: Option<ByteSize>,
    /// Bytes that the log of transactions may take; beyond, nothing new is prepared until it has
    /// been made shorter. By default all that the disk has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transactions_log: Option<ByteSize>,
    /// Replicas of the log in other nodes that must have a record before it is acknowledged; while
    /// fewer are available, writes are refused. At most as many as the log has: two, or one of two
    /// nodes. By default 1 where there are two other nodes or more, else 0: then the loss of this
    /// node's disk may lose acknowledged records, and a person decides whether the node goes on
    /// without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_replicas_min: Option<u8>,
    /// How nice the threads are that write logs of transactions, their copies, and to other nodes:
    /// 0 to 19. More than 0 is for hosts that run queries, too: those get the processors first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub transactions_nice: u8,
    /// The clock with which those of clients are compared; not read from a file.
    #[serde(skip)]
    pub wall: WallClock,
    /// The other nodes of the cluster. A node that knows them ends transactions whose coordinator
    /// is gone; one that knows none leaves them in doubt. The next two of them in the ring of ids
    /// keep copies of its log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeerConfig>,
    /// The ids of all nodes of the cluster, this one's, too. Empty if it is not told: then it goes
    /// on with what its data folder records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<NodeId>,
    /// Threads that serve connections and read devices.
    #[serde(default = "defaults::reactors")]
    pub reactors: u16,
    /// Threads that scan; by default as many as there are cores.
    #[serde(default = "defaults::scan_workers")]
    pub scan_workers: u16,
    /// Which threads stand between connections and devices.
    #[serde(default)]
    pub bridge: BridgeKind,
    /// How reactors read devices; the other bridges read by threads of their own.
    #[serde(default)]
    pub io: IoKind,
    /// Threads that read devices for each reactor (with `io = "pread"`) or poller (of the bridge
    /// `static`).
    #[serde(default = "defaults::io_threads")]
    pub io_threads: u16,
    /// Threads that serve connections with the bridges `static` and `dynamic`: connections are
    /// dealt among them, one to each as long as there are enough.
    #[serde(default = "defaults::pollers")]
    pub pollers: u16,
    /// Bytes of an area of the first device into which anybody may write; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch: Option<ByteSize>,
    /// Cores to pin threads to: reactors (or pollers) first, then scan workers, then the threads
    /// that read devices, poller by poller; in turn. None are pinned if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pin_cores: Vec<usize>,
    /// Connections at a time. Each takes up to [`limits::CONNECTION_BYTES`] beside the memory
    /// budget.
    #[serde(default = "defaults::connections")]
    pub connections: u32,
    /// Receive rings of each reactor for clients that ask often; all others share one.
    #[serde(default = "defaults::private_rings")]
    pub private_rings: u16,
    /// Reads and writes in flight per reactor.
    #[serde(default = "defaults::reactor_depth")]
    pub reactor_depth: u32,
    /// Reads in flight per scan worker.
    #[serde(default = "defaults::scan_depth")]
    pub scan_depth: u32,
    /// Scans that may wait for a worker; further ones are refused, and the engine fetches the
    /// segment instead.
    #[serde(default = "defaults::scan_queue")]
    pub scan_queue: u16,
    /// Milliseconds of processor time that one scan of a segment may take; one that takes more is
    /// refused, and the engine fetches the segment instead.
    #[serde(default = "defaults::scan_cpu_ms")]
    pub scan_cpu_ms: u32,
    /// Stored pages and groups that one scan of a segment may hold; one that cannot do with it is
    /// refused likewise.
    #[serde(default = "defaults::scan_memory")]
    pub scan_memory: ByteSize,
    /// How long it waits for the rest of a log whose end is damaged. Not in a file: there it is
    /// what it is by default.
    #[serde(skip)]
    pub log_patience: LogPatience,
}

/// What a node does when it is not told.
mod defaults {
    use super::ByteSize;

    pub(super) fn memory_budget() -> ByteSize {
        ByteSize(512 << 20)
    }

    pub(super) fn reactors() -> u16 {
        1
    }

    pub(super) fn scan_workers() -> u16 {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        u16::try_from(cores).unwrap_or(u16::MAX).min(super::limits::SCAN_WORKERS_MAX)
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
    /// A node with one device file and one address, everything else by default.
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
            log_patience: LogPatience::default(),
        }
    }

    /// Bytes of the memory budget for stripes that pass.
    #[must_use]
    pub fn relay_bytes(&self) -> u64 {
        let relays = self.relay.len() as u64;
        match self.relay_memory {
            Some(asked) if relays > 0 => asked.0,
            _ => relays * limits::RELAY_BYTES_DEFAULT,
        }
    }

    /// Links of each relay that may belong to no session: nodes that forward come before the client
    /// does, or behind it.
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

    /// What is below them.
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

    /// What one scan of a segment may use.
    pub(crate) fn scan_quota(&self) -> ScanQuota {
        ScanQuota {
            cpu: Duration::from_millis(self.scan_cpu_ms.into()),
            memory_bytes: usize::try_from(self.scan_memory.0).unwrap_or(usize::MAX),
        }
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
