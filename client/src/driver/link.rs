//! What is going on with one node?
//!
//! Invariants
//! - A request in `outstanding` was posted on the present connection; when that ends, they all
//!   fail.
//! - A node that was lost is connected to again when the next request comes, once; if that fails,
//!   the requests that waited for it fail with the reason.
//! - A request that nobody waits for (the abort of a load) is posted when everything posted before
//!   it has been answered: an append that its caller gave up must not arrive after the abort.
//! - A connection over which a request timed out is closed: its memory must not be used for another
//!   request while the answer might still be written.
//! - The connection to a node that is unresponsive stays: callers are told, and what they have
//!   asked for stays outstanding with its memory, which the node may write when it wakes. It has
//!   that back when it answers, or when the connection ends.
//! - Of requests that nobody waits for any more no more are outstanding than of others; else the
//!   connection is closed.

mod silence;

use std::{
    collections::{HashMap, VecDeque},
    os::fd::BorrowedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use rackscan_fabric::{Connection, Event, Operation, PostError, RemoteRegion};
use rackscan_format::{
    codec::CodecError,
    ids::RequestId,
    message::{
        AppendParity, CopyOfLog, KeepLog, KeepMap, LoadHeld, LoadReport, Payload, ReadMap, Repair,
        ReplyMessage, Request, RequestMessage, Target,
    },
};

use super::{
    Job, ReadJob, Reply,
    reads::{READ, Reads},
};
use crate::{
    ClientError,
    away::Away,
    dial::{Dial, Line},
    limits::CONNECT_GRACE,
    pulse::Pulse,
    race::Answered,
};

/// The name of a keep-alive, of which one is on its way at a time.
const KEEPALIVE: u64 = READ - 1;

/// The conversation with one node.
pub(super) struct Link {
    dial: Dial,
    state: State,
    outstanding: HashMap<u64, Outstanding>,
    /// Not posted yet: the node is being connected to, or the connection's queue was full.
    waiting: VecDeque<Job>,
    /// Detached requests, each with the number below which everything must have been answered
    /// first.
    deferred: VecDeque<(u64, Job)>,
    /// Reads of the node's cache.
    reads: Reads,
    next_id: u64,
    request_timeout: Duration,
    /// What everybody knows of it.
    away: Arc<Away>,
    pulse: Pulse,
    /// Whether it is connected to again when nobody asks for it, because it does not answer.
    keeps_trying: bool,
}

enum State {
    Up {
        connection: Box<Connection>,
        target: RemoteRegion,
    },
    /// Since when.
    Dialling(Instant),
    Down,
}

/// How a link begins.
pub(super) enum Begin {
    Connected(Box<Line>),
    /// It has been dialled since then, and has not answered.
    Dialled(Instant),
    Down,
}

struct Outstanding {
    job: Job,
    asked: Instant,
    request_bytes: u64,
    /// The caller was told that the node is unresponsive.
    is_given_up: bool,
}

/// What may still happen to memory named in requests over a connection that has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Peer {
    /// It hung up or its process is gone.
    Gone,
    /// It may go on writing.
    MayWrite,
}

impl Link {
    pub(super) fn new(
        dial: Dial,
        begin: Begin,
        (away, keeps_trying): (Arc<Away>, bool),
        request_timeout: Duration,
    ) -> Self {
        let state = match begin {
            Begin::Connected(line) => {
                let Line { connection, target, cache, .. } = *line;
                dial.cache.connected(cache);
                State::Up { connection: Box::new(connection), target }
            }
            Begin::Dialled(since) => State::Dialling(since),
            Begin::Down => State::Down,
        };
        Self {
            away,
            pulse: Pulse::new(Instant::now()),
            keeps_trying,
            dial,
            state,
            outstanding: HashMap::new(),
            waiting: VecDeque::new(),
            deferred: VecDeque::new(),
            reads: Reads::default(),
            next_id: 1,
            request_timeout,
        }
    }

    /// Takes a job. The answer says whom to connect to first.
    pub(super) fn begin(&mut self, job: Job) -> Option<Dial> {
        if job.answer.is_none() && !self.outstanding.is_empty() {
            self.deferred.push_back((self.next_id, job));
            return None;
        }
        if let Some(silent) = self.away.silent().filter(|_| job.goes_without) {
            // It has fallen silent since the caller looked.
            let error = silence::unresponsive(&self.dial, job.during, silent);
            answer(job, Err(error));
            return None;
        }
        self.waiting.push_back(job);
        match self.state {
            State::Up { .. } => self.post_waiting(),
            State::Dialling(_) => {}
            State::Down => return Some(self.redial()),
        }
        None
    }

