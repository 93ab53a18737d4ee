//! Starts the node for the tests of direct lines: a real one with one device and a scratch area,
//! over two wires.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rackscan_client::{DirectLine, DirectOptions};
use rackscan_fabric::{Address, ClusterKey, Connection, Event, Listener, Operation};
use rackscan_format::{
    ids::NodeId,
    message::{Answer, BridgeKind, LoadReport, NodeStatus, ReplyMessage, Request, RequestMessage},
};
use rackscan_storage_node::{ByteSize, ClusterId, Config, DeviceConfig, Node, NodeHandle};
use tempfile::TempDir;

const NODE: NodeId = NodeId(3);
pub(crate) const MEMORY_BYTES: usize = 4 << 20;

pub(crate) struct NodeFolder {
    folder: TempDir,
    /// Sockets need short paths.
    sockets: TempDir,
    key: ClusterKey,
}

pub(crate) struct Running(NodeHandle);

impl Running {
    pub(crate) fn stop(self) {
        self.0.stop();
        self.0.wait().expect("the node had no reason to stop by itself");
    }
}

fn patient() -> Instant {
    Instant::now() + Duration::from_secs(20)
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

    pub(crate) fn start(&self) -> Running {
        self.start_over(BridgeKind::Reactor)
    }

    pub(crate) fn start_over(&self, bridge: BridgeKind) -> Running {
        self.start_with(bridge, 128, 0)
    }

    /// With as many operations in flight at the device at most, and so much memory for a page
    /// cache.
    pub(crate) fn start_with(&self, bridge: BridgeKind, reactor_depth: u32, cache_bytes: u64) -> Running {
        let path = |name: &str| self.folder.path().join(name);
        let device = DeviceConfig { path: path("device0"), size: Some(ByteSize(16 << 20)), reserve: true };
        let mut config = Config::new(NODE, ClusterId(99), path("data"), device, path("cluster.key"));
        config.listen = vec![
            Address::Shm { path: self.sockets.path().join("node") },
            Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 },
        ];
        (config.bridge, config.pollers, config.io_threads) = (bridge, 2, 3);
        config.memory_budget = ByteSize(if bridge == BridgeKind::Reactor { 64 << 20 } else { 128 << 20 });
        config.cache = Some(ByteSize(cache_bytes));
        config.memory_budget = ByteSize(config.memory_budget.0 + cache_bytes);
        config.scan_workers = 1;
        config.reactor_depth = reactor_depth;
        config.scratch = Some(ByteSize(4 << 20));
        Running(Node::start(config).expect("the node starts"))
    }

    /// The whole device, as it is.
    pub(crate) fn device_bytes(&self) -> Vec<u8> {
        std::fs::read(self.folder.path().join("device0")).expect("the device is a file")
    }

    /// A line over each wire.
    pub(crate) fn lines(&self, node: &Running) -> Vec<(&'static str, DirectLine)> {
        let line = |address: &Address| {
            let options = self.options(address, Duration::from_secs(20));
            DirectLine::connect(&options, patient()).expect("the node accepts")
        };
        vec![("shm", line(&node.0.addresses()[0])), ("tcp", line(&node.0.addresses()[1]))]
    }

    fn options(&self, address: &Address, patience: Duration) -> DirectOptions {
        let (address, key) = (address.clone(), self.key.clone());
        DirectOptions { node: NODE, address, key, memory_bytes: MEMORY_BYTES, patience }
    }

    /// Somebody who says that it is the node and then nothing more.
    pub(crate) fn silent(&self) -> Silent {
        let address = Address::Shm { path: self.sockets.path().join("silent") };
        let mut listener = Listener::bind(&address, &self.key).expect("the address is free");
        let over = Arc::new(AtomicBool::new(false));
        let over_there = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let connection = listener.accept_until(patient()).expect("a caller").expect("one");
            say_who(connection, &over_there);
        });
        let options = self.options(&address, Duration::ZERO);
        Silent { options, over, thread: Some(thread) }
    }
}

fn say_who(mut connection: Connection, over: &AtomicBool) {
    let mut events = Vec::new();
    while !over.load(Ordering::SeqCst) {
        connection.wait(&mut events, Instant::now() + Duration::from_millis(1));
        for event in events.drain(..) {
            let Event::Message { bytes } = event else { continue };
            let message = RequestMessage::decode(&bytes).expect("a line's requests are well formed");
            if message.request != Request::Status {
                continue;
            }
            let status = NodeStatus {
                node: NODE,
                cluster: 99,
                version: "test".to_owned(),
                host: "here".to_owned(),
                process_id: 1,
                uptime_s: 0,
                devices: Vec::new(),
                reactors: 1,
                bridge: rackscan_format::message::BridgeStatus::default(),
                scan_workers: 1,
                memory_budget_bytes: 0,
                registered_buffers: Ok(()),
                counters: rackscan_format::message::NodeCounters::default(),
                cache: rackscan_format::message::CacheStatus::default(),
                participant: rackscan_format::message::ParticipantStatus::default(),
                relays: Vec::new(),
                participant_refuses: None,
                identity: rackscan_format::message::FolderIdentity::default(),
            };
            let outcome = Ok(Answer::Status(Box::new(status)));
            let reply = ReplyMessage { id: message.id, outcome, load: LoadReport::default() };
            let bytes = reply.encode().expect("it is small");
            connection.post(1, Operation::Send { bytes: &bytes }).expect("there is room");
        }
    }
}

pub(crate) struct Silent {
    options: DirectOptions,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Silent {
    pub(crate) fn line(&mut self, patience: Duration) -> DirectLine {
        let options = DirectOptions { patience, ..self.options.clone() };
        DirectLine::connect(&options, patient()).expect("it says who it is")
    }

    pub(crate) fn end(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it had no reason to panic");
        }
    }
}
