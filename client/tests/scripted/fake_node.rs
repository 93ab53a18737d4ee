//! Runs a node that follows a script instead of keeping pages.
//!
//! It uses the fabric like a real one, so a test can make it refuse, send wrong answers, fall
//! silent or die at any request.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rackscan_client::{ClientError, Cluster, ClusterOptions, NodeEndpoint};
use rackscan_fabric::{Address, ClusterKey, Connection, Event, Listener, Operation, Region, RemoteRegion};
use rackscan_format::{
    ids::NodeId,
    message::{
        Answer, BridgeStatus, CacheStatus, LoadReport, NodeCounters, NodeStatus, Payload, Refusal,
        RefusalCode, ReplyMessage, Request, RequestMessage, Target,
    },
};

/// What the node does with a request.
pub(crate) enum Act {
    /// Writes bytes into the target and answers.
    Answer(Vec<u8>, Answer),
    /// Refuses.
    Refuse(RefusalCode, u64),
    /// Sends this instead of a reply.
    Send(Vec<u8>),
    /// Reads the source of an append, or of the withheld rows of a scan, keeps it in
    /// [`FakeNode::stored`], and says that it is stored.
    Store,
    /// Says nothing, ever.
    Ignore,
    /// Hangs up.
    HangUp,
}

type Script = Box<dyn FnMut(&Request) -> Act + Send>;

/// A node that acts by a script; status requests it answers itself.
pub(crate) struct FakeNode {
    pub(crate) endpoint: NodeEndpoint,
    /// The requests it was sent, status apart.
    pub(crate) seen: Arc<Mutex<Vec<Request>>>,
    /// What it read from its clients' memory.
    pub(crate) stored: Arc<Mutex<Vec<Vec<u8>>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

pub(crate) fn key() -> ClusterKey {
    ClusterKey::from_bytes([9; 32])
}

/// Addresses of both wires, in a folder of the test.
pub(crate) fn addresses(folder: &tempfile::TempDir, node: u16) -> [Address; 2] {
    let path = folder.path().join(format!("{node}.sock"));
    [Address::Shm { path }, Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 }]
}

pub(crate) fn status(node: u16) -> NodeStatus {
    NodeStatus {
        node: NodeId(node),
        cluster: 77,
        version: "test".to_owned(),
        host: "here".to_owned(),
        process_id: 1,
        uptime_s: 0,
        devices: Vec::new(),
        reactors: 1,
        bridge: BridgeStatus::default(),
        scan_workers: 1,
        memory_budget_bytes: 0,
        registered_buffers: Ok(()),
        counters: NodeCounters::default(),
        cache: CacheStatus::default(),
        participant: Default::default(),
        relays: Vec::new(),
        participant_refuses: None,
        identity: rackscan_format::message::FolderIdentity::default(),
    }
}

impl FakeNode {
    /// Listens at `address`, saying that it is `status`.
    pub(crate) fn start(address: &Address, status: NodeStatus, mut script: Script) -> Self {
        let mut listener = Listener::bind(address, &key()).expect("the address is free");
        let id = status.node;
        let endpoint = NodeEndpoint { id, addresses: vec![listener.address().clone()] };
        let (seen, is_over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let stored = Arc::new(Mutex::new(Vec::new()));
        let (seen_there, over_there, stored_there) =
            (Arc::clone(&seen), Arc::clone(&is_over), Arc::clone(&stored));
        let serving = move || {
            let mut connections: Vec<Connection> = Vec::new();
            while !over_there.load(Ordering::SeqCst) {
                let soon = Instant::now() + Duration::from_millis(1);
                connections.extend(listener.accept_until(soon).ok().flatten());
                connections.retain_mut(|connection| {
                    serve(connection, &status, &mut script, &seen_there, &stored_there)
                });
            }
        };
        Self { endpoint, seen, stored, is_over, thread: Some(std::thread::spawn(serving)) }
    }

    pub(crate) fn kinds(&self) -> Vec<String> {
        let seen = self.seen.lock().expect("no panic while it was locked");
        let name = |request: &Request| format!("{request:?}");
        seen.iter()
            .map(|request| name(request).split([' ', '{', '(']).next().unwrap_or_default().to_owned())
            .collect()
    }
}

impl Drop for FakeNode {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the fake node did not panic");
        }
    }
}

