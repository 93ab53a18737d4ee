//! Manages one connection of a reactor: posts its operations, and queues those that do not fit yet.
//!
//! Invariants
//! - Operations are posted in the order in which they were requested. Those for which the
//!   connection's queue has no room wait here.
//! - All operations of one turn of the reactor are sent together, at the latest before the
//!   connection is polled, armed or closed.
//! - The waiting operations are bounded. Transfers are bounded by the connection's requests, each
//!   of which has a bounded number in flight. Replies are bounded by `REPLIES_WAITING_MAX`; beyond
//!   it, the connection is closed.

mod posts;

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rackscan_device::{DeviceIo, Interest, Repeat, Token, Watch, WatchId};
use rackscan_fabric::{
    Access, Connection, Event, Operation, PostError, RawSlice, Region, RegionSlice, RegisterError,
    RemoteRegion, inbox::SenderId,
};
use rackscan_format::message::Target;

pub(crate) use self::posts::Posts;
use crate::{
    ids::ConnectionId,
    limits::{HELD_BYTES_MAX, TURNS_UNTIL_WATCHED},
};

/// The id of a reply's send operation, whose completion nothing waits for.
pub(crate) const REPLY: u64 = u64::MAX;

/// Tokens of watches have this bit; those of transfers do not.
pub(crate) const WATCH: u64 = 1 << 63;

/// An operation that waits for room.
#[derive(Debug)]
enum Waiting {
    Transfer(u64, Operation<'static>),
    Reply(Vec<u8>),
}

/// A connection of a reactor.
#[derive(Debug)]
pub(crate) struct Link {
    connection: Connection,
    id: ConnectionId,
    /// The watch that wakes the reactor for this connection; `None` once it has fired.
    watch: Option<WatchId>,
    waiting: VecDeque<Waiting>,
    /// Transfers that were posted and not completed yet.
    under_way: Vec<u64>,
    /// Bytes that were posted and held back since the last release; `None` if nothing is held back.
    held_bytes: Option<usize>,
    /// The page cache, if the peer was granted access.
    cache: Option<Target>,
    /// The participant's slots and feed, if the peer was granted access.
    slots: Option<Target>,
    feed: Option<Target>,
    /// The post boxes of both ends, if the peer has asked for them.
    posts: Option<Box<Posts>>,
    /// Whether the participant got requests over this connection.
    pub(crate) transacts: bool,
    /// Set when the connection is closed, and nobody waits for answers.
    gone: Arc<AtomicBool>,
    /// Requests in progress.
    pub(crate) requests: usize,
    /// Staging memory in use by them.
    pub(crate) staged_bytes: usize,
    /// Whether it is in its reactor's list of used connections, and in the list of those to poll.
    pub(crate) is_used: bool,
    pub(crate) is_awake: bool,
    /// Turns in which it was polled and nothing happened, since the last event.
    idle_turns: u32,
}

/// The peer's memory that a target names.
pub(crate) fn remote(target: &Target) -> RemoteRegion {
    RemoteRegion { key: target.key, address: target.offset_bytes, length: target.length_bytes }
}

/// The memory of the participant that a peer may read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrantedParticipant {
    pub(crate) slots: Target,
    pub(crate) feed: Target,
}

/// Grants the peer read access to a region, unless it has it already.
fn grant(
    connection: &mut Connection,
    granted: &mut Option<Target>,
    region: &Region,
) -> Result<Target, RegisterError> {
    if let Some(granted) = granted {
        return Ok(*granted);
    }
    let RemoteRegion { key, address, length } = connection.register(region, Access::Read)?;
    Ok(*granted.insert(Target { key, offset_bytes: address, length_bytes: length }))
}

impl Link {
    pub(crate) fn new(connection: Connection, id: ConnectionId) -> Self {
        let gone = Arc::default();
        Self {
            connection,
            id,
            watch: None,
            waiting: VecDeque::new(),
            under_way: Vec::new(),
            held_bytes: None,
            cache: None,
            slots: None,
            feed: None,
            posts: None,
            transacts: false,
            gone,
            requests: 0,
            staged_bytes: 0,
            is_used: false,
            is_awake: false,
            idle_turns: 0,
        }
    }

