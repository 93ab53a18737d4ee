//! Computes the positions of a ring of messages: where the next record goes, and whether there is
//! room.
//!
//! This is the paper's PUSH: the receiver keeps a ring for this one sender, and the sender keeps
//! the ring's address and tail. A record is one write into the ring. Its immediate announces it,
//! with its kind and length. Both sides compute its position from the lengths alone, so only the
//! payload travels. The receiver gives space back by *credits*, messages that name a number of
//! units.
//!
//! Invariants
//! - A record is contiguous: one that does not fit before the ring's end starts at the ring's
//!   beginning.
//! - Positions count bytes since the start, in whole units; `tail - head <= RING`, and the sender's
//!   head is never ahead of the receiver's.
//! - There are as many receive requests as records can be in the ring, so an announcement always
//!   finds one.
//! - The peer's announcements are checked here. An impossible length or kind is a fault and changes
//!   nothing.

use crate::limits::{MESSAGE_BYTES_MAX, SEND_BYTES_MAX, VERBS_RING_BYTES, VERBS_RING_UNIT_BYTES};

const RING: u64 = VERBS_RING_BYTES as u64;
const UNIT: u64 = VERBS_RING_UNIT_BYTES as u64;

/// Units in a ring, which is also the maximum number of records in it.
pub(super) const RING_UNITS: u32 = 1024;

const _: () = assert!(RING_UNITS as usize * VERBS_RING_UNIT_BYTES == VERBS_RING_BYTES);

/// Bytes of the record that announces an immediate: the word, and the number of bytes written.
pub(super) const ANNOUNCEMENT_BYTES: usize = 8;

/// Decodes an announcement: the immediate, and the number of bytes written.
pub(super) fn announced(said: [u8; ANNOUNCEMENT_BYTES]) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = said;
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))
}

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordKind {
    /// A part of a message, which is not the last.
    Part,
    /// The last part of a message, often the only one.
    LastPart,
    /// An immediate of the peer, after the bytes that it announces.
    Announcement,
}

/// A record as its immediate describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) kind: RecordKind,
    pub(super) bytes: usize,
}

/// An announcement that no honest peer makes.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RingFault {
    #[error("a record of {written} bytes has the immediate {immediate:#010x}, which does not describe it")]
    Record { immediate: u32, written: u32 },
    #[error("it has written records from position {head} to {end} into a ring of only {RING} bytes")]
    Overrun { head: u64, end: u64 },
    #[error("it has sent a message of more than {MESSAGE_BYTES_MAX} bytes")]
    MessageTooLong,
    #[error("it has granted credit for {units} units of the ring, but only {used} are used")]
    Credit { units: u32, used: u64 },
}

const LENGTH_BITS: u32 = 20;

impl Record {
    pub(super) fn to_immediate(self) -> u32 {
        let kind = match self.kind {
            RecordKind::Part => 0,
            RecordKind::LastPart => 1,
            RecordKind::Announcement => 2,
        };
        kind << LENGTH_BITS | u32::try_from(self.bytes).expect("records have at most SEND_BYTES_MAX bytes")
    }

    /// The record that `immediate` announces, with a write of `written` bytes.
    pub(super) fn from_immediate(immediate: u32, written: u32) -> Result<Self, RingFault> {
        let fault = RingFault::Record { immediate, written };
        let kind = match immediate >> LENGTH_BITS {
            0 => RecordKind::Part,
            1 => RecordKind::LastPart,
            2 => RecordKind::Announcement,
            _ => return Err(fault),
        };
        let bytes = (immediate & ((1 << LENGTH_BITS) - 1)) as usize;
        let possible = match kind {
            RecordKind::Announcement => bytes == ANNOUNCEMENT_BYTES,
            RecordKind::Part | RecordKind::LastPart => bytes <= SEND_BYTES_MAX,
        };
        if possible && written as usize == bytes { Ok(Self { kind, bytes }) } else { Err(fault) }
    }
}

