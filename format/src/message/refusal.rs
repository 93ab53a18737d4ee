//! Defines refusals: why a node did not carry out a request.
//!
//! Invariants
//! - A client decides by the code of a refusal what it does next. The text is for people and has a
//!   bounded length.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::REFUSAL_BYTES_MAX;

/// Why a node refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalCode {
    /// The request does not parse or breaks a limit: a bug or another version.
    Malformed,
    /// The node has no such table, segment, column or page.
    NotFound,
    /// The node has no capacity for the request now: try again.
    Busy,
    /// The node does not run this scan: fetch the segment instead.
    Bounced(BounceReason),
    /// The device failed, or a page on it is corrupt.
    Storage,
    /// The devices are full.
    Full,
    /// The target is too small even for the result of one block; `needed_bytes` is a sufficient
    /// size.
    TargetTooSmall,
    /// The computation failed, as it would in the engine (a cast that does not fit).
    Computation,
    /// A value of the computation is beyond its type.
    Overflow,
    /// The requester's memory could not be written or read.
    Memory,
    /// The node is stopping.
    Stopping,
    /// The table version that a load replaces was itself replaced or dropped meanwhile: start again
    /// from the current version. Or the node writes to a data folder that is not its newest one.
    Replaced,
    /// The node has the maximum number of connections, and closes the connection of this reply: try
    /// again later.
    TooManyConnections,
}

/// Why a node bounces a scan, so that the engine runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BounceReason {
    /// The node's queue of scans is full.
    Queue,
    /// The node's memory is full: for pages, for results, or for their descriptions.
    Memory,
    /// The scan used more CPU time than one scan may use.
    CpuQuota,
    /// The scan used more memory than one scan may use.
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

/// The refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The reason, for programs.
    pub code: RefusalCode,
    /// The reason, for people: what failed, what was found, what was expected, what to do.
    pub text: String,
    /// With [`RefusalCode::TargetTooSmall`] a sufficient target size; otherwise 0.
    pub needed_bytes: u64,
}

impl Refusal {
    /// A refusal, whose text is cut to `REFUSAL_BYTES_MAX`.
    #[must_use]
    pub fn new(code: RefusalCode, text: impl Into<String>) -> Self {
        let mut text = text.into();
        if text.len() > REFUSAL_BYTES_MAX {
            let cut = (0..=REFUSAL_BYTES_MAX).rev().find(|&at| text.is_char_boundary(at));
            text.truncate(cut.expect("a cut: byte 0 is a boundary"));
        }
        Self { code, text, needed_bytes: 0 }
    }
}
