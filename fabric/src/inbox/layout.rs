//! Defines the layout of an inbox's memory, and the encoding of its words.
//!
//! ```text
//! page 0            shape | sleeping | stalled | status head | status hint | damaged   (each in a cache line of its own)
//! table             one cache line for each sender: its ring, and words that the two sides of its connection exchange
//! rings' positions  for each ring: head | hint
//! status claims     one word for each entry of the status ring
//! status entries    one cache line for each entry: a control word and seven words
//! ring claims       for each ring: one word for each granule
//! data              for each ring: its granules
//! ```
//!
//! A *granule* is the unit in which a ring's bytes are allocated.
//!
//! Invariants
//! - Positions count granules (or entries) since the inbox was created. They begin with lap 1, so
//!   that zeroed memory contains no claim and no entry.
//! - Both sides compute offsets from the same shape. A sender reads the shape from the memory and
//!   checks it first.

use std::sync::{Arc, atomic::AtomicU64};

use az::SaturatingAs;

use super::config::{InboxConfig, WhenFull};
use crate::{
    error::OutOfBounds,
    limits::{
        INBOX_GRANULE_BYTES, INBOX_RING_BYTES_MAX, INBOX_RINGS_MAX, INBOX_SENDERS_MAX, REGION_ALIGNMENT_BYTES,
    },
    memory::Mapping,
};

const MAGIC: u64 = u64::from_le_bytes(*b"RSINBOX1");
const LINE_BYTES: usize = 64;
/// Distance between words that different threads write. Two cache lines, because processors fetch
/// lines in pairs.
const APART_BYTES: usize = 128;

/// Words of the first page.
#[derive(Debug, Clone, Copy)]
pub(super) enum Header {
    /// Nonzero while the receiver sleeps or is about to.
    Sleeping = 1,
    /// Nonzero while a sender that has found no room sleeps or is about to.
    Stalled = 2,
    /// The first entry of the status ring that is still in use.
    StatusHead = 3,
    /// The start of a claim near the end of the status ring.
    StatusHint = 4,
    /// Nonzero once a sender has found words that no honest process writes.
    Damaged = 5,
}

/// Words of a sender's line in the address management table (section 3.1: AMT).
#[derive(Debug, Clone, Copy)]
pub(crate) enum SenderWord {
    /// The ring that its messages go to. The receiver may change it at any time.
    Ring = 0,
    /// Number of control messages that the sender has sent over the control socket (`shm`).
    Controls = 1,
    /// Nonzero while the sender has found no room and sleeps.
    Stalled = 2,
    /// Nonzero while the owner of the receiving side's connection sleeps (`shm`).
    ConnectionSleeps = 3,
    /// How often the sender has stalled.
    Stalls = 4,
    /// How many of its messages were refused.
    Refusals = 5,
}

impl InboxConfig {
    /// The memory that such an inbox allocates when it is made, in bytes: rings, status ring and
    /// tables. The buffers in which cut messages are assembled and the shared receive queues of
    /// adapters are not included.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        Layout::new(Shape::of(self)).bytes as u64
    }
}

/// The sizes that determine the layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) ring_bytes: usize,
    pub(super) rings: usize,
    pub(super) senders: usize,
    pub(super) packet_bytes: usize,
    pub(super) when_full: WhenFull,
}

impl Shape {
    pub(super) fn of(config: &InboxConfig) -> Self {
        Self {
            ring_bytes: config.ring_bytes,
            rings: usize::from(config.private_rings) + usize::from(config.shared_rings),
            senders: usize::from(config.senders_max),
            packet_bytes: config.packet_bytes,
            when_full: config.when_full,
        }
    }

