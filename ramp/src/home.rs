//! What does a home do about a request?
//!
//! ```text
//! request -> store, locks -> replies that may go at once
//!                         \-> records -> a batch, written and synced by whoever owns the disk -> durable(sequence) -> replies that waited
//! ```
//!
//! Invariants
//! - Whatever tells of a vote or an end waits until all that was recorded before it is durable.
//!   Reads never wait for the log, but for that of an earlier life: nobody gets a lease, or a value
//!   with a lock, before all that was recovered is durable. What is read then does not vanish with
//!   this node's disk.
//! - A commit is visible before it is durable: its versions are durable in all homes, so a crash
//!   cannot undo it, only delay it.
//! - A transaction of one home is committed when its vote is durable, and not visible before: no
//!   message and no record says so besides.
//! - Reads of a lease that this life of the home did not give are refused: the versions that they
//!   may need are not promised to be there.
//! - What is prepared is newer than all versions of its keys, and its client's clock is not ahead
//!   of the participant's (`admission`).
//! - Neither clock nor thread nor wire: the time, requests and durability come from outside,
//!   replies and batches are taken away.

mod admission;
mod parts;
mod reading;

use crate::{
    feed::Feed,
    item::{Key, Metadata, Value},
    limits::FEED_PIECE_BYTES,
    locks::{Acquired, Locks},
    log::{LogWriter, Record},
    message::{Guard, HomeId, LeaseId, Mode, Part, Preconditions, Refusal, Reply, Request, Vote},
    slot::SlotMemory,
    store::{Commit, Store},
    timestamp::{ClientId, Timestamp},
};
use admission::Present;
use parts::in_parts;
use std::collections::{HashMap, VecDeque};

/// Whom to answer: whoever delivers requests knows what that means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer(pub u64);

/// A node's part in transactions.
#[derive(Debug)]
pub struct Home<M> {
    store: Store<M>,
    locks: Locks,
    log: LogWriter,
    /// Why nothing new is recorded, if nothing is.
    refuses_new: Option<Refusal>,
    durable: u64,
    /// The last record that was recovered, of which other disks may lack the end.
    recovered: u64,
    /// What waits for the log, in its order.
    held: VecDeque<(u64, Peer, Held)>,
    replies: Vec<(Peer, Reply)>,
    /// Whose requests for locks wait.
    lockers: HashMap<Timestamp, Peer>,
    /// Whose leases there are.
    leases: HashMap<LeaseId, ClientId>,
    fed: Option<Fed<M>>,
    present: Present,
}

/// What waits until a record is durable.
#[derive(Debug)]
enum Held {
    /// To be said.
    Reply(Reply),
    /// All that a transaction writes, prepared: to be committed.
    Whole(Part),
}

/// What readers follow.
#[derive(Debug)]
struct Fed<M> {
    feed: Feed<M>,
    /// What the keys begin with whose transactions are in it.
    prefix: Vec<u8>,
}

impl<M: SlotMemory> Home<M> {
    /// A home over a store, new or recovered, and the log that it was recovered from. Transactions
    /// that are in doubt and counted on locks have them again.
    #[must_use]
    pub fn new(store: Store<M>, log: LogWriter) -> Self {
        let mut locks = Locks::default();
        let in_doubt = store.unsettled().filter(|(_, of)| !of.committed && of.guard == Guard::Locked);
        for (timestamp, transaction) in in_doubt {
            let keys = transaction.keys.iter().map(|key| (key.clone(), Mode::Exclusive));
            // They were held together before, so nobody waits; and fewer are in doubt than may be
            // locked.
            let _ = locks.lock(timestamp, keys.collect());
        }
        let durable = log.sequence();
        let (held, replies) = (VecDeque::new(), Vec::new());
        let (lockers, leases) = (HashMap::new(), HashMap::new());
        let (refuses_new, fed, present) = (None, None, Present::default());
        let recovered = durable;
        Self {
            store,
            locks,
            log,
            refuses_new,
            durable,
            recovered,
            held,
            replies,
            lockers,
            leases,
            fed,
            present,
        }
    }

