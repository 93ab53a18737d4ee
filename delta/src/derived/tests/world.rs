//! Simulated participants, writers and readers, whose messages arrive in an order that is drawn
//! from a seed.
//!
//! Readers are of two kinds: some read keys by the algorithm that wrote them, and one follows all
//! feeds. Both pass what they found to a replica, so one check covers both.

use crate::{identity::SYSTEM_PREFIX, replica::Replica};
use fastrand::Rng;
use rackscan_ramp::{
    algorithm::{Algorithm, Begun, Cluster, Coordinator, Event, Message, Outcome, Step},
    feed::{Feed, FeedHeader, FeedReader},
    item::{Key, Value, Version, Write},
    log::{LogWriter, Tail},
    message::{Found, KeyRange, LeaseId, ParticipantId, Reply, Request, participant_of},
    participant::{Participant, Peer},
    slot::SlotVector,
    store::{Store, StoreOptions},
    timestamp::{ClientId, Timestamp},
};
use std::collections::BTreeSet;

const PARTICIPANTS: u16 = 3;
const FEED_BYTES: usize = 64 + (256 << 10);
const FLIGHTS: usize = 6;

/// What is written, and what must hold of what is read.
pub(super) trait Workload {
    /// All items of the next transaction.
    fn begin(&mut self, random: &mut Rng, timestamp: Timestamp) -> Vec<(Key, Value)>;
    /// All keys that this or a later transaction may write for the same rows: a reader of one of
    /// them reads all.
    fn keys(&self, items: &[(Key, Value)]) -> Vec<Key> {
        items.iter().map(|(key, _)| key.clone()).collect()
    }
    /// A transaction was aborted: others wrote the same keys with newer timestamps.
    fn aborted(&mut self, timestamp: Timestamp);
    /// A transaction was acknowledged.
    fn ended(&mut self, timestamp: Timestamp);
    /// Whether a view is consistent; if not, what contradicts.
    fn check(&mut self, seen: &Replica) -> Result<(), String>;
}

/// What readers found.
#[derive(Debug, Default)]
pub(super) struct Stats {
    pub(super) reads: usize,
    pub(super) second_rounds: usize,
    pub(super) rounds_max: usize,
    pub(super) anomalies: Vec<String>,
}

struct Node {
    id: ParticipantId,
    participant: Participant<SlotVector>,
    reader: FeedReader,
    lease: LeaseId,
}

impl Node {
    fn new(id: u16) -> Self {
        let options = StoreOptions { budget_bytes: 64 << 20, life: 1 };
        let store = Store::new(options, SlotVector::zeroed(4096));
        let feed = Feed::new(SlotVector::zeroed(FEED_BYTES), 1).unwrap();
        let participant = Participant::new(store, LogWriter::after(Tail::START)).feeding(feed, SYSTEM_PREFIX);
        let reader = FeedReader::at(Tail::START, 1, FEED_BYTES);
        let mut node = Self { id: ParticipantId(id), participant, reader, lease: LeaseId::default() };
        node.lease();
        node
    }

    fn lease(&mut self) {
        let [Reply::Leased { lease, .. }] = self.ask(Request::Lease { client: ClientId(99) })[..] else {
            panic!("no lease")
        };
        self.lease = lease;
    }

    /// A log that is durable at once, and a feed that is published before any reply.
    fn ask(&mut self, request: Request) -> Vec<Reply> {
        self.participant.request(Peer(0), request);
        if let Some(batch) = self.participant.log_mut().take_batch() {
            self.participant.durable(batch.sequence);
        }
        self.participant.publish_feed();
        self.participant.take_replies().into_iter().map(|(_, reply)| reply).collect()
    }

    fn read(&mut self, replica: &mut Replica) {
        let memory = self.participant.feed_memory().unwrap().as_slice();
        let header = FeedHeader::of(memory.first_chunk().unwrap());
        if let Some(pieces) = self.reader.wanted(header).unwrap() {
            let bytes = [&memory[pieces.first.clone()], &memory[pieces.second.clone()]].concat();
            for record in self.reader.take(&bytes, header).unwrap() {
                replica.record(self.id, record).unwrap();
            }
        }
    }
}

struct Places<'a>(&'a [Node]);

impl Cluster for Places<'_> {
    fn participant(&self, key: &Key) -> ParticipantId {
        let participants: Vec<ParticipantId> = self.0.iter().map(|node| node.id).collect();
        // Each key by itself: rows that live together would hide what goes wrong between
        // participants.
        participant_of(key.fingerprint(), &participants)
    }

    fn lease(&self, participant: ParticipantId) -> LeaseId {
        self.0[usize::from(participant.0)].lease
    }
}

/// A transaction on its way; `writes` is its timestamp if it is no read.
struct Flight {
    coordinator: Coordinator,
    to_send: Vec<Message>,
    to_hear: Vec<(ParticipantId, Reply)>,
    writes: Option<Timestamp>,
}

