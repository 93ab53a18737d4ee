//! Defines a connection to one peer, over any wire: registering memory, posting operations, polling
//! and waiting for events.
//!
//! Invariants
//! - A connection belongs to one thread at a time (`Send`, not `Sync`; every method takes
//!   `&mut self`).
//! - `in_flight <= QUEUE_DEPTH_MAX`: an operation is in flight from `post` until its completion is
//!   polled.
//! - After `Event::Closed` has been reported, every post and registration fails with the same
//!   ending.

use std::{
    cell::Cell,
    collections::HashSet,
    fmt,
    marker::PhantomData,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags};

use crate::{
    access::Access,
    address::Wire,
    completion::Event,
    counters::Counters,
    error::{BatchError, Ending, PostError, RegisterError},
    inbox::SenderId,
    limits::{QUEUE_DEPTH_MAX, REGISTRATIONS_MAX},
    memory::RawSlice,
    operation::Operation,
    region::{Region, RemoteRegion},
    spin::spin_time_us,
    timeout::poll_timeout,
    wire::Queue,
};

/// A reliable, ordered connection to one peer. A connection may move to another thread, but two
/// threads cannot share it:
///
/// ```
/// fn may_move<T: Send>() {}
/// may_move::<rackscan_fabric::Connection>();
/// ```
/// ```compile_fail,E0277
/// fn may_be_shared<T: Sync>() {}
/// may_be_shared::<rackscan_fabric::Connection>();
/// ```
pub struct Connection {
    queue: Box<dyn Queue>,
    wire: Wire,
    peer: String,
    registered: HashSet<u64>,
    in_flight: usize,
    ended: Option<Ending>,
    counters: Counters,
    inbox: Option<(usize, SenderId)>,
    // Two threads must not share a connection even by reference.
    _not_sync: PhantomData<Cell<()>>,
}

impl Connection {
    pub(crate) fn new(queue: Box<dyn Queue>, wire: Wire, peer: String) -> Self {
        Self {
            queue,
            wire,
            peer,
            registered: HashSet::new(),
            in_flight: 0,
            ended: None,
            counters: Counters::default(),
            inbox: None,
            _not_sync: PhantomData,
        }
    }

    /// Notes that the peer's messages arrive through an inbox of the listener, as this sender.
    pub(crate) fn through_inbox(mut self, which: usize, sender: SenderId) -> Self {
        self.inbox = Some((which, sender));
        self
    }

    /// The inbox of the listener ([`crate::Listener::bind_inboxes`]) through which the peer's
    /// messages and immediates arrive, by its index, and the peer's name there; `None` if they
    /// arrive at this connection.
    #[must_use]
    pub fn inbox(&self) -> Option<(usize, SenderId)> {
        self.inbox
    }

    /// The wire it runs over.
    #[must_use]
    pub fn wire(&self) -> Wire {
        self.wire
    }

    /// A name of the peer for messages to people.
    #[must_use]
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// How it ended, once `Event::Closed` has been polled.
    #[must_use]
    pub fn ended(&self) -> Option<&Ending> {
        self.ended.as_ref()
    }

    /// The counters of this connection.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Number of operations that were posted and whose completion was not polled.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Number of regions that the peer has access to through this connection.
    #[must_use]
    pub fn registered_count(&self) -> usize {
        self.registered.len()
    }

    /// Gives the peer access to the whole of `region` through this connection, and returns its
    /// name. Send the name to the peer, which can also use parts of it ([`RemoteRegion::slice`]).
    /// Each registration has a key of its own.
    ///
    /// # Errors
    /// When the connection has ended, has too many registrations, or the system refuses.
    pub fn register(&mut self, region: &Region, access: Access) -> Result<RemoteRegion, RegisterError> {
        self.check_open_to_register()?;
        if self.registered.len() >= REGISTRATIONS_MAX {
            let (registered, registered_max) = (self.registered.len(), REGISTRATIONS_MAX);
            return Err(RegisterError::TooMany { registered, registered_max });
        }
        let key = self.fresh_key()?;
        let remote = self.queue.grant(key, region, access)?;
        self.registered.insert(remote.key);
        Ok(remote)
    }

    /// As `register` for writing, but a write to the region that is followed by a
    /// [`Connection::wake`] wakes this connection's owner if it sleeps. Not on `verbs`, where only
    /// messages and immediates wake an owner. [`crate::post`] is built on this.
    ///
    /// # Errors
    /// As `register`.
    pub fn register_to_wake(&mut self, region: &Region) -> Result<RemoteRegion, RegisterError> {
        let remote = self.register(region, Access::Write)?;
        self.queue.wake_on_write(remote.key);
        Ok(remote)
    }

