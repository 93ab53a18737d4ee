//! Why does a node not do what it was asked?
//!
//! Invariants
//! - The code decides what a client does next; the text is for people, and bounded.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::REFUSAL_BYTES_MAX;

/// Why a node did not do as asked. The code decides what a client does next; the text is for
/// people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalCode {
    /// The request does not parse or breaks a limit: a bug or another version.
    Malformed,
    /// No such table, segment, column or page here.
    NotFound,
    /// No room for the request now: ask again.
    Busy,
    /// The node does not scan this: fetch the segment instead.
    Bounced(BounceReason),
    /// The device failed or a page on it is wrong.
    Storage,
    /// No room on the devices.
    Full,
    /// The target is too small for even one block's result; `needed_bytes` says what would do.
    TargetTooSmall,
    /// The computation failed, as it would in the engine (a cast that does not fit).
    Computation,
    /// A value of the computation is beyond its type.
    Overflow,
    /// The requester's memory could not be written or read.
    Memory,
    /// The node is stopping.
    Stopping,
    /// The table that a load succeeds was replaced or dropped meanwhile: begin anew with the one
    /// that is there. Or the data folder over which a node writes is not the newest one of it.
    Replaced,
    /// The node has as many connections as it may have, and the one that this is said on ends: try
    /// again later.
    TooManyConnections,
}

/// Why a node gives a scan back to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BounceReason {
    /// Its queue of scans is full.
    Queue,
    /// Its memory is: for pages, for results, or for what is said of them.
    Memory,
    /// The scan took more CPU time than a scan may.
    CpuQuota,
    /// The scan took more memory than a scan may.
    MemoryQuota,
}

impl fmt::Display for BounceReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queue => "queue",
            Self::Memory => "memory",
            Self::CpuQuota => "CPU quota",
            Self::MemoryQuota => "memory quota",
        })
    }
}

/// A request that was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// For programs.
    pub code: RefusalCode,
    /// For people: the thing, what was found, what was expected, what to do.
    pub text: String,
    /// With [`RefusalCode::TargetTooSmall`]: how large a target would do. Else 0.
    pub needed_bytes: u64,
}

impl Refusal {
    /// A refusal whose text is cut to what a reply may carry.
    #[must_use]
    pub fn new(code: RefusalCode, text: impl Into<String>) -> Self {
        let mut text = text.into();
        if text.len() > REFUSAL_BYTES_MAX {
            let cut = (0..=REFUSAL_BYTES_MAX).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
            text.truncate(cut);
        }
        Self { code, text, needed_bytes: 0 }
    }
}
