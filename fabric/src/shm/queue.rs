//! Implements the queue of a `shm` connection.
//!
//! The thread that posts an operation copies the bytes itself, between its own region and the
//! peer's mapped region, and the operation is complete when `post` returns. Only messages and
//! immediates need the peer: they go through its ring or inbox. When that is full, they and all
//! operations after them wait here, in order, until `poll` finds room.
//!
//! Invariants
//! - Operations are executed in the order of posting, on the poster's thread.
//! - A region that the peer grants or revokes is mapped or unmapped before the next operation after
//!   its announcement (in `controls`).
//! - The socket is watched in every sleep, so the death of the peer wakes a sleeping owner.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Instant,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, epoll},
    io::Errno,
    net::Shutdown,
};

use super::{
    control::{Control, ReceivedControl, receive_control, send_control},
    ends::{Incoming, Outgoing, Progress},
    region::{PeerRegions, share},
    ring::Record,
};
use crate::{
    access::Access,
    completion::{Done, Event},
    doorbell::Doorbell,
    error::{Ending, OperationError, PostError, RegisterError},
    limits::{CLOSE_TIME_MAX, EVENTS_PER_POLL_MAX, SHM_RING_BYTES, SHM_SPIN_US},
    memory::RawSlice,
    operation::{DeferredOperation, Operation, RemoteSpan},
    region::{Region, RemoteRegion},
    wire::Queue,
};

/// An owner that never sleeps, or only calls `poll_memory`, checks its socket once in so many polls
/// that found nothing.
pub(super) const IDLE_POLLS_PER_LOOK: u32 = 128;

/// One end of a `shm` connection.
pub(super) struct ShmQueue {
    socket: OwnedFd,
    /// Watches our bell and the socket.
    watch: OwnedFd,
    incoming: Incoming,
    bell: Arc<Doorbell>,
    pub(super) outgoing: Outgoing,
    pub(super) peer_bell: Arc<Doorbell>,
    pub(super) peer_regions: PeerRegions,
    controls_sent: u64,
    controls_received: u64,
    deferred: VecDeque<Deferred>,
    finished: VecDeque<Event>,
    ending: Option<Ending>,
    ending_reported: bool,
    /// The peer no longer touches our memory: it has said goodbye or is gone.
    peer_is_done: bool,
    /// `Some` between `begin_batch` and `end_batch`; true if something was sent since.
    pub(super) batch: Option<bool>,
    armed: bool,
    /// The peer must be woken after a write that waits in `deferred`.
    owes_wake: bool,
    idle_polls: u32,
}

/// An operation that waits for room, or behind one that does.
struct Deferred {
    id: u64,
    operation: DeferredOperation,
    progress: Progress,
}

/// The result of executing an operation.
pub(super) enum Execution {
    Finished(Result<Done, OperationError>),
    /// There is no room for the remainder yet; [`Progress`] holds what was done.
    Stalled,
}

impl ShmQueue {
    pub(super) fn new(
        socket: OwnedFd,
        (incoming, bell): (Incoming, Arc<Doorbell>),
        (outgoing, peer_bell): (Outgoing, Arc<Doorbell>),
    ) -> io::Result<Self> {
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&watch, &*bell, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        let hang_up = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        epoll::add(&watch, &socket, epoll::EventData::new_u64(1), hang_up)?;
        Ok(Self {
            socket,
            watch,
            incoming,
            bell,
            outgoing,
            peer_bell,
            peer_regions: PeerRegions::default(),
            controls_sent: 0,
            controls_received: 0,
            deferred: VecDeque::new(),
            finished: VecDeque::new(),
            ending: None,
            ending_reported: false,
            peer_is_done: false,
            batch: None,
            armed: false,
            owes_wake: false,
            idle_polls: 0,
        })
    }

    fn end(&mut self, ending: Ending) {
        self.ending.get_or_insert(ending);
    }