    /// Describes what is wrong with the shape, if anything.
    pub(super) fn problem(&self) -> Option<String> {
        let ring = self.ring_bytes;
        if !ring.is_power_of_two() || !(REGION_ALIGNMENT_BYTES..=INBOX_RING_BYTES_MAX).contains(&ring) {
            return Some(format!(
                "rings of {ring} bytes; expected a power of two from {REGION_ALIGNMENT_BYTES} to {INBOX_RING_BYTES_MAX}"
            ));
        }
        if !(1..=INBOX_RINGS_MAX).contains(&self.rings) {
            return Some(format!("{} rings; expected from 1 to {INBOX_RINGS_MAX}", self.rings));
        }
        if !(1..=INBOX_SENDERS_MAX).contains(&self.senders) {
            return Some(format!("{} senders; expected from 1 to {INBOX_SENDERS_MAX}", self.senders));
        }
        // A packet that does not fit before the ring's end is preceded by padding up to the end.
        // Both must fit into an empty ring.
        if self.packet_bytes < INBOX_GRANULE_BYTES || self.packet_bytes > ring / 2 {
            return Some(format!(
                "packets of {} bytes; expected from {INBOX_GRANULE_BYTES} to {}, half of a ring",
                self.packet_bytes,
                ring / 2
            ));
        }
        None
    }
}

/// The offsets of all parts for one shape, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub(super) shape: Shape,
    /// Granules of a ring.
    pub(super) granules: usize,
    /// Entries of the status ring: at least as many as all rings together have granules.
    pub(super) entries: usize,
    table: usize,
    positions: usize,
    status_claims: usize,
    status_entries: usize,
    ring_claims: usize,
    pub(super) data: usize,
    /// Length of the memory.
    pub(super) bytes: usize,
}

impl Layout {
    /// The layout of a shape without a [`Shape::problem`].
    pub(super) fn new(shape: Shape) -> Self {
        let granules = shape.ring_bytes / INBOX_GRANULE_BYTES;
        let entries = (granules * shape.rings).next_power_of_two();
        let table = REGION_ALIGNMENT_BYTES;
        let positions = (table + shape.senders * LINE_BYTES).next_multiple_of(APART_BYTES);
        let status_claims = positions + shape.rings * 2 * APART_BYTES;
        let status_entries = (status_claims + entries * 8).next_multiple_of(APART_BYTES);
        let ring_claims = status_entries + entries * LINE_BYTES;
        let data = (ring_claims + shape.rings * granules * 8).next_multiple_of(REGION_ALIGNMENT_BYTES);
        let bytes = data + shape.rings * shape.ring_bytes;
        Self {
            shape,
            granules,
            entries,
            table,
            positions,
            status_claims,
            status_entries,
            ring_claims,
            data,
            bytes,
        }
    }

    /// Bytes of the status ring with its claims.
    pub(super) fn status_bytes(&self) -> usize {
        self.ring_claims - self.status_claims
    }
}

/// The memory of an inbox, with names for its parts.
#[derive(Debug, Clone)]
pub(super) struct InboxMap {
    mapping: Arc<Mapping>,
    pub(super) layout: Layout,
}

impl InboxMap {
    /// The receiver's view of fresh memory. Writes the shape into it for the senders.
    pub(super) fn create(mapping: Arc<Mapping>, layout: Layout) -> Result<Self, OutOfBounds> {
        let map = Self { mapping, layout };
        map.note_shape()?;
        Ok(map)
    }

    fn note_shape(&self) -> Result<(), OutOfBounds> {
        use std::sync::atomic::Ordering::Release;
        let Shape { ring_bytes, rings, senders, packet_bytes, when_full } = self.layout.shape;
        let words = self.mapping.words(0, 7)?;
        let refuse = u64::from(when_full == WhenFull::Refuse);
        let shape = [ring_bytes as u64, rings as u64, senders as u64, packet_bytes as u64, refuse];
        words[0].store(MAGIC, Release);
        for (word, value) in words[1..].iter().zip(shape) {
            word.store(value, Release);
        }
        let first = self.layout.entries as u64;
        self.header(Header::StatusHead)?.store(first, Release);
        self.header(Header::StatusHint)?.store(first, Release);
        for ring in 0..rings {
            self.ring_head(ring)?.store(self.layout.granules as u64, Release);
            self.ring_hint(ring)?.store(self.layout.granules as u64, Release);
        }
        Ok(())
    }

    /// Clears all claims and entries. Only allowed while there is no sender.
    pub(super) fn start_afresh(&self) -> Result<(), OutOfBounds> {
        self.mapping.zero(0, self.layout.data)?;
        self.note_shape()
    }

