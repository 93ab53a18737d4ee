//! Keeps the state that the application's side of a `tcp` connection shares with its responder
//! thread.
//!
//! Invariants
//! - Requests enter `flights.waiting` and the outbox in the same order, because both locks are
//!   held.
//! - While a read is unanswered, only reads enter. The peer sends the answer to a read straight
//!   from the memory, as fast as the socket takes the bytes, and would execute the following
//!   requests meanwhile. So a request that is not a read is held back, with all requests after it,
//!   and requests are held back only while a read is unanswered.
//! - Once `flights.ending` is set no request enters or is held back, so every request is answered
//!   or failed.
//! - Events are bounded: completions by the queue's depth, messages by their own two limits.
//!   Requests that are held back are bounded by the queue's depth.
//! - The receiver's lock is taken before all others. The outbox may be locked while `flights` is
//!   locked; no other two locks are held at once.

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
    request::{Flight, Request},
};
use crate::{
    completion::Event,
    doorbell::Doorbell,
    error::{Ending, OperationError, PostError},
    guarded::Guarded,
    limits::{
        EVENTS_PER_POLL_MAX, TCP_INLINE_BYTES_MAX, TCP_MESSAGE_BYTES_QUEUED_MAX, TCP_MESSAGES_QUEUED_MAX,
    },
};

/// Our requests in the order of posting.
#[derive(Debug, Default)]
pub(super) struct Flights {
    /// Requests that were sent or are in the outbox, in the order of their sequence numbers.
    waiting: VecDeque<Flight>,
    /// Sequence number of the first in `waiting`.
    first_sequence: u64,
    /// Reads in `waiting`.
    reads: usize,
    /// Requests that are held until the reads before them are answered.
    held: VecDeque<Request>,
    /// Whether a goodbye follows the held requests.
    closing: bool,
    ending: Option<Ending>,
}

impl Flights {
    pub(super) fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// The request that the peer must answer next.
    pub(super) fn first(&self) -> Option<&Flight> {
        self.waiting.front()
    }

    pub(super) fn first_sequence(&self) -> u64 {
        self.first_sequence
    }

    /// Whether requests are held until an answer arrives.
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

    /// Issues as many held requests as possible, and the goodbye after them.
    fn release(&mut self, outbox: &mut Outbox) {
        while self.held.front().is_some_and(|request| self.may_issue(request)) {
            let Some(request) = self.held.pop_front() else { return };
            self.issue(request, outbox);
        }
        if self.closing && self.held.is_empty() {
            outbox.push_request(Frame { sequence: self.next_sequence(), body: Body::Goodbye }, Payload::None);
        }
    }

    /// Removes the first request, which was answered. Requests that were held for this answer go
    /// into the outbox, which the responder sends next.
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

/// Events that the application has not polled yet.
#[derive(Debug, Default)]
struct UnpolledEvents {
    events: VecDeque<Event>,
    messages: usize,
    message_bytes: usize,
    /// Whether the responder waits for room for a message.
    responder_paused: bool,
}

/// The bytes with which an event counts towards the limits on messages; `None` if it does not
/// count. An immediate counts, because the peer decides how many come.
fn message_bytes(event: &Event) -> Option<usize> {
    match event {
        Event::Message { bytes } => Some(bytes.len()),
        Event::Immediate { .. } => Some(0),
        Event::Completed { .. } | Event::Closed(_) => None,
    }
}

/// The shared state; see the head of this file.
#[derive(Debug)]
pub(super) struct SharedState {
    pub(super) socket: OwnedFd,
    pub(super) outbox: Guarded<Outbox>,
    pub(super) flights: Guarded<Flights>,
    pub(super) grants: Grants,
    /// Wakes the responder. An inbox rings it, too.
    pub(super) responder_bell: Arc<Doorbell>,
    pub(super) application_bell: Doorbell,
    pub(super) closing: AtomicBool,
    pub(super) drive: Drive,
    arrived: Guarded<UnpolledEvents>,
    has_events: AtomicBool,
    application_sleeps: AtomicBool,
}

impl SharedState {
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
            arrived: Guarded::new(UnpolledEvents::default()),
            has_events: AtomicBool::new(false),
            application_sleeps: AtomicBool::new(false),
        })
    }

    /// Application: issues a request and returns the outbox, which must then be sent. Holds the
    /// request instead if unanswered reads require that.
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

    /// Application: sends a goodbye after everything that was posted.
    pub(super) fn close(&self) {
        let mut flights = self.flights.lock();
        flights.closing = true;
        if !flights.holds_back() {
            flights.release(&mut self.outbox.lock());
        }
        drop(flights);
        // Set after the goodbye, so that a responder that sees this knows that the goodbye is held
        // or in the outbox.
        self.closing.store(true, Ordering::SeqCst);
        self.responder_bell.ring();
    }

    /// Owner: sends what the socket takes. Returns whether that was everything.
    pub(super) fn flush(&self) -> bool {
        // The responder handles a broken stream: it knows whether the peer said goodbye.
        self.outbox.lock().send(self.socket.as_fd(), TCP_INLINE_BYTES_MAX) == Ok(Sent::All)
    }

    /// Responder: reports an event and wakes the application if it sleeps. A message is dropped if
    /// the application has closed the connection.
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
        // Set under the lock, so that it cannot contradict `take`, which clears it when the queue
        // is empty.
        self.has_events.store(true, Ordering::SeqCst);
        drop(arrived);
        self.wake_sleeper();
    }

    /// Responder: wakes the application if it sleeps. Call it after storing what the application
    /// waits for.
    pub(super) fn wake_sleeper(&self) {
        // The application may wait for plain bytes in its memory. `fall_asleep` has the matching
        // fence.
        fence(Ordering::SeqCst);
        if self.application_sleeps.load(Ordering::SeqCst)
            && self.application_sleeps.swap(false, Ordering::SeqCst)
        {
            self.application_bell.ring();
        }
    }

    /// Responder: whether there is room for a message of `bytes`. If not, the responder will be
    /// woken when there is.
    pub(super) fn has_room_for_message(&self, bytes: usize) -> bool {
        if self.closing.load(Ordering::SeqCst) {
            // The message will be dropped, and behind it may be the answer that held requests wait
            // for.
            return true;
        }
        let mut arrived = self.arrived.lock();
        // A message that is longer than the limit has room if it is the only one.
        let fits =
            arrived.message_bytes == 0 || arrived.message_bytes + bytes <= TCP_MESSAGE_BYTES_QUEUED_MAX;
        let room = arrived.messages < TCP_MESSAGES_QUEUED_MAX && fits;
        arrived.responder_paused = !room;
        room
    }

    /// Responder: fails all requests in flight, then the held ones, and reports the ending.
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

    /// Application: takes events.
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

    /// Application: announces that it is about to sleep. Returns false if there are events.
    pub(super) fn fall_asleep(&self) -> bool {
        self.application_sleeps.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // Announced first, checked afterwards; `report` does the two in the other order.
        !self.has_events.load(Ordering::SeqCst)
    }

    /// Application: announces that it is awake.
    pub(super) fn wake_up(&self) {
        if self.drive.announce_owner_awake() {
            self.responder_bell.ring();
        }
        self.application_sleeps.store(false, Ordering::SeqCst);
        self.application_bell.drain();
    }
}
