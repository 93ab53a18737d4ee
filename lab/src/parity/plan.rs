//! Describes a parity measurement: the ways of writing, the cases (nodes, parity, block size,
//! wire), the number of rounds and the duration of a turn.

use std::{fmt, str::FromStr, sync::atomic::AtomicBool, time::Duration};

use rackscan_stripe::{Parity, Way};

use crate::record::Provenance;
use rackscan_fabric::Wire;

/// The ways to write stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protection {
    /// Data only.
    None,
    /// The client computes and sends everything.
    Naive,
    /// The client sends data, nodes compute and forward.
    Relay,
}

impl Protection {
    /// All ways.
    pub const ALL: [Self; 3] = [Self::None, Self::Naive, Self::Relay];

    /// The name by which users choose it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Naive => "naive",
            Self::Relay => "relay",
        }
    }

    pub(super) fn way(self) -> Way {
        match self {
            Self::None => Way::Bare,
            Self::Naive => Way::Naive,
            Self::Relay => Way::Relay,
        }
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name of no way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the way '{found}' does not exist, expected one of none, naive, relay")]
pub struct NoSuchWay {
    /// The given name.
    pub found: String,
}

impl FromStr for Protection {
    type Err = NoSuchWay;

    fn from_str(text: &str) -> Result<Self, NoSuchWay> {
        let found = Self::ALL.into_iter().find(|way| way.name() == text);
        found.ok_or_else(|| NoSuchWay { found: text.to_owned() })
    }
}

/// Conditions under which ways of writing are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Number of nodes that share a stripe.
    pub nodes: usize,
    /// Wire between client and nodes.
    pub wire: Wire,
    /// Protection of the stripes.
    pub parity: Parity,
    /// Bytes of a transfer.
    pub slice_bytes: usize,
    /// Whether cells are written to disks; otherwise they end in memory.
    pub on_disk: bool,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.on_disk { "disk" } else { "memory" };
        write!(f, "{} nodes, {}, blocks of {} bytes, {place}", self.nodes, self.wire, self.slice_bytes)
    }
}

/// A measurement.
#[derive(Debug)]
pub struct Plan<'p> {
    /// The conditions.
    pub cases: Vec<Case>,
    /// The ways of writing, in the order of their turns.
    pub ways: Vec<Protection>,
    /// Bytes of a cell, at least those of the longest slice.
    pub cell_bytes: usize,
    /// Stripes in flight at once.
    pub lanes: usize,
    /// Bytes of a ring; it holds at least two slices, whatever this is.
    pub ring_bytes: usize,
    /// Turns of each way that count.
    pub rounds: u32,
    /// Duration of a turn.
    pub duration: Duration,
    /// Limit of the client's link in megabits per second, if there is one.
    pub link_mbit: Option<u32>,
    /// Source of the figures.
    pub provenance: Provenance,
    /// Set by the caller to end the measurement early.
    pub stop: &'p AtomicBool,
}
