//! Keeps the driver's state of one node: its connection, and the requests and reads outstanding
//! there.
//!
//! Invariants
//! - A request in `outstanding` was posted on the present connection; all of them fail when that
//!   connection ends.
//! - The next request to a lost node makes one attempt to connect again. If that fails, all
//!   requests that waited for it fail with the reason.
//! - A request that nobody waits for (the abort of a load) is posted after everything posted before
//!   it was answered. Otherwise an append that its caller has abandoned could arrive after the
//!   abort.
//! - A connection over which a request timed out is closed: its memory must not be used for another
//!   request while the answer might still be written.
//! - The connection to an unresponsive node stays open. Callers get an error, and their requests
//!   stay outstanding with their memory, which the node may still write. The memory is free again
//!   when the node answers or the connection ends.
//! - At most as many abandoned requests are outstanding as others may be; else the connection is
//!   closed.

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
    job::{Job, Reply},
    reads::{READ, ReadJob, Reads},
};
use crate::{
    ClientError,
    dial::{Dial, VerifiedConnection},
    hedge::AnswerTime,
    limits::CONNECT_GRACE,
    node_state::NodeState,
    pulse::Pulse,
};

/// The id of a keep-alive request; at most one is outstanding at a time.
const KEEPALIVE: u64 = READ - 1;

/// The connection to one node, and everything outstanding there.
pub(super) struct NodeConnection {
    dial: Dial,
    state: State,
    outstanding: HashMap<u64, Outstanding>,
    /// Jobs not posted yet: the node is being connected to, or the connection's queue was full.
    waiting: VecDeque<Job>,
    /// Requests that nobody waits for, each with the id below which everything must have been
    /// answered first.
    deferred: VecDeque<(u64, Job)>,
    /// Reads of the node's cache.
    reads: Reads,
    next_id: u64,
    request_timeout: Duration,
    /// The state of the node, shared with its callers.
    node_state: Arc<NodeState>,
    pulse: Pulse,
    /// Whether an unresponsive node is dialled again without a request for it.
    keeps_trying: bool,
}

enum State {
    Open {
        connection: Box<Connection>,
        target: RemoteRegion,
    },
    /// Since when.
    Dialling(Instant),
    Down,
}

/// The state in which a connection to a node begins.
pub(super) enum InitialState {
    Connected(Box<VerifiedConnection>),
    /// Dialled at that time, and not answered yet.
    Dialled(Instant),
    Down,
}

struct Outstanding {
    job: Job,
    asked: Instant,
    request_bytes: u64,
    /// Whether the caller was told that the node is unresponsive.
    is_given_up: bool,
}

/// Whether the peer may still access memory that was named in requests over an ended connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Peer {
    /// It hung up or its process has ended.
    Gone,
    /// It may go on writing.
    MayWrite,
}

