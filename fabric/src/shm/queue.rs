//! What happens to an operation over shared memory?
//!
//! Life of an operation: the poster copies the bytes itself, between its own region and the peer's mapped one, and the
//! operation is complete when `post` returns. Only messages and immediates need the peer: they go through its ring,
//! and when the ring is full, they and all operations after them wait here, in order, until `poll` finds room.
//!
//! Invariants
//! - Operations are executed in the order of posting, on the poster's thread.
//! - Grants and revocations are heard before the operation that follows their announcement in `controls`.
//! - The socket is looked at before every sleep, so a dead peer never leaves a sleeper behind.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, epoll},
    io::Errno,
};

use super::{
    control::{Control, Heard, hear, say},
    region::{PeerRegions, share},
    ring::{Consumer, Producer, Record, RingFault},
};
use crate::{
    completion::{Done, Event},
    doorbell::Doorbell,
    error::{Ending, OperationError, PostError, RegisterError},
    limits::{CLOSE_TIME_MAX, EVENTS_PER_POLL_MAX, SHM_SPIN_US},
    memory::RawSlice,
    operation::{DeferredOperation, Operation, RemoteSpan},
    region::{Access, Region},
    wire::Queue,
};

/// A poller that never sleeps looks at its socket once in so many polls that found nothing.
pub(super) const IDLE_POLLS_PER_LOOK: u32 = 128;

/// One end of a `shm` connection.
pub(super) struct ShmQueue {
    socket: OwnedFd,
    /// Watches our bell and the socket.
    watch: OwnedFd,
    incoming: Consumer,
    bell: Doorbell,
    outgoing: Producer,
    peer_bell: Doorbell,
    peer_regions: PeerRegions,
    controls_said: u64,
    controls_heard: u64,
    deferred: VecDeque<(u64, DeferredOperation)>,
    finished: VecDeque<Event>,
    ending: Option<Ending>,
    ending_reported: bool,
    armed: bool,
    idle_polls: u32,
}

/// How the execution of an operation went.
enum Execution {
    Finished(Result<Done, OperationError>),
    /// The peer's ring has no room for it yet; nothing has happened.
    Stalled,
}