    fn violation(&mut self, reason: impl ToString) {
        self.end(Ending::Violation { reason: reason.to_string() });
    }

    /// Processes the peer's controls, if it has announced new ones.
    fn receive_announced_controls(&mut self) {
        let controls = self.incoming.controls();
        if controls != self.controls_received {
            self.controls_received = controls;
            self.receive_controls();
        }
    }

    /// Processes all controls in the socket.
    fn receive_controls(&mut self) {
        while self.ending.is_none() {
            match receive_control(&self.socket) {
                ReceivedControl::Nothing => return,
                ReceivedControl::HungUp => {
                    self.peer_is_done = true;
                    self.end(Ending::Lost { reason: "its process is gone (the socket hung up)".to_owned() });
                }
                ReceivedControl::Nonsense(what) => self.violation(what),
                ReceivedControl::Control(Control::Goodbye, _) => {
                    self.peer_is_done = true;
                    self.end(Ending::Orderly);
                }
                ReceivedControl::Control(Control::Revoke { key }, _) => {
                    if let Err(fault) = self.peer_regions.revoke(key) {
                        self.violation(fault);
                    }
                }
                ReceivedControl::Control(Control::Grant { key, bytes, access }, fds) => {
                    match fds.as_slice() {
                        [memory] => {
                            if let Err(fault) = self.peer_regions.grant(key, bytes, access, memory) {
                                self.violation(fault);
                            }
                        }
                        _ => self.violation(format!(
                            "it granted a region with {} descriptors, expected 1",
                            fds.len()
                        )),
                    }
                }
                ReceivedControl::Control(Control::Setup { .. } | Control::SetupInbox { .. }, _) => {
                    self.violation("it sent a second set-up");
                }
            }
        }
    }

