//! Keeps the state of one node of `Lines`: its connection, and the requests that it has not
//! answered.
//!
//! Invariants
//! - Every accepted request ends once: with its reply, or with [`LineEvent::Lost`].
//! - Each connection has memory of its own. A node that was lost while it might still write can
//!   only write into memory that is not read any more.
//! - A node that owes replies and is silent for longer than the patience is lost; so is one that
//!   does not answer a keep-alive, or that breaks the protocol.

mod silence;

use std::{
    os::fd::BorrowedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use rackscan_fabric::{Address, ClusterKey, Connection, Event, Operation, PostError, Region, RemoteRegion};
use rackscan_format::{
    ids::{NodeId, RequestId},
    message::{NodeStatus, ReplyMessage, Request, RequestMessage},
};

use super::{
    LineError, LineEvent, OneRead,
    posts::{Posts, may_be_posted},
};
use crate::{
    ClientError,
    dial::{Dial, VerifiedConnection},
    limits::{
        DIRECT_DEPTH_MAX, LINES_BACKOFF_MAX, LINES_BACKOFF_MIN, LINES_KEEPALIVE_TIME_MAX, LINES_READS_MAX,
    },
    members::ExpectedIdentity,
    pulse::Pulse,
};

/// The id of sends among a connection's operations. Reads have their callers' tags, which are never
/// this.
const MESSAGE: u64 = 0;
/// The tag of a keep-alive, which no caller uses.
const KEEPALIVE: u64 = u64::MAX;

/// The identity of the node, and what to ask it for.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) node: NodeId,
    pub(super) address: Address,
    pub(super) key: ClusterKey,
    /// The cluster that it must belong to, once known.
    pub(super) cluster: Option<u64>,
    /// Whether it is asked for post boxes.
    pub(super) posts: bool,
    pub(super) expected: ExpectedIdentity,
}

impl Peer {
    /// Connects to the node, with memory that only this connection has.
    pub(super) fn dial(&self, memory_bytes: usize) -> Result<(VerifiedConnection, Region), ClientError> {
        let memory = Region::allocate(memory_bytes)
            .map_err(|source| ClientError::Memory { bytes: memory_bytes, source: Arc::new(source) })?;
        let dial = Dial {
            node: self.node,
            address: self.address.clone(),
            key: self.key.clone(),
            memory: memory.clone(),
            cache: Arc::default(),
            reads_cache: false,
            cluster: self.cluster,
            posts: self.posts,
            expected: self.expected.clone(),
        };
        dial.dial().map(|connection| (connection, memory))
    }
}

/// A connection to the node, with memory that only this node writes.
#[derive(Debug)]
pub(super) struct OpenConnection {
    pub(super) connection: Connection,
    pub(super) region: Region,
    /// The memory, as requests name it to the node.
    pub(super) target: RemoteRegion,
    pub(super) status: NodeStatus,
    pub(super) posts: Option<Posts>,
}

#[derive(Debug)]
enum State {
    Open(Box<OpenConnection>),
    /// A thread is connecting.
    Dialling,
    /// It is dialled again at this time.
    Down(Instant),
}

/// A request whose reply is owed.
#[derive(Debug, Clone, Copy)]
struct Owed {
    tag: u64,
    /// The post box of the request; `None` if it was sent as a message.
    post: Option<usize>,
    /// Whether nobody waits for it any more.
    forgotten: bool,
}

/// The connection to one node, and what the node owes.
#[derive(Debug)]
pub(super) struct NodeLine {
    pub(super) peer: Peer,
    patience: Duration,
    /// How long it may take to answer a keep-alive.
    pub(super) keepalive_time: Duration,
    pulse: Pulse,
    state: State,
    /// When the first dial began; `None` once that has ended.
    first_dialled: Option<Instant>,
    /// Whether it is unavailable because it does not answer.
    was_silent: bool,
    /// Why the node is unavailable, while it is.
    reason: String,
    /// Whether it said that it accepts no further connection.
    is_full: bool,
    backoff: Duration,
    owed: Vec<Owed>,
    /// One-sided reads that have not ended.
    reads: usize,
    /// The last time at which the node owed nothing or said something.
    heard: Instant,
    /// Reused memory for the next message.
    bytes: Vec<u8>,
    held: bool,
    /// Whether its connection was found readable and was not polled since.
    is_woken: bool,
}