/// Timestamps are counted here, and no clock is looked at.
fn begun(timestamp: Timestamp) -> Begun<'static> {
    Begun { timestamp, wall_ms: 0, settled: &[] }
}

struct World<'w, W> {
    random: Rng,
    algorithm: Algorithm,
    workload: &'w mut W,
    nodes: Vec<Node>,
    flights: Vec<Flight>,
    /// What readers ask for.
    known: BTreeSet<Key>,
    time: u64,
    stats: Stats,
}

impl<W: Workload> World<'_, W> {
    fn begin(&mut self) {
        self.time += 1;
        let timestamp = Timestamp { time: self.time, client: ClientId(self.random.u32(1..4)) };
        let reads = !self.known.is_empty() && self.random.u8(0..3) == 0;
        let (coordinator, to_send) = if reads {
            let keys: Vec<Key> = self.known.iter().cloned().collect();
            self.algorithm.begin_read(timestamp, &keys, &Places(&self.nodes)).unwrap()
        } else {
            let items = self.workload.begin(&mut self.random, timestamp);
            self.known.extend(self.workload.keys(&items));
            let items = items.into_iter().map(Write::from).collect();
            self.algorithm.begin_write(begun(timestamp), items, &Places(&self.nodes)).unwrap()
        };
        let writes = (!reads).then_some(timestamp);
        self.flights.push(Flight { coordinator, to_send, to_hear: Vec::new(), writes });
    }

    /// A message arrives, or an answer.
    fn step(&mut self) {
        if self.flights.len() < FLIGHTS {
            self.begin();
        }
        let index = self.random.usize(0..self.flights.len());
        let flight = &mut self.flights[index];
        let which = self.random.usize(0..flight.to_send.len() + flight.to_hear.len());
        if which < flight.to_send.len() {
            let Message { to, request } = flight.to_send.swap_remove(which);
            let replies = self.nodes[usize::from(to.0)].ask(request);
            flight.to_hear.extend(replies.into_iter().map(|reply| (to, reply)));
            return;
        }
        let (from, reply) = flight.to_hear.swap_remove(which - flight.to_send.len());
        let Step { messages, outcome } = flight.coordinator.step(Event::Reply { from, reply });
        flight.to_send.extend(messages);
        if let Some(outcome) = outcome {
            let flight = self.flights.swap_remove(index);
            if matches!(outcome, Outcome::Aborted { .. }) {
                // What was prepared elsewhere is taken back; what was not sent never is.
                let aborts = flight
                    .to_send
                    .into_iter()
                    .filter(|message| matches!(message.request, Request::Abort { .. }));
                aborts.for_each(|Message { to, request }| drop(self.nodes[usize::from(to.0)].ask(request)));
            }
            self.ended(flight.writes, outcome);
        }
    }

    fn ended(&mut self, writes: Option<Timestamp>, outcome: Outcome) {
        match (writes, outcome) {
            (Some(timestamp), Outcome::Committed { .. }) => self.workload.ended(timestamp),
            // Without concurrency control: the missing parts of it are older than the visible ones.
            (Some(timestamp), Outcome::Torn { why, .. }) if why.newest().is_some() => {
                self.workload.ended(timestamp)
            }
            (Some(timestamp), Outcome::Aborted { why, .. }) if why.newest().is_some() => {
                self.workload.aborted(timestamp)
            }
            (None, Outcome::Read { items, rounds }) => {
                self.stats.reads += 1;
                self.stats.second_rounds += usize::from(rounds > 1);
                let seen = seen(items);
                self.check(&seen);
            }
            other => panic!("nothing fails here: {other:?}"),
        }
    }

    fn check(&mut self, seen: &Replica) {
        self.stats.anomalies.extend(self.workload.check(seen).err());
    }

    fn some_steps(&mut self, most: usize) {
        for _ in 0..self.random.usize(0..=most) {
            self.step();
        }
    }

    /// Reads all feeds, while messages arrive, until the replica is consistent.
    fn follow(&mut self, replica: &mut Replica) {
        for round in 1.. {
            for index in 0..self.nodes.len() {
                self.nodes[index].read(replica);
                if round == 1 {
                    self.some_steps(4);
                }
            }
            if replica.round_ended().unwrap() {
                self.stats.rounds_max = self.stats.rounds_max.max(round);
                break;
            }
        }
        self.check(replica);
    }
}

/// Participants to which one transaction is written after the other, and what follows them.
pub(super) struct Participants {
    nodes: Vec<Node>,
    time: u64,
    pub(super) replica: Replica,
}

impl Participants {
    pub(super) fn new() -> Self {
        Self { nodes: (0..PARTICIPANTS).map(Node::new).collect(), time: 0, replica: Replica::new() }
    }

    pub(super) fn ids(&self) -> Vec<ParticipantId> {
        self.nodes.iter().map(|node| node.id).collect()
    }

