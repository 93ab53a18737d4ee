//! What do the application's side of a connection and its responder share?
//!
//! Invariants
//! - Requests enter `flights.waiting` and the outbox in the same order, because that is done under
//!   both locks.
//! - What is not a read never enters while a read is unanswered: the peer answers a read out of the
//!   memory itself, as fast as the socket takes the bytes, and executes what follows meanwhile. It
//!   is held, with all behind it. So something is held only while a read is unanswered.
//! - Once `flights.ending` is set no request enters or is held, so every request is answered or
//!   failed.
//! - Events are bounded: completions by the queue's depth, as is what is held; messages by their
//!   own two limits.
//! - The receiver's lock is taken before all others. The outbox may be locked while `flights` is;
//!   no other two are held at once.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicBool, Ordering, fence},
    },
};

use super::{
    drive::Drive,
    frame::{Body, Frame},
    outbox::{Outbox, Payload, Sent},
    receive::Receiver,
    region::Grants,
    request::Request,
};
use crate::{
    completion::Event,
    doorbell::Doorbell,
    error::{Ending, OperationError, PostError},
    guarded::Guarded,
    limits::{
        EVENTS_PER_POLL_MAX, TCP_INLINE_BYTES_MAX, TCP_MESSAGE_BYTES_QUEUED_MAX, TCP_MESSAGES_QUEUED_MAX,
    },
    operation::RemoteSpan,
    region::{Access, RegionSlice},
};

/// What the peer must answer a request with.
#[derive(Debug, Clone)]
pub(super) enum Expected {
    /// An acknowledgement of this many bytes.
    Acknowledge { bytes: u64 },
    /// Bytes for this place.
    ReadData { target: RegionSlice },
    /// A value.
    Found,
}

/// A request that the peer has not answered.
#[derive(Debug, Clone)]
pub(super) struct Flight {
    pub(super) id: u64,
    /// The memory it touches and the access that it needs; `None` for a message.
    pub(super) touches: Option<(RemoteSpan, Access)>,
    pub(super) expected: Expected,
}

impl Flight {
    fn is_read(&self) -> bool {
        matches!(self.expected, Expected::ReadData { .. })
    }
}

/// Requests in the order of posting.
#[derive(Debug, Default)]
pub(super) struct Flights {
    /// Those that the peer has, or will have, in the order of their sequence numbers.
    waiting: VecDeque<Flight>,
    /// Sequence number of the first in `waiting`.
    first_sequence: u64,
    /// Reads in `waiting`.
    reads: usize,
    /// Those that wait until the reads before them are answered.
    held: VecDeque<Request>,
    /// Whether a goodbye follows what is held.
    closing: bool,
    ending: Option<Ending>,
}

impl Flights {
    pub(super) fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// The request that must be answered next.
    pub(super) fn first(&self) -> Option<&Flight> {
        self.waiting.front()
    }

    pub(super) fn first_sequence(&self) -> u64 {
        self.first_sequence
    }

    /// Whether the stream must wait for an answer before it gets all that was posted.
    pub(super) fn holds_back(&self) -> bool {
        !self.held.is_empty()
    }

    fn next_sequence(&self) -> u64 {
        self.first_sequence + self.waiting.len() as u64
    }

    fn may_issue(&self, request: &Request) -> bool {
        self.reads == 0 || request.flight.is_read()
    }

    fn issue(&mut self, request: Request, outbox: &mut Outbox) {
        let frame = Frame { sequence: self.next_sequence(), body: request.body };
        self.reads += usize::from(request.flight.is_read());
        self.waiting.push_back(request.flight);
        outbox.push_request(frame, request.payload);
    }

    /// Issues of what is held as much as may be, and the goodbye behind it.
    fn release(&mut self, outbox: &mut Outbox) {
        while self.held.front().is_some_and(|request| self.may_issue(request)) {
            let Some(request) = self.held.pop_front() else { return };
            self.issue(request, outbox);
        }
        if self.closing && self.held.is_empty() {
            outbox.push_request(Frame { sequence: self.next_sequence(), body: Body::Goodbye }, Payload::None);
        }
    }