impl NodeConnection {
    pub(super) fn new(
        dial: Dial,
        begin: InitialState,
        (node_state, keeps_trying): (Arc<NodeState>, bool),
        request_timeout: Duration,
    ) -> Self {
        let state = match begin {
            InitialState::Connected(connected) => {
                let VerifiedConnection { connection, target, cache, .. } = *connected;
                dial.cache.connected(cache);
                State::Open { connection: Box::new(connection), target }
            }
            InitialState::Dialled(since) => State::Dialling(since),
            InitialState::Down => State::Down,
        };
        Self {
            node_state,
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

    /// Accepts a job. Returns whom to dial first, if the node is not connected.
    pub(super) fn begin(&mut self, job: Job) -> Option<Dial> {
        if job.answer.is_none() && !self.outstanding.is_empty() {
            self.deferred.push_back((self.next_id, job));
            return None;
        }
        if let Some(silent) = self.node_state.unresponsive_for().filter(|_| job.can_go_without) {
            // It has become unresponsive since the caller checked.
            let error = self.dial.unresponsive(job.during, silent);
            answer(job, Err(error));
            return None;
        }
        self.waiting.push_back(job);
        match self.state {
            State::Open { .. } => self.post_waiting(),
            State::Dialling(_) => {}
            State::Down => return Some(self.redial()),
        }
        None
    }

    /// The node did not answer over another connection: it counts as unresponsive until a message
    /// from it arrives. Returns whom to dial, if the node is not connected.
    pub(super) fn suspect(&mut self) -> Option<Dial> {
        let now = Instant::now();
        match self.state {
            State::Open { .. } if self.pulse.keepalive_due().is_some() => self.keep_alive(now),
            State::Open { .. } | State::Dialling(_) => {}
            State::Down => {
                self.mark_unresponsive(now);
                return Some(self.redial());
            }
        }
        self.mark_unresponsive(now);
        None
    }

    fn redial(&mut self) -> Dial {
        self.state = State::Dialling(Instant::now());
        self.dial.clone()
    }

    /// Handles the end of a dial. Returns whom to dial again: a node that took long to fail, if it
    /// is to be tried again without a request.
    pub(super) fn dialled(&mut self, result: Result<VerifiedConnection, ClientError>) -> Option<Dial> {
        // The cluster that it must belong to was not known at the first dial.
        let result = result.and_then(|connected| self.dial.check(&connected.status).map(|()| connected));
        match result {
            Ok(VerifiedConnection { connection, target, cache, .. }) => {
                tracing::info!(node = %self.dial.node, "connected again");
                self.state = State::Open { connection: Box::new(connection), target };
                self.node_state.mark_responsive();
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
                self.node_state.mark_disconnected();
                None
            }
        }
    }

    /// Begins one-sided reads of pages in the node's cache. The job is dropped if the connection
    /// over which the places were learned has ended, or if the node does not answer.
    pub(super) fn read(&mut self, job: ReadJob) {
        let is_owed = self.is_owed();
        if let State::Open { connection, .. } = &mut self.state
            && self.dial.cache.is_still(&job.opened)
            && self.node_state.unresponsive_for().is_none()
        {
            if !is_owed {
                self.pulse.begin_owing(Instant::now());
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
            let State::Open { connection, target } = &mut self.state else {
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
                        self.pulse.begin_owing(Instant::now());
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

    /// Handles the events of the connection. Returns whether there were any.
    pub(super) fn poll(
        &mut self,
        events: &mut Vec<Event>,
        mut on_reply: impl FnMut(LoadReport, Option<AnswerTime>),
    ) -> bool {
        let State::Open { connection, .. } = &mut self.state else { return false };
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
                // If a message was not delivered, the end of the connection follows.
                Event::Completed { .. } => {}
                Event::Immediate { immediate, .. } => {
                    tracing::debug!(node = %self.dial.node, immediate, "an immediate that has no meaning for a client");
                }
            }
        }
        if let State::Open { connection, .. } = &mut self.state {
            self.reads.post(connection);
        }
        self.post_waiting();
        true
    }

    fn replied(
        &mut self,
        bytes: &[u8],
        on_reply: &mut impl FnMut(LoadReport, Option<AnswerTime>),
    ) -> Result<(), String> {
        let message =
            ReplyMessage::decode(bytes).map_err(|error| format!("it sent an invalid reply: {error}"))?;
        let id = message.id.0;
        self.pulse.heard(Instant::now());
        if self.node_state.mark_responsive() {
            tracing::info!(node = %self.dial.node, "a node that was unresponsive answers again");
        }
        if id == KEEPALIVE {
            self.pulse.keepalive_answered();
            return Ok(());
        }
        let outstanding = self
            .outstanding
            .remove(&id)
            .ok_or_else(|| format!("it replied to request {id}, which is not outstanding"))?;
        // Before the caller wakes: it may ask for the load that came with the answer.
        on_reply(message.load, outstanding.answered().filter(|_| message.outcome.is_ok()));
        let mut job = outstanding.job;
        let message_bytes = outstanding.request_bytes + bytes.len() as u64;
        let span = job.span.take();
        answer(job, Ok(Reply { message, span, message_bytes }));
        Ok(())
    }

    /// The connection has ended: fails everything that waits for answers on it.
    fn end(&mut self, reason: &str, peer: Peer) {
        if !matches!(self.state, State::Open { .. }) {
            return;
        }
        // No warning if nothing is outstanding: a node that was told to stop hangs up, too.
        let (node, address) = (self.dial.node, &self.dial.address);
        if self.outstanding.is_empty() && self.waiting.is_empty() && self.deferred.is_empty() {
            tracing::info!(%node, %address, reason, "a storage node hung up");
        } else {
            tracing::warn!(%node, %address, reason, "the connection to a node was lost");
        }
        // The connection is dropped first: that ends the memory access of a peer that is still
        // alive.
        self.state = State::Down;
        self.node_state.mark_disconnected();
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

    /// Fails jobs whose deadline has passed.
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

    /// Announces that the driver is about to sleep. Returns false if there is something to poll.
    pub(super) fn arm(&mut self) -> bool {
        match &mut self.state {
            State::Open { connection, .. } => connection.arm(),
            State::Dialling(_) | State::Down => true,
        }
    }

    pub(super) fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Open { connection, .. } => Some(connection.wait_fd()),
            State::Dialling(_) | State::Down => None,
        }
    }
}

/// The message of a job, with our target memory as the present connection names it.
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
        | Request::OpenParticipant
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

/// Answers the caller, and frees the job's memory and permit. The caller may have gone.
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
