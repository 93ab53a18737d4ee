//! Serves the requests to a participant, the node that keeps certain keys and their versions.
//!
//! ```text
//! request -> store, locks -> replies that may be sent at once
//!                         \-> records -> a batch, written and synced by the caller -> durable(sequence) -> replies that waited for it
//! ```
//!
//! - `admission`: checks whether a part may be prepared. `host_clock`: compares clients' clocks
//!   with the host's. `reading`: reads and leases. `parts`: divides answers into messages.
//!
//! Invariants
//! - A reply that reports a vote or an outcome waits until all earlier records are durable.
//! - Reads do not wait for records of this life of the participant, but for recovered ones: before
//!   all of these are durable, no lease is granted and no value is returned with a lock. So a
//!   version that was read does not vanish if this node loses its disk.
//! - A commit is visible before its record is durable. Its versions are durable at all
//!   participants, so a crash can only delay the commit, not undo it.
//! - A transaction with one participant is committed when its vote is durable, and not visible
//!   before. No other message or record reports this commit.
//! - Reads with a lease from another life are refused: the versions that they need may be lost.
//! - A part is prepared only if its timestamp is newer than all versions of its keys, and its
//!   client's clock is not ahead of the participant's (`admission`).
//! - This file uses no clock, thread or connection: the caller passes the time and the requests,
//!   reports durability, and takes replies and batches.

mod admission;
mod host_clock;
mod parts;
mod reading;

use crate::{
    feed::Feed,
    item::{Key, Metadata, Value},
    limits::FEED_PIECE_BYTES,
    locks::{Acquired, Locks},
    log::{LogWriter, Record},
    message::{Guard, LeaseId, Mode, Part, ParticipantId, Preconditions, Refusal, Reply, Request, Vote},
    slot::SlotMemory,
    store::{Commit, Store},
    timestamp::{ClientId, Timestamp},
};
use host_clock::HostClock;
use parts::in_parts;
use std::collections::{HashMap, VecDeque};

/// The sender of a request, as numbered by the caller, which delivers the replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer(pub u64);

/// A participant: a node that keeps keys and takes part in transactions.
#[derive(Debug)]
pub struct Participant<M> {
    store: Store<M>,
    locks: Locks,
    log: LogWriter,
    /// If nothing new may be recorded: why.
    refuses_new: Option<Refusal>,
    /// All records up to this one are durable.
    durable: u64,
    /// The last record that was recovered. The disks of log replicas may lack the end of the
    /// recovered log.
    recovered: u64,
    /// Replies that wait for the log, in its order.
    waiting: VecDeque<(u64, Peer, Waiting)>,
    replies: Vec<(Peer, Reply)>,
    /// The senders of requests for locks that wait.
    lockers: HashMap<Timestamp, Peer>,
    /// The holders of leases.
    leases: HashMap<LeaseId, ClientId>,
    fed: Option<FilteredFeed<M>>,
    clock: HostClock,
}

/// A reply that waits until a record is durable.
#[derive(Debug)]
enum Waiting {
    /// The reply.
    Reply(Reply),
    /// The only part of a transaction, which is prepared: it is committed then.
    Whole(Part),
}

/// The feed, and which transactions it contains.
#[derive(Debug)]
struct FilteredFeed<M> {
    feed: Feed<M>,
    /// Transactions that write a key with this prefix are in the feed.
    prefix: Vec<u8>,
}

impl<M: SlotMemory> Participant<M> {
    /// A participant with a store, new or recovered, and the log that it was recovered from.
    /// Transactions in doubt that relied on locks get them back.
    #[must_use]
    pub fn new(store: Store<M>, log: LogWriter) -> Self {
        let mut locks = Locks::default();
        let in_doubt = store.unsettled().filter(|(_, of)| !of.committed && of.guard == Guard::Locked);
        for (timestamp, transaction) in in_doubt {
            let keys = transaction.keys.iter().map(|key| (key.clone(), Mode::Exclusive));
            // These locks were held together before, so none of them waits; and there are fewer
            // than may be held.
            let _ = locks.lock(timestamp, keys.collect());
        }
        let durable = log.sequence();
        let (waiting, replies) = (VecDeque::new(), Vec::new());
        let (lockers, leases) = (HashMap::new(), HashMap::new());
        let (refuses_new, fed, clock) = (None, None, HostClock::default());
        let recovered = durable;
        Self {
            store,
            locks,
            log,
            refuses_new,
            durable,
            recovered,
            waiting,
            replies,
            lockers,
            leases,
            fed,
            clock,
        }
    }

    /// The same participant, with no record counted as durable until [`Participant::durable`] says
    /// so. For logs with replicas: their disks may lack the end of what was recovered.
    #[must_use]
    pub fn unacknowledged(self) -> Self {
        Self { durable: 0, ..self }
    }

