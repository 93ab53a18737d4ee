//! Keeps the state of one simulated connection.
//!
//! Invariants
//! - An end's operations are executed, and complete, in the order of posting: `waiting` and
//!   `executed` are queues.
//! - The events that an end has not polled are bounded: completions by the queue's depth, messages
//!   by their own two limits.

use std::{collections::VecDeque, sync::Arc};

use super::{agenda::EndNumber, region::Grants};
use crate::{
    completion::{Done, Event},
    doorbell::Doorbell,
    error::{Ending, OperationError},
    limits::{EVENTS_PER_POLL_MAX, SIM_MESSAGE_BYTES_QUEUED_MAX, SIM_MESSAGES_QUEUED_MAX},
    operation::{DeferredOperation, Operation},
};

/// What remains to be done for an operation at the peer.
#[derive(Debug)]
pub(super) enum Task {
    Operate(DeferredOperation),
    /// Reports the immediate of a write, after its bytes.
    Announce {
        immediate: u32,
        bytes: u64,
    },
    /// The end has closed; everything that it posted before is done.
    Goodbye,
}

impl Task {
    /// Whether it may be executed before all pieces of earlier writes are visible.
    pub(super) fn is_write(&self) -> bool {
        match self {
            Self::Operate(operation) => matches!(
                operation.as_operation(),
                Operation::Write { .. } | Operation::WriteBytes { .. } | Operation::WriteWithImmediate { .. }
            ),
            Self::Announce { .. } | Self::Goodbye => false,
        }
    }
}

/// An operation that was not executed yet.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) id: u64,
    pub(super) arrival_ns: u64,
    pub(super) task: Task,
}

/// An operation that was executed and whose completion is on its way.
#[derive(Debug)]
pub(super) struct Executed {
    pub(super) id: u64,
    pub(super) serial: u64,
    pub(super) outcome: Result<Done, OperationError>,
}

/// The operations of one end that are in flight.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) waiting: VecDeque<Flight>,
    pub(super) executed: VecDeque<Executed>,
    /// When the operation that was executed last completes.
    pub(super) last_completion_ns: u64,
    /// When the last piece of all writes so far becomes visible.
    pub(super) written_ns: u64,
    /// When the last read or atomic so far is finished with the memory.
    pub(super) worked_ns: u64,
    /// Writes of which some piece is not visible yet.
    pub(super) writing: Vec<u64>,
    /// Whether an arrival is on the agenda.
    pub(super) expected: bool,
    /// Whether the receiver has no room for the first waiting operation.
    pub(super) stalled: bool,
}

impl Lane {
    /// When the first waiting operation can be executed.
    pub(super) fn ready_ns(&self) -> Option<u64> {
        let first = self.waiting.front()?;
        let earlier_ns = if first.task.is_write() { 0 } else { self.written_ns };
        Some(first.arrival_ns.max(self.worked_ns).max(earlier_ns))
    }
}

/// Events that the owner of an end has not polled yet.
#[derive(Debug, Default)]
pub(super) struct UnpolledEvents {
    events: VecDeque<Event>,
    messages: usize,
    message_bytes: usize,
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

impl UnpolledEvents {
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Whether a message of so many bytes may be delivered. One that is longer than the limit has
    /// room if it is the only one.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let fits = self.message_bytes == 0 || self.message_bytes + bytes <= SIM_MESSAGE_BYTES_QUEUED_MAX;
        self.messages < SIM_MESSAGES_QUEUED_MAX && fits
    }

    fn push(&mut self, event: Event) {
        if let Some(bytes) = message_bytes(&event) {
            self.messages += 1;
            self.message_bytes += bytes;
        }
        self.events.push_back(event);
    }

    /// Moves events to `events`. Returns true if messages were among them, so that there is room
    /// for others.
    pub(super) fn take(&mut self, events: &mut Vec<Event>) -> bool {
        let before = self.messages;
        let count = self.events.len().min(EVENTS_PER_POLL_MAX);
        for event in self.events.drain(..count) {
            if let Some(bytes) = message_bytes(&event) {
                self.messages -= 1;
                self.message_bytes -= bytes;
            }
            events.push(event);
        }
        self.messages < before
    }
}

/// The holder of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// Nobody yet: the end waits to be accepted.
    Awaited,
    /// A connection.
    Held,
    /// Nobody any more: the end was closed.
    Gone,
}

/// One end.
#[derive(Debug)]
pub(super) struct End {
    pub(super) place: usize,
    pub(super) owner: Owner,
    /// Set once `Event::Closed` has arrived.
    pub(super) ending: Option<Ending>,
    pub(super) grants: Grants,
    pub(super) lane: Lane,
    pub(super) arrived: UnpolledEvents,
    pub(super) bell: Arc<Doorbell>,
    pub(super) armed: bool,
}

impl End {
    pub(super) fn new(place: usize, owner: Owner, bell: Doorbell) -> Self {
        Self {
            place,
            owner,
            ending: None,
            grants: Grants::default(),
            lane: Lane::default(),
            arrived: UnpolledEvents::default(),
            bell: Arc::new(bell),
            armed: false,
        }
    }

    /// Reports an event to the owner, if there is one.
    pub(super) fn report(&mut self, event: Event) {
        if self.owner != Owner::Gone {
            self.arrived.push(event);
            self.ring();
        }
    }

    /// Wakes the owner if it sleeps.
    pub(super) fn ring(&self) {
        if self.armed {
            self.bell.ring();
        }
    }

    /// Fails everything in flight and reports the ending.
    pub(super) fn finish(&mut self, ending: &Ending) {
        if self.ending.is_some() {
            return;
        }
        self.ending = Some(ending.clone());
        let lane = std::mem::take(&mut self.lane);
        let executed = lane.executed.into_iter().map(|executed| executed.id);
        let waiting = lane.waiting.into_iter().map(|flight| flight.id);
        for id in executed.chain(waiting) {
            self.report(Event::Completed { id, outcome: Err(OperationError::Closed(ending.clone())) });
        }
        self.grants.clear();
        self.report(Event::Closed(ending.clone()));
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) ends: [End; 2],
    /// Why the connection is lost, once it is. Its ends learn of it later.
    pub(super) lost: Option<String>,
}

impl Link {
    pub(super) fn places(&self, from: EndNumber) -> (usize, usize) {
        (self.ends[from].place, self.ends[1 - from].place)
    }

    /// Whether operations of an end still reach the other.
    pub(super) fn carries(&self, from: EndNumber) -> bool {
        let [ours, theirs] = [&self.ends[from], &self.ends[1 - from]];
        self.lost.is_none() && ours.ending.is_none() && theirs.ending.is_none() && theirs.owner != Owner::Gone
    }

    pub(super) fn ring_both(&self) {
        for end in &self.ends {
            end.ring();
        }
    }
}