    /// The same home, of whose log nothing counts as durable until [`Home::durable`] says so: where
    /// other disks than this one count, they may lack the end of what was recovered.
    #[must_use]
    pub fn unacknowledged(self) -> Self {
        Self { durable: 0, ..self }
    }

    /// The same home with a feed of the transactions that write keys which begin with `prefix`.
    #[must_use]
    pub fn feeding(self, feed: Feed<M>, prefix: &[u8]) -> Self {
        Self { fed: Some(Fed { feed, prefix: prefix.to_vec() }), ..self }
    }

    /// The memory of the feed, if there is one.
    #[must_use]
    pub fn feed_memory(&self) -> Option<&M> {
        self.fed.as_ref().map(|fed| fed.feed.memory())
    }

    /// Lets those who follow the feed see what was done since this was last called.
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

    /// The store, for those who own its memory or collect in idle moments.
    pub fn store_mut(&mut self) -> &mut Store<M> {
        &mut self.store
    }

    /// The log, of which batches are taken.
    pub fn log_mut(&mut self) -> &mut LogWriter {
        &mut self.log
    }

    /// Whether it refuses to record anything new ([`Home::refuse_new`]).
    pub fn refuses_new(&self) -> bool {
        self.refuses_new.is_some()
    }

    /// Why nothing new is recorded from now on, if nothing is; what is prepared still ends. Who is
    /// refused for that is told at once, and nothing of what was recorded.
    pub fn refuse_new(&mut self, why: Option<Refusal>) {
        self.refuses_new = why;
        self.refuse_readers();
    }

    /// All records up to this one are durable.
    pub fn durable(&mut self, sequence: u64) {
        self.durable = self.durable.max(sequence);
        while let Some((_, peer, held)) = self.held.pop_front_if(|(sequence, ..)| *sequence <= self.durable) {
            let reply = match held {
                Held::Reply(reply) => reply,
                Held::Whole(part) => self.commit_whole(part),
            };
            self.replies.push((peer, reply));
        }
    }

    /// Replies that may go, since this was last called.
    pub fn take_replies(&mut self) -> Vec<(Peer, Reply)> {
        std::mem::take(&mut self.replies)
    }

    /// Goes on with another log, which begins with a snapshot of this store and is durable, in
    /// place of one of which all is durable.
    ///
    /// # Errors
    /// The number of records that are not durable yet: try again when they are.
    pub fn replace_log(&mut self, log: LogWriter) -> Result<(), u64> {
        let waiting = self.log.sequence().saturating_sub(self.durable);
        if waiting > 0 {
            return Err(waiting);
        }
        // All that was recovered is durable, whatever number the new log ends with.
        (self.durable, self.recovered) = (log.sequence(), log.sequence());
        self.log = log;
        Ok(())
    }

    /// The client is lost: its leases end, and its locks are released, unless it has prepared
    /// something under them. What it leaves in doubt here, to be ended by asking the other homes.
    pub fn client_lost(&mut self, client: ClientId) -> Vec<(Timestamp, Vec<HomeId>)> {
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
        in_doubt.map(|(timestamp, of)| (timestamp, of.homes.clone())).collect()
    }

    /// Does what a request asks for.
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
                // What is prepared under locks keeps them until it ends.
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

    /// Writes down what is to survive a crash, and lets readers of the feed know.
    fn record(&mut self, record: &Record, is_fed: bool) {
        self.log.append(record);
        self.feed(record, is_fed);
    }

    fn feed(&mut self, record: &Record, is_fed: bool) {
        if let Some(fed) = self.fed.as_mut().filter(|_| is_fed) {
            fed.feed.append(record);
        }
    }

