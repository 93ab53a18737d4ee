//! How does a node relay and keep stripes, in one thread that never waits but when there is nothing
//! to do?
//!
//! ```text
//! turn: listener, calls, connections, devices -- each looked at without waiting --> stripes advance
//! ```
//!
//! Invariants
//! - A turn waits for nobody; reaching others and hanging up is the business of [`Calls`].
//! - Whoever breaks the protocol, dies or leaves ends the sessions that it takes part in, and
//!   everybody in them is told who and why before the links close.
//! - Everything a peer says is checked; memory, links, sessions and what waits are bounded.

mod calls;
mod disk;
mod lane;
mod links;
mod opening;
mod session;

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use rackscan_device::{DeviceIndex, DeviceIo, Interest, Repeat, Token, Wait, Watch};
use rackscan_fabric::{Ending, Listener, spin_time};
use rackscan_format::ids::NodeId;

pub use self::calls::{Answered, Calls, Direct, Threads};
pub(crate) use self::lane::member_of;
use self::{
    disk::{Disk, Done, WATCH},
    links::{Links, Role},
    session::{Hands, Session},
};
use crate::{
    counters::Counters,
    error::{Failure, NodeError, SessionEnd},
    limits::{DIAL_LOOK, EARLY_MAX, EARLY_TIME_MAX, MEMORY_BYTES, SESSION_IDLE_MAX, SLEEP_MAX, SPIN},
    link::Happened,
    message::{Cause, Message},
    shape::{Layouts, Member},
    store::Store,
};

/// The listener's watch.
const LISTENER: u64 = WATCH - 1 - (1 << 62);
/// How often idle links are looked for, in turns.
const TURNS_PER_LOOK: u64 = 1024;

/// How a node is to be.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Its id.
    pub node: NodeId,
    /// All nodes that it may forward to, with every address that they may be called at; itself,
    /// too.
    pub peers: Vec<Member>,
    /// Memory for all sessions, in bytes: their rings, what is read and summed, and links.
    pub memory_bytes: u64,
    /// Links that belong to no session (yet), each of which takes [`crate::limits::LINK_BYTES`]
    /// beside that memory. A session needs one for each of its nodes.
    pub early_max: usize,
    /// How long a session may do nothing.
    pub idle_max: Duration,
}

impl NodeConfig {
    /// With [`MEMORY_BYTES`] of memory, and sessions that may do nothing for [`SESSION_IDLE_MAX`].
    #[must_use]
    pub fn new(node: NodeId, peers: Vec<Member>) -> Self {
        Self { node, peers, memory_bytes: MEMORY_BYTES, early_max: EARLY_MAX, idle_max: SESSION_IDLE_MAX }
    }
}

/// A relay.
pub struct Node<I, S> {
    pub(crate) config: NodeConfig,
    listener: Listener,
    calls: Box<dyn Calls>,
    io: I,
    store: S,
    links: Links,
    disk: Disk,
    sessions: BTreeMap<u64, Session>,
    /// Which member of which session a call is for.
    called: BTreeMap<u64, (u64, usize)>,
    next_call: u64,
    pub(crate) layouts: Layouts,
    counters: Counters,
    /// What the fabric counted on links that are gone.
    past: (u64, u64),
    turns: u64,
    happened: Vec<Happened>,
    ended: Vec<SessionEnd>,
}

