//! Tests that after a round a replica shows every transaction completely or not at all, and all
//! transactions that were acknowledged before the round.
//!
//! Method: real participants with feeds; transactions whose messages arrive in any order that their
//! coordinators allow; a reader that scans page by page and reads one feed after the other.
//! Messages arrive between any two pages and feeds, and the reader starts over when it fell too far
//! behind a feed. Everything is drawn from a seed.

use super::*;
use fastrand::Rng;
use rackscan_format::ids::SegmentId;
use rackscan_ramp::{
    algorithm::Algorithm,
    feed::{Behind, Feed, FeedHeader, FeedReader},
    log::{LogWriter, Tail},
    message::{Guard, KeyRange, LeaseId, Refusal, Reply, Request},
    participant::{Participant, Peer},
    slot::SlotVector,
    store::{Store, StoreOptions},
    timestamp::ClientId,
};

const PARTICIPANTS: u16 = 3;
const FEED_BYTES: usize = 64 + 8192;
const TABLES: u32 = 2;

/// A participant whose log is durable at once, and its feed's memory as a peer would copy it.
struct Node {
    id: ParticipantId,
    participant: Participant<SlotVector>,
    reader: FeedReader,
}

fn ask(node: &mut Node, request: Request) -> Vec<Reply> {
    node.participant.request(Peer(0), request);
    if let Some(batch) = node.participant.log_mut().take_batch() {
        node.participant.durable(batch.sequence);
    }
    // Before any reply.
    node.participant.publish_feed();
    node.participant.take_replies().into_iter().map(|(_, reply)| reply).collect()
}

impl Node {
    fn new(id: u16) -> Self {
        let options = StoreOptions { budget_bytes: 64 << 20, life: 1 };
        let store = Store::new(options, SlotVector::zeroed(4096));
        let feed = Feed::new(SlotVector::zeroed(FEED_BYTES), 1).unwrap();
        let participant =
            Participant::new(store, LogWriter::after(Tail::START)).feeding(feed, crate::identity::ROW_PREFIX);
        Self { id: ParticipantId(id), participant, reader: FeedReader::at(Tail::START, 1, FEED_BYTES) }
    }

    fn mark(&mut self) {
        let [Reply::Marked { tail }] = ask(self, Request::Mark)[..] else { panic!("no mark") };
        self.reader = FeedReader::at(tail, 1, FEED_BYTES);
    }

    fn lease(&mut self) -> LeaseId {
        let [Reply::Leased { lease, .. }] = ask(self, Request::Lease { client: ClientId(99) })[..] else {
            panic!("no lease")
        };
        lease
    }

    /// A page of a scan, and whether there is more.
    fn scan(&mut self, lease: LeaseId, after: Option<Key>) -> (Vec<(Key, Found)>, bool) {
        let prefix = crate::identity::ROW_PREFIX.to_vec();
        let range = KeyRange { prefix, after, most: 16, values: true };
        let Some(Reply::Scanned { items, more }) = ask(self, Request::Scan { lease, range }).pop() else {
            panic!("no scan")
        };
        (items, more)
    }

    fn read(&mut self, replica: &mut Replica) -> Result<(), Behind> {
        let memory = self.participant.feed_memory().unwrap().as_slice().to_vec();
        let header = FeedHeader::of(memory.first_chunk().unwrap());
        if let Some(pieces) = self.reader.wanted(header)? {
            let bytes = [&memory[pieces.first.clone()], &memory[pieces.second.clone()]].concat();
            for record in self.reader.take(&bytes, header)? {
                replica.record(self.id, record).unwrap();
            }
        }
        Ok(())
    }
}

/// A transaction on its way: which participants have prepared and committed.
struct Writing {
    timestamp: Timestamp,
    rows: Vec<(TableId, RowIdentity)>,
    parts: BTreeMap<ParticipantId, Vec<(Key, Value)>>,
    prepared: BTreeSet<ParticipantId>,
    told: BTreeSet<ParticipantId>,
    aborts: bool,
}

