//! Simulates a cluster in this process, for tests: participants behind one lock, and sessions that
//! carry messages to them.
//!
//! Messages of several sessions interleave, one at a time. A killed node loses everything but its
//! log, which is durable at once. When the node is started again, transactions in doubt are
//! resolved by asking all participants.

use super::store::{Failure, ReadDone, TransactionStore, WriteEnd, WriteFailure};
use rackscan_client::Retry;
use rackscan_fabric::WallClock;
use rackscan_ramp::{
    algorithm::{Algorithm, Begun, Cluster, Coordinator, Event, Message, Outcome},
    item::{Key, Value, Write},
    log::{LogWriter, Tail, read, recover},
    message::{Epoch, LeaseId, ParticipantId, Reply, Request},
    participant::{Participant, Peer},
    slot::SlotVector,
    store::{Store, StoreOptions},
    termination::Termination,
    timestamp::{ClientId, Clock, Timestamp},
};
use std::{
    collections::HashMap,
    sync::{Condvar, Mutex, MutexGuard},
};

const SLOTS_BYTES: usize = 8 << 20;
/// Attempts of a write, each with a newer timestamp.
const WRITE_ATTEMPTS_MAX: u32 = 64;

#[derive(Default)]
struct Node {
    life: u64,
    participant: Option<Participant<SlotVector>>,
    disk: Vec<u8>,
}

/// Messages that have arrived for a transaction, and whom it has asked.
#[derive(Default)]
struct MessageQueue {
    events: Vec<Event>,
    asked: Vec<ParticipantId>,
}

#[derive(Default)]
struct Inner {
    nodes: Vec<Node>,
    mail: HashMap<u64, MessageQueue>,
    next: u64,
}

pub(super) struct Nearby {
    algorithm: Algorithm,
    inner: Mutex<Inner>,
    arrived: Condvar,
}

impl Nearby {
    pub(super) fn new(algorithm: Algorithm, nodes: usize) -> Self {
        let mut inner = Inner::default();
        inner.nodes.resize_with(nodes, Node::default);
        let this = Self { algorithm, inner: Mutex::new(inner), arrived: Condvar::new() };
        (0..nodes).for_each(|node| this.start(node));
        this
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    pub(super) fn kill(&self, node: usize) {
        let mut inner = self.lock();
        inner.nodes[node].participant = None;
        let participant = ParticipantId(u16::try_from(node).unwrap());
        for message_queue in
            inner.mail.values_mut().filter(|message_queue| message_queue.asked.contains(&participant))
        {
            message_queue.events.push(Event::Lost { participant });
        }
        self.arrived.notify_all();
    }

    pub(super) fn start(&self, node: usize) {
        let mut inner = self.lock();
        let at = &mut inner.nodes[node];
        at.life += 1;
        let options = StoreOptions { budget_bytes: 256 << 20, life: at.life };
        let memory = SlotVector::zeroed(SLOTS_BYTES);
        let (records, tail, cut) = read(Tail::START, &at.disk);
        assert_eq!(cut, None);
        let store = if records.is_empty() {
            Store::new(options, memory)
        } else {
            recover(options, memory, records).unwrap()
        };
        at.participant = Some(Participant::new(store, LogWriter::after(tail)));
        if inner.nodes.iter().all(|node| node.participant.is_some()) {
            inner.terminate(|_| true);
        }
        self.arrived.notify_all();
    }

    pub(super) fn session(&self, thread: u32) -> Session<'_> {
        let mut inner = self.lock();
        inner.next += 1;
        let client = ClientId(u32::try_from(inner.next).unwrap() << 8 | thread & 0xFF);
        let (mut heard, mut leases) = (Timestamp::FIRST, Vec::new());
        for node in 0..inner.nodes.len() {
            let participant = ParticipantId(u16::try_from(node).unwrap());
            let lease = inner.lease(participant, client);
            heard = heard.max(lease.map_or(Timestamp::FIRST, |(_, newest)| newest));
            leases.push(lease.unwrap_or_default().0);
        }
        drop(inner);
        let (told, settled) = (vec![Epoch::default(); leases.len()], Vec::new());
        Session { nearby: self, client, clock: Clock::after(client, heard), leases, told, settled }
    }
}

