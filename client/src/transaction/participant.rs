//! Keeps a session's state of one participant, and the requests outstanding there.
//!
//! ```text
//! memory of the connection:   | answers | requests | slots that are being read |
//! ```
//!
//! Invariants
//! - This state belongs to one connection, except the settled transactions: those are valid for
//!   every start of the participant.
//! - A part of the memory has one user at a time: a request without its reply, or reads that have
//!   not ended. So an abandoned request never writes into the memory of a later one.
//! - A lease is advanced only to epochs that the participant reported before the present
//!   transaction began.

use std::{collections::VecDeque, ops::Range, time::Instant};

use rackscan_fabric::{RawSlice, RemoteRegion};
use rackscan_ramp::{
    item::Key,
    limits::{SETTLED_PER_PART_MAX, SLOT_BYTES_MAX},
    message::{Epoch, Found, LeaseId, ParticipantId, Request},
    slot::Place,
    timestamp::Timestamp,
};

use crate::limits::FEED_PIECE_MEMORY_BYTES;

/// The purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The transaction of this number.
    Run(u64),
    /// The follower's attempt of this number.
    Follow(u64),
    /// To open the participant's memory.
    Open,
    /// To obtain a lease.
    Lease,
    /// To learn the present epoch, so that the lease can be moved on.
    Refresh,
    /// To tell the end of the committed transaction.
    Ending(Timestamp),
    /// To tell the participant something that it need not answer.
    Tell,
}

/// A request that waits to be sent.
#[derive(Debug)]
pub(super) struct QueuedRequest {
    pub(super) purpose: Purpose,
    pub(super) request: Option<Request>,
}

/// A request that was sent.
#[derive(Debug)]
pub(super) struct SentRequest {
    pub(super) tag: u64,
    pub(super) purpose: Purpose,
    pub(super) request: Option<Request>,
}

/// The participant's memory, as it was opened.
#[derive(Debug)]
pub(super) struct OpenedParticipant {
    pub(super) life: u64,
    pub(super) slots: Option<RemoteRegion>,
    /// The slots, if the wire maps them into this process.
    pub(super) mapped: Option<RawSlice>,
    /// The feed.
    pub(super) feed: Option<RemoteRegion>,
}

impl OpenedParticipant {
    /// Offset and length of a slot, if it lies inside of the memory.
    pub(super) fn bounds(&self, place: Place) -> Option<(usize, usize)> {
        let length = usize::try_from(place.length_bytes).ok().filter(|length| *length <= SLOT_BYTES_MAX)?;
        let end = place.offset_bytes.checked_add(u64::from(place.length_bytes))?;
        let offset = usize::try_from(place.offset_bytes).ok()?;
        self.slots.filter(|slots| end <= slots.length).map(|_| (offset, length))
    }
}

/// A slot that is being read.
#[derive(Debug)]
pub(super) struct SlotRead {
    pub(super) tag: u64,
    pub(super) key: Key,
    pub(super) offset: usize,
    pub(super) length: usize,
}

/// The slots that one transaction reads.
#[derive(Debug, Default)]
pub(super) struct SlotReads {
    pub(super) run: u64,
    pub(super) pending: Vec<SlotRead>,
    pub(super) found: Vec<(Key, Found)>,
    pub(super) unknown: Vec<Key>,
}

