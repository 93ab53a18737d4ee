//! How simulated clients react to messages: they begin transactions, one after the other, read
//! slots whose offsets they know, and record how each transaction has ended.

use super::{Event, World};
use crate::{
    client::{Client, Link, Participants, Running, key_of, number_of, origin, value_of},
    defect::{Defect, without_checks},
    memory::Copy,
};
use rackscan_ramp::{
    algorithm::{Abortion, Begun, Coordinator, Event as Happening, Message, Outcome, Step},
    history::{End, Read, Write},
    item::{Key, Write as Item},
    message::{Found, ParticipantId, Refusal, Reply, Request},
    slot::decode,
    timestamp::Timestamp,
};

/// How often a write is begun with a newer timestamp.
const ATTEMPTS_MAX: u32 = 8;

impl World {
    pub(super) fn add_client(&mut self) {
        let session = u32::try_from(self.clients.len()).expect("few clients");
        let id = if self.case.defect == Some(Defect::CollidingTimestamps) { 1 } else { session + 1 };
        let mut client = Client::new(session, id, self.nodes.len());
        client.skew = self.skew();
        client.slowness = [1, 1, 1, 12][self.random.index(4)];
        self.clients.push(client);
        let client = self.clients.len() - 1;
        for node in 0..self.nodes.len() {
            let life = self.nodes[node].life;
            if self.nodes[node].participant.is_some() {
                let delay = self.passage(node, 1000 + client, 1);
                self.at(delay, Event::Back { client, node, life });
            }
        }
        self.at(300, Event::Next { client });
    }

    pub(super) fn back(&mut self, client: usize, node: usize, life: u64) {
        if !self.clients[client].alive || self.nodes[node].life != life {
            return;
        }
        let memory = Some(self.nodes[node].memory.clone());
        self.clients[client].links[node] = Link { life, memory, ..Link::default() };
        let client_id = self.clients[client].clock.client();
        self.ask_node(client, node, 0, Request::Lease { client: client_id });
        let participant = ParticipantId(u16::try_from(node).expect("a node"));
        let running = self.clients[client].running.as_ref().map(|running| running.number);
        running.into_iter().for_each(|number| self.step(client, number, Happening::Back { participant }));
    }

    pub(super) fn lost(&mut self, client: usize, node: usize, life: u64) {
        if !self.clients[client].alive || self.clients[client].links[node].life != life {
            return;
        }
        self.clients[client].links[node] = Link::default();
        let participant = ParticipantId(u16::try_from(node).expect("a node"));
        let running = self.clients[client].running.as_ref().map(|running| running.number);
        running.into_iter().for_each(|number| self.step(client, number, Happening::Lost { participant }));
    }

    pub(super) fn reply(&mut self, client: usize, node: usize, transaction: u64, reply: Reply) {
        let this = &mut self.clients[client];
        let link = &mut this.links[node];
        let mut heard = None;
        match &reply {
            Reply::Leased { lease, epoch, newest } => {
                (link.lease, link.told) = (Some(*lease), *epoch);
                heard = Some(*newest);
            }
            Reply::Found { items, epoch } => {
                link.told = link.told.max(*epoch);
                for (key, found) in items {
                    heard = heard.max(Some(found.version.timestamp));
                    let place = found.place.map(|place| (link.life, place));
                    if let Some(place) = place {
                        this.places.insert(key.clone(), place);
                    }
                }
            }
            Reply::Named { items } => {
                let versions = items.iter().filter_map(|(_, version)| version.as_ref());
                heard = versions.map(|version| version.timestamp).max();
            }
            Reply::Refused { why } => heard = why.newest(),
            _ => {}
        }
        heard.into_iter().for_each(|timestamp| self.hear(client, timestamp));
        let from = ParticipantId(u16::try_from(node).expect("a node"));
        self.step(client, transaction, Happening::Reply { from, reply });
    }

    fn hear(&mut self, client: usize, timestamp: Timestamp) {
        let wall_ms = self.wall_ms(self.clients[client].skew);
        let is_far = timestamp.milliseconds() > wall_ms + 60_000;
        if !(is_far && self.case.defect == Some(Defect::CappedClocks)) {
            self.clients[client].clock.hear(timestamp);
        }
    }