impl Inner {
    /// A participant's replies, with their receivers.
    fn ask(&mut self, peer: u64, participant: ParticipantId, request: Request) -> Vec<(u64, Reply)> {
        let node = &mut self.nodes[usize::from(participant.0)];
        let Some(participant) = &mut node.participant else { return Vec::new() };
        participant.request(Peer(peer), request);
        if let Some(batch) = participant.log_mut().take_batch() {
            node.disk.extend(batch.bytes);
            participant.durable(batch.sequence);
        }
        participant.take_replies().into_iter().map(|(peer, reply)| (peer.0, reply)).collect()
    }

    fn deliver(&mut self, from: ParticipantId, replies: Vec<(u64, Reply)>) {
        for (peer, reply) in replies {
            if let Some(message_queue) = self.mail.get_mut(&peer) {
                message_queue.events.push(Event::Reply { from, reply });
            }
        }
    }

    fn lease(&mut self, participant: ParticipantId, client: ClientId) -> Option<(LeaseId, Timestamp)> {
        match self.ask(0, participant, Request::Lease { client }).pop() {
            Some((_, Reply::Leased { lease, newest, .. })) => Some((lease, newest)),
            _ => None,
        }
    }

    /// A client has disconnected: its locks are released, and its transactions in doubt are
    /// resolved.
    fn client_lost(&mut self, client: ClientId) {
        for at in 0..self.nodes.len() {
            let Some(participant) = &mut self.nodes[at].participant else { continue };
            participant.client_lost(client);
            let replies =
                participant.take_replies().into_iter().map(|(peer, reply)| (peer.0, reply)).collect();
            self.deliver(ParticipantId(u16::try_from(at).unwrap()), replies);
        }
        if self.nodes.iter().all(|node| node.participant.is_some()) {
            self.terminate(|timestamp| timestamp.client == client);
        }
    }

    /// Resolves these transactions where they are in doubt, or where a participant has not been
    /// told to forget them.
    fn terminate(&mut self, these: impl Fn(Timestamp) -> bool) {
        let participants = self.nodes.iter().filter_map(|node| node.participant.as_ref());
        let open: Vec<(Timestamp, Vec<ParticipantId>, bool)> = participants
            .flat_map(|participant| participant.store().unsettled())
            .filter(|(timestamp, _)| these(*timestamp))
            .map(|(timestamp, transaction)| {
                (timestamp, transaction.participants.clone(), transaction.committed)
            })
            .collect();
        for (timestamp, participants, committed) in open {
            let (mut termination, mut messages) = if committed {
                Termination::settle(timestamp, &participants)
            } else {
                Termination::begin(timestamp, &participants)
            };
            while !messages.is_empty() {
                let mut next = Vec::new();
                for Message { to, request } in messages {
                    let (own, others): (Vec<_>, Vec<_>) =
                        self.ask(u64::MAX, to, request).into_iter().partition(|(peer, _)| *peer == u64::MAX);
                    self.deliver(to, others);
                    own.into_iter().for_each(|(_, reply)| next.extend(termination.heard(to, &reply)));
                }
                messages = next;
            }
        }
    }
}

pub(super) struct Session<'n> {
    nearby: &'n Nearby,
    client: ClientId,
    clock: Clock,
    leases: Vec<LeaseId>,
    told: Vec<Epoch>,
    settled: Vec<Timestamp>,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.nearby.lock().client_lost(self.client);
        self.nearby.arrived.notify_all();
    }
}

impl Cluster for Session<'_> {
    fn participant(&self, key: &Key) -> ParticipantId {
        ParticipantId(u16::try_from(key.fingerprint().0 % self.leases.len() as u64).unwrap())
    }

    fn lease(&self, participant: ParticipantId) -> LeaseId {
        self.leases[usize::from(participant.0)]
    }
}