    /// Takes the first request, which is answered. What only its answer held back goes into the
    /// outbox, which the responder sends next.
    pub(super) fn answered(&mut self, outbox: &Guarded<Outbox>) -> Option<Flight> {
        let flight = self.waiting.pop_front()?;
        self.first_sequence += 1;
        self.reads -= usize::from(flight.is_read());
        if self.reads == 0 && self.holds_back() {
            self.release(&mut outbox.lock());
        }
        Some(flight)
    }
}

/// What the application has not polled yet.
#[derive(Debug, Default)]
struct Arrived {
    events: VecDeque<Event>,
    messages: usize,
    message_bytes: usize,
    /// Whether the responder waits until there is room for a message.
    responder_paused: bool,
}

/// What an event counts towards the limits of messages. An immediate is one too: the peer decides
/// how many come.
fn message_bytes(event: &Event) -> Option<usize> {
    match event {
        Event::Message { bytes } => Some(bytes.len()),
        Event::Immediate { .. } => Some(0),
        Event::Completed { .. } | Event::Closed(_) => None,
    }
}

/// See the file's head.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: OwnedFd,
    pub(super) outbox: Guarded<Outbox>,
    pub(super) flights: Guarded<Flights>,
    pub(super) grants: Grants,
    /// An inbox rings it too.
    pub(super) responder_bell: Arc<Doorbell>,
    pub(super) application_bell: Doorbell,
    pub(super) closing: AtomicBool,
    pub(super) drive: Drive,
    arrived: Guarded<Arrived>,
    has_events: AtomicBool,
    application_sleeps: AtomicBool,
}

impl Link {
    pub(super) fn new(
        socket: OwnedFd,
        responder_bell: Arc<Doorbell>,
        receiver: Receiver,
    ) -> io::Result<Self> {
        Ok(Self {
            socket,
            drive: Drive::new(receiver),
            outbox: Guarded::default(),
            flights: Guarded::default(),
            grants: Grants::default(),
            responder_bell,
            application_bell: Doorbell::new()?,
            closing: AtomicBool::new(false),
            arrived: Guarded::new(Arrived::default()),
            has_events: AtomicBool::new(false),
            application_sleeps: AtomicBool::new(false),
        })
    }

