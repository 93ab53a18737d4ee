//! Records the history of a simulated network: a digest of everything, and a trace of the last
//! events.
//!
//! Invariants
//! - The digest covers every event with its time and the bytes that it moved, so runs with equal
//!   digests were equal.
//! - At most `SIM_TRACE_MAX` records are kept.

use std::{collections::VecDeque, fmt, time::Duration};

use crate::limits::SIM_TRACE_MAX;

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TraceEvent {
    Connected,
    Posted { kind: &'static str, bytes: u64 },
    Refused { kind: &'static str },
    Written { offset: u64, bytes: u64 },
    Read { offset: u64, bytes: u64 },
    Loaded { offset: u64, value: u64 },
    Stored { offset: u64, value: u64 },
    Message { bytes: u64 },
    Immediate { immediate: u32 },
    Stalled,
    Completed { id: u64, ok: bool },
    Closed,
    Ended { ending: &'static str },
    Lost,
    Crashed,
    Cut,
    Repaired,
}

/// An event with its time, step and places.
#[derive(Debug, Clone)]
struct Record {
    at_ns: u64,
    step: u64,
    from: usize,
    to: usize,
    event: TraceEvent,
}

/// The digest of all events, and the last events.
#[derive(Debug, Default)]
pub(super) struct History {
    digest: u64,
    steps: u64,
    recent: VecDeque<Record>,
}

fn mix(digest: u64, word: u64) -> u64 {
    let mixed = (digest ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ (mixed >> 32)
}

fn of_text(text: &str) -> u64 {
    text.bytes().fold(0, |digest, byte| mix(digest, u64::from(byte)))
}

impl History {
    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    pub(super) fn count_step(&mut self) {
        self.steps += 1;
    }

    /// Records an event from one place to another.
    pub(super) fn note(&mut self, at_ns: u64, (from, to): (usize, usize), event: TraceEvent) {
        let (kind, first, second) = event.words();
        for word in [at_ns, from as u64, to as u64, kind, first, second] {
            self.digest = mix(self.digest, word);
        }
        if self.recent.len() == SIM_TRACE_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(Record { at_ns, step: self.steps, from, to, event });
    }

    /// Adds moved bytes to the digest.
    pub(super) fn note_bytes(&mut self, bytes: &[u8]) {
        let mut digest = mix(self.digest, bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            digest = mix(digest, u64::from_le_bytes(*word));
        }
        for byte in rest {
            digest = mix(digest, u64::from(*byte));
        }
        self.digest = digest;
    }

    /// The last events, one line each.
    pub(super) fn lines(&self, names: &[&str]) -> Vec<String> {
        let name = |place: usize| names.get(place).copied().unwrap_or("?");
        let line = |record: &Record| {
            let at = Duration::from_nanos(record.at_ns);
            let (from, to) = (name(record.from), name(record.to));
            let between = if record.from == record.to { from.to_owned() } else { format!("{from} > {to}") };
            format!("step {} at {at:?}, {between}: {}", record.step, record.event)
        };
        self.recent.iter().map(line).collect()
    }
}

impl TraceEvent {
    /// The words that represent the event in the digest.
    fn words(self) -> (u64, u64, u64) {
        match self {
            Self::Connected => (1, 0, 0),
            Self::Posted { kind, bytes } => (2, of_text(kind), bytes),
            Self::Refused { kind } => (3, of_text(kind), 0),
            Self::Written { offset, bytes } => (4, offset, bytes),
            Self::Read { offset, bytes } => (5, offset, bytes),
            Self::Loaded { offset, value } => (6, offset, value),
            Self::Stored { offset, value } => (7, offset, value),
            Self::Message { bytes } => (8, bytes, 0),
            Self::Immediate { immediate } => (9, u64::from(immediate), 0),
            Self::Stalled => (10, 0, 0),
            Self::Completed { id, ok } => (11, id, u64::from(ok)),
            Self::Closed => (12, 0, 0),
            Self::Ended { ending } => (13, of_text(ending), 0),
            Self::Lost => (14, 0, 0),
            Self::Crashed => (15, 0, 0),
            Self::Cut => (16, 0, 0),
            Self::Repaired => (17, 0, 0),
        }
    }
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected => f.write_str("connected"),
            Self::Posted { kind, bytes } => write!(f, "posted {kind} of {bytes} bytes"),
            Self::Refused { kind } => write!(f, "{kind} refused"),
            Self::Written { offset, bytes } => write!(f, "wrote {bytes} bytes at {offset}"),
            Self::Read { offset, bytes } => write!(f, "read {bytes} bytes at {offset}"),
            Self::Loaded { offset, value } => write!(f, "atomic loaded {value:#x} at {offset}"),
            Self::Stored { offset, value } => write!(f, "atomic stored {value:#x} at {offset}"),
            Self::Message { bytes } => write!(f, "delivered a message of {bytes} bytes"),
            Self::Immediate { immediate } => write!(f, "delivered immediate {immediate:#x}"),
            Self::Stalled => f.write_str("stalled: the receiver has no room"),
            Self::Completed { id, ok: true } => write!(f, "completed operation {id}"),
            Self::Completed { id, ok: false } => write!(f, "completed operation {id} with an error"),
            Self::Closed => f.write_str("closed the connection"),
            Self::Ended { ending } => write!(f, "ended: {ending}"),
            Self::Lost => f.write_str("connection lost"),
            Self::Crashed => f.write_str("crashed"),
            Self::Cut => f.write_str("cut off from each other"),
            Self::Repaired => f.write_str("can reach each other again"),
        }
    }
}
