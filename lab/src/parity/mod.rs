//! What does it cost to write data that survives lost nodes?
//!
//! One client writes stripes over relays of storage nodes, which a [`RelayHost`] has started: by each way in turn, so that ratios are of one time. A turn opens a session, keeps all lanes
//! busy until its time is over, and waits for the stripes that are under way; nodes are asked before and after what they have done.
//!
//! ```text
//! Plan --cases, rounds--> turn --> Writer --> relays of nodes         line: medians, ratios, bytes for each byte of data
//! ```
//!
//! Invariants
//! - All ways of a case write the same bytes, out of the same registered memory, into stripes of the same shape.
//! - What was sent, received and stored is what client and nodes counted, not what a schedule says.

mod line;
mod picture;
mod turn;

use std::{
    fmt,
    str::FromStr,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use rackscan_fabric::{ClusterKey, Region, RegionError};
use rackscan_relay::{
    Member,
    limits::{SECTOR_BYTES, SLICE_BYTES_MAX},
};
use rackscan_stripe::{Geometry, Parity, StripeError, Way};

use crate::{experiment::WireKind, record::Provenance};
pub use line::ParityLine;
pub use picture::parity_report;
use turn::Turn;

/// The most data that is held for the stripes under way, in bytes.
const DATA_BYTES_MAX: usize = 8 << 30;

/// How stripes are written, as people call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protection {
    /// Data alone.
    None,
    /// The client computes and sends everything.
    Naive,
    /// The client sends data, nodes compute and forward.
    Relay,
}

impl Protection {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::None, Self::Naive, Self::Relay];

    /// The name by which it is chosen.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Naive => "naive",
            Self::Relay => "relay",
        }
    }

    fn way(self) -> Way {
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

/// There is no such way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the way '{found}' does not exist, expected one of none, naive, relay")]
pub struct NoSuchWay {
    /// What was asked for.
    pub found: String,
}

impl FromStr for Protection {
    type Err = NoSuchWay;

    fn from_str(text: &str) -> Result<Self, NoSuchWay> {
        let found = Self::ALL.into_iter().find(|way| way.name() == text);
        found.ok_or_else(|| NoSuchWay { found: text.to_owned() })
    }
}

/// Relays that can be written to.
#[derive(Clone, Debug)]
pub struct Relays {
    /// By node, ascending, on the wire that was asked for.
    pub members: Vec<Member>,
    /// Where the same nodes are asked what they did.
    pub nodes: Vec<rackscan_client::NodeEndpoint>,
    /// Their key.
    pub key: ClusterKey,
}

/// Starts nodes.
pub trait RelayHost {
    /// So many nodes, whose relays are reached by this wire. They stay until others are asked for.
    ///
    /// # Errors
    /// Why not, in words.
    fn start(&mut self, nodes: usize, wire: WireKind) -> Result<Relays, String>;
}

/// Conditions under which ways are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// How many nodes share a stripe.
    pub nodes: usize,
    /// How client and nodes reach each other.
    pub wire: WireKind,
    /// What protects stripes.
    pub parity: Parity,
    /// Bytes that are sent at once.
    pub slice_bytes: usize,
    /// Whether cells are written to disks, or end in memory.
    pub on_disk: bool,
}

/// What is measured.
#[derive(Debug)]
pub struct Plan<'p> {
    /// The conditions.
    pub cases: Vec<Case>,
    /// The ways, in the order of their turns.
    pub ways: Vec<Protection>,
    /// Bytes of a cell, at least the longest slice.
    pub cell_bytes: usize,
    /// Stripes under way at once.
    pub lanes: usize,
    /// Bytes of a ring; at least two slices are held whatever it is.
    pub ring_bytes: usize,
    /// Turns of each way that count.
    pub rounds: u32,
    /// How long a turn lasts.
    pub duration: Duration,
    /// What the client's link was limited to, in megabits a second, if it was.
    pub link_mbit: Option<u32>,
    /// Where the figures come from.
    pub provenance: Provenance,
    /// Set by whoever wants it to end early.
    pub stop: &'p AtomicBool,
}

/// How far it is.
#[derive(Clone, Debug)]
pub struct Step<'s> {
    /// Turns that were made.
    pub done: usize,
    /// Turns in all.
    pub total: usize,
    /// What is being done.
    pub doing: &'s str,
}

/// What a measurement came to.
#[derive(Debug, Default)]
pub struct ParityOutcome {
    /// A line for each way of each case that was measured.
    pub lines: Vec<ParityLine>,
    /// What failed, in words.
    pub failures: Vec<String>,
    /// Whether it was stopped early.
    pub stopped: bool,
}