    /// Somebody else has found that the node does not answer: nobody is to wait for it before it
    /// says something. The answer says whom to connect to first.
    pub(super) fn is_suspect(&mut self) -> Option<Dial> {
        let now = Instant::now();
        match self.state {
            State::Up { .. } if self.pulse.due().is_some() => self.keep_alive(now),
            State::Up { .. } | State::Dialling(_) => {}
            State::Down => {
                self.is_silent(now);
                return Some(self.redial());
            }
        }
        self.is_silent(now);
        None
    }

    fn redial(&mut self) -> Dial {
        self.state = State::Dialling(Instant::now());
        self.dial.clone()
    }

    /// The end of an attempt to connect. The answer says whom to connect to again: a node that let
    /// us wait, and that nobody is to wait for.
    pub(super) fn dialled(&mut self, line: Result<Line, ClientError>) -> Option<Dial> {
        // Which cluster it must belong to was not known when it was dialled first.
        let line = line.and_then(|line| self.dial.check(&line.status).map(|()| line));
        match line {
            Ok(Line { connection, target, cache, .. }) => {
                tracing::info!(node = %self.dial.node, "connected again");
                self.state = State::Up { connection: Box::new(connection), target };
                self.away.speaks();
                self.pulse = Pulse::new(Instant::now());
                self.dial.cache.connected(cache);
                self.post_waiting();
                None
            }
            Err(error) => {
                let took =
                    if let State::Dialling(since) = self.state { since.elapsed() } else { Duration::ZERO };
                self.state = State::Down;
                for job in self.waiting.drain(..) {
                    answer(job, Err(error.clone()));
                }
                if self.keeps_trying && took >= CONNECT_GRACE {
                    return Some(self.redial());
                }
                self.away.is_gone();
                None
            }
        }
    }

    /// Takes pages out of the node's cache. Without the connection that they were heard of over, or
    /// if the node does not answer, the job is dropped.
    pub(super) fn read(&mut self, job: ReadJob) {
        let is_owed = self.is_owed();
        if let State::Up { connection, .. } = &mut self.state
            && self.dial.cache.is_still(&job.opened)
            && self.away.silent().is_none()
        {
            if !is_owed {
                self.pulse.owes(Instant::now());
            }
            self.reads.begin(job);
            self.reads.post(connection);
        }
    }

    fn post_waiting(&mut self) {
        let oldest = self.outstanding.keys().min().copied().unwrap_or(u64::MAX);
        while let Some((_, job)) = self.deferred.pop_front_if(|(after, _)| oldest >= *after) {
            self.waiting.push_back(job);
        }
        while let Some(job) = self.waiting.pop_front() {
            let State::Up { connection, target } = &mut self.state else {
                self.waiting.push_front(job);
                return;
            };
            let id = self.next_id;
            let (node, during) = (self.dial.node, job.during);
            let bytes = match encode(id, &job, target) {
                Ok(bytes) => bytes,
                Err(source) => {
                    answer(job, Err(ClientError::TooLarge { node, during, source }));
                    continue;
                }
            };
            match connection.post(id, Operation::Send { bytes: &bytes }) {
                Ok(()) => {
                    if !self.is_owed() {
                        self.pulse.owes(Instant::now());
                    }
                    self.next_id += 1;
                    let request_bytes = bytes.len() as u64;
                    self.outstanding.insert(
                        id,
                        Outstanding { job, asked: Instant::now(), request_bytes, is_given_up: false },
                    );
                }
                Err(PostError::QueueFull { .. }) => {
                    self.waiting.push_front(job);
                    return;
                }
                Err(PostError::Closed(ending)) => {
                    self.waiting.push_front(job);
                    self.end(&ending.to_string(), Peer::Gone);
                    return;
                }
                Err(error) => {
                    let source = CodecError::Malformed { what: "request", reason: error.to_string() };
                    answer(job, Err(ClientError::TooLarge { node, during, source }));
                }
            }
        }
    }