impl ShmQueue {
    pub(super) fn new(
        socket: OwnedFd,
        (incoming, bell): (Consumer, Doorbell),
        (outgoing, peer_bell): (Producer, Doorbell),
    ) -> io::Result<Self> {
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&watch, &bell, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
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
            controls_said: 0,
            controls_heard: 0,
            deferred: VecDeque::new(),
            finished: VecDeque::new(),
            ending: None,
            ending_reported: false,
            armed: false,
            idle_polls: 0,
        })
    }

    fn end(&mut self, ending: Ending) {
        self.ending.get_or_insert(ending);
    }

    fn violation(&mut self, reason: impl ToString) {
        self.end(Ending::Violation { reason: reason.to_string() });
    }

    /// Hears what the peer has announced, if it announced something new.
    fn hear_announced(&mut self) {
        let controls = self.incoming.controls();
        if controls != self.controls_heard {
            self.controls_heard = controls;
            self.hear_all();
        }
    }

    /// Hears everything that is in the socket.
    fn hear_all(&mut self) {
        while self.ending.is_none() {
            match hear(&self.socket) {
                Heard::Nothing => return,
                Heard::HungUp => {
                    self.end(Ending::Lost { reason: "its process is gone (the socket hung up)".to_owned() });
                }
                Heard::Nonsense(what) => self.violation(what),
                Heard::Control(Control::Goodbye, _) => self.end(Ending::Orderly),
                Heard::Control(Control::Revoke { key }, _) => {
                    if let Err(fault) = self.peer_regions.revoke(key) {
                        self.violation(fault);
                    }
                }
                Heard::Control(Control::Grant { key, bytes, access }, fds) => match fds.as_slice() {
                    [memory] => {
                        if let Err(fault) = self.peer_regions.grant(key, bytes, access, memory) {
                            self.violation(fault);
                        }
                    }
                    _ => self.violation(format!("a grant with {} descriptors, expected 1", fds.len())),
                },
                Heard::Control(Control::Setup { .. }, _) => self.violation("a second set-up"),
            }
        }
    }

    /// Says a control and announces it in the peer's ring.
    fn say(&mut self, control: Control, fds: &[BorrowedFd<'_>]) -> Result<(), RegisterError> {
        match say(&self.socket, control, fds) {
            Ok(()) => {
                self.controls_said += 1;
                self.outgoing.set_controls(self.controls_said);
                Ok(())
            }
            Err(Errno::AGAIN | Errno::TOOMANYREFS) => Err(RegisterError::PeerBusy),
            Err(Errno::PIPE | Errno::CONNRESET) => {
                self.hear_all();
                let lost = || Ending::Lost { reason: "the socket hung up".to_owned() };
                Err(RegisterError::Closed(self.ending.clone().unwrap_or_else(lost)))
            }
            Err(e) => Err(RegisterError::Os { action: "tell the peer about a region", source: e.into() }),
        }
    }

    fn wake_peer(&self) {
        if self.outgoing.must_wake() {
            self.peer_bell.ring();
        }
    }

    fn execute(&mut self, operation: &Operation<'_>) -> Result<Execution, RingFault> {
        let moved = Done::Moved { bytes: operation.transfer_bytes() as u64 };
        let outcome = match operation {
            Operation::Send { bytes } => {
                if !self.outgoing.has_room(bytes.len())? {
                    return Ok(Execution::Stalled);
                }
                self.outgoing.push_message(bytes)?;
                self.wake_peer();
                Ok(moved)
            }
            Operation::WriteWithImmediate { source, immediate, .. } => {
                // Asked first: the bytes must not be written twice, nor long before the peer is told.
                if !self.outgoing.has_room(0)? {
                    return Ok(Execution::Stalled);
                }
                let outcome = self.transfer(operation);
                if outcome.is_ok() {
                    let bytes = u32::try_from(source.len()).unwrap_or(u32::MAX);
                    self.outgoing.push_immediate(*immediate, bytes)?;
                    self.wake_peer();
                }
                outcome.map(|()| moved)
            }
            Operation::Write { .. } | Operation::WriteBytes { .. } | Operation::Read { .. } => {
                self.transfer(operation).map(|()| moved)
            }
            Operation::FetchAdd { .. } | Operation::CompareSwap { .. } => {
                self.atomic(operation).map(|value| Done::Found { value })
            }
        };
        Ok(Execution::Finished(outcome))
    }

    /// Copies the bytes of a read or write.
    fn transfer(&self, operation: &Operation<'_>) -> Result<(), OperationError> {
        let Some(span) = operation.remote_span().map_err(OperationError::OutOfBounds)? else { return Ok(()) };
        match operation {
            Operation::Write { source, .. } | Operation::WriteWithImmediate { source, .. } => {
                let (remote, offset) = self.peer_regions.find(span, Access::Write)?;
                source.region().mapping().copy_to(source.offset(), remote, offset, source.len())
            }
            Operation::WriteBytes { bytes, .. } => {
                let (remote, offset) = self.peer_regions.find(span, Access::Write)?;
                remote.copy_in(offset, bytes)
            }
            Operation::Read { target, .. } => {
                let (remote, offset) = self.peer_regions.find(span, Access::Read)?;
                remote.copy_to(offset, target.region().mapping(), target.offset(), target.len())
            }
            Operation::Send { .. } | Operation::FetchAdd { .. } | Operation::CompareSwap { .. } => Ok(()),
        }
        .map_err(OperationError::OutOfBounds)
    }

    /// Executes an atomic operation and returns the value before.
    fn atomic(&self, operation: &Operation<'_>) -> Result<u64, OperationError> {
        let Some(span) = operation.remote_span().map_err(OperationError::OutOfBounds)? else { return Ok(0) };
        let (remote, offset) = self.peer_regions.find(span, Access::ReadWrite)?;
        let word = remote.word_to_store(offset).map_err(OperationError::OutOfBounds)?;
        let found = match *operation {
            Operation::FetchAdd { add, .. } => word.fetch_add(add, Ordering::SeqCst),
            Operation::CompareSwap { expected, replacement, .. } => word
                .compare_exchange(expected, replacement, Ordering::SeqCst, Ordering::SeqCst)
                .unwrap_or_else(|found| found),
            _ => 0,
        };
        Ok(found)
    }

    /// Executes deferred operations as far as the peer's ring has room.
    fn progress(&mut self) {
        while self.ending.is_none() {
            let Some((id, deferred)) = self.deferred.pop_front() else { return };
            match self.execute(&deferred.as_operation()) {
                Ok(Execution::Finished(outcome)) => {
                    self.finished.push_back(Event::Completed { id, outcome });
                }
                Ok(Execution::Stalled) => {
                    self.deferred.push_front((id, deferred));
                    return;
                }
                Err(fault) => {
                    self.deferred.push_front((id, deferred));
                    self.violation(fault);
                }
            }
        }
    }

    /// Takes records out of our ring until `events` has grown to `limit`.
    fn receive(&mut self, events: &mut Vec<Event>, limit: usize) {
        while events.len() < limit {
            match self.incoming.pop() {
                Ok(None) => break,
                Ok(Some(Record::Message { bytes })) => events.push(Event::Message { bytes }),
                Ok(Some(Record::Immediate { immediate, bytes })) => {
                    events.push(Event::Immediate { immediate, bytes: u64::from(bytes) });
                }
                Err(fault) => {
                    self.violation(fault);
                    return;
                }
            }
        }
        match self.incoming.release() {
            Ok(true) => self.wake_peer(),
            Ok(false) => {}
            Err(fault) => self.violation(RingFault::from(fault)),
        }
    }

    /// Everything is over: what is in flight fails, and the ending is reported last.
    fn report_ending(&mut self, events: &mut Vec<Event>, ending: Ending) {
        for (id, _) in self.deferred.drain(..) {
            let outcome = Err(OperationError::Closed(ending.clone()));
            events.push(Event::Completed { id, outcome });
        }
        self.peer_regions.clear();
        self.ending_reported = true;
        events.push(Event::Closed(ending));
    }

    fn disarm(&mut self) {
        self.armed = false;
        self.incoming.set_sleeping(false);
        self.bell.drain();
    }
}

