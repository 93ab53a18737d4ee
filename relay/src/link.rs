//! Carries messages, slices and credits over one connection, so that none of these three kinds
//! delays the others for long.
//!
//! Invariants
//! - The number of operations in flight has a bound for each kind, and the sum of the bounds fits
//!   the connection's queue. So there is always room for a message or a credit.
//! - The number of messages that wait to be sent is bounded. A peer that lets more accumulate
//!   violates the protocol.
//! - If an operation cannot be posted, the next [`Link::poll`] reports this as a fault of the peer
//!   or of this place. Nothing waits for that operation.

use std::collections::VecDeque;

use rackscan_fabric::{
    Connection, Ending, Event, Operation, PostError, RegionSlice, RemoteRegion, limits::QUEUE_DEPTH_MAX,
};

use crate::{
    limits::{CREDIT_OPERATIONS_MAX, MESSAGE_OPERATIONS_MAX, MESSAGES_WAITING_MAX, SLICE_OPERATIONS_MAX},
    message::Message,
    ring::Credit,
};

/// The maximum operations of a slice: its name, its bytes, and zeros after them.
const OPERATIONS_PER_SLICE: usize = 3;

/// The position of the kind in the id of an operation.
const KIND_SHIFT: u32 = 56;
const MESSAGE: u64 = 0;
const PART: u64 = 1;
const SLICE: u64 = 2;
const CREDIT: u64 = 3;

/// An event of a link.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LinkEvent {
    /// A message has arrived.
    Message(Vec<u8>),
    /// A slice has arrived; with its checksum.
    Arrived(u32),
    /// A slice of this send of this lane has completed.
    Sent { lane: usize, send: usize },
    /// An operation was refused: the peer's memory is not what it said.
    Refused(String),
    /// An operation could not be posted, which is a fault of this place.
    Unposted(String),
    /// The connection is closed.
    Closed(Ending),
}

/// The bytes of a slice, in at most two pieces of registered memory: a client's cell may be shorter
/// than the cells of its stripe, and zeros follow.
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
    /// Operations in flight, by kind.
    messages: usize,
    slices: usize,
    credits: usize,
    /// The first operation that could not be posted, until it is reported.
    failed: Option<LinkEvent>,
    events: Vec<Event>,
}

impl Link {
    pub(crate) fn new(connection: Connection) -> Self {
        let (waiting, events) = (VecDeque::new(), Vec::new());
        Self { connection, waiting, messages: 0, slices: 0, credits: 0, failed: None, events }
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

    /// Sends a message as soon as there is room. False if too many wait.
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

    /// Sends a last message at once. Waiting messages are sent before it as far as the queue has
    /// room; the others are dropped.
    pub(crate) fn say_last(&mut self, message: &Message) {
        let mut last = std::mem::take(&mut self.waiting);
        while self.connection.in_flight() + 1 < QUEUE_DEPTH_MAX
            && let Some(bytes) = last.pop_front()
        {
            self.messages += usize::from(self.post(MESSAGE << KIND_SHIFT, Operation::Send { bytes: &bytes }));
        }
        match message.encode() {
            Ok(bytes) => {
                let posted = self.post(MESSAGE << KIND_SHIFT, Operation::Send { bytes: &bytes });
                self.messages += usize::from(posted);
            }
            Err(error) => tracing::error!(%error, "a message between relays cannot be encoded"),
        }
    }

    /// Posts waiting messages as far as there is room. Returns whether any were.
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

    /// Appends new events. Returns whether anything happened.
    pub(crate) fn poll(&mut self, happened: &mut Vec<LinkEvent>) -> bool {
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
                    *counted = counted.checked_sub(1).expect("an operation completes once");
                    match outcome {
                        Ok(_) if kind == SLICE => happened.push(sent(id)),
                        Ok(_) => {}
                        // The end of the connection is reported as an event of its own.
                        Err(rackscan_fabric::OperationError::Closed(_)) => {}
                        Err(error) => happened.push(LinkEvent::Refused(error.to_string())),
                    }
                }
                Event::Message { bytes } => happened.push(LinkEvent::Message(bytes)),
                Event::Immediate { immediate, .. } => happened.push(LinkEvent::Arrived(immediate)),
                Event::Closed(ending) => happened.push(LinkEvent::Closed(ending)),
            }
        }
        self.events = events;
        let any = any | self.pump();
        match self.failed.take() {
            Some(failed) => happened.push(failed),
            None => return any,
        }
        true
    }

    /// Prepares for sleep. False if there is an event to handle first.
    pub(crate) fn arm(&mut self) -> bool {
        self.failed.is_none() && self.connection.arm()
    }

    /// Operations in flight that move slices.
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

    /// Grants the sender credit, and wakes it.
    pub(crate) fn credit(&mut self, target: RemoteRegion, target_offset: u64, credit: Credit) {
        let id = CREDIT << KIND_SHIFT;
        self.credits += usize::from(
            self.post(id, Operation::WriteBytes { bytes: &credit.to_bytes(), target, target_offset }),
        );
        if self.connection.wire().write_wakes_nobody() {
            let look = Message::Look.encode().expect("it has no fields");
            self.credits += usize::from(self.post(id, Operation::Send { bytes: &look }));
        } else {
            self.connection.wake();
        }
    }

    /// Posts an operation. If it cannot, the next poll reports why.
    fn post(&mut self, id: u64, operation: Operation<'_>) -> bool {
        let failed = match self.connection.post(id, operation) {
            Ok(()) => return true,
            // The end of the connection is reported anyway.
            Err(PostError::Closed(_)) => return false,
            // The offset within the peer's memory was checked, so the memory itself cannot be where
            // the peer says.
            Err(PostError::OutOfBounds(error)) => {
                LinkEvent::Refused(format!("the peer's registered memory cannot be written: {error}"))
            }
            Err(error) => {
                LinkEvent::Unposted(format!("an operation could not be posted on the connection: {error}"))
            }
        };
        self.failed.get_or_insert(failed);
        false
    }
}