    /// The same participant, with a feed of the transactions that write keys with this prefix.
    #[must_use]
    pub fn feeding(self, feed: Feed<M>, prefix: &[u8]) -> Self {
        Self { fed: Some(FilteredFeed { feed, prefix: prefix.to_vec() }), ..self }
    }

    /// The memory of the feed, if there is one.
    #[must_use]
    pub fn feed_memory(&self) -> Option<&M> {
        self.fed.as_ref().map(|fed| fed.feed.memory())
    }

    /// Makes everything since the last call visible to readers of the feed.
    pub fn publish_feed(&mut self) {
        if let Some(fed) = &mut self.fed {
            fed.feed.publish();
        }
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Store<M> {
        &self.store
    }

    /// The store, for the owner of its memory, and to collect garbage when idle.
    pub fn store_mut(&mut self) -> &mut Store<M> {
        &mut self.store
    }

    /// The log, to take batches from.
    pub fn log_mut(&mut self) -> &mut LogWriter {
        &mut self.log
    }

    /// Whether it refuses to record anything new ([`Participant::refuse_new`]).
    pub fn refuses_new(&self) -> bool {
        self.refuses_new.is_some()
    }

    /// Refuses, from now on, all requests that would record something new, for this reason; `None`
    /// accepts them again. Prepared transactions still end. Such a refusal is sent at once, and
    /// says nothing about earlier records.
    pub fn refuse_new(&mut self, why: Option<Refusal>) {
        self.refuses_new = why;
        self.refuse_readers();
    }

    /// Reports that all records up to this one are durable.
    ///
    /// # Panics
    /// If the log has no such record yet.
    pub fn durable(&mut self, sequence: u64) {
        let last = self.log.sequence();
        assert!(sequence <= last, "record {sequence} is said to be durable, but the last one is {last}");
        self.durable = self.durable.max(sequence);
        while let Some((_, peer, waiting)) =
            self.waiting.pop_front_if(|(sequence, ..)| *sequence <= self.durable)
        {
            let reply = match waiting {
                Waiting::Reply(reply) => reply,
                Waiting::Whole(part) => self.commit_whole(part),
            };
            self.replies.push((peer, reply));
        }
    }

    /// The replies that may be sent, since the last call.
    pub fn take_replies(&mut self) -> Vec<(Peer, Reply)> {
        std::mem::take(&mut self.replies)
    }

    /// Continues with another log, which is durable and begins with a snapshot of this store.
    ///
    /// # Errors
    /// The number of records of the present log that are not durable yet: try again when they are.
    pub fn replace_log(&mut self, log: LogWriter) -> Result<(), u64> {
        let waiting = self.log.sequence() - self.durable;
        if waiting > 0 {
            return Err(waiting);
        }
        // All recovered records are durable, whatever number the new log ends with.
        (self.durable, self.recovered) = (log.sequence(), log.sequence());
        self.log = log;
        Ok(())
    }

    /// Ends the leases of a lost client, and releases its locks, unless it has prepared something
    /// under them. Returns its transactions in doubt and their participants, for
    /// [`crate::termination`].
    pub fn client_lost(&mut self, client: ClientId) -> Vec<(Timestamp, Vec<ParticipantId>)> {
        for owner in self.locks.owned_by(client) {
            if self.store.vote(owner).is_none() {
                self.unlock(owner);
            }
        }
        let leases: Vec<LeaseId> =
            self.leases.iter().filter(|(_, holder)| **holder == client).map(|(lease, _)| *lease).collect();
        leases.into_iter().for_each(|lease| self.close(lease));
        let in_doubt =
            self.store.unsettled().filter(|(timestamp, of)| timestamp.client == client && !of.committed);
        in_doubt.map(|(timestamp, of)| (timestamp, of.participants.clone())).collect()
    }

    /// Executes a request.
    pub fn request(&mut self, from: Peer, request: Request) {
        if let Err(why) = request.check() {
            return self.replies.push((from, Reply::Refused { why }));
        }
        match request {
            Request::Lease { client } => self.lease(from, client),
            Request::Advance { lease, epoch } => self.store.advance_lease(lease, epoch),
            Request::Close { lease } => self.close(lease),
            Request::Get { lease, keys } => self.get(from, lease, keys),
            Request::Timestamps { lease, keys } => self.timestamps(from, lease, keys),
            Request::Among { lease, keys, timestamps } => self.among(from, lease, keys, &timestamps),
            Request::Scan { lease, range } => self.scan(from, lease, &range),
            Request::Mark => self.mark(from),
            Request::Prepare { part, settled, preconditions } => {
                self.settle(&settled);
                self.prepare(from, part, &preconditions);
            }
            Request::Commit { timestamp } => self.commit(from, timestamp),
            Request::Abort { timestamp } => self.abort(from, timestamp),
            Request::Settled { timestamps } => self.settle(&timestamps),
            Request::Ended { timestamps } => self.end(&timestamps),
            Request::Put { part, preconditions } => self.put(from, part, &preconditions),
            Request::Inquire { timestamp } => self.inquire(from, timestamp),
            Request::Lock { owner, wanted } => self.lock(from, owner, wanted),
            Request::Unlock { owner } => {
                // A prepared transaction keeps its locks until it ends.
                let held = self.store.vote(owner).is_none() && self.unlock(owner);
                self.replies.push((from, Reply::Unlocked { held }));
            }
        }
    }

    fn mark(&mut self, from: Peer) {
        let reply = match &mut self.fed {
            Some(fed) => Reply::Marked { tail: fed.feed.mark() },
            None => Reply::Refused { why: Refusal::NoFeed },
        };
        self.replies.push((from, reply));
    }

    /// Appends a record to the log, and to the feed if `is_fed`.
    fn record(&mut self, record: &Record, is_fed: bool) {
        self.log.append(record);
        self.feed(record, is_fed);
    }

    fn feed(&mut self, record: &Record, is_fed: bool) {
        if let Some(fed) = self.fed.as_mut().filter(|_| is_fed) {
            fed.feed.append(record);
        }
    }

    /// Whether the feed contains transactions that write these keys.
    fn feeds<'k>(&self, mut keys: impl Iterator<Item = &'k Key>) -> bool {
        self.fed.as_ref().is_some_and(|fed| keys.any(|key| key.bytes().starts_with(&fed.prefix)))
    }

