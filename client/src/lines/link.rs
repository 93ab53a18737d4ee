//! What is going on with one of several nodes?
//!
//! Invariants
//! - Every request that was taken ends once: with its reply, or with [`LineEvent::Lost`].
//! - Each connection has memory of its own. A node that was lost while it might still write can
//!   only write into memory that nobody looks at any more.
//! - A node that owes replies and is silent for longer than the patience is lost; so is one that
//!   does not answer a keep-alive, or talks nonsense.

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
    dial::{Dial, Line},
    limits::{
        DIRECT_DEPTH_MAX, LINES_BACKOFF_MAX, LINES_BACKOFF_MIN, LINES_KEEPALIVE_TIME_MAX, LINES_READS_MAX,
    },
    members::Expected,
    pulse::Pulse,
};

/// The number of messages among a connection's operations; reads are named by their callers, and
/// never this.
const MESSAGE: u64 = 0;
/// The tag of a keep-alive, which no caller uses.
const KEEPALIVE: u64 = u64::MAX;

/// Who the node is.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) node: NodeId,
    pub(super) address: Address,
    pub(super) key: ClusterKey,
    /// The cluster that it must belong to, once known.
    pub(super) cluster: Option<u64>,
    /// Whether it is asked for boxes.
    pub(super) posts: bool,
    pub(super) expected: Expected,
}

impl Peer {
    /// Connects to it, with memory that only this connection has.
    pub(super) fn dial(&self, memory_bytes: usize) -> Result<(Line, Region), ClientError> {
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
        dial.dial().map(|line| (line, memory))
    }
}

/// A connection to the node, with memory that only this node writes.
#[derive(Debug)]
pub(super) struct Up {
    pub(super) connection: Connection,
    pub(super) region: Region,
    /// The memory as the node names it.
    pub(super) target: RemoteRegion,
    pub(super) status: NodeStatus,
    pub(super) posts: Option<Posts>,
}

#[derive(Debug)]
enum State {
    Up(Box<Up>),
    /// A thread is connecting.
    Dialling,
    /// It is connected to again at this moment.
    Down(Instant),
}

/// A request whose reply is owed.
#[derive(Debug, Clone, Copy)]
struct Owed {
    tag: u64,
    /// The box in which the request went; `None` if it was sent as a message.
    post: Option<usize>,
    /// Nobody waits for it any more.
    forgotten: bool,
}

/// The conversation with one node.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) peer: Peer,
    patience: Duration,
    /// How long it may take to answer a keep-alive.
    pub(super) keepalive_time: Duration,
    pulse: Pulse,
    state: State,
    /// Since when it is dialled for the first time; `None` once that has ended.
    first_dialled: Option<Instant>,
    /// Whether it is away because it says nothing.
    was_silent: bool,
    /// Why the node is away, while it is.
    reason: String,
    /// Whether it said that it takes no further connection.
    is_full: bool,
    backoff: Duration,
    owed: Vec<Owed>,
    /// One-sided reads that have not ended.
    reads: usize,
    /// The last moment at which the node owed nothing or said something.
    heard: Instant,
    /// Memory for the next message.
    bytes: Vec<u8>,
    held: bool,
    /// Whether its connection was readable, and was not polled since.
    is_woken: bool,
}

impl Link {
    /// A node that has not been connected to, because of this.
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

    pub(super) fn up(&self) -> Option<&Up> {
        if let State::Up(up) = &self.state { Some(up) } else { None }
    }

    pub(super) fn up_mut(&mut self) -> Option<&mut Up> {
        if let State::Up(up) = &mut self.state { Some(up) } else { None }
    }

    /// Why it is away, if it is.
    pub(super) fn away(&self) -> Option<&str> {
        if self.up().is_some() { None } else { Some(&self.reason) }
    }

    /// Whether it is away only because it takes no further connection.
    pub(super) fn is_full(&self) -> bool {
        self.up().is_none() && self.is_full
    }