    /// Handles what has happened on the connection; says whether anything had.
    pub(super) fn poll(
        &mut self,
        events: &mut Vec<Event>,
        mut on_reply: impl FnMut(LoadReport, Option<Answered>),
    ) -> bool {
        let State::Up { connection, .. } = &mut self.state else { return false };
        if connection.poll(events) == 0 {
            return false;
        }
        for event in events.drain(..) {
            match event {
                Event::Message { bytes } => {
                    if let Err(reason) = self.replied(&bytes, &mut on_reply) {
                        self.end(&reason, Peer::MayWrite);
                    }
                }
                Event::Closed(ending) => self.end(&ending.to_string(), Peer::Gone),
                Event::Completed { id, outcome } if id & READ != 0 => {
                    self.reads.completed(id, outcome.is_ok())
                }
                // A message that was not delivered shows in the connection's end, which follows.
                Event::Completed { .. } => {}
                Event::Immediate { immediate, .. } => {
                    tracing::debug!(node = %self.dial.node, immediate, "a word that means nothing to a client");
                }
            }
        }
        if let State::Up { connection, .. } = &mut self.state {
            self.reads.post(connection);
        }
        self.post_waiting();
        true
    }

    fn replied(
        &mut self,
        bytes: &[u8],
        on_reply: &mut impl FnMut(LoadReport, Option<Answered>),
    ) -> Result<(), String> {
        let message =
            ReplyMessage::decode(bytes).map_err(|error| format!("it sent what is no reply: {error}"))?;
        let id = message.id.0;
        self.pulse.heard(Instant::now());
        if self.away.speaks() {
            tracing::info!(node = %self.dial.node, "a node that was unresponsive answers again");
        }
        if id == KEEPALIVE {
            self.pulse.answered();
            return Ok(());
        }
        let outstanding = self
            .outstanding
            .remove(&id)
            .ok_or_else(|| format!("it replied to request {id}, which is not outstanding"))?;
        // Before the waiter wakes: whoever has the answer may ask how busy the node was with it.
        on_reply(message.load, outstanding.answered().filter(|_| message.outcome.is_ok()));
        let mut job = outstanding.job;
        let message_bytes = outstanding.request_bytes + bytes.len() as u64;
        let span = job.span.take();
        answer(job, Ok(Reply { message, span, message_bytes }));
        Ok(())
    }

    /// The connection is over: nobody waits for its answers any longer.
    fn end(&mut self, reason: &str, peer: Peer) {
        if !matches!(self.state, State::Up { .. }) {
            return;
        }
        // Nobody is hurt if nobody waits: a node that was told to stop hangs up too.
        let (node, address) = (self.dial.node, &self.dial.address);
        if self.outstanding.is_empty() && self.waiting.is_empty() && self.deferred.is_empty() {
            tracing::info!(%node, %address, reason, "a storage node hung up");
        } else {
            tracing::warn!(%node, %address, reason, "lost a storage node");
        }
        // Dropping the connection first ends the access of a peer that is still there.
        self.state = State::Down;
        self.away.is_gone();
        self.pulse = Pulse::new(Instant::now());
        self.dial.cache.disconnected();
        self.reads.abandon();
        let deferred = self.deferred.drain(..).map(|(_, job)| job);
        let waiting = self.waiting.drain(..).chain(deferred).map(|job| (job, Peer::Gone));
        let posted = self.outstanding.drain().map(|(_, outstanding)| (outstanding.job, peer));
        for (mut job, peer) in posted.chain(waiting) {
            if let Some(span) = job.span.take()
                && peer == Peer::MayWrite
            {
                span.forfeit();
            }
            let (during, reason, address) = (job.during, reason.to_owned(), address.clone());
            answer(job, Err(ClientError::NodeLost { node, address, during, reason }));
        }
    }

