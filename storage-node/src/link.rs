//! What does a reactor know of one connection?
//!
//! Invariants
//! - Operations go out in the order they were asked for; what the connection's queue has no room
//!   for waits here.
//! - What is posted in one turn of the reactor goes out together, at the latest before the
//!   connection is polled, armed or closed.
//! - What waits is bounded: transfers by the connection's requests, each of which has a bounded
//!   number under way, replies by `REPLIES_WAITING_MAX`, beyond which the connection ends.

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
    RemoteRegion, Wire, inbox::SenderId,
};
use rackscan_format::message::Target;

pub(crate) use self::posts::Posts;
use crate::{
    limits::{HELD_BYTES_MAX, TURNS_UNTIL_WATCHED},
    store::ConnectionId,
};

/// The name of a reply's send operation, whose completion nobody waits for.
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
    /// The watch that wakes the reactor for this connection, unless it has fired.
    watch: Option<WatchId>,
    waiting: VecDeque<Waiting>,
    /// Transfers that the connection has taken and not reported yet.
    under_way: Vec<u64>,
    /// Bytes posted and held back, since the reactor last let them go; `None` if nothing is.
    held_bytes: Option<usize>,
    /// The page cache, if the peer may read it.
    cache: Option<Target>,
    /// The memory of the home of transactions, as far as the peer may read it.
    slots: Option<Target>,
    feed: Option<Target>,
    /// Boxes of either end, if the peer has asked for them.
    posts: Option<Box<Posts>>,
    /// Whether the home was asked over this connection.
    pub(crate) transacts: bool,
    /// Set when nobody waits for answers any more.
    gone: Arc<AtomicBool>,
    /// Requests in progress.
    pub(crate) requests: usize,
    /// Staging memory in use by them.
    pub(crate) staged_bytes: usize,
    /// Whether it is in its reactor's lists of those that were used, and that are looked at.
    pub(crate) is_used: bool,
    pub(crate) is_awake: bool,
    /// Turns in which it was looked at in vain, since there was something.
    idle_turns: u32,
}

/// The peer's memory that a target names.
pub(crate) fn remote(target: &Target) -> RemoteRegion {
    RemoteRegion { key: target.key, address: target.offset_bytes, length: target.length_bytes }
}

/// The names of what a peer may read of the home.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrantedHome {
    pub(crate) slots: Target,
    pub(crate) feed: Target,
}

/// Lets the peer read a region, if it may not yet.
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

    /// Its watch has fired and is gone.
    pub(crate) fn unwatched(&mut self) {
        self.watch = None;
    }

    /// Its name in the reactor's inbox.
    pub(crate) fn sender(&self) -> Option<SenderId> {
        self.connection.inbox().map(|(_, sender)| sender)
    }

    pub(crate) fn peer(&self) -> &str {
        self.connection.peer()
    }

    /// Whether the connection has gone, for work on other threads that may then be left undone.
    pub(crate) fn gone(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.gone)
    }

    /// Nobody waits for answers any more.
    pub(crate) fn forget(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    /// Whether something was posted and not handed over.
    pub(crate) fn holds_back(&self) -> bool {
        self.held_bytes.is_some()
    }

    /// Counts a turn in which there was something, or nothing.
    pub(crate) fn count_turn(&mut self, happened: bool) {
        self.idle_turns = if happened { 0 } else { self.idle_turns.saturating_add(1) };
    }

    /// Whether nothing has happened on it for a while, and nothing is in progress.
    pub(crate) fn is_idle(&self) -> bool {
        self.idle_turns >= TURNS_UNTIL_WATCHED
            && self.requests == 0
            && self.waiting.is_empty()
            && self.under_way.is_empty()
    }

    /// Whether the peer's memory can be mapped here.
    pub(crate) fn maps_memory(&self) -> bool {
        self.connection.wire() == Wire::Shm
    }

    /// The mapped memory of a target; `None` if it does not exist or does not grant that access.
    pub(crate) fn map(&mut self, target: &Target, access: Access) -> Option<RawSlice> {
        self.connection.map_remote(&remote(target), 0, target.length_bytes, access)
    }

    /// Lets the peer read the page cache, and says by which name.
    pub(crate) fn grant_cache(&mut self, region: &Region) -> Result<Target, RegisterError> {
        grant(&mut self.connection, &mut self.cache, region)
    }

    /// Lets the peer read the slots and the feed of the home, and says by which names.
    pub(crate) fn grant_home(&mut self, slots: &Region, feed: &Region) -> Result<GrantedHome, RegisterError> {
        let slots = grant(&mut self.connection, &mut self.slots, slots)?;
        let feed = grant(&mut self.connection, &mut self.feed, feed)?;
        Ok(GrantedHome { slots, feed })
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

    /// Posts, to go out with what else the reactor posts in this turn.
    fn post(&mut self, id: u64, operation: Operation<'_>) -> Result<(), PostError> {
        let held_bytes = self.hold(operation.transfer_bytes());
        let posted = self.connection.post(id, operation);
        if held_bytes >= HELD_BYTES_MAX {
            self.release();
        }
        posted
    }

    /// So many bytes more are about to be posted. How many there are then that were not let go.
    fn hold(&mut self, bytes: usize) -> usize {
        if self.held_bytes.is_none() {
            self.connection.hold();
        }
        let held_bytes = self.held_bytes.unwrap_or(0) + bytes;
        self.held_bytes = Some(held_bytes);
        held_bytes
    }

    /// Hands over what was held back, if there is anything.
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

    /// Replies that wait because the peer does not read.
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

    /// Takes what has happened, and lets what waits go out where there is room now. Returns whether
    /// anything happened.
    pub(crate) fn poll(&mut self, events: &mut Vec<Event>) -> bool {
        self.release();
        // Without a system call as long as its watch has not fired.
        let happened = match self.watch {
            Some(_) => self.connection.glance(events),
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

    /// A transfer has been reported.
    pub(crate) fn reported(&mut self, id: u64) {
        if let Some(place) = self.under_way.iter().position(|under_way| *under_way == id) {
            self.under_way.swap_remove(place);
        }
    }

    /// Ends the connection, and returns the transfers that will not be reported any more: memory
    /// that they use is free when this returns. It may take as long as the fabric takes to hang up.
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

    /// Announces that the reactor is about to sleep and makes sure that the connection will wake
    /// it; false means that there is something to do first.
    ///
    /// The watch is for one report and looks at the descriptor as it is: an event between the last
    /// poll and this moment would not be reported again by a watch that reports changes only.
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
        // What was written before that has woken nobody.
        self.watch.is_some() && !self.has_post()
    }
}