impl NodeLine {
    /// A node whose first dial is beginning.
    pub(super) fn new(peer: Peer, patience: Duration) -> Self {
        let now = Instant::now();
        Self {
            peer,
            patience,
            keepalive_time: LINES_KEEPALIVE_TIME_MAX,
            pulse: Pulse::new(now),
            state: State::Dialling,
            first_dialled: Some(now),
            was_silent: false,
            reason: "it has not been connected to yet".to_owned(),
            is_full: false,
            backoff: LINES_BACKOFF_MIN,
            owed: Vec::new(),
            reads: 0,
            heard: now,
            bytes: Vec::new(),
            held: false,
            is_woken: false,
        }
    }

    pub(super) fn open(&self) -> Option<&OpenConnection> {
        if let State::Open(open) = &self.state { Some(open) } else { None }
    }

    pub(super) fn open_mut(&mut self) -> Option<&mut OpenConnection> {
        if let State::Open(open) = &mut self.state { Some(open) } else { None }
    }

    /// Why the node is unavailable, if it is.
    pub(super) fn unavailable(&self) -> Option<&str> {
        if self.open().is_some() { None } else { Some(&self.reason) }
    }

    /// Whether the node is unavailable only because it accepts no further connection.
    pub(super) fn is_full(&self) -> bool {
        self.open().is_none() && self.is_full
    }

    /// Number of replies that a caller waits for, and of reads that have not ended.
    pub(super) fn outstanding(&self) -> usize {
        self.owed.iter().filter(|owed| !owed.forgotten).count() + self.reads
    }

    fn unavailable_error(&self) -> LineError {
        LineError::Unavailable {
            node: self.peer.node,
            address: Box::new(self.peer.address.clone()),
            reason: self.reason.clone(),
        }
    }

    /// Handles the end of a dial, the first one or a later one.
    pub(super) fn dialled(
        &mut self,
        result: Result<(VerifiedConnection, Region), ClientError>,
    ) -> Result<(), &str> {
        self.first_dialled = None;
        self.pulse = Pulse::new(Instant::now());
        match result {
            Ok((VerifiedConnection { connection, target, status, posts, .. }, region)) => {
                tracing::debug!(node = %self.peer.node, "connected");
                self.peer.cluster = Some(status.cluster);
                self.state =
                    State::Open(Box::new(OpenConnection { connection, region, target, status, posts }));
                self.backoff = LINES_BACKOFF_MIN;
                self.was_silent = false;
                Ok(())
            }
            Err(error) => {
                self.reason = error.to_string();
                self.was_silent = error.is_unresponsive();
                self.is_full = error.is_too_many_connections();
                self.wait_to_dial();
                Err(&self.reason)
            }
        }
    }

    /// Loses the node if its data folder lacks what others have seen.
    pub(super) fn leave_if_outdated(&mut self) {
        let Some(history) = self.open().map(|open| &open.status.identity.history) else { return };
        if self.peer.expected.seen.iter().any(|seen| history.lacks(seen)) {
            let node = self.peer.node;
            self.lose(&format!(
                "its data folder is outdated: `rackscan rebuild {node}` brings it up to date"
            ));
        }
    }

    fn wait_to_dial(&mut self) {
        self.state = State::Down(Instant::now() + self.backoff);
        self.backoff = (2 * self.backoff).min(LINES_BACKOFF_MAX);
    }

    /// Returns whether the node is to be dialled now; if so, it counts as being dialled.
    pub(super) fn begin_to_dial(&mut self, now: Instant) -> bool {
        let is_due = matches!(self.state, State::Down(at) if at <= now);
        if is_due {
            self.state = State::Dialling;
        }
        is_due
    }

    /// Handles the end of the connection. Returns false if there was none.
    fn lose(&mut self, reason: &str) -> bool {
        if self.open().is_none() {
            return false;
        }
        let (node, address) = (self.peer.node, &self.peer.address);
        tracing::info!(%node, %address, reason, "the connection to a node was lost");
        self.reason = reason.to_owned();
        self.is_full = false;
        self.wait_to_dial();
        self.owed.clear();
        self.reads = 0;
        self.held = false;
        true
    }