fn sent(id: u64) -> LinkEvent {
    let part = |word: u64| usize::try_from(word).expect("at most 32 bits");
    LinkEvent::Sent { lane: part(id >> 32 & 0xFF_FFFF), send: part(id & 0xFFFF_FFFF) }
}

#[cfg(test)]
mod tests {
    use rackscan_fabric::{
        ClusterKey, Region,
        sim::{Seed, SimConfig, SimNet},
    };

    use super::*;
    use crate::message::{Begin, Cause, Ends};

    /// A link, and the peer's end of its connection.
    fn link() -> (Link, Connection) {
        let (net, key) = (SimNet::new(Seed::new(1), SimConfig::calm()), ClusterKey::from_bytes([1; 32]));
        let mut listener = net.listen("peer", &key).unwrap();
        let link = Link::new(net.connect("here", &net.address("peer"), &key).unwrap());
        let peer = listener.accept().unwrap().unwrap();
        (link, peer)
    }

    fn happened(link: &mut Link) -> Vec<LinkEvent> {
        let mut happened = Vec::new();
        assert!(!link.arm(), "nobody sleeps before it is reported");
        assert!(link.poll(&mut happened));
        happened
    }

    #[test]
    fn a_slice_for_memory_that_cannot_be_is_the_peers_fault_and_reported() {
        let (mut link, _peer) = link();
        let slots = RemoteRegion { key: 1, address: u64::MAX - 4, length: 1 << 20 };
        let target = Target { slots, slot_offset: 4096, journal: slots, journal_offset: 8 };
        let bytes = Bytes { first: None, last: Region::allocate(4096).unwrap().whole() };
        link.send((0, 0), target, 0, bytes, 0);
        let happened = happened(&mut link);
        assert!(matches!(&happened[..], [LinkEvent::Refused(why)] if why.contains("memory")), "{happened:?}");
        assert!(!link.poll(&mut Vec::new()), "it is reported once");
    }

    #[test]
    fn what_a_full_queue_does_not_take_is_our_own_fault_and_reported() {
        let (mut link, _peer) = link();
        for _ in 0..QUEUE_DEPTH_MAX {
            link.connection().post(PART << KIND_SHIFT, Operation::Send { bytes: b"" }).unwrap();
            link.slices += 1;
        }
        link.say(&Message::Ready);
        let happened = happened(&mut link);
        assert!(matches!(&happened[..], [LinkEvent::Unposted(_)]), "{happened:?}");
    }

    #[test]
    fn the_last_word_is_said_however_much_waits_before_it() {
        let (mut link, mut peer) = link();
        let begin = Begin { lane: 0, stripe: 0, cell_bytes: 4096, what: Vec::new() };
        // The peer takes nothing in, so most of these wait.
        while link.say(&Message::Begin(begin.clone())) {}
        let ends =
            Message::Ends(Ends { member: Some(1), cause: Cause::Disk, why: "it is broken".to_owned() });
        link.say_last(&ends);
        let closer = link.into_connection();
        let (mut events, mut said) = (Vec::new(), Vec::new());
        for _ in 0..1000 {
            peer.poll(&mut events);
        }
        drop(closer);
        for _ in 0..1000 {
            peer.poll(&mut events);
        }
        for event in events {
            if let Event::Message { bytes } = event {
                said.push(Message::decode(&bytes).unwrap());
            }
        }
        assert_eq!(said.last(), Some(&ends));
        let before = said.len() - 1;
        assert_eq!(
            before,
            MESSAGE_OPERATIONS_MAX + MESSAGES_WAITING_MAX,
            "what there was room for went before"
        );
    }
}
