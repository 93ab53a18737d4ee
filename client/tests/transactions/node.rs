//! Runs the node for the tests of sessions: a participant of transactions in a thread, whose log is
//! a vector that is durable at once. It uses the fabric like a real node, and can be silent, end,
//! and begin again with the records of its log.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rackscan_client::NodeEndpoint;
use rackscan_fabric::{
    Access, Address, ClusterKey, Connection, Event, Listener, Operation, Region, RemoteRegion, WallClock,
    post::{PostBoxes, PostSender, PostShape},
};
use rackscan_format::{
    codec,
    ids::{NodeId, RequestId},
    limits::TRANSACT_BYTES_MAX,
    message::{
        Answer, BridgeStatus, CacheStatus, LoadReport, NodeCounters, NodeStatus, ParticipantRegion,
        ParticipantStatus, Payload, Refusal, RefusalCode, ReplyMessage, Request, RequestMessage, Target,
    },
};
use rackscan_ramp::{
    feed::Feed,
    item::SYSTEM_PREFIX,
    limits::LOG_HEADER_BYTES,
    log::{LogWriter, Tail, read, recover},
    message::{Reply, Request as Asked},
    participant::{Participant, Peer},
    slot::SlotMemory,
    store::StoreOptions,
    timestamp::{ClientId, Timestamp},
};
use rustix::event::{PollFd, PollFlags, Timespec};

pub(crate) const SLOTS_BYTES: usize = 1 << 20;
pub(crate) const FEED_BYTES: usize = 64 << 10;

pub(crate) fn key() -> ClusterKey {
    ClusterKey::from_bytes([9; 32])
}

/// Slots in registered memory.
struct Slots(Region);

impl SlotMemory for Slots {
    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn write(&mut self, offset: usize, words: &[u8]) {
        self.0.copy_in(offset, words).expect("slots lie inside");
    }

    fn store_word(&mut self, offset: usize, word: u64) {
        self.0.store_u64(offset, word).expect("slots lie inside");
    }
}

/// What tests do to a node, and see of it.
#[derive(Debug, Default)]
pub(crate) struct Knobs {
    /// So often it says that its participant is not there yet.
    pub(crate) absent: AtomicU64,
    /// It answers nothing but the status.
    pub(crate) silent: AtomicBool,
    /// It never releases a lock.
    pub(crate) keeps_locks: AtomicBool,
    /// It takes requests of this many transactions yet, and hangs up on the next that comes; 0 for
    /// all.
    pub(crate) hangs_up_at: AtomicU64,
    /// How wrong its clock is, in milliseconds.
    pub(crate) skew_ms: AtomicI64,
    /// Messages of transactions by kind.
    pub(crate) seen: Mutex<HashMap<&'static str, usize>>,
    /// Answers that were too long for their targets.
    pub(crate) too_small: AtomicU64,
    /// Requests that came in boxes.
    pub(crate) posted: AtomicU64,
    /// Requests and answers that travelled beside their messages.
    pub(crate) beside: AtomicU64,
}

impl Knobs {
    pub(crate) fn seen(&self, kind: &str) -> usize {
        self.seen.lock().expect("no panic while it was locked").get(kind).copied().unwrap_or_default()
    }
}

/// What outlives a node.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) id: u16,
    pub(crate) address: Address,
    pub(crate) log: Arc<Mutex<Vec<u8>>>,
    lives: Arc<AtomicU64>,
}

impl Place {
    pub(crate) fn new(id: u16, address: Address) -> Self {
        let log = Tail::header(0, 0).0.to_vec();
        Self { id, address, log: Arc::new(Mutex::new(log)), lives: Arc::default() }
    }

    pub(crate) fn endpoint(&self) -> NodeEndpoint {
        NodeEndpoint { id: NodeId(self.id), addresses: vec![self.address.clone()] }
    }

    /// A new life of the node.
    pub(crate) fn start(&mut self) -> TestNode {
        let listener = Listener::bind(&self.address, &key()).expect("the address is free");
        self.address = listener.address().clone();
        let life = 100 * u64::from(self.id) + self.lives.fetch_add(1, Ordering::SeqCst);
        let knobs = Arc::new(Knobs::default());
        let is_over = Arc::new(AtomicBool::new(false));
        let mut serving = Serving::new(self, listener, life, Arc::clone(&knobs));
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                serving.turn();
            }
        });
        TestNode { knobs, is_over, thread: Some(thread) }
    }
}

/// A running node. Dropping it ends it; its log stays.
pub(crate) struct TestNode {
    pub(crate) knobs: Arc<Knobs>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the node did not panic");
        }
    }
}

