//! Parses the binary events of blktrace.
//!
//! An event has 48 bytes. The layout is `struct blk_io_trace` of Linux's `blktrace_api.h`, in the
//! byte order of the traced machine.
//!
//! Invariants
//! - Every field is read at its offset in an array of exactly [`EVENT_BYTES`]; payloads are
//!   skipped.

use super::event::Kind;
use crate::Operation;

/// Bytes of an event without its payload.
pub(super) const EVENT_BYTES: usize = 48;

/// The number at the beginning of every event; its lowest byte is the version.
const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;

/// Mask of the low half of an action, without the bit for a cgroup id in the payload.
const ACTION_MASK: u32 = 0xfeff;
const ACTION_QUEUE: u32 = 1;
const ACTION_ISSUE: u32 = 7;

/// Bits of the categories, in the high half of an action.
const CATEGORY_WRITE: u32 = 1 << (16 + 1);
const CATEGORY_FLUSH: u32 = 1 << (16 + 2);
const CATEGORY_PASSTHROUGH: u32 = 1 << (16 + 9);
const CATEGORY_NOTIFY: u32 = 1 << (16 + 10);
const CATEGORY_DISCARD: u32 = 1 << (16 + 13);

/// The byte order of the traced machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) sequence: u32,
    pub(super) time_ns: u64,
    pub(super) sector: u64,
    pub(super) length_bytes: u32,
    action: u32,
    pub(super) pid: u32,
    device: u32,
    pub(super) payload_bytes: u16,
}

/// Whether a file begins with an event of blktrace.
pub(crate) fn is_blktrace(head: &[u8]) -> bool {
    byte_order(head).is_some()
}

/// The byte order in which the first four bytes are the magic number.
pub(super) fn byte_order(head: &[u8]) -> Option<ByteOrder> {
    let first = *head.first_chunk::<4>()?;
    let is_magic = |number: u32| number & !0xff == MAGIC;
    if is_magic(u32::from_le_bytes(first)) {
        Some(ByteOrder::Little)
    } else if is_magic(u32::from_be_bytes(first)) {
        Some(ByteOrder::Big)
    } else {
        None
    }
}

impl Event {
    /// Parses an event.
    ///
    /// # Errors
    /// When it begins with another number, or has another version.
    pub(super) fn parse(bytes: &[u8; EVENT_BYTES], order: ByteOrder) -> Result<Self, String> {
        let field = Fields { bytes, order };
        let magic = field.u32(0);
        if magic & !0xff != MAGIC {
            return Err(format!("an event begins with {magic:#010x}, expected {:#010x}", MAGIC | VERSION));
        }
        if magic & 0xff != VERSION {
            return Err(format!("an event is of version {}, expected {VERSION}", magic & 0xff));
        }
        // Offset 40 holds the processor and offset 44 the error of a completion.
        Ok(Self {
            sequence: field.u32(4),
            time_ns: field.u64(8),
            sector: field.u64(16),
            length_bytes: field.u32(24),
            action: field.u32(28),
            pid: field.u32(32),
            device: field.u32(36),
            payload_bytes: field.u16(46),
        })
    }

    /// Whether the event is about a process or about the tracing itself, not about an IO.
    pub(super) fn is_notice(&self) -> bool {
        self.action & CATEGORY_NOTIFY != 0
    }

    /// The kind of the event, if events of this kind can be records.
    pub(super) fn kind(&self) -> Option<Kind> {
        if self.is_notice() || self.action & CATEGORY_PASSTHROUGH != 0 {
            return None;
        }
        match self.action & ACTION_MASK {
            ACTION_QUEUE => Some(Kind::Queued),
            ACTION_ISSUE => Some(Kind::Issued),
            _ => None,
        }
    }

    /// The operation of the IO; `None` for an empty IO that is not a flush.
    pub(super) fn operation(&self) -> Option<Operation> {
        let is = |category: u32| self.action & category != 0;
        if self.length_bytes == 0 {
            return is(CATEGORY_FLUSH).then_some(Operation::Flush);
        }
        Some(if is(CATEGORY_DISCARD) {
            Operation::Discard
        } else if is(CATEGORY_WRITE) {
            Operation::Write
        } else {
            Operation::Read
        })
    }

    /// The name of the device as blkparse prints it.
    pub(super) fn device_name(&self) -> String {
        format!("{},{}", self.device >> 20, self.device & 0xf_ffff)
    }
}

/// The fields of an event by their offsets.
struct Fields<'b> {
    bytes: &'b [u8; EVENT_BYTES],
    order: ByteOrder,
}

impl Fields<'_> {
    /// The field's bytes, the least significant first.
    fn at<const N: usize>(&self, place: usize) -> [u8; N] {
        let mut field = [0; N];
        field.copy_from_slice(&self.bytes[place..place + N]);
        if self.order == ByteOrder::Big {
            field.reverse();
        }
        field
    }

    fn u16(&self, place: usize) -> u16 {
        u16::from_le_bytes(self.at(place))
    }

    fn u32(&self, place: usize) -> u32 {
        u32::from_le_bytes(self.at(place))
    }

    fn u64(&self, place: usize) -> u64 {
        u64::from_le_bytes(self.at(place))
    }
}