const _: () = assert!(SEND_BYTES_MAX < 1 << LENGTH_BITS);

/// A range of positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Span {
    /// The positions of the next piece of `bytes` bytes in a ring of `ring` bytes whose tail is
    /// `tail`.
    pub(super) fn next(tail: u64, bytes: usize, ring: u64, unit: u64) -> Self {
        let taken = (bytes as u64).next_multiple_of(unit).max(unit);
        let offset = tail % ring;
        let start = if offset + taken <= ring { tail } else { tail - offset + ring };
        Self { start, end: start + taken }
    }

    /// The offset of its first byte in the ring.
    pub(super) fn offset(&self, ring: u64) -> u64 {
        self.start % ring
    }
}

/// The sender's view of the receiver's ring.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    tail: u64,
    head: u64,
}

impl Outgoing {
    /// The positions of the next record, if there is room for it.
    pub(super) fn room_for(&self, bytes: usize) -> Option<Span> {
        let span = Span::next(self.tail, bytes, RING, UNIT);
        (span.end - self.head <= RING).then_some(span)
    }

    /// Occupies the positions that `room_for` returned.
    pub(super) fn take(&mut self, span: Span) {
        self.tail = span.end;
    }

    pub(super) fn tail(&self) -> u64 {
        self.tail
    }

    /// Notes that the receiver has given `units` units back.
    pub(super) fn credit(&mut self, units: u32) -> Result<(), RingFault> {
        let (given, used) = (u64::from(units) * UNIT, self.tail - self.head);
        if given > used {
            return Err(RingFault::Credit { units, used: used / UNIT });
        }
        self.head += given;
        Ok(())
    }
}

/// The receiver's view of its own ring.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    tail: u64,
    head: u64,
    released: u64,
}

/// Credit is given when a quarter of the ring was taken. That is seldom, but early enough that the
/// largest record, and the bytes skipped at the ring's end before it, still have room.
const CREDIT_BYTES: u64 = RING / 4;

// Between two credits less than CREDIT_BYTES are withheld. A record and the bytes skipped before it
// need at most twice its length, which must fit into the remainder of the ring.
const _: () = assert!(2 * SEND_BYTES_MAX + VERBS_RING_BYTES / 4 <= VERBS_RING_BYTES);

impl Incoming {
    /// Notes a record that was announced. Returns its positions.
    pub(super) fn arrived(&mut self, record: Record) -> Result<Span, RingFault> {
        let span = Span::next(self.tail, record.bytes, RING, UNIT);
        if span.end - self.released > RING {
            return Err(RingFault::Overrun { head: self.released, end: span.end });
        }
        self.tail = span.end;
        Ok(span)
    }

    /// The position up to which bytes have arrived, as the sender counts.
    pub(super) fn tail(&self) -> u64 {
        self.tail
    }

    /// Notes that the record was copied out.
    pub(super) fn taken(&mut self, span: Span) {
        self.head = span.end;
    }

    /// Units to give back now, if credit is due.
    pub(super) fn credit_due(&self) -> Option<u32> {
        let withheld = self.head - self.released;
        let units = || u32::try_from(withheld / UNIT).expect("at most RING_UNITS units are withheld");
        (withheld >= CREDIT_BYTES).then(units)
    }

    /// Notes that units were given back.
    pub(super) fn credited(&mut self, units: u32) {
        self.released += u64::from(units) * UNIT;
    }
}

/// Assembles messages from their parts.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    parts: Vec<u8>,
}