    /// Sends a control and announces it in the peer's ring.
    fn send_control(&mut self, control: Control, fds: &[BorrowedFd<'_>]) -> Result<(), RegisterError> {
        match send_control(&self.socket, control, fds) {
            Ok(()) => {
                self.controls_sent += 1;
                self.outgoing.set_controls(self.controls_sent);
                Ok(())
            }
            Err(Errno::AGAIN | Errno::TOOMANYREFS) => Err(RegisterError::PeerBusy),
            Err(Errno::PIPE | Errno::CONNRESET) => {
                self.receive_controls();
                let lost = || Ending::Lost { reason: "the socket hung up".to_owned() };
                Err(RegisterError::Closed(self.ending.clone().unwrap_or_else(lost)))
            }
            Err(e) => Err(RegisterError::Os { action: "tell the peer about a region", source: e.into() }),
        }
    }

    /// Executes deferred operations as far as there is room.
    fn progress(&mut self) {
        self.execute_deferred();
        if self.owes_wake {
            // The write that the wake-up is for was executed now, or will be in a later call, which
            // wakes again.
            self.owes_wake = !self.deferred.is_empty();
            self.outgoing.wake_connection(&self.peer_bell);
        }
    }

    fn execute_deferred(&mut self) {
        while self.ending.is_none() {
            let Some(mut deferred) = self.deferred.pop_front() else { return };
            match self.execute(&deferred.operation.as_operation(), &mut deferred.progress) {
                Ok(Execution::Finished(outcome)) => {
                    self.finished.push_back(Event::Completed { id: deferred.id, outcome });
                }
                Ok(Execution::Stalled) => {
                    self.deferred.push_front(deferred);
                    return;
                }
                Err(fault) => {
                    self.deferred.push_front(deferred);
                    self.violation(fault);
                }
            }
        }
    }

    /// Takes records out of our ring until `events` has `limit` entries, or messages of the ring's
    /// size were taken. More at once would leave the processor's caches before the caller sees
    /// them.
    fn receive(&mut self, events: &mut Vec<Event>, limit: usize) {
        let mut taken_bytes = 0;
        while events.len() < limit && taken_bytes < SHM_RING_BYTES && self.incoming.has_records() {
            match self.incoming.pop() {
                Ok(None) => {}
                Ok(Some(Record::Message { bytes })) => {
                    taken_bytes += bytes.len();
                    events.push(Event::Message { bytes });
                }
                Ok(Some(Record::Immediate { immediate, bytes })) => {
                    events.push(Event::Immediate { immediate, bytes: u64::from(bytes) });
                }
                Err(fault) => {
                    self.violation(fault);
                    return;
                }
            }
            if self.incoming.owes_space() {
                self.release();
            }
        }
        self.release();
    }

    fn release(&mut self) {
        match self.incoming.release() {
            Ok(true) => self.outgoing.wake_connection(&self.peer_bell),
            Ok(false) => {}
            Err(fault) => self.violation(fault),
        }
    }

    /// Fails all operations in flight and reports the ending last.
    fn report_ending(&mut self, events: &mut Vec<Event>, ending: Ending) {
        for Deferred { id, .. } in self.deferred.drain(..) {
            let outcome = Err(OperationError::Closed(ending.clone()));
            events.push(Event::Completed { id, outcome });
        }
        self.peer_regions.clear();
        if matches!(self.outgoing, Outgoing::Inbox(_)) {
            // We no longer write into the peer's inbox, which serves others, too. It waits for this
            // hang-up.
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        }
        self.leave_inbox();
        self.ending_reported = true;
        events.push(Event::Closed(ending));
    }

    /// Reports that the peer sends nothing more through the inbox. If the peer may not know this
    /// yet, the inbox waits for its socket to hang up.
    fn leave_inbox(&mut self) {
        if let Incoming::Inbox(member) = &mut self.incoming {
            let socket = if self.peer_is_done { None } else { self.socket.try_clone().ok() };
            member.leave(socket);
        }
    }

    /// Whether there is something to poll, as far as memory shows.
    fn shows_something(&mut self) -> bool {
        let progress_possible = match self.deferred.front() {
            Some(Deferred { operation, progress, .. }) => {
                let operation = operation.as_operation();
                let message = matches!(operation, Operation::Send { .. } | Operation::SendRegion { .. });
                let bytes = if message { operation.transfer_bytes() } else { 0 };
                !matches!(self.outgoing.can_continue(bytes, progress), Ok(false))
            }
            None => false,
        };
        self.incoming.has_records()
            || !self.finished.is_empty()
            || progress_possible
            || self.incoming.controls() != self.controls_received
            || (self.incoming.fault().is_some() && !self.ending_reported)
            || (self.ending.is_some() && !self.ending_reported)
    }

    fn disarm(&mut self) {
        self.armed = false;
        self.incoming.set_sleeping(false);
        self.bell.drain();
    }
}

impl Queue for ShmQueue {
    fn grant(&mut self, key: u64, region: &Region, access: Access) -> Result<RemoteRegion, RegisterError> {
        let os = |source| RegisterError::Os { action: "share the memory of a region", source };
        let memory = share(region, access).map_err(os)?;
        let bytes = region.bytes() as u64;
        self.send_control(Control::Grant { key, bytes, access }, &[memory.as_fd()])?;
        Ok(RemoteRegion { key, address: 0, length: bytes })
    }

    fn revoke(&mut self, key: u64) -> Result<(), RegisterError> {
        self.send_control(Control::Revoke { key }, &[])
    }

    fn post(&mut self, id: u64, operation: Operation<'_>) -> Result<(), PostError> {
        self.receive_announced_controls();
        if let Some(ending) = &self.ending {
            return Err(PostError::Closed(ending.clone()));
        }
        if !self.deferred.is_empty() {
            self.progress();
        }
        let mut progress = Progress::default();
        if self.deferred.is_empty() {
            match self.execute(&operation, &mut progress) {
                Ok(Execution::Finished(outcome)) => {
                    self.finished.push_back(Event::Completed { id, outcome });
                    return Ok(());
                }
                Ok(Execution::Stalled) => {}
                Err(fault) => self.violation(fault),
            }
        }
        self.deferred.push_back(Deferred { id, operation: DeferredOperation::new(operation), progress });
        Ok(())
    }