    /// Whether the feed contains this transaction.
    fn has_fed(&self, timestamp: Timestamp) -> bool {
        self.fed.is_some() && self.store.transaction(timestamp).is_some_and(|of| self.feeds(of.keys.iter()))
    }

    /// Sends a reply as soon as all records so far are durable.
    fn reply_when_durable(&mut self, to: Peer, reply: Reply) {
        let sequence = self.log.sequence();
        if sequence <= self.durable {
            self.replies.push((to, reply));
        } else {
            self.waiting.push_back((sequence, to, Waiting::Reply(reply)));
        }
    }

    fn prepare(&mut self, from: Peer, part: Part, preconditions: &Preconditions) {
        let (timestamp, is_whole) = (part.timestamp, part.is_whole());
        let prepared = self.prepared(part, preconditions);
        // Its first PREPARE determines how many participants it has.
        let is_whole =
            self.store.transaction(timestamp).map_or(is_whole, |known| known.participants.len() == 1);
        match prepared {
            Ok(Some(part)) if is_whole => {
                self.waiting.push_back((self.log.sequence(), from, Waiting::Whole(part)))
            }
            // It was prepared before: its commit waits in front of this reply.
            Ok(_) if is_whole => self.reply_when_durable(from, Reply::Committed),
            Ok(_) => self.reply_when_durable(from, Reply::Prepared),
            Err(why) if self.refuses_new.as_ref() == Some(&why) => {
                self.replies.push((from, Reply::Refused { why }));
            }
            Err(why) => self.reply_when_durable(from, Reply::Refused { why }),
        }
    }

    /// Votes for it. Returns the part, or `None` if this was done before.
    fn prepared(&mut self, part: Part, preconditions: &Preconditions) -> Result<Option<Part>, Refusal> {
        let timestamp = part.timestamp;
        if let Some(why) = self.refuses_new.as_ref().filter(|_| self.store.vote(timestamp).is_none()) {
            return Err(why.clone());
        }
        let keys = || part.items.iter().map(|(key, _)| key);
        if part.guard == Guard::Locked
            && self.store.vote(timestamp).is_none()
            && let Some(key) = self.locks.missing(timestamp, keys())
        {
            return Err(Refusal::NotLocked { timestamp, key: key.clone() });
        }
        self.admit(&part, preconditions)?;
        if !self.store.prepare(&part)? {
            return Ok(None);
        }
        // A transaction with one participant enters the feed when it is committed.
        let is_fed = !part.is_whole() && self.feeds(part.items.iter().map(|(key, _)| key));
        let record = Record::Prepare(part);
        self.record(&record, is_fed);
        Ok(match record {
            Record::Prepare(part) => Some(part),
            _ => None,
        })
    }

    /// Makes a transaction visible that has no other participant, and whose vote is durable.
    fn commit_whole(&mut self, part: Part) -> Reply {
        let timestamp = part.timestamp;
        let _: Commit = self.store.commit(timestamp);
        if self.feeds(part.items.iter().map(|(key, _)| key)) {
            self.feed_whole(part);
        }
        self.unlock(timestamp);
        Reply::Committed
    }