    /// Wakes the peer's owner if it sleeps, after everything that was posted so far. Does nothing
    /// on wires where the peer's side does that, nor on `verbs`.
    pub fn wake(&mut self) {
        self.queue.wake();
    }

    /// Takes the access back: operations of the peer that start afterwards are refused. An
    /// operation that is being executed may still touch the memory, which therefore stays mapped
    /// until it is done. Before the memory gets another use, agree on that with the peer by
    /// messages.
    ///
    /// # Errors
    /// When the key is not registered here or the peer cannot be told.
    pub fn deregister(&mut self, remote: &RemoteRegion) -> Result<(), RegisterError> {
        if !self.registered.contains(&remote.key) {
            return Err(RegisterError::UnknownKey { key: remote.key });
        }
        if self.ended.is_none() {
            self.queue.revoke(remote.key)?;
        }
        self.registered.remove(&remote.key);
        Ok(())
    }

    fn check_open_to_register(&self) -> Result<(), RegisterError> {
        self.ended.as_ref().map_or(Ok(()), |ending| Err(RegisterError::Closed(ending.clone())))
    }

    /// A key that nobody can guess and that no registration of this connection has.
    fn fresh_key(&self) -> Result<u64, RegisterError> {
        let action = "draw a random key";
        loop {
            let key = getrandom::u64()
                .map_err(|e| RegisterError::Os { action, source: std::io::Error::other(e.to_string()) })?;
            if key != 0 && !self.registered.contains(&key) {
                return Ok(key);
            }
        }
    }

    /// Posts an operation. Its completion will carry `id`. Never waits for the peer.
    ///
    /// # Errors
    /// When the operation is malformed, the queue is full or the connection has ended; then nothing
    /// has happened.
    pub fn post(&mut self, id: u64, operation: Operation<'_>) -> Result<(), PostError> {
        if let Some(ending) = &self.ended {
            return Err(PostError::Closed(ending.clone()));
        }
        if self.in_flight >= QUEUE_DEPTH_MAX {
            return Err(PostError::QueueFull { in_flight: self.in_flight, depth_max: QUEUE_DEPTH_MAX });
        }
        operation.check()?;
        let mut counters = self.counters;
        count_operation(&mut counters, &operation);
        self.queue.post(id, operation)?;
        self.counters = counters;
        self.in_flight += 1;
        Ok(())
    }

