//! Runs a node's part of all sessions in one thread: the node receives, sums, forwards and stores
//! slices. The thread sleeps only when there is nothing to do.
//!
//! ```text
//! one turn of the thread:
//! poll the listener, calls to other nodes, connections and devices  -->  advance each stripe
//! ```
//!
//! - `opening`: opens sessions. `session`: the state of one session. `shared`: what stripes share.
//! - `lane`: moves one stripe through this node.
//! - `links`: connections and their roles. `calls`: opens and closes connections.
//! - `disk`: device operations and flushes in progress.
//!
//! Invariants
//! - A turn never waits. [`Calls`] opens and closes connections, because both may take long.
//! - A peer that breaks the protocol, dies or leaves ends all sessions that it takes part in. The
//!   other places of such a session are told which place ended it, and why, before their
//!   connections close.
//! - Everything that a peer sends is checked. Memory, connections, sessions and queues are bounded.

mod calls;
mod disk;
mod lane;
mod links;
mod opening;
mod session;
mod shared;

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use rackscan_device::{DeviceIndex, DeviceIo, Interest, Repeat, Token, Wait, Watch};
use rackscan_fabric::{Ending, Listener, spin_time};
use rackscan_format::ids::NodeId;

pub use self::calls::{Answered, Calls, Threads};
pub(crate) use self::lane::member_of;
use self::{
    disk::{Disk, Done, WATCH},
    links::{Links, Role},
    session::Session,
    shared::NodeShared,
};
use crate::{
    counters::Counters,
    error::{Failure, NodeError},
    limits::{DIAL_LOOK, EARLY_MAX, EARLY_TIME_MAX, MEMORY_BYTES, SESSION_IDLE_MAX, SLEEP_MAX, SPIN},
    link::LinkEvent,
    message::{Cause, Message},
    shape::{Layouts, Member},
    store::Store,
};

/// The listener's watch.
const LISTENER: u64 = WATCH - 1 - (1 << 62);
/// How often idle links are searched, in turns.
const TURNS_PER_LOOK: u64 = 1024;

/// The configuration of a node.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Its id.
    pub node: NodeId,
    /// All nodes that it may forward to, with every address at which they listen; including itself.
    pub peers: Vec<Member>,
    /// Memory for all sessions, in bytes: rings, slots for reads and sums, and links.
    pub memory_bytes: u64,
    /// The maximum number of links that belong to no session (yet). Each takes
    /// [`crate::limits::LINK_BYTES`] beside that memory. A session needs one for each of its nodes.
    pub early_max: usize,
    /// How long a session may make no progress.
    pub idle_max: Duration,
}

impl NodeConfig {
    /// The defaults: [`MEMORY_BYTES`] of memory, and sessions without progress for
    /// [`SESSION_IDLE_MAX`].
    #[must_use]
    pub fn new(node: NodeId, peers: Vec<Member>) -> Self {
        Self { node, peers, memory_bytes: MEMORY_BYTES, early_max: EARLY_MAX, idle_max: SESSION_IDLE_MAX }
    }
}

/// A node that relays and keeps stripes.
pub struct Node<I, S> {
    pub(crate) config: NodeConfig,
    listener: Listener,
    calls: Box<dyn Calls>,
    io: I,
    store: S,
    links: Links,
    disk: Disk,
    sessions: BTreeMap<u64, Session>,
    /// For each call, the session and the member that it is for.
    called: BTreeMap<u64, (u64, usize)>,
    next_call: u64,
    pub(crate) layouts: Layouts,
    counters: Counters,
    /// Bytes written and messages sent on links that were dropped.
    past: (u64, u64),
    turns: u64,
    happened: Vec<LinkEvent>,
    #[cfg(test)]
    ended: Vec<crate::error::SessionEnd>,
}

