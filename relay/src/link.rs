//! How does one connection carry messages, slices and credits without any of them keeping the others out?
//!
//! Invariants
//! - Operations in flight are bounded by kind, and the bounds together fit the connection's queue: a message or a credit always finds its way.
//! - Messages that wait are bounded; who lets more gather is no honest peer.

use std::collections::VecDeque;

use rackscan_fabric::{Connection, Ending, Event, Operation, PostError, RegionSlice, RemoteRegion, Wire};

use crate::{
    limits::{CREDIT_OPERATIONS_MAX, MESSAGE_OPERATIONS_MAX, MESSAGES_WAITING_MAX, SLICE_OPERATIONS_MAX},
    message::Message,
};

/// What a slice takes at most: its name, its bytes, zeros behind them.
const OPERATIONS_PER_SLICE: usize = 3;

/// What is in an operation's id above its lowest bytes.
const KIND_SHIFT: u32 = 56;
const MESSAGE: u64 = 0;
const PART: u64 = 1;
const SLICE: u64 = 2;
const CREDIT: u64 = 3;

/// What a link reports.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    /// The peer said something.
    Message(Vec<u8>),
    /// A slice has come; with its checksum.
    Arrived(u32),
    /// A slice of this send of this lane has gone.
    Sent { lane: usize, send: usize },
    /// An operation was refused: the peer's memory is not what it said.
    Refused(String),
    /// It is over.
    Closed(Ending),
}

/// Bytes of a slice, at most two pieces of registered memory: a client's cell may end before the stripe's cells do, and zeros follow.
#[derive(Debug)]
pub(crate) struct Bytes {
    pub(crate) first: Option<RegionSlice>,
    pub(crate) last: RegionSlice,
}

/// Where a slice goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) slots: RemoteRegion,
    pub(crate) slot_offset: u64,
    pub(crate) journal: RemoteRegion,
    pub(crate) journal_offset: u64,
}

/// A connection that takes part in a session.
#[derive(Debug)]
pub(crate) struct Link {
    connection: Connection,
    waiting: VecDeque<Vec<u8>>,
    /// In flight, of each kind.
    messages: usize,
    slices: usize,
    credits: usize,
    events: Vec<Event>,
}