    /// Replies that somebody waits for, and reads that have not ended.
    pub(super) fn outstanding(&self) -> usize {
        self.owed.iter().filter(|owed| !owed.forgotten).count() + self.reads
    }

    fn is_away(&self) -> LineError {
        LineError::Away {
            node: self.peer.node,
            address: Box::new(self.peer.address.clone()),
            reason: self.reason.clone(),
        }
    }

    /// The end of an attempt to connect, the first one or a later one.
    pub(super) fn dialled(&mut self, line: Result<(Line, Region), ClientError>) -> Result<(), &str> {
        self.first_dialled = None;
        self.pulse = Pulse::new(Instant::now());
        match line {
            Ok((Line { connection, target, status, posts, .. }, region)) => {
                tracing::debug!(node = %self.peer.node, "connected");
                self.peer.cluster = Some(status.cluster);
                self.state = State::Up(Box::new(Up { connection, region, target, status, posts }));
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
        let Some(history) = self.up().map(|up| &up.status.identity.history) else { return };
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

    /// Whether it is to be connected to now; then that is being done.
    pub(super) fn begin_to_dial(&mut self, now: Instant) -> bool {
        let is_due = matches!(self.state, State::Down(at) if at <= now);
        if is_due {
            self.state = State::Dialling;
        }
        is_due
    }

    /// The connection is over. False if there was none.
    fn lose(&mut self, reason: &str) -> bool {
        if self.up().is_none() {
            return false;
        }
        let (node, address) = (self.peer.node, &self.peer.address);
        tracing::info!(%node, %address, reason, "lost a storage node");
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
        if self.up().is_none() {
            return Err(self.is_away());
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

    /// Sends a request in a box, if it may and there is one for it, or as a message. Says in which
    /// box.
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
        let State::Up(up) = &mut self.state else { return None };
        let Up { connection, posts: Some(posts), .. } = &mut **up else { return None };
        let turn = posts.turn();
        let must_wait = |owed: &Owed| owed.post.is_none_or(|post| post == turn);
        if !posts.takes(bytes) || self.owed.iter().any(must_wait) {
            return None;
        }
        if hold && !self.held {
            connection.hold();
            self.held = true;
        }
        // What is wrong with the connection is said of the message that is tried next.
        posts.send(connection, MESSAGE, bytes).ok()
    }

    /// Reads the node's memory into that of the connection.
    pub(super) fn read(&mut self, tag: u64, read: &OneRead, hold: bool) -> Result<(), LineError> {
        let Some(up) = self.up() else { return Err(self.is_away()) };
        if self.reads >= LINES_READS_MAX {
            let (outstanding, depth_max) = (self.reads, LINES_READS_MAX);
            return Err(LineError::Full { node: self.peer.node, outstanding, depth_max });
        }
        if tag == MESSAGE {
            return Err(LineError::InUse { tag });
        }
        let outside = |source| LineError::Outside { node: self.peer.node, source };
        let target = up.region.slice(read.target_offset_bytes, read.length_bytes).map_err(outside)?;
        let operation =
            Operation::Read { source: read.source, source_offset: read.source_offset_bytes, target };
        self.post(tag, operation, hold)?;
        self.expect();
        self.reads += 1;
        Ok(())
    }

    /// The node owes one thing more.
    fn expect(&mut self) {
        if self.outstanding() == 0 {
            self.heard = Instant::now();
            self.pulse.owes(self.heard);
        }
    }

    fn post(&mut self, id: u64, operation: Operation<'_>, hold: bool) -> Result<(), LineError> {
        let must_hold = hold && !self.held;
        let State::Up(up) = &mut self.state else { return Err(self.is_away()) };
        if must_hold {
            up.connection.hold();
            self.held = true;
        }
        match up.connection.post(id, operation) {
            Ok(()) => Ok(()),
            // The end is reported by the next poll, too; nothing of this request was done.
            Err(PostError::Closed(ending)) => Err(LineError::Away {
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

    /// Announces what was held back.
    pub(super) fn release(&mut self) {
        if std::mem::take(&mut self.held)
            && let State::Up(up) = &mut self.state
        {
            up.connection.release();
        }
    }

    /// Nobody waits for this reply any more. Whether it was owed.
    pub(super) fn forget(&mut self, tag: u64) -> bool {
        let owed = self.owed.iter_mut().find(|owed| owed.tag == tag);
        owed.map(|owed| owed.forgotten = true).is_some()
    }

    /// Takes what has come; `scratch` is empty before and after.
    pub(super) fn poll(&mut self, node: usize, scratch: &mut Vec<Event>, events: &mut Vec<LineEvent>) {
        let State::Up(up) = &mut self.state else { return };
        // Without a system call for each node that has not woken us. A reply in a box has rung,
        // too, and nobody else would take note of that.
        let has_reply = up.posts.as_mut().is_some_and(|posts| posts.replies.look());
        let happened = match std::mem::take(&mut self.is_woken) || has_reply {
            true => up.connection.poll(scratch),
            false => up.connection.glance(scratch),
        } > 0;
        // Before an end that was polled with them is believed.
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
                Event::Completed { id, outcome } if id != MESSAGE && self.up().is_some() => {
                    self.reads = self.reads.saturating_sub(1);
                    events.push(LineEvent::Read { node, tag: id, is_done: outcome.is_ok() });
                    None
                }
                Event::Closed(ending) => Some(ending.to_string()),
                // A message that was not delivered shows in the connection's end, which follows.
                Event::Completed { .. } | Event::Immediate { .. } => None,
            };
            if let Some(reason) = ended {
                self.lose_as(node, &reason, events);
            }
        }
    }

    /// Takes replies out of boxes.
    fn take_posts(&mut self, node: usize, events: &mut Vec<LineEvent>) {
        while let State::Up(up) = &mut self.state
            && let Some((_, body)) = up.posts.as_mut().and_then(|posts| posts.replies.next())
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

    /// As [`Link::lose`], and says so.
    pub(super) fn lose_as(&mut self, node: usize, reason: &str, events: &mut Vec<LineEvent>) {
        if self.lose(reason) {
            events.push(LineEvent::Lost { node, reason: reason.to_owned() });
        }
    }

    fn replied(&mut self, node: usize, bytes: &[u8], events: &mut Vec<LineEvent>) -> Result<(), String> {
        if self.up().is_none() {
            return Ok(());
        }
        let ReplyMessage { id: RequestId(tag), outcome, .. } =
            ReplyMessage::decode(bytes).map_err(|error| format!("it sent what is no reply: {error}"))?;
        self.pulse.heard(Instant::now());
        match tag {
            // A node that lives, and does not do what it owes, has the patience for that.
            KEEPALIVE => self.pulse.answered(),
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

    /// Looks whether the node still lives, which on some wires no poll says that finds something
    /// else.
    pub(super) fn look(&mut self, node: usize, scratch: &mut Vec<Event>, events: &mut Vec<LineEvent>) {
        // Something is there to be polled, until the connection can be armed; a poll after that
        // looks at everything.
        for _ in 0..LOOKS_MAX {
            self.is_woken = true;
            self.poll(node, scratch, events);
            if self.arm() {
                self.is_woken = true;
                return self.poll(node, scratch, events);
            }
        }
        // A node that has always something to say lives.
    }

    /// Announces that the owner is about to sleep; false means that there is something to poll.
    pub(super) fn arm(&mut self) -> bool {
        let is_armed = |up: &mut Up| {
            // What was written before it was armed has woken nobody.
            up.connection.arm() && !up.posts.as_mut().is_some_and(|posts| posts.replies.look())
        };
        self.up_mut().is_none_or(is_armed)
    }

    /// Its connection was found to be readable.
    pub(super) fn woken(&mut self) {
        self.is_woken = true;
    }

    pub(super) fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.up().map(|up| up.connection.wait_fd())
    }
}

/// How often a look finds something to poll before it counts as a sign of life.
const LOOKS_MAX: usize = 8;