    /// Sends a request.
    pub(super) fn send(&mut self, tag: u64, request: Request, hold: bool) -> Result<(), LineError> {
        if self.open().is_none() {
            return Err(self.unavailable_error());
        }
        let (outstanding, depth_max) = (self.owed.len(), DIRECT_DEPTH_MAX);
        if outstanding >= depth_max {
            return Err(LineError::Full { node: self.peer.node, outstanding, depth_max });
        }
        if self.owed.iter().any(|owed| owed.tag == tag) {
            return Err(LineError::InUse { tag });
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        let may_be_posted = may_be_posted(&request);
        let message = RequestMessage { id: RequestId(tag), request };
        let sent = message
            .encode_into(&mut bytes)
            .map_err(|source| LineError::TooLarge { node: self.peer.node, source })
            .and_then(|()| self.send_bytes(&bytes, may_be_posted, hold));
        self.bytes = bytes;
        let post = sent?;
        self.expect();
        self.owed.push(Owed { tag, post, forgotten: false });
        Ok(())
    }

    /// Sends a request in a post box, if it may go there and the next box is free, else as a
    /// message. Returns the box.
    fn send_bytes(
        &mut self,
        bytes: &[u8],
        may_be_posted: bool,
        hold: bool,
    ) -> Result<Option<usize>, LineError> {
        if may_be_posted && let Some(index) = self.send_by_post(bytes, hold) {
            return Ok(Some(index));
        }
        self.post(MESSAGE, Operation::Send { bytes }, hold).map(|()| None)
    }

    fn send_by_post(&mut self, bytes: &[u8], hold: bool) -> Option<usize> {
        let State::Open(open) = &mut self.state else { return None };
        let OpenConnection { connection, posts: Some(posts), .. } = &mut **open else { return None };
        let turn = posts.turn();
        let must_wait = |owed: &Owed| owed.post.is_none_or(|post| post == turn);
        if !posts.takes(bytes) || self.owed.iter().any(must_wait) {
            return None;
        }
        if hold && !self.held {
            connection.hold();
            self.held = true;
        }
        // An error of the connection shows when the message is sent instead.
        posts.send(connection, MESSAGE, bytes).ok()
    }

    /// Reads the node's memory one-sidedly into the memory of the connection.
    pub(super) fn read(&mut self, tag: u64, read: &OneRead, hold: bool) -> Result<(), LineError> {
        let Some(open) = self.open() else { return Err(self.unavailable_error()) };
        if self.reads >= LINES_READS_MAX {
            let (outstanding, depth_max) = (self.reads, LINES_READS_MAX);
            return Err(LineError::Full { node: self.peer.node, outstanding, depth_max });
        }
        if tag == MESSAGE {
            return Err(LineError::InUse { tag });
        }
        let outside = |source| LineError::Outside { node: self.peer.node, source };
        let target = open.region.slice(read.target_offset_bytes, read.length_bytes).map_err(outside)?;
        let operation =
            Operation::Read { source: read.source, source_offset: read.source_offset_bytes, target };
        self.post(tag, operation, hold)?;
        self.expect();
        self.reads += 1;
        Ok(())
    }

    /// The node owes one more reply or read.
    fn expect(&mut self) {
        if self.outstanding() == 0 {
            self.heard = Instant::now();
            self.pulse.begin_owing(self.heard);
        }
    }

    fn post(&mut self, id: u64, operation: Operation<'_>, hold: bool) -> Result<(), LineError> {
        let must_hold = hold && !self.held;
        let State::Open(open) = &mut self.state else { return Err(self.unavailable_error()) };
        if must_hold {
            open.connection.hold();
            self.held = true;
        }
        match open.connection.post(id, operation) {
            Ok(()) => Ok(()),
            // The next poll reports the end, too; nothing of this request was done.
            Err(PostError::Closed(ending)) => Err(LineError::Unavailable {
                node: self.peer.node,
                address: Box::new(self.peer.address.clone()),
                reason: ending.to_string(),
            }),
            Err(PostError::QueueFull { in_flight, depth_max }) => {
                Err(LineError::Full { node: self.peer.node, outstanding: in_flight, depth_max })
            }
            Err(source) => Err(LineError::Post { node: self.peer.node, source }),
        }
    }

    /// Announces sends that were held back.
    pub(super) fn release(&mut self) {
        if std::mem::take(&mut self.held)
            && let State::Open(open) = &mut self.state
        {
            open.connection.release();
        }
    }

    /// Stops waiting for a reply. Returns whether it was owed.
    pub(super) fn forget(&mut self, tag: u64) -> bool {
        let owed = self.owed.iter_mut().find(|owed| owed.tag == tag);
        owed.map(|owed| owed.forgotten = true).is_some()
    }

    /// Takes the connection's events; `scratch` is empty before and after.
    pub(super) fn poll(&mut self, node: usize, scratch: &mut Vec<Event>, events: &mut Vec<LineEvent>) {
        let State::Open(open) = &mut self.state else { return };
        // Without a system call for a node that has not woken us. A reply in a box has rung, too,
        // and nothing else would take that wake-up.
        let has_reply = open.posts.as_mut().is_some_and(|posts| posts.replies.look());
        let happened = match std::mem::take(&mut self.is_woken) || has_reply {
            true => open.connection.poll(scratch),
            false => open.connection.poll_memory(scratch),
        } > 0;
        // Replies in boxes count before an end that was polled with them.
        self.take_posts(node, events);
        if !happened {
            return;
        }
        for event in scratch.drain(..) {
            if !matches!(event, Event::Message { .. }) {
                self.heard = Instant::now();
            }
            let ended = match event {
                Event::Message { bytes } => self.replied(node, &bytes, events).err(),
                Event::Completed { id, outcome } if id != MESSAGE && self.open().is_some() => {
                    self.reads = self.reads.saturating_sub(1);
                    events.push(LineEvent::Read { node, tag: id, is_done: outcome.is_ok() });
                    None
                }
                Event::Closed(ending) => Some(ending.to_string()),
                // If a message was not delivered, the end of the connection follows.
                Event::Completed { .. } | Event::Immediate { .. } => None,
            };
            if let Some(reason) = ended {
                self.lose_as(node, &reason, events);
            }
        }
    }

    /// Takes replies out of boxes.
    fn take_posts(&mut self, node: usize, events: &mut Vec<LineEvent>) {
        while let State::Open(open) = &mut self.state
            && let Some((_, body)) = open.posts.as_mut().and_then(|posts| posts.replies.next())
        {
            let mut bytes = std::mem::take(&mut self.bytes);
            bytes.clear();
            bytes.extend_from_slice(body);
            let replied = self.replied(node, &bytes, events);
            self.bytes = bytes;
            if let Err(reason) = replied {
                self.lose_as(node, &reason, events);
            }
        }
    }

    /// Like [`NodeLine::lose`], and reports the event.
    pub(super) fn lose_as(&mut self, node: usize, reason: &str, events: &mut Vec<LineEvent>) {
        if self.lose(reason) {
            events.push(LineEvent::Lost { node, reason: reason.to_owned() });
        }
    }

    fn replied(&mut self, node: usize, bytes: &[u8], events: &mut Vec<LineEvent>) -> Result<(), String> {
        if self.open().is_none() {
            return Ok(());
        }
        let ReplyMessage { id: RequestId(tag), outcome, .. } =
            ReplyMessage::decode(bytes).map_err(|error| format!("it sent an invalid reply: {error}"))?;
        self.pulse.heard(Instant::now());
        match tag {
            // A keep-alive does not count as progress: a live node that does not do what it owes is
            // lost after the patience.
            KEEPALIVE => self.pulse.keepalive_answered(),
            _ => self.heard = Instant::now(),
        }
        let place = self.owed.iter().position(|owed| owed.tag == tag);
        let place =
            place.ok_or_else(|| format!("it replied to request {tag}, expected one that is outstanding"))?;
        if !self.owed.swap_remove(place).forgotten {
            events.push(LineEvent::Reply { node, tag, outcome: outcome.map_err(Box::new) });
        }
        Ok(())
    }

    /// Checks whether the node is still alive. On some wires a poll that finds other events does
    /// not report its end.
    pub(super) fn check_alive(&mut self, node: usize, scratch: &mut Vec<Event>, events: &mut Vec<LineEvent>) {
        // There are events to poll until the connection can be armed; the poll after that sees
        // everything.
        for _ in 0..ALIVE_CHECKS_MAX {
            self.is_woken = true;
            self.poll(node, scratch, events);
            if self.arm() {
                self.is_woken = true;
                return self.poll(node, scratch, events);
            }
        }
        // A node that always has another event is alive.
    }

    /// Announces that the owner is about to sleep. Returns false if there is something to poll.
    pub(super) fn arm(&mut self) -> bool {
        let is_armed = |open: &mut OpenConnection| {
            // A reply written before the connection was armed has woken nobody.
            open.connection.arm() && !open.posts.as_mut().is_some_and(|posts| posts.replies.look())
        };
        self.open_mut().is_none_or(is_armed)
    }

    /// The connection was found readable.
    pub(super) fn woken(&mut self) {
        self.is_woken = true;
    }

    pub(super) fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.open().map(|open| open.connection.wait_fd())
    }
}

/// How many polls with events count as a sign of life.
const ALIVE_CHECKS_MAX: usize = 8;