struct World {
    random: Rng,
    nodes: Vec<Node>,
    writing: Vec<Writing>,
    acknowledged: Vec<(Timestamp, Vec<(TableId, RowIdentity)>)>,
    refused: BTreeSet<Timestamp>,
    all: BTreeMap<Timestamp, Vec<(TableId, RowIdentity)>>,
    time: u64,
}

impl World {
    fn begin(&mut self) {
        self.time += 1;
        let timestamp = Timestamp { time: self.time, client: ClientId(self.random.u32(1..4)) };
        let mut rows = BTreeSet::new();
        for number in 0..self.random.u32(1..5) {
            let table = TableId(self.random.u32(0..TABLES));
            let row = if self.random.bool() {
                RowIdentity::Stored { segment: SegmentId(self.random.u32(0..2)), row: self.random.u32(0..4) }
            } else {
                RowIdentity::Inserted { by: timestamp, number }
            };
            rows.insert((table, row));
        }
        let mut parts: BTreeMap<ParticipantId, Vec<(Key, Value)>> = BTreeMap::new();
        for (table, row) in &rows {
            let key = row.key(*table).unwrap();
            let participant =
                ParticipantId(u16::try_from(key.fingerprint().0 % u64::from(PARTICIPANTS)).unwrap());
            let length = self.random.usize(1..200);
            let value = if self.random.u8(0..5) == 0 {
                Value::DELETED
            } else {
                Value::new(&vec![1; length]).unwrap()
            };
            parts.entry(participant).or_default().push((key, value));
        }
        parts.values_mut().for_each(|items| items.sort_by(|(a, _), (b, _)| a.cmp(b)));
        let rows: Vec<_> = rows.into_iter().collect();
        self.all.insert(timestamp, rows.clone());
        let (prepared, told) = (BTreeSet::new(), BTreeSet::new());
        let aborts = self.random.u8(0..8) == 0;
        self.writing.push(Writing { timestamp, rows, parts, prepared, told, aborts });
    }

    /// One message of one transaction arrives.
    fn step(&mut self) {
        if self.writing.len() < 4 {
            self.begin();
        }
        let index = self.random.usize(0..self.writing.len());
        let writing = &mut self.writing[index];
        let participants: Vec<ParticipantId> = writing.parts.keys().copied().collect();
        let timestamp = writing.timestamp;
        let open = |done: &BTreeSet<ParticipantId>| {
            participants.iter().copied().filter(|participant| !done.contains(participant)).collect()
        };
        let left: Vec<ParticipantId> = open(&writing.prepared);
        let keeps_back = writing.aborts && left.len() == 1;
        if !(left.is_empty() || keeps_back) {
            let participant = left[self.random.usize(0..left.len())];
            let items = writing.parts[&participant].clone();
            let keys: Vec<Key> = writing.parts.values().flatten().map(|(key, _)| key.clone()).collect();
            let metadata = Algorithm::Fast.metadata(&keys);
            let part = Part { timestamp, participants, guard: Guard::Open, metadata, items };
            let voted = if part.is_whole() { Reply::Committed } else { Reply::Prepared };
            let prepare = Request::Prepare { part, settled: vec![], preconditions: Default::default() };
            let replies = ask(&mut self.nodes[usize::from(participant.0)], prepare);
            // A transaction that began later was here first: then all are told to abort.
            let is_outdated = matches!(replies[..], [Reply::Refused { why: Refusal::Outdated { .. } }]);
            writing.aborts |= is_outdated;
            assert!(is_outdated || replies == [voted], "{replies:?}");
            writing.prepared.insert(participant);
            return;
        }
        let left: Vec<ParticipantId> = open(&writing.told);
        let participant = left[self.random.usize(0..left.len())];
        let request =
            if writing.aborts { Request::Abort { timestamp } } else { Request::Commit { timestamp } };
        ask(&mut self.nodes[usize::from(participant.0)], request);
        writing.told.insert(participant);
        if left.len() > 1 {
            return;
        }
        let Writing { timestamp, rows, aborts, .. } = self.writing.swap_remove(index);
        for participant in participants {
            ask(
                &mut self.nodes[usize::from(participant.0)],
                Request::Settled { timestamps: vec![timestamp] },
            );
        }
        if aborts {
            self.refused.insert(timestamp);
        } else {
            self.acknowledged.push((timestamp, rows));
        }
    }