impl Session<'_> {
    /// The next timestamp, and the clock reading that it is based on.
    fn timestamp(&self) -> (Timestamp, u64) {
        let wall_ms = WallClock::default().now_ms();
        (self.clock.next(wall_ms).expect("the clock of this host is right"), wall_ms)
    }

    /// Runs a transaction to its end.
    fn run(&mut self, (mut coordinator, mut messages): (Coordinator, Vec<Message>)) -> Outcome {
        let mut inner = self.nearby.lock();
        inner.next += 1;
        let peer = inner.next;
        inner.mail.insert(peer, MessageQueue::default());
        loop {
            let mut outcome = None;
            for Message { to, request } in std::mem::take(&mut messages) {
                if let Some(message_queue) = inner.mail.get_mut(&peer) {
                    message_queue.asked.push(to);
                }
                let replies = inner.ask(peer, to, request);
                inner.deliver(to, replies);
                if inner.nodes[usize::from(to.0)].participant.is_none() {
                    inner.mail.entry(peer).or_default().events.push(Event::Lost { participant: to });
                }
                // Lets other sessions run in between.
                drop(inner);
                std::thread::yield_now();
                inner = self.nearby.lock();
            }
            let events = |inner: &mut Inner| std::mem::take(&mut inner.mail.entry(peer).or_default().events);
            let mut arrived = events(&mut inner);
            // Notify only after progress: sessions without messages would otherwise wake each other
            // forever.
            self.nearby.arrived.notify_all();
            while arrived.is_empty() {
                inner = self.nearby.arrived.wait(inner).unwrap();
                arrived = events(&mut inner);
            }
            for event in arrived {
                let lost = matches!(event, Event::Lost { .. });
                if let Event::Reply { from, reply: Reply::Found { epoch, .. } } = &event {
                    self.told[usize::from(from.0)] = *epoch;
                }
                let mut step = coordinator.step(event);
                if lost && step.outcome.is_none() {
                    messages.extend(step.messages);
                    step = coordinator.step(Event::GiveUp);
                }
                messages.extend(step.messages);
                outcome = outcome.or(step.outcome);
            }
            if let Some(outcome) = outcome {
                for Message { to, request } in messages {
                    let replies = inner.ask(peer, to, request);
                    inner.deliver(to, replies);
                }
                inner.mail.remove(&peer);
                self.nearby.arrived.notify_all();
                return outcome;
            }
        }
    }
}

fn failure(kind: &'static str, why: String, session_over: bool) -> Failure {
    Failure { kind, why, session_over }
}

impl TransactionStore for Session<'_> {
    fn read(&mut self, keys: &[Key]) -> Result<ReadDone, Failure> {
        let begun = self.nearby.algorithm.begin_read(self.timestamp().0, keys, self);
        let begun = begun.map_err(|error| failure("refused", error.to_string(), false))?;
        let outcome = self.run(begun);
        let mut inner = self.nearby.lock();
        for (node, (lease, epoch)) in self.leases.iter().zip(&self.told).enumerate() {
            let advance = Request::Advance { lease: *lease, epoch: *epoch };
            inner.ask(0, ParticipantId(u16::try_from(node).unwrap()), advance);
        }
        match outcome {
            Outcome::Read { items, rounds } => Ok(ReadDone { items, rounds, one_sided: 0 }),
            Outcome::Interrupted { why } => Err(failure("interrupted", why.to_string(), true)),
            other => Err(failure("unexpected", format!("{other:?}"), true)),
        }
    }

    fn write(&mut self, items: Vec<(Key, Value)>) -> Result<Timestamp, WriteFailure> {
        let items: Vec<Write> = items.into_iter().map(Write::from).collect();
        let mut retry = Retry::new(WRITE_ATTEMPTS_MAX);
        let (kind, end) = loop {
            let (timestamp, wall_ms) = self.timestamp();
            let settled = std::mem::take(&mut self.settled);
            let begun = Begun { timestamp, wall_ms, settled: &settled };
            let begun = self.nearby.algorithm.begin_write(begun, items.clone(), self).map_err(|error| {
                WriteFailure {
                    failure: failure("refused", error.to_string(), false),
                    end: WriteEnd::NotBegun,
                }
            })?;
            match self.run(begun) {
                Outcome::Committed { timestamp } => {
                    self.settled.push(timestamp);
                    return Ok(timestamp);
                }
                Outcome::Aborted { why, .. } | Outcome::Torn { why, .. }
                    if why.newest().is_some() && retry.again() =>
                {
                    why.newest().into_iter().for_each(|newest| self.clock.hear(newest));
                }
                Outcome::Aborted { .. } => break ("aborted", WriteEnd::Aborted(timestamp)),
                _ => break ("unknown", WriteEnd::Unknown(timestamp)),
            }
        };
        Err(WriteFailure { failure: failure(kind, "it did not commit".to_owned(), true), end })
    }
}