    pub(crate) fn id(&self) -> ConnectionId {
        self.id
    }

    /// The watch of this connection that has not fired yet.
    pub(crate) fn watch(&self) -> Option<WatchId> {
        self.watch
    }

    /// Records that its watch has fired.
    pub(crate) fn unwatched(&mut self) {
        self.watch = None;
    }

    /// Its sender id in the reactor's receive queue.
    pub(crate) fn sender(&self) -> Option<SenderId> {
        self.connection.inbox().map(|(_, sender)| sender)
    }

    pub(crate) fn peer(&self) -> &str {
        self.connection.peer()
    }

    /// A flag that is set when the connection is closed, so that work on other threads can be
    /// skipped.
    pub(crate) fn gone(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.gone)
    }

    /// Sets that flag.
    pub(crate) fn forget(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    /// Whether posted operations are held back.
    pub(crate) fn holds_back(&self) -> bool {
        self.held_bytes.is_some()
    }

    /// Counts a turn in which something happened on the connection, or nothing.
    pub(crate) fn count_turn(&mut self, happened: bool) {
        self.idle_turns = if happened { 0 } else { self.idle_turns.saturating_add(1) };
    }

    /// Whether nothing has happened for [`TURNS_UNTIL_WATCHED`] turns, and nothing is in progress.
    pub(crate) fn is_idle(&self) -> bool {
        self.idle_turns >= TURNS_UNTIL_WATCHED
            && self.requests == 0
            && self.waiting.is_empty()
            && self.under_way.is_empty()
    }

    /// Whether the peer's memory can be mapped here.
    pub(crate) fn maps_memory(&self) -> bool {
        self.connection.wire().maps_memory()
    }

    /// The mapped memory of a target; `None` if it does not exist or does not grant that access.
    pub(crate) fn map(&mut self, target: &Target, access: Access) -> Option<RawSlice> {
        self.connection.map_remote(&remote(target), 0, target.length_bytes, access)
    }

    /// Grants the peer read access to the page cache; returns the name of that memory.
    pub(crate) fn grant_cache(&mut self, region: &Region) -> Result<Target, RegisterError> {
        grant(&mut self.connection, &mut self.cache, region)
    }

    /// Grants the peer read access to the slots and the feed of the participant; returns their
    /// names.
    pub(crate) fn grant_participant(
        &mut self,
        slots: &Region,
        feed: &Region,
    ) -> Result<GrantedParticipant, RegisterError> {
        let slots = grant(&mut self.connection, &mut self.slots, slots)?;
        let feed = grant(&mut self.connection, &mut self.feed, feed)?;
        Ok(GrantedParticipant { slots, feed })
    }

    /// Copies a part of our memory into the peer's.
    pub(crate) fn write(
        &mut self,
        id: u64,
        source: RegionSlice,
        target: &Target,
        target_offset: u64,
    ) -> Result<(), PostError> {
        self.transfer(id, Operation::Write { source, target: remote(target), target_offset })
    }

    /// Copies a part of the peer's memory into ours.
    pub(crate) fn read(
        &mut self,
        id: u64,
        source: &Target,
        source_offset: u64,
        target: RegionSlice,
    ) -> Result<(), PostError> {
        self.transfer(id, Operation::Read { source: remote(source), source_offset, target })
    }

    /// Posts an operation, held back so that it goes out with the others of this turn.
    fn post(&mut self, id: u64, operation: Operation<'_>) -> Result<(), PostError> {
        let held_bytes = self.hold(operation.transfer_bytes());
        let posted = self.connection.post(id, operation);
        if held_bytes >= HELD_BYTES_MAX {
            self.release();
        }
        posted
    }

    /// Counts bytes that are about to be posted. Returns all bytes that are held back.
    fn hold(&mut self, bytes: usize) -> usize {
        if self.held_bytes.is_none() {
            self.connection.hold();
        }
        let held_bytes = self.held_bytes.unwrap_or(0) + bytes;
        self.held_bytes = Some(held_bytes);
        held_bytes
    }

    /// Hands what was held back to the wire.
    pub(crate) fn release(&mut self) {
        if self.held_bytes.take().is_some() {
            self.connection.release();
        }
    }

    fn transfer(&mut self, id: u64, operation: Operation<'static>) -> Result<(), PostError> {
        if self.waiting.is_empty() {
            match self.post(id, operation.clone()) {
                Err(PostError::QueueFull { .. }) => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    self.under_way.push(id);
                    return Ok(());
                }
            }
        }
        self.waiting.push_back(Waiting::Transfer(id, operation));
        Ok(())
    }

    /// Replies that wait because the peer does not read them.
    pub(crate) fn replies_waiting(&self) -> usize {
        self.waiting.iter().filter(|waiting| matches!(waiting, Waiting::Reply(_))).count()
    }

    /// Sends a reply.
    pub(crate) fn reply(&mut self, bytes: Vec<u8>) {
        if self.waiting.is_empty() {
            match self.post(REPLY, Operation::Send { bytes: &bytes }) {
                Err(PostError::QueueFull { .. }) => {}
                Err(error) => {
                    tracing::debug!(peer = self.peer(), %error, "a reply was not sent");
                    return;
                }
                Ok(()) => return,
            }
        }
        self.waiting.push_back(Waiting::Reply(bytes));
    }

    /// Collects events, and posts waiting operations as far as there is room. Returns whether any
    /// event was found.
    pub(crate) fn poll(&mut self, events: &mut Vec<Event>) -> bool {
        self.release();
        // No system call is needed while its watch has not fired.
        let happened = match self.watch {
            Some(_) => self.connection.poll_memory(events),
            None => self.connection.poll(events),
        } > 0;
        while let Some(next) = self.waiting.pop_front() {
            let posted = match &next {
                Waiting::Transfer(id, operation) => {
                    self.post(*id, operation.clone()).map(|()| self.under_way.push(*id))
                }
                Waiting::Reply(bytes) => self.post(REPLY, Operation::Send { bytes }),
            };
            if let Err(PostError::QueueFull { .. } | PostError::Closed(_)) = posted {
                self.waiting.push_front(next);
                break;
            }
        }
        happened
    }

    /// Records the completion of a transfer.
    pub(crate) fn reported(&mut self, id: u64) {
        if let Some(place) = self.under_way.iter().position(|under_way| *under_way == id) {
            self.under_way.swap_remove(place);
        }
    }

    /// Closes the connection, and returns the transfers that will not be completed: their memory is
    /// free when this returns. It may take as long as the fabric takes to hang up.
    pub(crate) fn close(mut self) -> Vec<u64> {
        self.release();
        let Self { connection, waiting, mut under_way, .. } = self;
        connection.close();
        under_way.extend(waiting.into_iter().filter_map(|waiting| match waiting {
            Waiting::Transfer(id, _) => Some(id),
            Waiting::Reply(_) => None,
        }));
        under_way
    }

    /// Announces that the reactor is about to sleep, and makes sure that the connection will wake
    /// it. Returns false if there is something to do first.
    ///
    /// The watch reports once, and considers the present state of the descriptor: a watch for
    /// changes would miss an event between the last poll and this call.
    pub(crate) fn arm(&mut self, io: &mut impl DeviceIo) -> bool {
        self.release();
        if !self.connection.arm() {
            return false;
        }
        if self.watch.is_none() {
            let fd = self.connection.wait_fd();
            let token = Token(WATCH | self.id.0);
            let watch = Watch { fd, interest: Interest::Readable, repeat: Repeat::Once, token };
            self.watch = io.watch(watch).ok();
        }
        // A request that was written into a box before this point has woken nobody.
        self.watch.is_some() && !self.has_post()
    }
}