/// Why nothing can be measured.
#[derive(Debug, thiserror::Error)]
pub enum ParityError {
    /// Stripes of so many nodes do not exist.
    #[error(transparent)]
    Stripe(#[from] StripeError),
    /// Memory for the data.
    #[error("memory for the data of {lanes} stripes over {nodes} nodes: {source}")]
    Memory {
        /// Stripes.
        lanes: usize,
        /// Nodes.
        nodes: usize,
        /// What was refused.
        source: RegionError,
    },
    /// A block or a cell that cannot be.
    #[error(
        "blocks of {slice_bytes} bytes in cells of {cell_bytes}: both must be multiples of {SECTOR_BYTES} bytes above 0, \
         blocks at most {SLICE_BYTES_MAX} and no longer than cells"
    )]
    Slice {
        /// The block.
        slice_bytes: usize,
        /// The cell.
        cell_bytes: usize,
    },
    /// More data than is sensible to hold.
    #[error(
        "{lanes} stripes of {cells} cells of {cell_bytes} bytes: the data of all stripes under way is held in memory, \
         at most {DATA_BYTES_MAX} bytes of it; give shorter cells or fewer lanes"
    )]
    Data {
        /// Stripes under way.
        lanes: usize,
        /// Data cells of each.
        cells: usize,
        /// Bytes of each.
        cell_bytes: usize,
    },
}

/// Measures; what fails in one case leaves the others as they are.
///
/// # Errors
/// [`ParityError`], before anything is measured.
pub fn measure(
    plan: &Plan<'_>,
    host: &mut dyn RelayHost,
    on_step: &mut dyn FnMut(Step<'_>),
) -> Result<ParityOutcome, ParityError> {
    for case in &plan.cases {
        let (slice_bytes, cell_bytes, lanes) = (case.slice_bytes, plan.cell_bytes, plan.lanes);
        let whole = |bytes: usize| bytes > 0 && bytes.is_multiple_of(SECTOR_BYTES);
        if !whole(slice_bytes) || !whole(cell_bytes) || slice_bytes > cell_bytes.min(SLICE_BYTES_MAX) {
            return Err(ParityError::Slice { slice_bytes, cell_bytes });
        }
        let cells = Geometry::with_parity(case.nodes, case.parity)?.data().len();
        let data_bytes = lanes.checked_mul(cells).and_then(|cells| cells.checked_mul(cell_bytes));
        if data_bytes.is_none_or(|bytes| bytes > DATA_BYTES_MAX) {
            return Err(ParityError::Data { lanes, cells, cell_bytes });
        }
    }
    let mut outcome = ParityOutcome::default();
    let (mut done, total) = (0, plan.cases.len() * plan.ways.len() * (plan.rounds as usize + 1));
    let mut data: Option<(usize, Region)> = None;
    for case in &plan.cases {
        let cells = Geometry::with_parity(case.nodes, case.parity)?.data().len();
        let region = match data.take().filter(|(of, _)| *of == cells) {
            Some((_, region)) => region,
            None => match filled(plan, case, cells) {
                Ok(region) => region,
                Err(error) => {
                    outcome.failures.push(format!("{case}: {error}"));
                    continue;
                }
            },
        };
        let mut count = |way: Protection| {
            let doing = format!("{way}, {case}");
            on_step(Step { done, total, doing: &doing });
            done += 1;
        };
        match one_case(plan, case, &region, host, &mut count) {
            Ok(lines) => outcome.lines.extend(lines),
            Err(why) => outcome.failures.push(format!("{case}: {why}")),
        }
        data = Some((cells, region));
        if plan.stop.load(Ordering::Relaxed) {
            outcome.stopped = true;
            break;
        }
    }
    Ok(outcome)
}

/// All turns of a case. The first of each way does not count.
fn one_case(
    plan: &Plan<'_>,
    case: &Case,
    region: &Region,
    host: &mut dyn RelayHost,
    count: &mut dyn FnMut(Protection),
) -> Result<Vec<ParityLine>, String> {
    let relays = host.start(case.nodes, case.wire)?;
    let mut turns: Vec<Vec<Turn>> = plan.ways.iter().map(|_| Vec::new()).collect();
    for round in 0..=plan.rounds {
        for (way, turns) in plan.ways.iter().zip(&mut turns) {
            if plan.stop.load(Ordering::Relaxed) {
                break;
            }
            count(*way);
            let turn = turn::turn(plan, case, *way, &relays, region)?;
            if round > 0 {
                turns.push(turn);
            }
        }
    }
    Ok(line::lines(plan, case, &turns))
}

/// Bytes for all lanes, which nobody can make smaller.
fn filled(plan: &Plan<'_>, case: &Case, cells: usize) -> Result<Region, ParityError> {
    let bytes = (plan.lanes * cells * plan.cell_bytes).next_multiple_of(4096);
    let region = Region::allocate(bytes).map_err(|source| ParityError::Memory {
        lanes: plan.lanes,
        nodes: case.nodes,
        source,
    })?;
    let mut random = fastrand::Rng::with_seed(0x0037);
    let mut block = vec![0; 4096];
    for at in (0..bytes).step_by(block.len()) {
        random.fill(&mut block);
        // It was allocated as long as this.
        let _fits = region.copy_in(at, &block);
    }
    Ok(region)
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.on_disk { "disk" } else { "memory" };
        write!(f, "{} nodes, {}, blocks of {} bytes, {place}", self.nodes, self.wire, self.slice_bytes)
    }
}