    /// Appends a transaction with one participant to the feed, in pieces that readers can read at
    /// once, and which are published together.
    fn feed_whole(&mut self, mut part: Part) {
        let items = std::mem::take(&mut part.items).into_iter();
        let bytes = |(key, value): &(Key, Value)| key.bytes().len() + value.len();
        part.metadata = Metadata::Timestamp;
        for items in in_parts(items.map(|item| (bytes(&item), item)), FEED_PIECE_BYTES) {
            self.feed(&Record::Put(Part { items, ..part.clone() }), true);
        }
    }

    /// Whether it has no other participant, and is committed as soon as its vote is durable.
    fn is_whole_soon(&self, timestamp: Timestamp) -> bool {
        self.store.transaction(timestamp).is_some_and(|of| of.participants.len() == 1 && !of.committed)
    }

    fn commit(&mut self, from: Peer, timestamp: Timestamp) {
        if self.store.vote(timestamp) == Some(Vote::Prepared) && !self.is_whole_soon(timestamp) {
            let is_fed = self.has_fed(timestamp);
            self.store.commit(timestamp);
            self.record(&Record::Commit(timestamp), is_fed);
            self.unlock(timestamp);
        }
        self.reply_when_durable(from, Reply::Committed);
    }

    fn abort(&mut self, from: Peer, timestamp: Timestamp) {
        // A correct coordinator never aborts a committed transaction. An incorrect one is told that
        // it is committed.
        let reply = if self.refuse(timestamp) == Vote::Committed { Reply::Committed } else { Reply::Aborted };
        self.reply_when_durable(from, reply);
    }

    /// Promises never to prepare it, unless it is committed, and records that.
    fn refuse(&mut self, timestamp: Timestamp) -> Vote {
        if let Some(vote @ (Vote::Refused | Vote::Forgotten)) = self.store.vote(timestamp) {
            return vote;
        }
        if self.is_whole_soon(timestamp) {
            return Vote::Committed;
        }
        let is_fed = self.has_fed(timestamp);
        let Some(vote) = self.store.refuse(timestamp) else { return Vote::Committed };
        self.record(&Record::Refuse(timestamp), is_fed);
        self.unlock(timestamp);
        vote
    }

    fn inquire(&mut self, from: Peer, timestamp: Timestamp) {
        let vote = self.store.vote(timestamp).unwrap_or_else(|| self.refuse(timestamp));
        self.reply_when_durable(from, Reply::Voted { vote });
    }

    fn settle(&mut self, timestamps: &[Timestamp]) {
        for timestamp in timestamps {
            if self.store.settle(*timestamp) {
                self.log.append(&Record::Settle(*timestamp));
            }
        }
    }

    fn end(&mut self, timestamps: &[Timestamp]) {
        for timestamp in timestamps {
            if self.store.end(*timestamp) {
                self.log.append(&Record::End(*timestamp));
            }
        }
    }

    fn put(&mut self, from: Peer, part: Part, preconditions: &Preconditions) {
        if let Some(why) = self.refuses_new.clone() {
            return self.replies.push((from, Reply::Refused { why }));
        }
        let done = self.admit(&part, preconditions).and_then(|()| self.store.put(&part));
        let reply = match done {
            Ok(()) => {
                let is_fed = self.feeds(part.items.iter().map(|(key, _)| key));
                self.record(&Record::Put(part), is_fed);
                Reply::Committed
            }
            Err(why) => Reply::Refused { why },
        };
        self.reply_when_durable(from, reply);
    }

    fn lock(&mut self, from: Peer, owner: Timestamp, wanted: Vec<(Key, Mode)>) {
        match self.locks.lock(owner, wanted) {
            Ok(Acquired::Now) => self.locked(from, owner),
            Ok(Acquired::Later) => drop(self.lockers.insert(owner, from)),
            Err(busy) => {
                let (found, most) = (busy.found as u64, busy.most as u64);
                self.replies.push((from, Reply::Busy { found, most }));
            }
        }
    }

    /// Releases the locks of a transaction. Returns whether it held all that it wanted.
    fn unlock(&mut self, owner: Timestamp) -> bool {
        if let Some(peer) = self.lockers.remove(&owner) {
            // Every request gets an answer, so answer the request for locks that ends here.
            self.replies.push((peer, Reply::Unlocked { held: false }));
        }
        let (held, fulfilled) = self.locks.unlock(owner);
        for owner in fulfilled {
            if let Some(peer) = self.lockers.remove(&owner) {
                self.locked(peer, owner);
            }
        }
        held
    }
}

#[cfg(test)]
mod tests;