    fn some_steps(&mut self, most: usize) {
        for _ in 0..self.random.usize(0..=most) {
            self.step();
        }
    }

    fn fresh(&mut self) -> Replica {
        let mut replica = Replica::new();
        for index in 0..self.nodes.len() {
            self.nodes[index].mark();
            self.some_steps(3);
        }
        for index in 0..self.nodes.len() {
            let lease = self.nodes[index].lease();
            let (mut after, mut more) = (None, true);
            while more {
                let items;
                (items, more) = self.nodes[index].scan(lease, after.take());
                after = items.last().map(|(key, _)| key.clone());
                replica.scanned(self.nodes[index].id, items).unwrap();
                self.some_steps(1);
            }
            ask(&mut self.nodes[index], Request::Close { lease });
        }
        replica
    }

    /// Rounds until the replica is consistent; the maximum number of rounds.
    fn catch_up(&mut self, replica: &mut Replica, busy: usize) -> Result<usize, Behind> {
        for round in 1.. {
            for index in 0..self.nodes.len() {
                self.nodes[index].read(replica)?;
                if round == 1 {
                    self.some_steps(busy);
                }
            }
            if replica.round_ended().unwrap() {
                return Ok(round);
            }
        }
        Ok(0)
    }

    fn check(&self, replica: &Replica, acknowledged: usize) {
        let seen = |(table, row): &(TableId, RowIdentity)| {
            replica
                .table(*table)
                .and_then(|rows| rows.row(*row))
                .map_or(Timestamp::FIRST, |version| version.timestamp)
        };
        let visible: BTreeSet<Timestamp> = replica
            .tables
            .values()
            .flat_map(|rows| rows.rows().map(|(_, version)| version))
            .map(|version| version.timestamp)
            .collect();
        for timestamp in &visible {
            assert!(!self.refused.contains(timestamp), "{timestamp} was refused");
            for row in &self.all[timestamp] {
                assert!(seen(row) >= *timestamp, "{timestamp} is visible, but not in {row:?}: {}", seen(row));
            }
        }
        for (timestamp, rows) in &self.acknowledged[..acknowledged] {
            rows.iter()
                .for_each(|row| assert!(seen(row) >= *timestamp, "{timestamp} was acknowledged: {row:?}"));
        }
    }
}

fn run(seed: u64) -> (usize, usize) {
    let mut world = World {
        random: Rng::with_seed(seed),
        nodes: (0..PARTICIPANTS).map(Node::new).collect(),
        writing: Vec::new(),
        acknowledged: Vec::new(),
        refused: BTreeSet::new(),
        all: BTreeMap::new(),
        time: 0,
    };
    world.some_steps(40);
    let mut replica = world.fresh();
    let (mut rounds_max, mut begun_anew) = (0, 0);
    for _ in 0..20 {
        let most = if world.random.u8(0..10) == 0 { 300 } else { 12 };
        world.some_steps(most);
        let acknowledged = world.acknowledged.len();
        match world.catch_up(&mut replica, 4) {
            Ok(rounds) => rounds_max = rounds_max.max(rounds),
            Err(_) => {
                begun_anew += 1;
                replica = world.fresh();
                while world.catch_up(&mut replica, 0).is_err() {
                    replica = world.fresh();
                }
            }
        }
        world.check(&replica, acknowledged);
    }
    if world.catch_up(&mut replica, 0).is_ok() {
        let kept = replica.open.keys().find(|timestamp| world.refused.contains(timestamp));
        assert_eq!(kept, None, "a transaction that was refused everywhere is still remembered");
    }
    (rounds_max, begun_anew)
}