impl<I: DeviceIo, S: Store> Node<I, S> {
    /// A node that listens at `listener`, which must have no receive queues.
    ///
    /// # Errors
    /// [`NodeError::Watch`].
    pub fn new(
        config: NodeConfig,
        listener: Listener,
        calls: Box<dyn Calls>,
        mut io: I,
        store: S,
    ) -> Result<Self, NodeError> {
        let token = Token(WATCH | LISTENER);
        let (interest, repeat) = (Interest::Readable, Repeat::EveryChange);
        io.watch(Watch { fd: listener.wait_fd(), interest, repeat, token })?;
        Ok(Self {
            links: Links::new(config.early_max),
            config,
            listener,
            calls,
            io,
            store,
            disk: Disk::default(),
            sessions: BTreeMap::new(),
            called: BTreeMap::new(),
            next_call: 0,
            layouts: Layouts::default(),
            counters: Counters::default(),
            past: (0, 0),
            turns: 0,
            happened: Vec::new(),
            #[cfg(test)]
            ended: Vec::new(),
        })
    }

    /// Serves until `stop` is set, which it notices within a second, and stops then.
    ///
    /// # Errors
    /// [`NodeError`] if its devices cannot be waited for.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<(), NodeError> {
        let mut last_work = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            if self.turn()? {
                last_work = Instant::now();
            } else if last_work.elapsed() < spin_time(SPIN) {
                std::thread::yield_now();
            } else {
                self.sleep(SLEEP_MAX)?;
                last_work = Instant::now();
            }
        }
        self.stop();
        Ok(())
    }

    /// Ends all sessions, tells all places in them, and closes all connections. It returns when all
    /// threads of [`Calls`] have ended: that takes as long as a call in progress
    /// ([`crate::limits::DIAL_TIME_MAX`]), or until peers close their connections.
    pub fn stop(&mut self) {
        while let Some((number, me)) =
            self.sessions.values().next().map(|session| (session.number, session.me))
        {
            self.end(number, Failure::new(Some(me), Cause::Closed, "the node is stopping"));
        }
        (0..self.links.places()).for_each(|index| self.drop_link(index));
        self.calls.finish();
    }

    /// Polls everything once, without waiting. Returns whether anything happened.
    ///
    /// # Errors
    /// [`NodeError::Reap`].
    pub fn turn(&mut self) -> Result<bool, NodeError> {
        let mut moved = self.accept();
        moved |= self.take_answers();
        moved |= self.poll_links();
        moved |= self.reap(Wait::Now)?;
        moved |= self.advance();
        self.turns += 1;
        if self.turns.is_multiple_of(TURNS_PER_LOOK) {
            self.drop_idle();
        }
        Ok(moved)
    }

    /// Sleeps until there is something to do, at most for `time`.
    ///
    /// # Errors
    /// [`NodeError`].
    pub fn sleep(&mut self, time: Duration) -> Result<(), NodeError> {
        self.drop_idle();
        if !self.links.arm(&mut self.io)? || self.read_credits() {
            return Ok(());
        }
        let time = if self.calls.is_waiting() { time.min(DIAL_LOOK) } else { time };
        self.reap(Wait::Until(Instant::now() + time))?;
        Ok(())
    }

    /// Its store.
    pub fn store(&mut self) -> &mut S {
        &mut self.store
    }

    /// Returns its devices and its store.
    #[cfg(test)]
    pub(crate) fn into_parts(self) -> (I, S) {
        (self.io, self.store)
    }

    /// The number of sessions that it takes part in.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Why sessions have ended here since the last call.
    #[cfg(test)]
    pub(crate) fn take_ended(&mut self) -> Vec<crate::error::SessionEnd> {
        std::mem::take(&mut self.ended)
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let (written, messages) = self.links.counted();
        Counters {
            stored_bytes: self.disk.written_bytes,
            read_bytes: self.disk.read_bytes,
            written_bytes: self.past.0 + written,
            messages: self.past.1 + messages,
            ..self.counters
        }
    }

    /// Reads the credits of all sessions. Returns whether any was new, or violated the protocol.
    fn read_credits(&mut self) -> bool {
        let (mut any, mut failed) = (false, Vec::new());
        for (number, session) in &mut self.sessions {
            match session.read_credits() {
                Ok(read) => any |= read,
                Err(failure) => failed.push((*number, failure)),
            }
        }
        let has_failed = !failed.is_empty();
        failed.into_iter().for_each(|(session, failure)| self.end(session, failure));
        any | has_failed
    }

    fn accept(&mut self) -> bool {
        let mut any = false;
        while !self.calls.is_full() {
            match self.listener.accept() {
                Ok(Some(connection)) => {
                    if let Err(connection) = self.links.add(connection, Role::New) {
                        tracing::warn!(peer = connection.peer(), "too many connections: one was refused");
                        self.calls.hang_up(*connection);
                    }
                }
                Ok(None) => return any,
                // The listener has logged the error, unless there were too many.
                Err(_) => {}
            }
            any = true;
        }
        any
    }

    fn poll_links(&mut self) -> bool {
        let mut any = false;
        let mut happened = std::mem::take(&mut self.happened);
        for index in 0..self.links.places() {
            let Some(link) = self.links.get_mut(index) else { continue };
            any |= link.poll(&mut happened);
            for event in happened.drain(..) {
                if self.links.role(index).is_none() {
                    // The session has ended, and its links with it.
                    break;
                }
                self.handle(index, event);
            }
        }
        self.happened = happened;
        any
    }

    fn handle(&mut self, index: usize, event: LinkEvent) {
        match event {
            LinkEvent::Message(bytes) => match Message::decode(&bytes) {
                Ok(message) => self.handle_message(index, message),
                Err(error) => self.fault(index, Cause::Violation, &error.to_string()),
            },
            LinkEvent::Arrived(checksum) => self.slice_arrived(index, checksum),
            LinkEvent::Sent { lane, send } => {
                let session = self.links.role(index).and_then(Role::session);
                let session = session.and_then(|(session, _)| self.sessions.get_mut(&session));
                if let Some(underway) = session.and_then(|session| session.underway(lane)) {
                    underway.sent(send);
                }
            }
            LinkEvent::Refused(why) => self.fault(index, Cause::Violation, &why),
            LinkEvent::Unposted(why) => self.unposted(index, &why),
            LinkEvent::Closed(ending) => {
                let cause = match ending {
                    Ending::Orderly => Cause::Closed,
                    Ending::Violation { .. } => Cause::Violation,
                    _ => Cause::Lost,
                };
                self.fault(index, cause, &ending.to_string());
            }
        }
    }

    fn slice_arrived(&mut self, index: usize, checksum: u32) {
        let arrived = match self.links.role(index) {
            Some(Role::Client(session)) => Some((*session, None)),
            Some(Role::From(session, member)) => Some((*session, Some(*member))),
            _ => None,
        };
        let session = arrived.and_then(|(session, member)| Some((self.sessions.get_mut(&session)?, member)));
        let Some((session, member)) = session else {
            return self.fault(index, Cause::Violation, "the peer sent a slice where it has no rings");
        };
        let number = session.number;
        if let Err(failure) = session.arrived(member, checksum) {
            self.end(number, failure);
        }
    }

    /// Ends the session of a link whose peer is at fault, or drops a link without a session.
    fn fault(&mut self, index: usize, cause: Cause, why: &str) {
        match self.links.role(index).and_then(Role::session) {
            Some((session, member)) => self.end(session, Failure::new(member, cause, why)),
            None => {
                tracing::debug!(why, "a connection that belonged to no session has ended");
                self.drop_link(index);
            }
        }
    }

    /// Ends the session of a link because this node could not post an operation.
    fn unposted(&mut self, index: usize, why: &str) {
        let session = self.links.role(index).and_then(Role::session);
        match session.and_then(|(session, _)| self.sessions.get(&session)) {
            Some(session) => self.end(session.number, Failure::new(Some(session.me), Cause::Violation, why)),
            None => self.drop_link(index),
        }
    }

    fn drop_link(&mut self, index: usize) {
        if let Some(connection) = self.links.remove(index, &mut self.io) {
            let counters = connection.counters();
            self.past.0 += counters.written_bytes;
            self.past.1 += counters.sends;
            self.calls.hang_up(connection);
        }
    }

    /// Ends links that have been silent, and sessions that have made no progress, for too long.
    fn drop_idle(&mut self) {
        let now = Instant::now();
        if let Some(before) = now.checked_sub(EARLY_TIME_MAX) {
            for index in self.links.idle_since(before) {
                self.fault(index, Cause::Violation, "the peer did not open or join a session in time");
            }
        }
        let limit = self.config.idle_max;
        let idle = |session: &mut Session| session.idle(now, limit).map(|failure| (session.number, failure));
        let idle: Vec<(u64, Failure)> = self.sessions.values_mut().filter_map(idle).collect();
        idle.into_iter().for_each(|(session, failure)| self.end(session, failure));
    }

    /// Ends a session: tells all its places which one is at fault, and closes the links.
    fn end(&mut self, session: u64, failure: Failure) {
        let Some(session) = self.sessions.remove(&session) else { return };
        self.called.retain(|_, (of, _)| *of != session.number);
        for underway in session.stripes() {
            self.store.given_up(underway.name);
        }
        let ends = Message::Ends(failure.to_message());
        for index in self.links.with(|role| role.session().is_some_and(|(of, _)| of == session.number)) {
            if let Some(link) = self.links.get_mut(index) {
                link.say_last(&ends);
            }
            self.drop_link(index);
        }
        let end = failure.into_session_end(&session.members);
        if end.cause == Cause::Closed {
            tracing::debug!(%end, "a session for stripes has ended");
        } else {
            tracing::warn!(%end, "a session for stripes has ended");
        }
        #[cfg(test)]
        self.ended.push(end);
    }

    fn reap(&mut self, wait: Wait) -> Result<bool, NodeError> {
        let mut done = Vec::new();
        let disk = &mut self.disk;
        self.io.reap(wait, &mut |completion| done.extend(disk.ended(completion)))?;
        let any = !done.is_empty();
        for done in done {
            match done {
                Done::Moved(job, outcome) => {
                    let session = self.sessions.get_mut(&job.session);
                    let underway = session.and_then(|session| session.underway(job.lane));
                    let Some(underway) = underway.filter(|underway| underway.name.stripe == job.stripe)
                    else {
                        continue;
                    };
                    match outcome {
                        Ok(()) => underway.moved(&job),
                        Err(why) => self.disk_failed(job.session, &why),
                    }
                }
                Done::Flushed(_, Ok(())) => {}
                Done::Flushed(device, Err(why)) => self.flush_failed(device, &why),
                Done::Ready(LISTENER) => {}
                Done::Ready(link) => self.links.fired(link),
            }
        }
        Ok(any)
    }

    fn disk_failed(&mut self, session: u64, why: &str) {
        let me = self.sessions.get(&session).map(|session| session.me);
        self.end(session, Failure::new(me, Cause::Disk, why));
    }

    /// Ends the sessions that wait for a device whose flush failed: what it has kept is unknown.
    fn flush_failed(&mut self, device: DeviceIndex, why: &str) {
        let needs = |session: &&Session| session.stripes().any(|underway| underway.needs(device));
        let sessions: Vec<u64> = self.sessions.values().filter(needs).map(|session| session.number).collect();
        for session in sessions {
            self.disk_failed(session, why);
        }
    }

    fn advance(&mut self) -> bool {
        let mut moved = false;
        let mut failed = Vec::new();
        for (number, session) in &mut self.sessions {
            let mut node = NodeShared {
                links: &mut self.links,
                io: &mut self.io,
                disk: &mut self.disk,
                store: &mut self.store,
            };
            match session.advance(&mut self.counters, &mut node) {
                Ok(advanced) => moved |= advanced,
                Err(failure) => failed.push((*number, failure)),
            }
        }
        for (session, failure) in failed {
            self.end(session, failure);
            moved = true;
        }
        match self.disk.pump(&mut self.io) {
            Ok(any) => moved | any,
            Err((device, error)) => {
                self.flush_failed(device, &error.to_string());
                true
            }
        }
    }
}

impl<I, S> std::fmt::Debug for Node<I, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("config", &self.config)
            .field("sessions", &self.sessions.len())
            .finish_non_exhaustive()
    }
}