    /// Whether the feed tells of transactions that write these keys.
    fn feeds<'k>(&self, mut keys: impl Iterator<Item = &'k Key>) -> bool {
        self.fed.as_ref().is_some_and(|fed| keys.any(|key| key.bytes().starts_with(&fed.prefix)))
    }

    /// Whether the feed has told of this transaction.
    fn has_fed(&self, timestamp: Timestamp) -> bool {
        self.fed.is_some() && self.store.transaction(timestamp).is_some_and(|of| self.feeds(of.keys.iter()))
    }

    /// A reply that waits until all that is recorded so far is durable.
    fn hold(&mut self, to: Peer, reply: Reply) {
        let sequence = self.log.sequence();
        if sequence <= self.durable {
            self.replies.push((to, reply));
        } else {
            self.held.push_back((sequence, to, Held::Reply(reply)));
        }
    }

    fn prepare(&mut self, from: Peer, part: Part, preconditions: &Preconditions) {
        let (timestamp, is_whole) = (part.timestamp, part.is_whole());
        let prepared = self.prepared(part, preconditions);
        // What it was said to be at first counts.
        let is_whole = self.store.transaction(timestamp).map_or(is_whole, |known| known.homes.len() == 1);
        match prepared {
            Ok(Some(part)) if is_whole => self.held.push_back((self.log.sequence(), from, Held::Whole(part))),
            // Of what was prepared before, the end waits in front of this.
            Ok(_) if is_whole => self.hold(from, Reply::Committed),
            Ok(_) => self.hold(from, Reply::Prepared),
            Err(why) if self.refuses_new.as_ref() == Some(&why) => {
                self.replies.push((from, Reply::Refused { why }));
            }
            Err(why) => self.hold(from, Reply::Refused { why }),
        }
    }

    /// Votes for it; the part, unless that was done before.
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
        // Who follows is told of a transaction of one home when it is committed.
        let is_fed = !part.is_whole() && self.feeds(part.items.iter().map(|(key, _)| key));
        let record = Record::Prepare(part);
        self.record(&record, is_fed);
        Ok(match record {
            Record::Prepare(part) => Some(part),
            _ => None,
        })
    }

    /// Makes a transaction visible that has no other home, and whose vote is durable.
    fn commit_whole(&mut self, part: Part) -> Reply {
        let timestamp = part.timestamp;
        let _: Commit = self.store.commit(timestamp);
        if self.feeds(part.items.iter().map(|(key, _)| key)) {
            self.feed_whole(part);
        }
        self.unlock(timestamp);
        Reply::Committed
    }

    /// Tells those who follow of a transaction of one home: in pieces that they can read, which are
    /// published together.
    fn feed_whole(&mut self, mut part: Part) {
        let items = std::mem::take(&mut part.items).into_iter();
        let bytes = |(key, value): &(Key, Value)| key.bytes().len() + value.len();
        part.metadata = Metadata::Timestamp;
        for items in in_parts(items.map(|item| (bytes(&item), item)), FEED_PIECE_BYTES) {
            self.feed(&Record::Put(Part { items, ..part.clone() }), true);
        }
    }

    /// Whether it has no other home, and is committed as soon as its vote is durable.
    fn is_whole_soon(&self, timestamp: Timestamp) -> bool {
        self.store.transaction(timestamp).is_some_and(|of| of.homes.len() == 1 && !of.committed)
    }

    fn commit(&mut self, from: Peer, timestamp: Timestamp) {
        if self.store.vote(timestamp) == Some(Vote::Prepared) && !self.is_whole_soon(timestamp) {
            let is_fed = self.has_fed(timestamp);
            self.store.commit(timestamp);
            self.record(&Record::Commit(timestamp), is_fed);
            self.unlock(timestamp);
        }
        self.hold(from, Reply::Committed);
    }

    fn abort(&mut self, from: Peer, timestamp: Timestamp) {
        // Nobody who keeps the rules aborts what is committed; who does not is told what became of
        // it.
        let reply = if self.refuse(timestamp) == Vote::Committed { Reply::Committed } else { Reply::Aborted };
        self.hold(from, reply);
    }

    /// Promises never to prepare it, unless it is committed, and writes that down.
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
        self.hold(from, Reply::Voted { vote });
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
        self.hold(from, reply);
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

    /// Releases the locks of a transaction; whether it held all that it wanted.
    fn unlock(&mut self, owner: Timestamp) -> bool {
        if let Some(peer) = self.lockers.remove(&owner) {
            // Its request for locks is over, and whoever delivers requests waits for an answer to
            // each.
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