#[test]
fn after_a_round_every_transaction_is_visible_wholly_or_not_at_all() {
    let first = std::env::var("RACKSCAN_SEED").ok();
    let first = first
        .and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok())
        .unwrap_or(0x6de17a);
    let cases = std::env::var("RACKSCAN_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(150);
    let (mut rounds, mut begun_anew) = (0, 0);
    for seed in first..first + cases {
        let (rounds_max, anew) = std::panic::catch_unwind(|| run(seed))
            .unwrap_or_else(|_| panic!("RACKSCAN_SEED={seed:#x} RACKSCAN_CASES=1"));
        rounds = rounds.max(rounds_max);
        begun_anew += anew;
    }
    assert!(rounds > 1, "no commit was ever read before what it commits");
    assert!(begun_anew > 0 || cases < 50, "no reader was ever unavailable for too long");
}

#[test]
fn changes_are_taken_once() {
    let mut replica = Replica::new();
    let row = RowIdentity::Stored { segment: SegmentId(1), row: 2 };
    let put = |time| {
        let items = vec![(row.key(TableId(3)).unwrap(), Value::new(&[1]).unwrap())];
        let timestamp = Timestamp { time, client: ClientId(1) };
        let metadata = rackscan_ramp::item::Metadata::Timestamp;
        Record::Put(Part { timestamp, participants: Vec::new(), guard: Guard::Open, metadata, items })
    };
    replica.record(ParticipantId(0), put(5)).unwrap();
    assert_eq!(replica.take_changed(TableId(3)), BTreeSet::from([row]));
    assert_eq!(replica.take_changed(TableId(3)), BTreeSet::new());
    replica.record(ParticipantId(0), put(4)).unwrap();
    assert_eq!(replica.take_changed(TableId(3)), BTreeSet::new(), "an older version changes nothing");
    replica.record(ParticipantId(0), put(6)).unwrap();
    assert_eq!(replica.take_changed(TableId(3)), BTreeSet::from([row]));
    replica.forget(TableId(3));
    assert!(replica.table(TableId(3)).is_none());
}

#[test]
fn a_table_that_came_of_another_by_flushes_is_told_from_one_that_replaced_it_however_many_there_were() {
    let (mut replica, mut time) = (Replica::new(), 0);
    let participants = [ParticipantId(0), ParticipantId(1)];
    let mut told = |replica: &mut Replica, items: Vec<(Key, Value)>| {
        time += 1;
        let timestamp = Timestamp { time, client: ClientId(1) };
        let part = Part {
            timestamp,
            participants: Vec::new(),
            guard: Guard::Open,
            metadata: rackscan_ramp::item::Metadata::Timestamp,
            items,
        };
        replica.record(ParticipantId(0), Record::Put(part)).unwrap();
    };
    let flush = |from, to| {
        Closing::noted(&note_of_new_version(TableId(to)), &table_prefix(TableId(from)), &participants)
            .unwrap()
    };
    let emptied = |table| Closing::Emptied.items(&table_prefix(TableId(table)), &participants).unwrap();
    for (from, to) in [(1, 2), (2, 3), (2, 4), (4, 5)] {
        told(&mut replica, flush(from, to));
        assert!(replica.is_closed(TableId(from)), "{from}");
    }
    assert_eq!(replica.closed_tables().collect::<Vec<_>>(), [TableId(1), TableId(2), TableId(4)]);
    told(&mut replica, emptied(1));
    assert_eq!(replica.closed_tables().collect::<Vec<_>>(), [TableId(2), TableId(4)]);
    // A load, which closes without a note.
    told(&mut replica, Closing::Closed.items(&table_prefix(TableId(5)), &participants).unwrap());
    replica.begin_anew();
    for (table, from, descends) in
        [(5, 1, true), (5, 4, true), (5, 3, false), (3, 1, true), (1, 5, false), (6, 5, false)]
    {
        assert_eq!(replica.descends(TableId(table), TableId(from)), descends, "{table} from {from}");
    }
}