impl Assembly {
    /// Adds a part. Returns the message if that was its last part.
    pub(super) fn add(&mut self, part: Vec<u8>, is_last: bool) -> Result<Option<Vec<u8>>, RingFault> {
        if self.parts.len() + part.len() > MESSAGE_BYTES_MAX {
            return Err(RingFault::MessageTooLong);
        }
        if self.parts.is_empty() {
            self.parts = part;
        } else {
            self.parts.extend_from_slice(&part);
        }
        Ok(is_last.then(|| std::mem::take(&mut self.parts)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_record_survives_its_immediate() {
        for kind in [RecordKind::Part, RecordKind::LastPart] {
            for bytes in [0, 1, 255, 4096, SEND_BYTES_MAX] {
                let record = Record { kind, bytes };
                let written = u32::try_from(bytes).unwrap();
                assert_eq!(Record::from_immediate(record.to_immediate(), written), Ok(record));
            }
        }
        let announcement = Record { kind: RecordKind::Announcement, bytes: ANNOUNCEMENT_BYTES };
        assert_eq!(Record::from_immediate(announcement.to_immediate(), 8), Ok(announcement));
    }

    #[test]
    fn an_announcement_that_no_honest_peer_makes_is_a_fault() {
        let too_long = u32::try_from(SEND_BYTES_MAX + 1).unwrap();
        for (immediate, written) in
            [(too_long, too_long), (5, 6), (3 << 20, 0), (2 << 20 | 9, 9), (2 << 20, 0), (u32::MAX, u32::MAX)]
        {
            let fault = RingFault::Record { immediate, written };
            assert_eq!(Record::from_immediate(immediate, written), Err(fault));
        }
    }

    #[test]
    fn more_records_than_there_is_room_for_are_a_fault() {
        let mut incoming = Incoming::default();
        let record = Record { kind: RecordKind::LastPart, bytes: SEND_BYTES_MAX };
        for _ in 0..VERBS_RING_BYTES / SEND_BYTES_MAX {
            incoming.arrived(record).unwrap();
        }
        let fault = RingFault::Overrun { head: 0, end: RING + SEND_BYTES_MAX as u64 };
        assert_eq!(incoming.arrived(record), Err(fault));
    }

    #[test]
    fn credit_for_what_was_not_used_is_a_fault() {
        let mut outgoing = Outgoing::default();
        let span = outgoing.room_for(1000).unwrap();
        outgoing.take(span);
        assert_eq!(outgoing.credit(5), Err(RingFault::Credit { units: 5, used: 4 }));
        assert_eq!(outgoing.credit(4), Ok(()));
    }

    #[test]
    fn a_message_longer_than_the_limit_is_a_fault() {
        let mut assembly = Assembly::default();
        for _ in 0..MESSAGE_BYTES_MAX / SEND_BYTES_MAX {
            assert_eq!(assembly.add(vec![0; SEND_BYTES_MAX], false), Ok(None));
        }
        assert_eq!(assembly.add(vec![0], true), Err(RingFault::MessageTooLong));
    }

    proptest! {
        #[test]
        fn both_sides_agree_on_every_place_and_nobody_starves(
            steps in proptest::collection::vec((0..=SEND_BYTES_MAX, 0_usize..4), 1..400)
        ) {
            let (mut outgoing, mut incoming) = (Outgoing::default(), Incoming::default());
            let mut in_ring = std::collections::VecDeque::new();
            for (bytes, taken) in steps {
                let record = Record { kind: RecordKind::LastPart, bytes };
                match outgoing.room_for(bytes) {
                    Some(span) => {
                        outgoing.take(span);
                        prop_assert_eq!(incoming.arrived(record), Ok(span));
                        prop_assert!(span.offset(RING) + bytes as u64 <= RING);
                        in_ring.push_back(span);
                    }
                    None => prop_assert!(!in_ring.is_empty(), "an empty ring has room"),
                }
                let taken = if outgoing.room_for(SEND_BYTES_MAX).is_some() { taken } else { in_ring.len() };
                for _ in 0..taken.min(in_ring.len()) {
                    incoming.taken(in_ring.pop_front().unwrap());
                }
                if let Some(units) = incoming.credit_due() {
                    incoming.credited(units);
                    prop_assert_eq!(outgoing.credit(units), Ok(()));
                }
            }
        }
    }
}