/// Serves what has come; false when the connection is over.
fn serve(
    connection: &mut Connection,
    status: &NodeStatus,
    script: &mut Script,
    seen: &Mutex<Vec<Request>>,
    stored: &Mutex<Vec<Vec<u8>>>,
) -> bool {
    let mut events = Vec::new();
    connection.poll(&mut events);
    for event in events {
        match event {
            Event::Message { bytes } => {
                let message = RequestMessage::decode(&bytes).expect("the client speaks our protocol");
                let act = if message.request == Request::Status {
                    Act::Answer(Vec::new(), Answer::Status(Box::new(status.clone())))
                } else {
                    seen.lock().expect("no panic while it was locked").push(message.request.clone());
                    script(&message.request)
                };
                if !perform(connection, &message, act, stored) {
                    return false;
                }
            }
            Event::Closed(_) => return false,
            Event::Completed { .. } | Event::Immediate { .. } => {}
        }
    }
    true
}

fn perform(
    connection: &mut Connection,
    message: &RequestMessage,
    act: Act,
    stored: &Mutex<Vec<Vec<u8>>>,
) -> bool {
    let outcome = match act {
        Act::Answer(bytes, answer) => {
            if let Some(target) = target_of(&message.request).filter(|_| !bytes.is_empty()) {
                let Target { key, offset_bytes: address, length_bytes: length } = target;
                let target = RemoteRegion { key, address, length };
                let write = Operation::WriteBytes { bytes: &bytes, target, target_offset: 0 };
                connection.post(0, write).expect("it fits the target");
            }
            Ok(answer)
        }
        Act::Refuse(code, needed_bytes) => {
            let mut refusal = Refusal::new(code, "the script says so");
            refusal.needed_bytes = needed_bytes;
            Err(refusal)
        }
        Act::Send(bytes) => {
            connection.post(0, Operation::Send { bytes: &bytes }).expect("the queue has room");
            return true;
        }
        Act::Store => {
            let bytes = read_source(connection, &message.request);
            let stored_bytes = bytes.len() as u64;
            stored.lock().expect("no panic while it was locked").push(bytes);
            let is_kept = matches!(message.request, Request::Keep { .. });
            Ok(if is_kept { Answer::Done } else { Answer::Appended { stored_bytes } })
        }
        Act::Ignore => return true,
        Act::HangUp => return false,
    };
    let load = LoadReport { scans_queued: 5, ..LoadReport::default() };
    let reply = ReplyMessage { id: message.id, outcome, load };
    let bytes = reply.encode().expect("a small reply");
    connection.post(0, Operation::Send { bytes: &bytes }).expect("the queue has room");
    true
}

/// The client's memory that an append or a scan names. Messages that come meanwhile are lost: the
/// tests send none.
fn read_source(connection: &mut Connection, request: &Request) -> Vec<u8> {
    let (Request::Append { source, .. }
    | Request::Keep { source, .. }
    | Request::Process { withheld: Some(Payload::Beside(source)), .. }) = request
    else {
        panic!("expected memory to read, found {request:?}")
    };
    let length = usize::try_from(source.length_bytes).expect("it fits our memory");
    let region = Region::allocate(length.next_multiple_of(4096)).expect("there is memory");
    let remote = RemoteRegion { key: source.key, address: source.offset_bytes, length: source.length_bytes };
    let target = region.slice(0, length).expect("it fits");
    connection
        .post(7, Operation::Read { source: remote, source_offset: 0, target })
        .expect("the queue has room");
    let (mut events, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(5));
    while connection.wait(&mut events, deadline) > 0 {
        let is_read = |event: &Event| matches!(event, Event::Completed { id: 7, outcome: Ok(_) });
        if events.drain(..).any(|event| is_read(&event)) {
            return region.to_vec(0, length).expect("it is inside");
        }
    }
    panic!("the client's memory cannot be read")
}

fn target_of(request: &Request) -> Option<Target> {
    match request {
        Request::Catalog { target, .. }
        | Request::Fetch { target, .. }
        | Request::Process { target, .. }
        | Request::Echo { target, .. } => Some(*target),
        _ => None,
    }
}

/// Connects to the nodes with little memory and the timeout given.
pub(crate) async fn connect(nodes: &[&FakeNode], request_timeout: Duration) -> Result<Cluster, ClientError> {
    let endpoints = nodes.iter().map(|node| node.endpoint.clone()).collect();
    let mut options = ClusterOptions::new(endpoints, key());
    options.memory_bytes = 16 << 20;
    options.request_timeout = request_timeout;
    Cluster::connect(options).await
}