    /// Begins a transaction.
    pub(super) fn next(&mut self, client: usize) {
        let this = &self.clients[client];
        if !this.alive || this.running.is_some() || self.calm_since.is_some() {
            return;
        }
        if this.links.iter().any(|link| link.lease.is_none()) {
            return self.at(200, Event::Next { client });
        }
        self.begun += 1;
        if self.jumps() {
            self.clients[client].skew = self.skew();
        }
        let count = 1 + self.random.below(4).min(u64::from(self.case.keys) - 1);
        let mut keys: Vec<u32> = Vec::new();
        while (keys.len() as u64) < count {
            let key = u32::try_from(self.random.below(u64::from(self.case.keys))).expect("a key");
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let from = self.now;
        match self.random.below(5) {
            0 | 1 => self.begin_write(client, keys, Vec::new(), (from, 1)),
            // Of what is read, some is written, on the condition that it is the newest.
            2 => {
                let then = keys[..1 + self.random.index(keys.len())].to_vec();
                self.begin_read(client, &keys, then);
            }
            _ => self.begin_read(client, &keys, Vec::new()),
        }
        if self.begun >= self.case.transactions {
            self.calm_since = Some(self.now);
        }
    }

    /// The timestamp of an attempt, and the clock reading behind it.
    fn timestamp(&self, client: usize) -> (Timestamp, u64) {
        let this = &self.clients[client];
        let wall_ms = self.wall_ms(this.skew);
        (this.clock.next(wall_ms).expect("clocks are less than a century wrong"), wall_ms)
    }

    fn begin_read(&mut self, client: usize, keys: &[u32], then: Vec<u32>) {
        let (timestamp, _) = self.timestamp(client);
        let keys: Vec<Key> = keys.iter().map(|key| key_of(*key)).collect();
        let cluster = Participants { links: &self.clients[client].links };
        let begun = self.case.algorithm.begin_read(timestamp, &keys, &cluster).expect("few keys");
        self.set_running(client, begun, |number, coordinator, from| {
            let (writes, expected, attempts) = (Vec::new(), Vec::new(), 1);
            Running { number, coordinator, timestamp, writes, expected, then, attempts, from }
        });
    }

    /// Begins an attempt to write, of a transaction that began at `from`.
    fn begin_write(
        &mut self,
        client: usize,
        keys: Vec<u32>,
        expected: Vec<(u32, Timestamp)>,
        (from, attempts): (u64, u32),
    ) {
        let (timestamp, wall_ms) = self.timestamp(client);
        let copies: Vec<usize> = keys.iter().map(|_| [1, 2, 8, 40][self.random.index(4)]).collect();
        let items = keys.iter().zip(copies).map(|(key, copies)| Item {
            key: key_of(*key),
            value: value_of(timestamp, copies),
            expected: expected.iter().find(|(of, _)| of == key).map(|(_, expected)| *expected),
        });
        let items: Vec<Item> = items.collect();
        let this = &mut self.clients[client];
        let settled = std::mem::take(&mut this.settled);
        let cluster = Participants { links: &this.links };
        let begun = Begun { timestamp, wall_ms, settled: &settled };
        let begun = self.case.algorithm.begin_write(begun, items, &cluster).expect("few keys");
        self.set_running(client, begun, |number, coordinator, _| {
            let then = Vec::new();
            Running { number, coordinator, timestamp, writes: keys, expected, then, attempts, from }
        });
    }

    fn set_running(
        &mut self,
        client: usize,
        (coordinator, messages): (Coordinator, Vec<Message>),
        running: impl FnOnce(u64, Coordinator, u64) -> Running,
    ) {
        let this = &mut self.clients[client];
        this.numbers += 1;
        let number = this.numbers;
        this.running = Some(running(number, coordinator, self.now));
        self.at(30_000, Event::GiveUp { client, transaction: number });
        self.send(client, number, messages);
    }

    /// Sends what a coordinator wants to say; of what it wants to get, what it knows the places of
    /// is read from slots.
    fn send(&mut self, client: usize, transaction: u64, messages: Vec<Message>) {
        for Message { to, request } in messages {
            let node = usize::from(to.0);
            let early = match &request {
                Request::Prepare { part, .. } if self.case.defect == Some(Defect::EarlyCommit) => {
                    Some(part.timestamp)
                }
                _ => None,
            };
            match request {
                Request::Get { lease, keys } if self.case.one_sided => {
                    let keys = self.copy_known(client, transaction, node, keys);
                    if !keys.is_empty() {
                        self.ask_node(client, node, transaction, Request::Get { lease, keys });
                    }
                }
                request => self.ask_node(client, node, transaction, request),
            }
            early
                .into_iter()
                .for_each(|timestamp| self.ask_node(client, node, 0, Request::Commit { timestamp }));
        }
    }

    /// Begins one-sided reads. Returns the keys whose places are not known.
    fn copy_known(&mut self, client: usize, transaction: u64, node: usize, keys: Vec<Key>) -> Vec<Key> {
        let mut unknown = Vec::new();
        for key in keys {
            let this = &self.clients[client];
            let link = &this.links[node];
            let (life, place) = (link.life, this.places.get(&key).filter(|(of, _)| *of == link.life));
            if let (Some((_, place)), Some(memory)) = (place, &link.memory) {
                let copy = Copy::begin(memory, *place, &mut self.random);
                let delay = self.delay();
                self.at(delay, Event::Copy { client, transaction, node, life, key, copy });
            } else {
                unknown.push(key);
            }
        }
        unknown
    }

    pub(super) fn copy(
        &mut self,
        client: usize,
        transaction: u64,
        (node, life): (usize, u64),
        key: Key,
        mut copy: Copy,
    ) {
        let steps = 1 + self.random.index(12);
        if !copy.go_on(steps) {
            let delay = 1 + self.random.below(4);
            return self.at(delay, Event::Copy { client, transaction, node, life, key, copy });
        }
        let present = self.nodes[node].life == life && self.nodes[node].participant.is_some();
        let this = &mut self.clients[client];
        if !this.alive || this.running.as_ref().is_none_or(|running| running.number != transaction) {
            return;
        }
        if !present && self.case.defect != Some(Defect::DeadMemory) {
            // The wire says so, if the reader asks it after it has read.
            return;
        }
        if self.case.defect == Some(Defect::BlindOverwrite) {
            without_checks(&mut copy.bytes);
        }
        match decode(&copy.bytes, &key, life) {
            Ok(version) => {
                self.counters.slots_believed += 1;
                let items = vec![(key, Found { version, beside: Vec::new(), place: None })];
                let (from, epoch) =
                    (ParticipantId(u16::try_from(node).expect("a node")), this.links[node].told);
                self.step(
                    client,
                    transaction,
                    Happening::Reply { from, reply: Reply::Found { items, epoch } },
                );
            }
            Err(_) => {
                self.counters.slots_refused += 1;
                this.places.remove(&key);
                let lease = this.links[node].lease.unwrap_or_default();
                self.ask_node(client, node, transaction, Request::Get { lease, keys: vec![key] });
            }
        }
    }

    pub(super) fn step(&mut self, client: usize, transaction: u64, event: Happening) {
        let this = &mut self.clients[client];
        let Some(running) = this.running.as_mut().filter(|running| running.number == transaction) else {
            return;
        };
        let Step { messages, outcome } = running.coordinator.step(event);
        self.send(client, transaction, messages);
        outcome.into_iter().for_each(|outcome| self.ended(client, outcome));
    }

    fn ended(&mut self, client: usize, outcome: Outcome) {
        let Some(running) = self.clients[client].running.take() else { return };
        match outcome {
            Outcome::Read { items, rounds } => {
                self.counters.second_rounds += usize::from(rounds > 1);
                self.counters.reads += 1;
                self.counters.operations += items.len();
                let found = items.iter().map(|(key, version)| (number_of(key), origin(version))).collect();
                let session = self.clients[client].session;
                self.history.reads.push(Read { found, session, from: running.from, to: self.now });
                self.move_leases(client);
                let seen = |key: &u32| items.iter().find(|(of, _)| *of == key_of(*key));
                let seen = |key: &u32| seen(key).map(|(_, version)| (*key, version.timestamp));
                let expected: Vec<(u32, Timestamp)> = running.then.iter().filter_map(seen).collect();
                if !expected.is_empty() {
                    return self.begin_write(client, running.then, expected, (self.now, 1));
                }
            }
            Outcome::Interrupted { .. } => {
                self.counters.interrupted += 1;
                self.record_write(client, &running, End::Unknown);
                self.move_leases(client);
            }
            Outcome::Committed { timestamp } => {
                self.clients[client].settled.push(timestamp);
                self.counters.conditional += usize::from(!running.expected.is_empty());
                self.record_write(client, &running, End::Committed);
            }
            Outcome::Aborted { why, .. } => {
                self.record_write(client, &running, End::Aborted);
                if why.newest().is_some() && running.attempts < ATTEMPTS_MAX {
                    self.counters.retried += 1;
                    let again = (running.from, running.attempts + 1);
                    return self.begin_write(client, running.writes, running.expected, again);
                }
                if let Abortion::Refused { why, .. } = why {
                    self.counters.conflicts += usize::from(matches!(why, Refusal::Conflict { .. }));
                    self.counters.clocks_refused += usize::from(matches!(why, Refusal::ClockAhead { .. }));
                }
            }
            // Nobody lists here.
            Outcome::Listed { .. } => {}
            Outcome::CommittedInPart { .. } | Outcome::Unknown { .. } | Outcome::Torn { .. } => {
                self.record_write(client, &running, End::Unknown)
            }
        }
        let delay = self.delay();
        self.at(delay, Event::Next { client });
    }

    /// No read is on its way: what participants told before is old enough.
    fn move_leases(&mut self, client: usize) {
        for node in 0..self.nodes.len() {
            let link = &self.clients[client].links[node];
            if let Some(lease) = link.lease {
                self.ask_node(client, node, 0, Request::Advance { lease, epoch: link.told });
            }
        }
    }

    pub(super) fn record_write(&mut self, client: usize, running: &Running, end: End) {
        if running.writes.is_empty() {
            return;
        }
        match end {
            End::Committed => self.counters.committed += 1,
            End::Aborted => self.counters.aborted += 1,
            End::Unknown => self.counters.unknown += 1,
        }
        self.counters.operations += running.writes.len();
        let (session, timestamp) = (self.clients[client].session, running.timestamp);
        let (keys, expected) = (running.writes.clone(), running.expected.clone());
        let (from, to) = (running.from, self.now);
        self.history.writes.push(Write { timestamp, keys, expected, session, from, to, end });
    }
}
