//! How do announcements become messages and immediates?
//!
//! Invariants
//! - A record is copied out of the ring before its space is given back, and what it says is checked
//!   before it is used.
//! - A receive request is posted anew before the space of its record is given back, so the peer
//!   always finds one.

use std::{collections::VecDeque, io, sync::Arc};

use super::{
    ring::{Assembly, Incoming, RING_UNITS, Record, RecordKind, RingFault, Span, announced},
    sys::{MemoryRegion, QueuePair, Slot},
};
use crate::{completion::Event, limits::VERBS_RING_BYTES};

/// What the completions of receive requests carry.
pub(super) const RECEIVE_ID: u64 = u64::MAX;

/// Requests that were used are posted anew so many at a time.
const REPOST_COUNT: u32 = 64;

/// Credits that may be under way at a time: each returns a quarter of a ring at least.
const CREDITS: u32 = 8;

/// Receive requests of a queue pair: one for each record that fits, one for each credit, and those
/// not posted anew yet.
pub(super) const RECEIVES: u32 = RING_UNITS + CREDITS + REPOST_COUNT;

/// Posts `count` requests that receive nothing but an announcement.
pub(super) fn post_receives(pair: &QueuePair, count: u32) -> io::Result<()> {
    let slot = Slot { id: RECEIVE_ID, address: 0, length: 0, key: 0 };
    pair.post_receives(&vec![slot; count as usize])
}

/// The receiving half of a connection.
#[derive(Debug)]
pub(super) struct Receiver {
    pair: Arc<QueuePair>,
    ring: Arc<MemoryRegion>,
    incoming: Incoming,
    arrivals: VecDeque<(Record, Span)>,
    assembly: Assembly,
    used: u32,
}

impl Receiver {
    pub(super) fn new(pair: Arc<QueuePair>, ring: Arc<MemoryRegion>) -> Self {
        let (incoming, assembly) = (Incoming::default(), Assembly::default());
        Self { pair, ring, incoming, arrivals: VecDeque::new(), assembly, used: 0 }
    }

    /// A record was written and announced.
    pub(super) fn arrived(&mut self, immediate: u32, written: u32) -> Result<(), RingFault> {
        self.used += 1;
        let record = Record::from_immediate(immediate, written)?;
        let span = self.incoming.arrived(record)?;
        self.arrivals.push_back((record, span));
        Ok(())
    }

    /// A credit arrived, which used a request as well.
    pub(super) fn credit_arrived(&mut self) {
        self.used += 1;
    }

    pub(super) fn has_arrivals(&self) -> bool {
        !self.arrivals.is_empty()
    }

    /// Up to where the ring is written.
    pub(super) fn tail(&self) -> u64 {
        self.incoming.tail()
    }

    /// Drops what has arrived: nobody wants it any more.
    pub(super) fn clear(&mut self) {
        self.arrivals.clear();
    }

    /// The next message or immediate of which all is there.
    pub(super) fn next(&mut self) -> Result<Option<Event>, RingFault> {
        while let Some((record, span)) = self.arrivals.pop_front() {
            let bytes = self.copy_out(record, span);
            self.incoming.taken(span);
            let event = match record.kind {
                // Its length was checked when it arrived.
                RecordKind::Announcement => bytes.first_chunk().map(|said| {
                    let (immediate, bytes) = announced(*said);
                    Event::Immediate { immediate, bytes: u64::from(bytes) }
                }),
                RecordKind::Part | RecordKind::LastPart => {
                    let is_last = record.kind == RecordKind::LastPart;
                    self.assembly.add(bytes, is_last)?.map(|bytes| Event::Message { bytes })
                }
            };
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    fn copy_out(&self, record: Record, span: Span) -> Vec<u8> {
        let mut bytes = vec![0; record.bytes];
        let offset = usize::try_from(span.offset(VERBS_RING_BYTES as u64)).unwrap_or(0);
        // A span never leaves the ring, see `Span::next`.
        let copied = self.ring.region().copy_out(offset, &mut bytes);
        debug_assert!(copied.is_ok(), "{copied:?}");
        bytes
    }

    /// Posts used requests anew, if there are many or `all` is wanted.
    pub(super) fn repost(&mut self, all: bool) -> io::Result<()> {
        if self.used >= REPOST_COUNT || (all && self.used > 0) {
            post_receives(&self.pair, self.used)?;
            self.used = 0;
        }
        Ok(())
    }

    /// Units of the ring to give back now, if it is time.
    pub(super) fn credit_due(&self) -> Option<u32> {
        self.incoming.credit_due()
    }

    /// They were given back.
    pub(super) fn credited(&mut self, units: u32) {
        self.incoming.credited(units);
    }
}