impl<I: DeviceIo, S: Store> Node<I, S> {
    /// A node that is called at `listener`, which must have no inboxes.
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
            ended: Vec::new(),
        })
    }

    /// Serves until `stop` is set, which is seen within a second, and stops then.
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

    /// Ends all sessions, tells everybody in them, and hangs up on all. No thread of its calls is
    /// left afterwards: that takes as long as a call that is under way
    /// ([`crate::limits::DIAL_TIME_MAX`]), or as peers take that do not let go.
    pub fn stop(&mut self) {
        while let Some((number, me)) =
            self.sessions.values().next().map(|session| (session.number, session.me))
        {
            self.end(number, Failure::new(Some(me), Cause::Closed, "it stops"));
        }
        (0..self.links.places()).for_each(|index| self.drop_link(index));
        self.calls.finish();
    }

    /// Looks at everything once, without waiting. Whether anything happened.
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

    /// Sleeps until there is something to do, at most for so long.
    ///
    /// # Errors
    /// [`NodeError`].
    pub fn sleep(&mut self, time: Duration) -> Result<(), NodeError> {
        self.drop_idle();
        if !self.links.arm(&mut self.io)? || self.hear_credit() {
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

    /// Its devices.
    #[must_use]
    pub fn io(&self) -> &I {
        &self.io
    }

    /// Takes it apart.
    #[must_use]
    pub fn into_parts(self) -> (I, S) {
        (self.io, self.store)
    }

    /// Sessions that it takes part in.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Why sessions have ended here since this was asked last; the last few.
    pub fn take_ended(&mut self) -> Vec<SessionEnd> {
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

    /// Whether a receiver has said something new, or broken the rules of it.
    fn hear_credit(&mut self) -> bool {
        let (mut any, mut failed) = (false, Vec::new());
        for (number, session) in &mut self.sessions {
            match session.hear_credit() {
                Ok(heard) => any |= heard,
                Err(failure) => failed.push((*number, failure)),
            }
        }
        let has_failed = !failed.is_empty();
        failed.into_iter().for_each(|(session, failure)| self.end(session, failure));
        any | has_failed
    }

    /// What the fabric has counted on each link that is there now, with its peer's name.
    #[must_use]
    pub fn link_counters(&self) -> Vec<(String, rackscan_fabric::Counters)> {
        self.links.counters()
    }

    fn accept(&mut self) -> bool {
        let mut any = false;
        while !self.calls.is_full() {
            match self.listener.accept() {
                Ok(Some(connection)) => {
                    if let Err(connection) = self.links.add(connection, Role::New) {
                        tracing::warn!(peer = connection.peer(), "a link was refused: too many");
                        self.calls.hang_up(*connection);
                    }
                }
                Ok(None) => return any,
                // The listener has logged it, if there was not too much of that.
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
                    // The session ended, and its links with it.
                    break;
                }
                self.handle(index, event);
            }
        }
        self.happened = happened;
        any
    }

    fn handle(&mut self, index: usize, event: Happened) {
        match event {
            Happened::Message(bytes) => match Message::decode(&bytes) {
                Ok(message) => self.hear(index, message),
                Err(error) => self.fault(index, Cause::Violation, &error.to_string()),
            },
            Happened::Arrived(checksum) => self.slice_arrived(index, checksum),
            Happened::Sent { lane, send } => {
                let session = self.links.role(index).and_then(Role::session);
                let session = session.and_then(|(session, _)| self.sessions.get_mut(&session));
                if let Some(underway) = session.and_then(|session| session.underway(lane)) {
                    underway.sent(send);
                }
            }
            Happened::Refused(why) => self.fault(index, Cause::Violation, &why),
            Happened::Unposted(why) => self.unposted(index, &why),
            Happened::Closed(ending) => {
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
            return self.fault(index, Cause::Violation, "a slice came over a link that brings none");
        };
        let number = session.number;
        if let Err(failure) = session.arrived(member, checksum) {
            self.end(number, failure);
        }
    }

    /// The peer of a link is at fault.
    fn fault(&mut self, index: usize, cause: Cause, why: &str) {
        match self.links.role(index).and_then(Role::session) {
            Some((session, member)) => self.end(session, Failure::new(member, cause, why)),
            None => {
                tracing::debug!(why, "a link that took part in nothing is gone");
                self.drop_link(index);
            }
        }
    }

    /// We could not do what the session of a link needs.
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

    /// Ends links and sessions that have done nothing for too long.
    fn drop_idle(&mut self) {
        let now = Instant::now();
        if let Some(before) = now.checked_sub(EARLY_TIME_MAX) {
            for index in self.links.idle_since(before) {
                self.fault(index, Cause::Violation, "it has not said in time what it is for");
            }
        }
        let limit = self.config.idle_max;
        let idle = |session: &mut Session| session.idle(now, limit).map(|failure| (session.number, failure));
        let idle: Vec<(u64, Failure)> = self.sessions.values_mut().filter_map(idle).collect();
        idle.into_iter().for_each(|(session, failure)| self.end(session, failure));
    }

    /// Ends a session: everybody in it is told who is to blame, then the links close.
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
        let end = failure.named(&session.members);
        if end.cause == Cause::Closed {
            tracing::debug!(%end, "a session has ended");
        } else {
            tracing::warn!(%end, "a session has ended");
        }
        if self.ended.len() >= crate::limits::SESSIONS_MAX {
            self.ended.remove(0);
        }
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

    /// Nobody knows what a device that failed to flush has kept.
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
            let mut hands = Hands {
                links: &mut self.links,
                io: &mut self.io,
                disk: &mut self.disk,
                store: &mut self.store,
            };
            match session.advance(&mut self.counters, &mut hands) {
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