    /// A sender's view of memory that another process has made; its shape is checked.
    pub(super) fn open(mapping: Arc<Mapping>) -> Result<Self, String> {
        use std::sync::atomic::Ordering::Acquire;
        let words = mapping.words(0, 7).map_err(|e| e.to_string())?;
        // A value that fits no usize is clamped, and then refused by the checks below.
        let value = |at: usize| words[at].load(Acquire).saturating_as::<usize>();
        if words[0].load(Acquire) != MAGIC {
            return Err(format!("the memory begins with {:#018x}, expected {MAGIC:#018x}", value(0)));
        }
        let when_full = if value(5) == 0 { WhenFull::Stall } else { WhenFull::Refuse };
        let (ring_bytes, rings, senders, packet_bytes) = (value(1), value(2), value(3), value(4));
        let shape = Shape { ring_bytes, rings, senders, packet_bytes, when_full };
        if let Some(problem) = shape.problem() {
            return Err(format!("the memory says {shape:?}: {problem}"));
        }
        let layout = Layout::new(shape);
        if layout.bytes != mapping.bytes() {
            return Err(format!("{shape:?} in {} bytes, expected {}", mapping.bytes(), layout.bytes));
        }
        Ok(Self { mapping, layout })
    }

    pub(super) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    pub(super) fn header(&self, word: Header) -> Result<&AtomicU64, OutOfBounds> {
        self.mapping.word_to_store(word as usize * APART_BYTES)
    }

    /// A word of a sender's line.
    pub(super) fn line(&self, sender: u16, word: SenderWord) -> Result<&AtomicU64, OutOfBounds> {
        self.mapping.word_to_store(self.layout.table + usize::from(sender) * LINE_BYTES + word as usize * 8)
    }

    pub(super) fn clear_line(&self, sender: u16) -> Result<(), OutOfBounds> {
        self.mapping.zero(self.layout.table + usize::from(sender) * LINE_BYTES, LINE_BYTES)
    }

    /// The first granule of a ring that is still in use. Only the receiver moves it.
    pub(super) fn ring_head(&self, ring: usize) -> Result<&AtomicU64, OutOfBounds> {
        self.mapping.word_to_store(self.layout.positions + ring * 2 * APART_BYTES)
    }

    /// The start of a claim near the end of the claimed part of a ring.
    pub(super) fn ring_hint(&self, ring: usize) -> Result<&AtomicU64, OutOfBounds> {
        self.mapping.word_to_store(self.layout.positions + ring * 2 * APART_BYTES + APART_BYTES)
    }

    pub(super) fn status_claims(&self) -> Result<&[AtomicU64], OutOfBounds> {
        self.mapping.words(self.layout.status_claims, self.layout.entries)
    }

    /// The eight words of the status entry at a position.
    pub(super) fn entry(&self, position: u64) -> Result<&[AtomicU64], OutOfBounds> {
        let slot = slot_of(position, self.layout.entries);
        self.mapping.words(self.layout.status_entries + slot * LINE_BYTES, LINE_BYTES / 8)
    }

    pub(super) fn ring_claims(&self, ring: usize) -> Result<&[AtomicU64], OutOfBounds> {
        let granules = self.layout.granules;
        self.mapping.words(self.layout.ring_claims + ring * granules * 8, granules)
    }

    /// The offset of a granule of a ring in the memory.
    pub(super) fn place(&self, ring: usize, position: u64) -> usize {
        let slot = slot_of(position, self.layout.granules);
        self.layout.data + ring * self.layout.shape.ring_bytes + slot * INBOX_GRANULE_BYTES
    }
}

/// The slot of a position in a ring of `capacity` slots, a power of two.
pub(super) fn slot_of(position: u64, capacity: usize) -> usize {
    let slot = usize::try_from(position & (capacity as u64 - 1));
    slot.expect("the mask keeps the slot below `capacity`")
}

/// The lap of a position, as claims and control words hold it.
pub(super) fn lap_of(position: u64, capacity: usize) -> u32 {
    low_u32(position >> capacity.trailing_zeros())
}

fn low_u16(word: u64) -> u16 {
    u16::try_from(word & 0xffff).expect("the mask leaves 16 bits")
}