impl Queue for ShmQueue {
    fn grant(&mut self, key: u64, region: &Region, access: Access) -> Result<(), RegisterError> {
        let os = |source| RegisterError::Os { action: "share the memory of a region", source };
        let memory = share(region, access).map_err(os)?;
        let bytes = region.bytes() as u64;
        self.say(Control::Grant { key, bytes, access }, &[memory.as_fd()])
    }

    fn revoke(&mut self, key: u64) -> Result<(), RegisterError> {
        self.say(Control::Revoke { key }, &[])
    }

    fn post(&mut self, id: u64, operation: Operation<'_>) -> Result<(), PostError> {
        self.hear_announced();
        if let Some(ending) = &self.ending {
            return Err(PostError::Closed(ending.clone()));
        }
        if !self.deferred.is_empty() {
            self.progress();
        }
        if !self.deferred.is_empty() {
            self.deferred.push_back((id, DeferredOperation::new(operation)));
            return Ok(());
        }
        match self.execute(&operation) {
            Ok(Execution::Finished(outcome)) => self.finished.push_back(Event::Completed { id, outcome }),
            Ok(Execution::Stalled) => self.deferred.push_back((id, DeferredOperation::new(operation))),
            Err(fault) => {
                self.violation(fault);
                self.deferred.push_back((id, DeferredOperation::new(operation)));
            }
        }
        Ok(())
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
            self.hear_all();
        } else if self.idle_polls >= IDLE_POLLS_PER_LOOK {
            self.idle_polls = 0;
            self.hear_all();
        } else {
            self.hear_announced();
        }
        if !self.deferred.is_empty() {
            self.progress();
        }
        let finished = self.finished.len().min(EVENTS_PER_POLL_MAX);
        events.extend(self.finished.drain(..finished));
        self.receive(events, limit);
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

    fn wait_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    fn arm(&mut self) -> bool {
        if !self.armed {
            self.armed = true;
            self.incoming.set_sleeping(true);
        }
        // Said first, looked after: see the ring's third invariant.
        let progress_possible = match self.deferred.front() {
            Some((_, deferred)) => !matches!(self.outgoing.has_room(deferred.ring_bytes()), Ok(false)),
            None => false,
        };
        let something = self.incoming.has_records()
            || !self.finished.is_empty()
            || progress_possible
            || self.incoming.controls() != self.controls_heard
            || (self.ending.is_some() && !self.ending_reported);
        if something {
            self.disarm();
        }
        !something
    }

    fn map_remote(&mut self, span: RemoteSpan, access: Access) -> Option<RawSlice> {
        self.hear_announced();
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
                // However the sleep ends, the loop looks at the deadline.
                let _ = rustix::event::poll(&mut fds, timeout.as_ref());
            }
        }
        // Who cannot be told any more will see the socket hang up.
        let _ = self.say(Control::Goodbye, &[]);
        self.wake_peer();
    }
}