    /// Fails what is overdue.
    pub(super) fn expire(&mut self, now: Instant) {
        if self.reads.deadline().is_some_and(|deadline| deadline <= now) {
            let reason = format!("it did not let its cache be read within {:?}", self.request_timeout);
            self.end(&reason, Peer::MayWrite);
        }
        while let Some(at) = self.waiting.iter().position(|job| job.deadline <= now) {
            if let Some(job) = self.waiting.remove(at) {
                let error = self.timed_out(job.during);
                answer(job, Err(error));
            }
        }
        let is_overdue =
            |outstanding: &Outstanding| !outstanding.is_given_up && outstanding.job.deadline <= now;
        let overdue = self.outstanding.iter().find(|(_, outstanding)| is_overdue(outstanding));
        let Some((&id, _)) = overdue else { return };
        if let Some(Outstanding { mut job, .. }) = self.outstanding.remove(&id) {
            if let Some(span) = job.span.take() {
                span.forfeit();
            }
            let error = self.timed_out(job.during);
            let reason =
                format!("it did not answer a {} request within {:?}", job.during, self.request_timeout);
            answer(job, Err(error));
            self.end(&reason, Peer::MayWrite);
        }
    }

    fn timed_out(&self, during: &'static str) -> ClientError {
        let (node, address, waited) = (self.dial.node, self.dial.address.clone(), self.request_timeout);
        ClientError::TimedOut { node, address, during, waited }
    }

    /// Announces that the driver is about to sleep; false means that there is something to poll.
    pub(super) fn arm(&mut self) -> bool {
        match &mut self.state {
            State::Up { connection, .. } => connection.arm(),
            State::Dialling(_) | State::Down => true,
        }
    }

    pub(super) fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Up { connection, .. } => Some(connection.wait_fd()),
            State::Dialling(_) | State::Down => None,
        }
    }
}

/// The job's message, naming our target memory as the present connection knows it.
fn encode(id: u64, job: &Job, region: &RemoteRegion) -> Result<Vec<u8>, CodecError> {
    let mut request = job.request.clone();
    for target in targets_of(&mut request) {
        target.key = region.key;
        target.offset_bytes += region.address;
    }
    RequestMessage { id: RequestId(id), request }.encode()
}

/// The memory that a request names.
fn targets_of(request: &mut Request) -> impl Iterator<Item = &mut Target> {
    type Named<'a> = (Option<&'a mut Target>, Option<&'a mut Payload>, &'a mut [Target]);
    let (one, payload, more): Named<'_> = match request {
        Request::Process { target, key_filters, withheld, .. } => {
            (Some(target), withheld.as_mut(), key_filters)
        }
        Request::Transact { target, messages } => (Some(target), Some(messages), &mut []),
        Request::Catalog { target, .. }
        | Request::Fetch { target, .. }
        | Request::ReadRaw { target, .. }
        | Request::CopyOfLog(CopyOfLog { target, .. })
        | Request::Echo { target, .. } => (Some(target), None, &mut []),
        Request::LoadHeld(LoadHeld { target, .. }) | Request::ReadMap(ReadMap { target, .. }) => {
            (Some(target), None, &mut [])
        }
        Request::AppendParity(AppendParity { source, .. })
        | Request::KeepMap(KeepMap { source, .. })
        | Request::Repair(Repair { source, .. }) => (Some(source), None, &mut []),
        Request::KeepLog(KeepLog { bytes, .. }) => (None, Some(bytes), &mut []),
        Request::Append { source, .. } | Request::Keep { source, .. } | Request::WriteRaw { source, .. } => {
            (Some(source), None, &mut [])
        }
        Request::Status
        | Request::AcceptLoss
        | Request::OpenHome
        | Request::OpenPosts { .. }
        | Request::OpenCache
        | Request::CacheUsed { .. }
        | Request::ReserveParity(_)
        | Request::Verify(_)
        | Request::Adopt(_)
        | Request::PreparePublish { .. }
        | Request::CommitPublish { .. }
        | Request::CommitInPlace { .. }
        | Request::AbortLoad { .. }
        | Request::Drop { .. }
        | Request::HoldTables(_)
        | Request::ReleaseTables(_)
        | Request::Stop => (None, None, &mut []),
    };
    let beside = payload.and_then(|payload| match payload {
        Payload::Beside(target) => Some(target),
        Payload::Here(_) => None,
    });
    one.into_iter().chain(beside).chain(more)
}

/// Tells the caller. One who has left does not mind; its memory and permit are freed here.
fn answer(job: Job, result: Result<Reply, ClientError>) {
    let Job { span, permit, answer, during, .. } = job;
    drop((span, permit));
    match answer {
        Some(answer) => drop(answer.send(result)),
        None => {
            if let Err(error) = result {
                tracing::warn!(during, %error, "a request that nobody waits for failed");
            }
        }
    }
}