    /// Application: issues a request, and returns the outbox to be sent; or holds it, if reads are
    /// unanswered.
    pub(super) fn post(&self, request: Request) -> Result<Option<MutexGuard<'_, Outbox>>, PostError> {
        let mut flights = self.flights.lock();
        if let Some(ending) = &flights.ending {
            return Err(PostError::Closed(ending.clone()));
        }
        if flights.holds_back() || !flights.may_issue(&request) {
            flights.held.push_back(request);
            return Ok(None);
        }
        let mut outbox = self.outbox.lock();
        flights.issue(request, &mut outbox);
        Ok(Some(outbox))
    }

    /// Application: says goodbye behind all that was posted.
    pub(super) fn close(&self) {
        let mut flights = self.flights.lock();
        flights.closing = true;
        if !flights.holds_back() {
            flights.release(&mut self.outbox.lock());
        }
        drop(flights);
        // After the goodbye, so that the responder, when it sees this, knows that the goodbye is
        // held or in the outbox.
        self.closing.store(true, Ordering::SeqCst);
        self.responder_bell.ring();
    }

    /// Owner: sends what the socket takes; whether that was everything.
    pub(super) fn flush(&self) -> bool {
        // A broken stream is the responder's to judge: it knows whether the peer said goodbye.
        self.outbox.lock().send(self.socket.as_fd(), TCP_INLINE_BYTES_MAX) == Ok(Sent::All)
    }

    /// Responder: reports an event and wakes the application if it sleeps. A message is forgotten
    /// when it has closed.
    pub(super) fn report(&self, event: Event) {
        let counts = message_bytes(&event);
        if counts.is_some() && self.closing.load(Ordering::SeqCst) {
            return;
        }
        let mut arrived = self.arrived.lock();
        if let Some(bytes) = counts {
            arrived.messages += 1;
            arrived.message_bytes += bytes;
        }
        arrived.events.push_back(event);
        // Under the lock, so that it cannot undo what `take` says when it has emptied the queue.
        self.has_events.store(true, Ordering::SeqCst);
        drop(arrived);
        self.wake_sleeper();
    }

    /// Responder: wakes the application if it sleeps. To be called after what it waits for.
    pub(super) fn wake_sleeper(&self) {
        // What it waits for may be plain bytes in its memory; `fall_asleep` has the other fence.
        fence(Ordering::SeqCst);
        if self.application_sleeps.load(Ordering::SeqCst)
            && self.application_sleeps.swap(false, Ordering::SeqCst)
        {
            self.application_bell.ring();
        }
    }

    /// Responder: whether there is room for a message of `bytes`. If not, it will be woken when
    /// there is.
    pub(super) fn has_room_for_message(&self, bytes: usize) -> bool {
        if self.closing.load(Ordering::SeqCst) {
            // Nobody will take it, and behind it may be the answer for which what is held waits.
            return true;
        }
        let mut arrived = self.arrived.lock();
        // A message that is longer than all others may be together has room alone.
        let fits =
            arrived.message_bytes == 0 || arrived.message_bytes + bytes <= TCP_MESSAGE_BYTES_QUEUED_MAX;
        let room = arrived.messages < TCP_MESSAGES_QUEUED_MAX && fits;
        arrived.responder_paused = !room;
        room
    }

    /// Responder: fails everything in flight, then what is held, and reports the ending.
    pub(super) fn end(&self, ending: &Ending) {
        let (waiting, held) = {
            let mut flights = self.flights.lock();
            flights.ending = Some(ending.clone());
            (std::mem::take(&mut flights.waiting), std::mem::take(&mut flights.held))
        };
        let flights = waiting.into_iter().chain(held.into_iter().map(|request| request.flight));
        for flight in flights {
            let outcome = Err(OperationError::Closed(ending.clone()));
            self.report(Event::Completed { id: flight.id, outcome });
        }
        self.grants.clear();
        self.outbox.lock().clear();
        self.report(Event::Closed(ending.clone()));
    }

    /// Application: takes what has arrived.
    pub(super) fn take(&self, events: &mut Vec<Event>) {
        if !self.has_events.load(Ordering::Acquire) {
            return;
        }
        let mut arrived = self.arrived.lock();
        let count = arrived.events.len().min(EVENTS_PER_POLL_MAX);
        let before = events.len();
        events.extend(arrived.events.drain(..count));
        for event in &events[before..] {
            if let Some(bytes) = message_bytes(event) {
                arrived.messages -= 1;
                arrived.message_bytes -= bytes;
            }
        }
        if arrived.events.is_empty() {
            self.has_events.store(false, Ordering::SeqCst);
        }
        let paused = std::mem::take(&mut arrived.responder_paused);
        drop(arrived);
        if paused {
            self.responder_bell.ring();
        }
    }

    /// Application: says that it is about to sleep; false when there is something to take.
    pub(super) fn fall_asleep(&self) -> bool {
        self.application_sleeps.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // Said first, looked after; `report` does the two in the other order.
        !self.has_events.load(Ordering::SeqCst)
    }

    /// Application: is awake.
    pub(super) fn wake_up(&self) {
        if self.drive.owner_is_awake() {
            self.responder_bell.ring();
        }
        self.application_sleeps.store(false, Ordering::SeqCst);
        self.application_bell.drain();
    }
}