fn low_u32(word: u64) -> u32 {
    u32::try_from(word & u64::from(u32::MAX)).expect("the mask leaves 32 bits")
}

/// A claim on slots: its sender, their number, and the lap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) lap: u32,
    pub(super) sender: u16,
    /// The slots stay unused, because a packet did not fit before the ring's end.
    pub(super) padding: bool,
    pub(super) count: u16,
}

const PADDING: u16 = 1 << 15;

impl Claim {
    pub(super) fn encode(self) -> u64 {
        let count = if self.padding { self.count | PADDING } else { self.count };
        u64::from(self.lap) << 32 | u64::from(self.sender) << 16 | u64::from(count)
    }

    pub(super) fn decode(word: u64) -> Self {
        let count = low_u16(word);
        Self {
            lap: low_u32(word >> 32),
            sender: low_u16(word >> 16),
            padding: count & PADDING != 0,
            count: count & !PADDING,
        }
    }
}

/// What an entry of the status ring reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing: the entry was published on behalf of a sender that is gone.
    Void,
    /// A message whose bytes are in the entry itself.
    Inline { length: u8 },
    /// A packet, or a whole message, in a ring.
    Packet,
    /// The announcement of a write into our memory.
    Immediate,
    /// A whole message that a thread of this process has assembled outside of the rings
    /// ([`super::seats::Handover`]).
    Handed,
}

/// The first word of a status entry; stored last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Control {
    pub(super) lap: u32,
    pub(super) sender: u16,
    /// The message is reported packet by packet.
    pub(super) per_packet: bool,
    pub(super) kind: Kind,
}

/// Bytes of a message that fit beside the control word.
pub(crate) const INLINE_BYTES_MAX: usize = LINE_BYTES - 8;

impl Control {
    pub(super) fn encode(self) -> u64 {
        let (kind, length) = match self.kind {
            Kind::Void => (1, 0),
            Kind::Inline { length } => (2, length),
            Kind::Packet => (3, 0),
            Kind::Immediate => (4, 0),
            Kind::Handed => (5, 0),
        };
        let low = u64::from(length) | u64::from(self.per_packet) << 8 | kind << 12;
        u64::from(self.lap) << 32 | u64::from(self.sender) << 16 | low
    }

    pub(super) fn lap(word: u64) -> u32 {
        low_u32(word >> 32)
    }

    pub(super) fn sender(word: u64) -> u16 {
        low_u16(word >> 16)
    }

    pub(super) fn decode(word: u64) -> Option<Self> {
        let length = word.to_le_bytes()[0];
        let kind = match (word >> 12 & 0xf, usize::from(length)) {
            (1, 0) => Kind::Void,
            (2, ..=INLINE_BYTES_MAX) => Kind::Inline { length },
            (3, 0) => Kind::Packet,
            (4, 0) => Kind::Immediate,
            (5, 0) => Kind::Handed,
            _ => return None,
        };
        let per_packet = match word >> 8 & 0xf {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Self { lap: Self::lap(word), sender: Self::sender(word), per_packet, kind })
    }
}

/// The position of a packet and the part of its message that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) ring: u16,
    pub(super) position: u64,
    pub(super) length: u32,
    /// First byte, in the message.
    pub(super) offset: u32,
    pub(super) message_bytes: u32,
}

impl Packet {
    pub(super) fn encode(self) -> [u64; 3] {
        let (length, ring) = (u64::from(self.length), u64::from(self.ring));
        let (offset, message) = (u64::from(self.offset), u64::from(self.message_bytes));
        [self.position, ring << 32 | length, message << 32 | offset]
    }

    pub(super) fn decode(words: [u64; 3]) -> Self {
        Self {
            ring: low_u16(words[1] >> 32),
            position: words[0],
            length: low_u32(words[1]),
            offset: low_u32(words[2]),
            message_bytes: low_u32(words[2] >> 32),
        }
    }
}

/// Number of granules that `length` bytes occupy.
pub(super) fn granules_of(length: usize) -> u64 {
    length.div_ceil(INBOX_GRANULE_BYTES).max(1) as u64
}
