//! Turns announced records of the ring into messages and immediates.
//!
//! Invariants
//! - A record is copied out of the ring before its space is given back to the sender, and checked
//!   before it is used.
//! - A receive request is posted again before the space of its record is given back, so the peer
//!   always finds one.

use std::{collections::VecDeque, io, sync::Arc};

use super::{
    ring::{Assembly, Incoming, RING_UNITS, Record, RecordKind, RingFault, Span, announced},
    sys::{MemoryRegion, QueuePair, Slot},
};
use crate::{completion::Event, limits::VERBS_RING_BYTES};

/// The id of all receive requests.
pub(super) const RECEIVE_ID: u64 = u64::MAX;

/// Used requests are posted again so many at a time.
const REPOST_COUNT: u32 = 64;

/// Maximum number of credits in flight: each returns at least a quarter of a ring.
const CREDITS: u32 = 8;

/// Receive requests of a queue pair: one for each record that fits, one for each credit, and those
/// that wait to be posted again.
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

    /// Takes a record that was written and announced.
    pub(super) fn arrived(&mut self, immediate: u32, written: u32) -> Result<(), RingFault> {
        self.used += 1;
        let record = Record::from_immediate(immediate, written)?;
        let span = self.incoming.arrived(record)?;
        self.arrivals.push_back((record, span));
        Ok(())
    }

    /// Counts the receive request that a credit has used.
    pub(super) fn credit_arrived(&mut self) {
        self.used += 1;
    }

    pub(super) fn has_arrivals(&self) -> bool {
        !self.arrivals.is_empty()
    }

    /// The position up to which the ring is written.
    pub(super) fn tail(&self) -> u64 {
        self.incoming.tail()
    }

    /// Drops everything that has arrived.
    pub(super) fn clear(&mut self) {
        self.arrivals.clear();
    }

    /// The next complete message or immediate.
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
        let offset = usize::try_from(span.offset(VERBS_RING_BYTES as u64));
        let offset = offset.expect("an offset in the ring is below VERBS_RING_BYTES");
        // A span never leaves the ring, see `Span::next`.
        self.ring.region().copy_out(offset, &mut bytes).expect("a record lies within the ring");
        bytes
    }

    /// Posts used requests again, if there are many or if `all` is set.
    pub(super) fn repost(&mut self, all: bool) -> io::Result<()> {
        if self.used >= REPOST_COUNT || (all && self.used > 0) {
            post_receives(&self.pair, self.used)?;
            self.used = 0;
        }
        Ok(())
    }

    /// Units of the ring to give back now, if credit is due.
    pub(super) fn credit_due(&self) -> Option<u32> {
        self.incoming.credit_due()
    }

    /// Notes that units were given back.
    pub(super) fn credited(&mut self, units: u32) {
        self.incoming.credited(units);
    }
}