    /// Whether a transaction committed; it is followed to its end.
    pub(super) fn write(&mut self, items: Vec<(Key, Value)>) -> bool {
        self.time += 1;
        let timestamp = Timestamp { time: self.time, client: ClientId(1) };
        let items = items.into_iter().map(Write::from).collect();
        let begun = Algorithm::Fast.begin_write(begun(timestamp), items, &Places(&self.nodes));
        let (mut coordinator, mut to_send) = begun.unwrap();
        let mut outcome = None;
        while let Some(Message { to, request }) = to_send.pop() {
            for reply in self.nodes[usize::from(to.0)].ask(request) {
                let step = coordinator.step(Event::Reply { from: to, reply });
                to_send.extend(step.messages);
                outcome = outcome.or(step.outcome);
            }
        }
        for node in &mut self.nodes {
            node.ask(Request::Settled { timestamps: vec![timestamp] });
            node.read(&mut self.replica);
        }
        while !self.replica.round_ended().unwrap() {}
        match outcome {
            Some(Outcome::Committed { .. }) => true,
            Some(Outcome::Aborted { .. }) => false,
            other => panic!("nothing else happens here: {other:?}"),
        }
    }

    /// Items of the system that all participants have under a prefix.
    pub(super) fn keys_under(&mut self, prefix: &[u8]) -> usize {
        self.scan(prefix).into_iter().map(|(_, items)| items.len()).sum()
    }

    /// What a reader sees that begins to follow now.
    pub(super) fn scanned(&mut self) -> Replica {
        let mut replica = Replica::new();
        for (participant, items) in self.scan(SYSTEM_PREFIX) {
            replica.scanned(participant, items).unwrap();
        }
        while !replica.round_ended().unwrap() {}
        replica
    }

    fn scan(&mut self, prefix: &[u8]) -> Vec<(ParticipantId, Vec<(Key, Found)>)> {
        let mut found = Vec::new();
        for node in &mut self.nodes {
            let range = KeyRange { prefix: prefix.to_vec(), after: None, most: 1000, values: true };
            // No reader protects what was dropped.
            node.ask(Request::Close { lease: node.lease });
            node.participant.store_mut().collect(usize::MAX);
            node.lease();
            let lease = node.lease;
            let Some(Reply::Scanned { items, more: false }) = node.ask(Request::Scan { lease, range }).pop()
            else {
                panic!("no scan")
            };
            found.push((node.id, items));
        }
        found
    }
}

/// What a reader of these versions sees.
fn seen(items: Vec<(Key, Version)>) -> Replica {
    let mut seen = Replica::new();
    let found = |version| Found { version, beside: Vec::new(), place: None };
    let items = items.into_iter().map(|(key, version)| (key, found(version))).collect();
    seen.scanned(ParticipantId(0), items).unwrap();
    seen
}

/// One run of a workload.
pub(super) fn run<W: Workload>(algorithm: Algorithm, workload: &mut W, seed: u64) -> Stats {
    let mut world = World {
        random: Rng::with_seed(seed),
        algorithm,
        workload,
        nodes: (0..PARTICIPANTS).map(Node::new).collect(),
        flights: Vec::new(),
        known: BTreeSet::new(),
        time: 0,
        stats: Stats::default(),
    };
    let mut replica = Replica::new();
    for _ in 0..12 {
        world.some_steps(60);
        world.follow(&mut replica);
    }
    world.stats
}

/// Runs of many seeds, of workloads that begin anew: what all readers found.
pub(super) fn runs<W: Workload>(algorithm: Algorithm, cases: u64, workload: impl Fn() -> W) -> Stats {
    let first = std::env::var("RACKSCAN_SEED").ok();
    let first = first
        .and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok())
        .unwrap_or(0xde_71ed);
    let cases = std::env::var("RACKSCAN_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(cases);
    let mut all = Stats::default();
    for seed in first..first + cases {
        let stats = run(algorithm, &mut workload(), seed);
        all.reads += stats.reads;
        all.second_rounds += stats.second_rounds;
        all.rounds_max = all.rounds_max.max(stats.rounds_max);
        let of_seed = |anomaly| format!("{algorithm}, RACKSCAN_SEED={seed:#x} RACKSCAN_CASES=1: {anomaly}");
        all.anomalies.extend(stats.anomalies.into_iter().map(of_seed));
    }
    all
}

/// Checks that no reader by RAMP, or follower of feeds, ever sees a contradiction.
pub(super) fn all_is_well_by_ramp<W: Workload>(workload: impl Fn() -> W) {
    for algorithm in [Algorithm::Fast, Algorithm::Small, Algorithm::Hybrid] {
        let stats = runs(algorithm, 40, &workload);
        assert_eq!(stats.anomalies.first(), None, "one of {}", stats.anomalies.len());
        assert!(stats.reads > 0 && stats.rounds_max > 1, "{algorithm}: {stats:?}: nobody met a write");
        assert!(stats.second_rounds > 0, "{algorithm}: {stats:?}: nobody met a write");
    }
}