struct Client {
    number: u64,
    connection: Connection,
    id: Option<ClientId>,
    posts: Option<Posts>,
}

/// Boxes of a client.
struct Posts {
    requests: PostBoxes,
    replies: PostSender,
    turn: usize,
    /// Requests that came in a box, and in which.
    asked: HashMap<RequestId, usize>,
}

impl Posts {
    fn next(&mut self) -> Option<Vec<u8>> {
        let bytes = self.requests.poll(self.turn)?.to_vec();
        let message = RequestMessage::decode(&bytes).expect("the client speaks our protocol");
        self.asked.insert(message.id, self.turn);
        self.turn = (self.turn + 1) % self.requests.shape().boxes();
        Some(bytes)
    }
}

/// Where an answer goes.
struct Asker {
    client: u64,
    id: RequestId,
    target: Target,
    replies: Vec<Reply>,
}

struct Serving {
    id: u16,
    life: u64,
    listener: Listener,
    participant: Participant<Slots>,
    slots: Region,
    feed: Region,
    log: Arc<Mutex<Vec<u8>>>,
    knobs: Arc<Knobs>,
    clients: Vec<Client>,
    askers: HashMap<u64, Asker>,
    numbers: u64,
}

impl Serving {
    fn new(place: &Place, listener: Listener, life: u64, knobs: Arc<Knobs>) -> Self {
        let slots = Region::allocate(SLOTS_BYTES).expect("there is memory");
        let feed = Region::allocate(FEED_BYTES).expect("there is memory");
        let log = place.log.lock().expect("no panic while it was locked");
        let start = Tail::from_header(&log).expect("a log");
        let (records, tail, _) = read(start, &log[LOG_HEADER_BYTES..]);
        let options = StoreOptions { budget_bytes: 64 << 20, life };
        let store = recover(options, Slots(slots.clone()), records).expect("a log of this participant");
        let fed = Feed::new(Slots(feed.clone()), life).expect("there is room for a ring");
        let participant = Participant::new(store, LogWriter::after(tail))
            .feeding(fed, SYSTEM_PREFIX)
            .on_host("the node's host");
        drop(log);
        let (clients, askers) = (Vec::new(), HashMap::new());
        Self {
            id: place.id,
            life,
            listener,
            participant,
            slots,
            feed,
            log: Arc::clone(&place.log),
            knobs,
            clients,
            askers,
            numbers: 0,
        }
    }

    fn turn(&mut self) {
        while let Ok(Some(connection)) = self.listener.accept() {
            self.numbers += 1;
            self.clients.push(Client { number: self.numbers, connection, id: None, posts: None });
        }
        let mut any = false;
        for at in (0..self.clients.len()).rev() {
            let mut events = Vec::new();
            any |= self.clients[at].connection.poll(&mut events) > 0;
            let mut open = true;
            while let Some(bytes) = self.clients[at].posts.as_mut().and_then(Posts::next).filter(|_| open) {
                any = true;
                self.knobs.posted.fetch_add(1, Ordering::SeqCst);
                open = self.message(at, &bytes);
            }
            for event in events {
                open &= match event {
                    Event::Message { bytes } => open && self.message(at, &bytes),
                    Event::Closed(_) => false,
                    _ => true,
                };
            }
            if !open {
                let client = self.clients.swap_remove(at);
                self.askers.retain(|_, asker| asker.client != client.number);
                if let Some(id) = client.id {
                    self.participant.client_lost(id);
                    self.answer();
                }
            }
        }
        if !any {
            self.sleep();
        }
    }

    fn sleep(&mut self) {
        let may_sleep = |client: &mut Client| {
            client.connection.arm()
                && client.posts.as_mut().is_none_or(|posts| !posts.requests.look_at(posts.turn))
        };
        if self.clients.iter_mut().all(may_sleep) {
            let mut fds = vec![PollFd::from_borrowed_fd(self.listener.wait_fd(), PollFlags::IN)];
            fds.extend(
                self.clients
                    .iter()
                    .map(|client| PollFd::from_borrowed_fd(client.connection.wait_fd(), PollFlags::IN)),
            );
            let soon = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
            let _ = rustix::event::poll(&mut fds, Some(&soon));
        }
    }