    fn begin_batch(&mut self) {
        self.batch = Some(false);
    }

    fn end_batch(&mut self) {
        if self.batch.take() == Some(true) {
            self.outgoing.wake_for_message(&self.peer_bell);
        }
    }

    fn poll(&mut self, events: &mut Vec<Event>) {
        if self.ending_reported {
            return;
        }
        let before = events.len();
        let limit = before + EVENTS_PER_POLL_MAX;
        if self.armed {
            self.disarm();
            self.idle_polls = 0;
            self.receive_controls();
        } else if self.idle_polls >= IDLE_POLLS_PER_LOOK {
            self.idle_polls = 0;
            self.receive_controls();
        } else {
            self.receive_announced_controls();
        }
        if !self.deferred.is_empty() {
            self.progress();
        }
        if !self.finished.is_empty() {
            let finished = self.finished.len().min(EVENTS_PER_POLL_MAX);
            events.extend(self.finished.drain(..finished));
        }
        self.receive(events, limit);
        if let Some(fault) = self.incoming.fault() {
            let ending = Ending::Violation { reason: fault.to_owned() };
            self.end(ending);
        }
        if let Some(ending) = &self.ending
            && events.len() < limit
        {
            let ending = ending.clone();
            self.report_ending(events, ending);
        }
        if events.len() == before {
            self.idle_polls += 1;
        } else {
            self.idle_polls = 0;
        }
    }

    fn poll_memory(&mut self, events: &mut Vec<Event>) {
        // Not while operations are deferred: checking for room would tell the peer that we sleep.
        let may_stay_armed = self.armed && self.deferred.is_empty() && self.idle_polls < IDLE_POLLS_PER_LOOK;
        if may_stay_armed && !self.shows_something() {
            // According to our owner the bell was not rung. A peer that is gone is noticed by a
            // full poll from time to time.
            self.idle_polls += 1;
            return;
        }
        self.poll(events);
    }

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    fn arm(&mut self) -> bool {
        if !self.armed {
            self.armed = true;
            self.incoming.set_sleeping(true);
        }
        // Announced first, checked afterwards: see the last invariant of `ring`.
        let something = self.shows_something();
        if something {
            self.disarm();
        }
        !something
    }

    fn wake(&mut self) {
        if self.deferred.is_empty() {
            self.outgoing.wake_connection(&self.peer_bell);
        } else {
            self.owes_wake = true;
        }
    }

    fn map_remote(&mut self, span: RemoteSpan, access: Access) -> Option<RawSlice> {
        self.receive_announced_controls();
        let (mapping, offset) = self.peer_regions.find(span, access).ok()?;
        Arc::clone(mapping).raw_slice(offset, usize::try_from(span.length).ok()?).ok()
    }

    fn spin_us(&self) -> u64 {
        SHM_SPIN_US
    }

    fn close(&mut self) {
        let deadline = Instant::now() + CLOSE_TIME_MAX;
        let mut dropped = Vec::new();
        while !self.deferred.is_empty() && self.ending.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            dropped.clear();
            self.poll(&mut dropped);
            if self.arm() {
                let timeout = Timespec::try_from(left).ok();
                let mut fds = [PollFd::new(&self.watch, PollFlags::IN)];
                // However the sleep ends, the loop checks the deadline.
                let _ = rustix::event::poll(&mut fds, timeout.as_ref());
            }
        }
        // A peer that cannot be told will see the socket hang up.
        let _ = self.send_control(Control::Goodbye, &[]);
        self.outgoing.wake_for_message(&self.peer_bell);
        self.leave_inbox();
    }
}
