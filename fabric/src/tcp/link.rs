//! What do the application's side of a connection and its responder share?
//!
//! Invariants
//! - Requests enter `flights` and the outbox in the same order, because only the application's thread posts.
//! - Once `flights.ending` is set no request enters, so every request that entered is answered or failed.
//! - Events are bounded: completions by the queue's depth, messages by their own two limits.
//! - A lock is never taken while another is held.

use std::{
    collections::VecDeque,
    io,
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, Ordering},
};

use super::{outbox::Outbox, region::Grants};
use crate::{
    completion::Event,
    doorbell::Doorbell,
    error::{Ending, OperationError},
    guarded::Guarded,
    limits::{EVENTS_PER_POLL_MAX, TCP_MESSAGE_BYTES_QUEUED_MAX, TCP_MESSAGES_QUEUED_MAX},
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

/// Requests in the order of their sequence numbers.
#[derive(Debug, Default)]
pub(super) struct Flights {
    pub(super) waiting: VecDeque<Flight>,
    /// Sequence number of the first in `waiting`.
    pub(super) first_sequence: u64,
    pub(super) ending: Option<Ending>,
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

/// What an event counts towards the limits of messages. An immediate is one too: the peer decides how many come.
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
    pub(super) responder_bell: Doorbell,
    pub(super) application_bell: Doorbell,
    pub(super) closing: AtomicBool,
    arrived: Guarded<Arrived>,
    has_events: AtomicBool,
    application_sleeps: AtomicBool,
}

impl Link {
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            socket,
            outbox: Guarded::default(),
            flights: Guarded::default(),
            grants: Grants::default(),
            responder_bell: Doorbell::new()?,
            application_bell: Doorbell::new()?,
            closing: AtomicBool::new(false),
            arrived: Guarded::new(Arrived::default()),
            has_events: AtomicBool::new(false),
            application_sleeps: AtomicBool::new(false),
        })
    }

    /// Responder: reports an event and wakes the application if it sleeps.
    pub(super) fn report(&self, event: Event) {
        let mut arrived = self.arrived.lock();
        if let Some(bytes) = message_bytes(&event) {
            arrived.messages += 1;
            arrived.message_bytes += bytes;
        }
        arrived.events.push_back(event);
        // Under the lock, so that it cannot undo what `take` says when it has emptied the queue.
        self.has_events.store(true, Ordering::SeqCst);
        drop(arrived);
        if self.application_sleeps.load(Ordering::SeqCst)
            && self.application_sleeps.swap(false, Ordering::SeqCst)
        {
            self.application_bell.ring();
        }
    }

    /// Responder: whether there is room for a message of `bytes`. If not, it will be woken when there is.
    pub(super) fn has_room_for_message(&self, bytes: usize) -> bool {
        let mut arrived = self.arrived.lock();
        let room = arrived.messages < TCP_MESSAGES_QUEUED_MAX
            && arrived.message_bytes + bytes <= TCP_MESSAGE_BYTES_QUEUED_MAX;
        arrived.responder_paused = !room;
        room
    }

    /// Responder: fails everything in flight and reports the ending.
    pub(super) fn end(&self, ending: &Ending) {
        let failed = {
            let mut flights = self.flights.lock();
            flights.ending = Some(ending.clone());
            std::mem::take(&mut flights.waiting)
        };
        for flight in failed {
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
        // Said first, looked after; `report` does the two in the other order.
        !self.has_events.load(Ordering::SeqCst)
    }

    /// Application: is awake.
    pub(super) fn wake_up(&self) {
        self.application_sleeps.store(false, Ordering::SeqCst);
        self.application_bell.drain();
    }
}