    /// Posts operations in order and announces them together: one doorbell of the adapter on
    /// `verbs`, one wake-up on `shm`, one system call on `tcp` if they fit. Either all or the first
    /// few are accepted.
    ///
    /// # Errors
    /// [`BatchError`] holds the number of accepted operations and why the next one was not.
    pub fn post_batch(&mut self, batch: &[(u64, Operation<'_>)]) -> Result<(), BatchError> {
        self.queue.begin_batch();
        let mut outcome = Ok(());
        for (accepted, (id, operation)) in batch.iter().enumerate() {
            if let Err(error) = self.post(*id, operation.clone()) {
                outcome = Err(BatchError { accepted, error });
                break;
            }
        }
        self.queue.end_batch();
        outcome
    }

    /// Allows operations that are posted from here on to be held back until [`Connection::release`]
    /// announces them together, as [`Connection::post_batch`] does: for an owner that posts related
    /// operations one by one. Release before polling, sleeping or waiting, because the peer may see
    /// nothing before.
    pub fn hold(&mut self) {
        self.queue.begin_batch();
    }

    /// Announces what was held back.
    pub fn release(&mut self) {
        self.queue.end_batch();
    }

    /// Appends what has happened since the last poll to `events` and returns the number of new
    /// events. Never waits.
    pub fn poll(&mut self, events: &mut Vec<Event>) -> usize {
        self.take(events, |queue, events| queue.poll(events))
    }

    /// As `poll`, for an owner that was woken by something else: [`Connection::wait_fd`] has not
    /// become readable since [`Connection::arm`] returned true. Makes no system call if memory
    /// shows nothing; what memory does not show (that the peer is gone) is then seen later. Arm
    /// again before the next sleep, as after `poll`. If the connection is not armed, this is a
    /// `poll`.
    pub fn poll_memory(&mut self, events: &mut Vec<Event>) -> usize {
        self.take(events, |queue, events| queue.poll_memory(events))
    }

    fn take(&mut self, events: &mut Vec<Event>, take: impl FnOnce(&mut dyn Queue, &mut Vec<Event>)) -> usize {
        if self.ended.is_some() {
            return 0;
        }
        let before = events.len();
        take(self.queue.as_mut(), events);
        for event in &events[before..] {
            self.count_event(event);
        }
        events.len() - before
    }

    fn count_event(&mut self, event: &Event) {
        match event {
            Event::Completed { outcome, .. } => {
                self.in_flight -= 1;
                match outcome {
                    Ok(_) => self.counters.completed += 1,
                    Err(_) => self.counters.failed += 1,
                }
            }
            Event::Message { bytes } => {
                self.counters.messages += 1;
                self.counters.received_bytes += bytes.len() as u64;
            }
            Event::Immediate { .. } => self.counters.immediates += 1,
            Event::Closed(ending) => self.ended = Some(ending.clone()),
        }
    }

    /// As `poll`, but waits until there is an event or the deadline has passed (then it returns 0).
    /// It polls for a short time, then sleeps. On a connection that has ended it returns 0 at once;
    /// see [`Connection::ended`].
    pub fn wait(&mut self, events: &mut Vec<Event>, deadline: Instant) -> usize {
        self.wait_or(events, deadline, || false)
    }

    /// As `wait`, but also returns when `arrived` returns true, because something has arrived in
    /// memory that the peer writes: in [`crate::post::PostBoxes`], whose writes end this sleep.
    /// `arrived` is called after every poll that found nothing, and once more between arming and
    /// sleeping.
    pub fn wait_or(
        &mut self,
        events: &mut Vec<Event>,
        deadline: Instant,
        mut arrived: impl FnMut() -> bool,
    ) -> usize {
        if self.ended.is_some() {
            return 0;
        }
        let spin_until = Instant::now() + spin_time_us(self.queue.spin_us());
        loop {
            let count = self.poll(events);
            if count > 0 || arrived() {
                return count;
            }
            let now = Instant::now();
            if now >= deadline || self.queue.nothing_will_come() {
                return 0;
            }
            if now < spin_until {
                std::thread::yield_now();
                continue;
            }
            if self.queue.arm() {
                if arrived() {
                    // The next poll disarms.
                    return 0;
                }
                self.counters.sleeps += 1;
                sleep_on(self.queue.wait_fd(), deadline - now);
            }
        }
    }

    /// A descriptor that a reactor can watch for reading (`poll`, `epoll`, `IORING_OP_POLL_ADD`)
    /// together with others. It is meaningful only if [`Connection::arm`] has returned true and
    /// neither `poll` nor `poll_memory` was called since.
    #[must_use]
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.queue.wait_fd()
    }

    /// Announces that the owner is about to sleep on [`Connection::wait_fd`]. If it returns false,
    /// do not sleep but poll. After waking, call `poll` (a wake-up may be spurious), or
    /// `poll_memory` if something else woke the owner, and `arm` again before the next sleep.
    pub fn arm(&mut self) -> bool {
        self.ended.is_some() || self.queue.arm()
    }

    /// A pointer to `length` bytes at `offset` of the peer's own memory, on wires that map it
    /// (`shm`), for example for an O_DIRECT read straight into it. `access` is the access that is
    /// needed. `None` on other wires, or when key, bounds or access do not hold.
    pub fn map_remote(
        &mut self,
        remote: &RemoteRegion,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Option<RawSlice> {
        if self.ended.is_some() {
            return None;
        }
        let part = remote.slice(offset, length).ok()?;
        let span = crate::operation::RemoteSpan { key: part.key, address: part.address, length: part.length };
        self.queue.map_remote(span, access)
    }

    /// Sends what was posted, tells the peer that the connection ends on purpose, and waits for
    /// that at most [`crate::limits::CLOSE_TIME_MAX`]. Dropping a connection does the same.
    pub fn close(self) {
        drop(self);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wait_fd()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("wire", &self.wire)
            .field("peer", &self.peer)
            .field("in_flight", &self.in_flight)
            .field("registered", &self.registered.len())
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

fn count_operation(counters: &mut Counters, operation: &Operation<'_>) {
    let bytes = operation.transfer_bytes() as u64;
    match operation {
        Operation::Write { .. } | Operation::WriteBytes { .. } | Operation::WriteWithImmediate { .. } => {
            counters.writes += 1;
            counters.written_bytes += bytes;
        }
        Operation::Read { .. } => {
            counters.reads += 1;
            counters.read_bytes += bytes;
        }
        Operation::Send { .. } | Operation::SendRegion { .. } => {
            counters.sends += 1;
            counters.sent_bytes += bytes;
        }
        Operation::FetchAdd { .. } | Operation::CompareSwap { .. } => counters.atomics += 1,
    }
}

/// Sleeps until `fd` is readable or `time` has passed. An interrupted sleep is a spurious wake-up.
pub(crate) fn sleep_on(fd: BorrowedFd<'_>, time: Duration) {
    let timeout = poll_timeout(time);
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    // The result does not matter, because the caller polls the queue next.
    let _ = rustix::event::poll(&mut fds, Some(&timeout));
}