/// The session's state for one participant.
#[derive(Debug)]
pub(super) struct Participant {
    pub(super) id: ParticipantId,
    pub(super) opened: Option<OpenedParticipant>,
    pub(super) lease: Option<LeaseId>,
    /// Whether it has granted a lease on this connection: it is available, and its newest timestamp
    /// is known.
    pub(super) is_known: bool,
    /// Why there is no lease, if the participant said so.
    pub(super) refusal: Option<super::TransactionError>,
    /// Whether its memory or a lease was requested.
    pub(super) is_opening: bool,
    /// The last epoch that it named.
    pub(super) epoch: Epoch,
    /// When it named that epoch.
    pub(super) epoch_at: Option<Instant>,
    /// The last epoch that it named before the present transaction began.
    movable: Epoch,
    /// The epoch that the lease was moved to.
    advanced: Epoch,
    pub(super) waiting: VecDeque<QueuedRequest>,
    /// The time until which it is not asked again because it was busy.
    pub(super) rests_until: Option<Instant>,
    /// Why it was busy, as it last said.
    pub(super) busy: Option<String>,
    pub(super) sent: Vec<SentRequest>,
    /// The request whose answer may be written into our memory.
    pub(super) answer_of: Option<u64>,
    /// The request whose bytes may be read out of our memory.
    pub(super) source_of: Option<u64>,
    pub(super) slot_reads: SlotReads,
    /// Transactions with a part here that have ended at all of their participants.
    pub(super) settled: Vec<Timestamp>,
}

impl Participant {
    pub(super) fn new(id: ParticipantId) -> Self {
        Self {
            id,
            opened: None,
            lease: None,
            is_known: false,
            refusal: None,
            is_opening: false,
            epoch: Epoch::default(),
            epoch_at: None,
            movable: Epoch::default(),
            advanced: Epoch::default(),
            waiting: VecDeque::new(),
            rests_until: None,
            busy: None,
            sent: Vec::new(),
            answer_of: None,
            source_of: None,
            slot_reads: SlotReads::default(),
            settled: Vec::new(),
        }
    }

    /// Resets the state, because the connection has ended. Returns the requests that were not sent.
    pub(super) fn lost(&mut self) -> VecDeque<QueuedRequest> {
        let settled = std::mem::take(&mut self.settled);
        let waiting = std::mem::take(&mut self.waiting);
        *self = Self { settled, ..Self::new(self.id) };
        waiting
    }

    /// Records a lease.
    pub(super) fn leased(&mut self, lease: LeaseId, epoch: Epoch) {
        (self.lease, self.is_known, self.is_opening, self.busy) = (Some(lease), true, false, None);
        (self.epoch, self.movable, self.advanced) = (epoch, epoch, epoch);
        self.epoch_at = Some(Instant::now());
    }

    /// Records an epoch that the participant named.
    pub(super) fn note_epoch(&mut self, epoch: Epoch) {
        self.epoch = self.epoch.max(epoch);
        self.epoch_at = Some(Instant::now());
    }

    /// Begins a transaction; no other one is running.
    pub(super) fn begin(&mut self) {
        self.movable = self.epoch;
    }

    /// Adds the messages that go in front of the next one.
    pub(super) fn piggy_back(&mut self, messages: &mut Vec<Request>) {
        if let Some(lease) = self.lease.filter(|_| self.movable > self.advanced) {
            self.advanced = self.movable;
            messages.push(Request::Advance { lease, epoch: self.movable });
        }
        if !self.settled.is_empty() {
            let most = self.settled.len().min(SETTLED_PER_PART_MAX);
            messages.push(Request::Settled { timestamps: self.settled.drain(..most).collect() });
        }
    }

    /// Whether there are messages that go in front of the next one.
    pub(super) fn has_news(&self) -> bool {
        !self.settled.is_empty() || self.lease.is_some() && self.movable > self.advanced
    }
}

/// The parts of a connection's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MemoryParts {
    pub(super) answers: Range<usize>,
    pub(super) requests: Range<usize>,
    pub(super) slots: Range<usize>,
}

impl MemoryParts {
    pub(super) fn of(memory_bytes: usize) -> Self {
        let large = memory_bytes / 8 * 3 / 4096 * 4096;
        Self { answers: 0..large, requests: large..2 * large, slots: 2 * large..memory_bytes }
    }

    /// The parts for a follower: its requests are short, and one piece of a feed at a time is read
    /// where other sessions read slots.
    pub(super) fn of_follower(memory_bytes: usize) -> Self {
        let end = memory_bytes - FEED_PIECE_MEMORY_BYTES;
        Self { answers: 0..end, requests: end..end, slots: end..memory_bytes }
    }
}