    /// False if the connection is to be closed.
    fn message(&mut self, at: usize, bytes: &[u8]) -> bool {
        let RequestMessage { id, request } =
            RequestMessage::decode(bytes).expect("the client speaks our protocol");
        match request {
            Request::Status => self.say(at, id, Ok(Answer::Status(Box::new(self.status())))),
            Request::OpenPosts { boxes, body_bytes_max, replies } => {
                let shape = PostShape::new(boxes.into(), body_bytes_max as usize).expect("a shape");
                let Target { key, offset_bytes: address, length_bytes: length } = replies;
                let replies = PostSender::new(RemoteRegion { key, address, length }, shape).expect("it fits");
                let requests = PostBoxes::new(shape).expect("there is memory");
                let client = &mut self.clients[at];
                let RemoteRegion { key, address: offset_bytes, length: length_bytes } =
                    requests.register(&mut client.connection).expect("room");
                client.posts = Some(Posts { requests, replies, turn: 0, asked: HashMap::new() });
                let requests = Target { key, offset_bytes, length_bytes };
                self.say(at, id, Ok(Answer::Posts { requests }));
            }
            _ if self.knobs.silent.load(Ordering::SeqCst) => {}
            Request::OpenParticipant | Request::Transact { .. }
                if self.knobs.absent.load(Ordering::SeqCst) > 0 =>
            {
                self.knobs.absent.fetch_sub(1, Ordering::SeqCst);
                let refusal = Refusal::new(RefusalCode::Busy, "it waits for its log; ask again");
                self.say(at, id, Err(refusal));
            }
            Request::OpenParticipant => {
                let [slots, feed] = [&self.slots, &self.feed].map(|memory| {
                    let granted = self.clients[at].connection.register(memory, Access::Read).expect("room");
                    let RemoteRegion { key, address: offset_bytes, length: length_bytes } = granted;
                    Some(Target { key, offset_bytes, length_bytes })
                });
                self.say(
                    at,
                    id,
                    Ok(Answer::Participant(Some(ParticipantRegion { slots, feed, life: self.life }))),
                );
            }
            Request::Transact { messages, target } => return self.transact(at, id, messages, target),
            other => panic!("not expected here: {other:?}"),
        }
        true
    }

    fn transact(&mut self, at: usize, id: RequestId, messages: Payload, target: Target) -> bool {
        let bytes = match messages {
            Payload::Here(bytes) => bytes,
            Payload::Beside(source) => {
                self.knobs.beside.fetch_add(1, Ordering::SeqCst);
                pull(&mut self.clients[at].connection, source)
            }
        };
        let asked: Vec<Asked> = codec::decode("messages", &bytes).expect("messages of transactions");
        assert!(asked.len() <= 64, "{} messages", asked.len());
        if self.knobs.hangs_up_at.load(Ordering::SeqCst) > 0
            && asked.iter().any(is_answered)
            && self.knobs.hangs_up_at.fetch_sub(1, Ordering::SeqCst) == 1
        {
            return false;
        }
        assert!(asked.iter().rev().skip(1).all(|asked| !is_answered(asked)), "only the last is answered");
        self.numbers += 1;
        let peer = self.numbers;
        let is_answered = asked.last().is_some_and(is_answered);
        let client = self.clients[at].number;
        self.askers.insert(peer, Asker { client, id, target, replies: Vec::new() });
        let skew_ms = self.knobs.skew_ms.load(Ordering::SeqCst);
        self.participant.set_wall_ms(WallClock::default().now_ms().saturating_add_signed(skew_ms));
        for asked in asked {
            *self.knobs.seen.lock().expect("no panic").entry(kind(&asked)).or_default() += 1;
            if let Asked::Lease { client } = &asked {
                self.clients[at].id = Some(*client);
            }
            let keeps = self.knobs.keeps_locks.load(Ordering::SeqCst);
            match asked {
                // As if somebody else had the lock, too.
                Asked::Lock { owner, wanted } if keeps => {
                    let other = Timestamp { client: ClientId(u32::MAX), ..owner };
                    self.participant
                        .request(Peer(u64::MAX), Asked::Lock { owner: other, wanted: wanted.clone() });
                    self.participant.request(Peer(peer), Asked::Lock { owner, wanted });
                }
                asked => self.participant.request(Peer(peer), asked),
            }
        }
        if let Some(asker) = self.askers.remove(&peer).filter(|_| !is_answered) {
            self.tell(asker);
        } else {
            self.askers.insert(peer, Asker { client, id, target, replies: Vec::new() });
        }
        self.answer();
        true
    }

    /// What was written down is durable at once, and what waited for that goes out.
    fn answer(&mut self) {
        if let Some(batch) = self.participant.log_mut().take_batch() {
            let mut log = self.log.lock().expect("no panic while it was locked");
            log.truncate(usize::try_from(batch.offset_bytes).expect("an offset"));
            log.extend_from_slice(&batch.bytes);
            self.participant.durable(batch.sequence);
        }
        self.participant.publish_feed();
        let mut answered = Vec::new();
        for (Peer(peer), reply) in self.participant.take_replies() {
            if let Some(asker) = self.askers.get_mut(&peer) {
                asker.replies.push(reply);
                answered.push(peer);
            }
        }
        answered.dedup();
        for peer in answered {
            if let Some(asker) = self.askers.remove(&peer) {
                self.tell(asker);
            }
        }
    }