impl Link {
    pub(crate) fn new(connection: Connection) -> Self {
        let (waiting, events) = (VecDeque::new(), Vec::new());
        Self { connection, waiting, messages: 0, slices: 0, credits: 0, events }
    }

    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    pub(crate) fn get(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn into_connection(self) -> Connection {
        self.connection
    }

    /// Says something, as soon as there is room. False if too much waits.
    pub(crate) fn say(&mut self, message: &Message) -> bool {
        if self.waiting.len() >= MESSAGES_WAITING_MAX {
            return false;
        }
        match message.encode() {
            Ok(bytes) => self.waiting.push_back(bytes),
            Err(error) => {
                tracing::error!(%error, "a message between relays cannot be encoded");
                return false;
            }
        }
        self.pump();
        true
    }

    /// Posts messages that wait, as far as there is room. Whether any went.
    pub(crate) fn pump(&mut self) -> bool {
        let mut any = false;
        while self.messages < MESSAGE_OPERATIONS_MAX {
            let Some(bytes) = self.waiting.pop_front() else { break };
            if !self.post(MESSAGE << KIND_SHIFT, Operation::Send { bytes: &bytes }) {
                break;
            }
            self.messages += 1;
            any = true;
        }
        any
    }

    /// Appends what has happened, and says whether anything did.
    pub(crate) fn poll(&mut self, happened: &mut Vec<Happened>) -> bool {
        let mut events = std::mem::take(&mut self.events);
        let any = self.connection.poll(&mut events) > 0;
        for event in events.drain(..) {
            match event {
                Event::Completed { id, outcome } => {
                    let kind = id >> KIND_SHIFT;
                    let counted = match kind {
                        MESSAGE => &mut self.messages,
                        CREDIT => &mut self.credits,
                        _ => &mut self.slices,
                    };
                    *counted = counted.saturating_sub(1);
                    match outcome {
                        Ok(_) if kind == SLICE => happened.push(sent(id)),
                        Ok(_) => {}
                        // The ending is reported behind what it lets fail.
                        Err(rackscan_fabric::OperationError::Closed(_)) => {}
                        Err(error) => happened.push(Happened::Refused(error.to_string())),
                    }
                }
                Event::Message { bytes } => happened.push(Happened::Message(bytes)),
                Event::Immediate { immediate, .. } => happened.push(Happened::Arrived(immediate)),
                Event::Closed(ending) => happened.push(Happened::Closed(ending)),
            }
        }
        self.events = events;
        any | self.pump()
    }

    /// Operations that move slices and have not completed.
    #[cfg(test)]
    pub(crate) fn slices_in_flight(&self) -> usize {
        self.slices
    }

    /// Whether a slice can be posted.
    pub(crate) fn has_room_for_a_slice(&self) -> bool {
        self.slices + OPERATIONS_PER_SLICE <= SLICE_OPERATIONS_MAX && self.connection.ended().is_none()
    }

    /// Posts a slice: its name, then its bytes, the last of them with the checksum.
    pub(crate) fn send(
        &mut self,
        of: (usize, usize),
        target: Target,
        name: u64,
        bytes: Bytes,
        checksum: u32,
    ) {
        let Target { slots, slot_offset, journal, journal_offset } = target;
        let name = name.to_le_bytes();
        let name = Operation::WriteBytes { bytes: &name, target: journal, target_offset: journal_offset };
        let first_bytes = bytes.first.as_ref().map_or(0, RegionSlice::len) as u64;
        let mut posted = self.post(PART << KIND_SHIFT, name);
        self.slices += usize::from(posted);
        if let Some(source) = bytes.first {
            let first = Operation::Write { source, target: slots, target_offset: slot_offset };
            posted = posted && self.post(PART << KIND_SHIFT, first);
            self.slices += usize::from(posted);
        }
        let last = Operation::WriteWithImmediate {
            source: bytes.last,
            target: slots,
            target_offset: slot_offset + first_bytes,
            immediate: checksum,
        };
        let id = SLICE << KIND_SHIFT | (of.0 as u64) << 32 | of.1 as u64;
        if posted && self.post(id, last) {
            self.slices += 1;
        }
    }

    /// Whether a credit can be posted.
    pub(crate) fn has_room_for_credit(&self) -> bool {
        self.credits + 2 <= CREDIT_OPERATIONS_MAX && self.connection.ended().is_none()
    }

    /// Tells the sender how far it may go, and wakes it.
    pub(crate) fn credit(&mut self, target: RemoteRegion, target_offset: u64, word: u64) {
        let word = word.to_le_bytes();
        let id = CREDIT << KIND_SHIFT;
        self.credits +=
            usize::from(self.post(id, Operation::WriteBytes { bytes: &word, target, target_offset }));
        if self.connection.wire() == Wire::Verbs {
            // Nobody wakes for a write there.
            let look = Message::Look.encode().unwrap_or_default();
            self.credits += usize::from(self.post(id, Operation::Send { bytes: &look }));
        } else {
            self.connection.knock();
        }
    }

    /// Posts; false if the connection is over, which the next poll reports.
    fn post(&mut self, id: u64, operation: Operation<'_>) -> bool {
        match self.connection.post(id, operation) {
            Ok(()) => true,
            Err(PostError::Closed(_)) => false,
            Err(error) => {
                // Rooms and places were checked before.
                tracing::error!(%error, "an operation between relays was not accepted");
                false
            }
        }
    }
}

fn sent(id: u64) -> Happened {
    let part = |word: u64| usize::try_from(word).unwrap_or(usize::MAX);
    Happened::Sent { lane: part(id >> 32 & 0xFF_FFFF), send: part(id & 0xFFFF_FFFF) }
}
