//! What does a session know of one home, and what is on its way there?
//!
//! ```text
//! memory of the connection:   | answers | requests | slots that are being read |
//! ```
//!
//! Invariants
//! - All of this belongs to one connection, but for what is settled: that is true for every life of
//!   the home.
//! - A part of the memory has one user at a time: a request whose reply has not come, or reads that
//!   have not ended. So what was given up never writes into what came after it.
//! - A lease is moved on to epochs that were told before the present transaction began.

use std::{collections::VecDeque, ops::Range, time::Instant};

use rackscan_fabric::{RawSlice, RemoteRegion};
use rackscan_ramp::{
    item::Key,
    limits::{SETTLED_PER_PART_MAX, SLOT_BYTES_MAX},
    message::{Epoch, Found, HomeId, LeaseId, Request},
    slot::Place,
    timestamp::Timestamp,
};

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The transaction of this number.
    Run(u64),
    /// This attempt to follow all homes.
    Follow(u64),
    /// The home's memory.
    Open,
    /// A lease.
    Lease,
    /// The present epoch, so that the lease can be moved on.
    Refresh,
    /// The end of a transaction that is committed.
    Ending(Timestamp),
    /// The home, which need not answer.
    Tell,
}

/// A request that waits for its turn.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) purpose: Purpose,
    pub(super) request: Option<Request>,
}

/// A request that was sent.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) tag: u64,
    pub(super) purpose: Purpose,
    pub(super) request: Option<Request>,
}

/// The home's memory.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) life: u64,
    pub(super) slots: Option<RemoteRegion>,
    /// Where the wire maps it here.
    pub(super) mapped: Option<RawSlice>,
    /// The feed.
    pub(super) feed: Option<RemoteRegion>,
}

impl Opened {
    /// Offset and length of a slot, if it lies inside.
    pub(super) fn bounds(&self, place: Place) -> Option<(usize, usize)> {
        let length = usize::try_from(place.length_bytes).ok().filter(|length| *length <= SLOT_BYTES_MAX)?;
        let end = place.offset_bytes.checked_add(u64::from(place.length_bytes))?;
        let offset = usize::try_from(place.offset_bytes).ok()?;
        self.slots.filter(|slots| end <= slots.length).map(|_| (offset, length))
    }
}

/// A slot that is being read.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) tag: u64,
    pub(super) key: Key,
    pub(super) offset: usize,
    pub(super) length: usize,
}

/// Slots that are being read by one transaction.
#[derive(Debug, Default)]
pub(super) struct Readings {
    pub(super) run: u64,
    pub(super) left: Vec<Reading>,
    pub(super) found: Vec<(Key, Found)>,
    pub(super) unknown: Vec<Key>,
}

/// One home, as the session sees it.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) id: HomeId,
    pub(super) opened: Option<Opened>,
    pub(super) lease: Option<LeaseId>,
    /// Whether it has given one on this connection: it is there, and its newest timestamp is known.
    pub(super) is_known: bool,
    /// Why there is no lease, if the home said so.
    pub(super) refusal: Option<super::TransactionError>,
    /// Whether its memory or a lease is asked for.
    pub(super) is_opening: bool,
    /// The last epoch that it told.
    pub(super) told: Epoch,
    /// When.
    pub(super) told_at: Option<Instant>,
    /// What was told before the present transaction began.
    movable: Epoch,
    /// What the lease was moved to.
    advanced: Epoch,
    pub(super) waiting: VecDeque<Waiting>,
    /// Until then it is not asked again: it said that it is busy.
    pub(super) rests_until: Option<Instant>,
    /// With what, when it last said so.
    pub(super) busy: Option<String>,
    pub(super) asked: Vec<Asked>,
    /// The request whose answer may be written.
    pub(super) answer_of: Option<u64>,
    /// The request whose bytes may be read.
    pub(super) source_of: Option<u64>,
    pub(super) readings: Readings,
    /// Transactions that have ended in all of their homes, of which this is one.
    pub(super) settled: Vec<Timestamp>,
}

impl Home {
    pub(super) fn new(id: HomeId) -> Self {
        Self {
            id,
            opened: None,
            lease: None,
            is_known: false,
            refusal: None,
            is_opening: false,
            told: Epoch::default(),
            told_at: None,
            movable: Epoch::default(),
            advanced: Epoch::default(),
            waiting: VecDeque::new(),
            rests_until: None,
            busy: None,
            asked: Vec::new(),
            answer_of: None,
            source_of: None,
            readings: Readings::default(),
            settled: Vec::new(),
        }
    }

    /// The connection is over. What was not sent.
    pub(super) fn lost(&mut self) -> VecDeque<Waiting> {
        let settled = std::mem::take(&mut self.settled);
        let waiting = std::mem::take(&mut self.waiting);
        *self = Self { settled, ..Self::new(self.id) };
        waiting
    }

    /// A lease was given.
    pub(super) fn leased(&mut self, lease: LeaseId, epoch: Epoch) {
        (self.lease, self.is_known, self.is_opening, self.busy) = (Some(lease), true, false, None);
        (self.told, self.movable, self.advanced) = (epoch, epoch, epoch);
        self.told_at = Some(Instant::now());
    }

    /// The home has said what time it is.
    pub(super) fn told(&mut self, epoch: Epoch) {
        self.told = self.told.max(epoch);
        self.told_at = Some(Instant::now());
    }

    /// A transaction begins: no other one is on its way.
    pub(super) fn begin(&mut self) {
        self.movable = self.told;
    }

    /// What goes in front of the next message.
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

    /// Whether there is something to say that nobody has asked for.
    pub(super) fn has_news(&self) -> bool {
        !self.settled.is_empty() || self.lease.is_some() && self.movable > self.advanced
    }
}

/// The parts of a connection's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) answers: Range<usize>,
    pub(super) requests: Range<usize>,
    pub(super) slots: Range<usize>,
}

impl Parts {
    pub(super) fn of(memory_bytes: usize) -> Self {
        let large = memory_bytes / 8 * 3 / 4096 * 4096;
        Self { answers: 0..large, requests: large..2 * large, slots: 2 * large..memory_bytes }
    }

    /// For who follows feeds: questions are short, and pieces of feeds are read where others read
    /// slots.
    pub(super) fn of_follower(memory_bytes: usize) -> Self {
        let half = memory_bytes / 2 / 4096 * 4096;
        Self { answers: 0..half, requests: half..half, slots: half..memory_bytes }
    }
}