    fn tell(&mut self, asker: Asker) {
        let Some(at) = self.clients.iter().position(|client| client.number == asker.client) else { return };
        let bytes = codec::encode(&asker.replies).expect("replies");
        if bytes.len() <= TRANSACT_BYTES_MAX {
            return self.say(at, asker.id, Ok(Answer::Transacted { messages: Payload::Here(bytes) }));
        }
        let Target { key, offset_bytes: address, length_bytes: length } = asker.target;
        if bytes.len() as u64 > length {
            self.knobs.too_small.fetch_add(1, Ordering::SeqCst);
            let mut refusal = Refusal::new(RefusalCode::TargetTooSmall, "the answer does not fit its target");
            refusal.needed_bytes = bytes.len() as u64;
            return self.say(at, asker.id, Err(refusal));
        }
        self.knobs.beside.fetch_add(1, Ordering::SeqCst);
        let target = RemoteRegion { key, address, length };
        let write = Operation::WriteBytes { bytes: &bytes, target, target_offset: 0 };
        let _ = self.clients[at].connection.post(0, write);
        let messages = Payload::Beside(Target { length_bytes: bytes.len() as u64, ..asker.target });
        self.say(at, asker.id, Ok(Answer::Transacted { messages }));
    }

    fn say(&mut self, at: usize, id: RequestId, outcome: Result<Answer, Refusal>) {
        let reply = ReplyMessage { id, outcome, load: LoadReport::default() };
        let bytes = reply.encode().expect("a reply fits a message");
        let Client { connection, posts, .. } = &mut self.clients[at];
        let index = posts.as_mut().and_then(|posts| posts.asked.remove(&id));
        let is_beside = matches!(reply.outcome, Ok(Answer::Transacted { messages: Payload::Beside(_) }));
        if let (Some(posts), Some(index)) = (posts, index.filter(|_| !is_beside))
            && posts.replies.send(connection, 0, index, &bytes).is_ok()
        {
            return;
        }
        // A client that has left is noticed by the next poll.
        let _ = connection.post(0, Operation::Send { bytes: &bytes });
    }

    fn status(&self) -> NodeStatus {
        NodeStatus {
            node: NodeId(self.id),
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
            participant: ParticipantStatus::default(),
            relays: Vec::new(),
            participant_refuses: None,
            identity: rackscan_format::message::FolderIdentity::default(),
        }
    }
}

fn is_answered(asked: &Asked) -> bool {
    !matches!(
        asked,
        Asked::Advance { .. } | Asked::Close { .. } | Asked::Settled { .. } | Asked::Ended { .. }
    )
}

fn kind(asked: &Asked) -> &'static str {
    match asked {
        Asked::Lease { .. } => "lease",
        Asked::Advance { .. } => "advance",
        Asked::Close { .. } => "close",
        Asked::Get { .. } => "get",
        Asked::Timestamps { .. } => "timestamps",
        Asked::Among { .. } => "among",
        Asked::Scan { .. } => "scan",
        Asked::Mark => "mark",
        Asked::Prepare { .. } => "prepare",
        Asked::Commit { .. } => "commit",
        Asked::Abort { .. } => "abort",
        Asked::Settled { .. } => "settled",
        Asked::Ended { .. } => "ended",
        Asked::Put { .. } => "put",
        Asked::Inquire { .. } => "inquire",
        Asked::Lock { .. } => "lock",
        Asked::Unlock { .. } => "unlock",
    }
}

/// Bytes of the client's memory. Messages that come meanwhile are lost: none does while a session
/// waits.
fn pull(connection: &mut Connection, source: Target) -> Vec<u8> {
    let length = usize::try_from(source.length_bytes).expect("it fits our memory");
    let region = Region::allocate(length.next_multiple_of(4096)).expect("there is memory");
    let target = region.slice(0, length).expect("it fits");
    let source = RemoteRegion { key: source.key, address: source.offset_bytes, length: source.length_bytes };
    connection.post(7, Operation::Read { source, source_offset: 0, target }).expect("the queue has room");
    let (mut events, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(5));
    while connection.wait(&mut events, deadline) > 0 {
        let is_read = |event: &Event| matches!(event, Event::Completed { id: 7, outcome: Ok(_) });
        if events.drain(..).any(|event| is_read(&event)) {
            return region.to_vec(0, length).expect("it is inside");
        }
    }
    panic!("the client's memory cannot be read")
}
