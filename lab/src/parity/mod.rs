//! Measures the cost of writing data with parity, so that the data survives lost nodes.
//!
//! One client writes stripes to storage nodes that a [`RelayHost`] has started. There are three
//! ways to write: without parity (`none`), with parity that the client computes (`naive`), and with
//! parity that the nodes compute while they relay cells to each other (`relay`). The ways
//! alternate, so that their ratios compare the same state of the machine. A turn opens a session,
//! keeps a fixed number of stripes in flight until its time is over (each occupies a lane of the
//! session), and waits for the last ones. The nodes' counters are read before and after.
//!
//! ```text
//! plan   the cases, the ways and the number of rounds
//! turn   one timed run of one way
//! host   starts the nodes
//! line   medians, ratios, and bytes sent per byte of data, as JSON
//! ```
//!
//! Invariants
//! - All ways of a case write the same bytes, from the same registered memory, into stripes of the
//!   same shape.
//! - The client and the nodes count the bytes that are sent, received and stored; no count is
//!   derived from a formula.

mod host;
mod line;
mod picture;
mod plan;
mod turn;

use std::sync::atomic::Ordering;

use rackscan_fabric::{Region, RegionError};
use rackscan_relay::{
    ShapeError,
    limits::{SECTOR_BYTES, SLICE_BYTES_MAX},
};
use rackscan_stripe::{Geometry, StripeError};

use crate::experiment::Step;
pub use host::{RelayHost, Relays};
pub use line::ParityLine;
pub use picture::parity_report;
pub use plan::{Case, NoSuchWay, Plan, Protection};
use turn::Turn;

/// Maximum bytes of data held for the stripes in flight.
const DATA_BYTES_MAX: usize = 8 << 30;
/// Maximum memory of a node's relay, in bytes.
const RELAY_BYTES_MAX: u64 = 2 << 30;

/// Result of a measurement.
#[derive(Debug, Default)]
pub struct ParityOutcome {
    /// A line for each measured way of each case.
    pub lines: Vec<ParityLine>,
    /// Descriptions of what failed.
    pub failures: Vec<String>,
    /// Whether the caller stopped it early.
    pub stopped: bool,
}

/// Why nothing can be measured.
#[derive(Debug, thiserror::Error)]
pub enum ParityError {
    /// No stripe has this number of nodes.
    #[error(transparent)]
    Stripe(#[from] StripeError),
    /// The memory for the data could not be allocated.
    #[error("cannot allocate memory for the data of {lanes} stripes over {nodes} nodes: {source}")]
    Memory {
        /// Number of stripes.
        lanes: usize,
        /// Number of nodes.
        nodes: usize,
        /// The cause.
        source: RegionError,
    },
    /// The size of a block or of a cell is not possible.
    #[error(
        "blocks of {slice_bytes} bytes in cells of {cell_bytes} bytes are not possible; expected multiples of {SECTOR_BYTES} above 0, \
         and blocks of at most {SLICE_BYTES_MAX} bytes that fit into a cell"
    )]
    Slice {
        /// Bytes of a block.
        slice_bytes: usize,
        /// Bytes of a cell.
        cell_bytes: usize,
    },
    /// A way or a case that is listed twice.
    #[error("{what} is asked for twice; name each value of an option once")]
    Twice {
        /// The way or the case.
        what: String,
    },
    /// A session of this shape is not possible.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Rings larger than the limit.
    #[error(
        "{case}, {way}: the relay of each node needs {bytes} bytes of memory for {lanes} stripes in flight, at most {RELAY_BYTES_MAX} are \
         allowed; give shorter blocks, smaller rings or fewer lanes"
    )]
    RelayMemory {
        /// The condition.
        case: String,
        /// The way of writing.
        way: Protection,
        /// Bytes needed.
        bytes: u64,
        /// Stripes in flight.
        lanes: usize,
    },
    /// More data than the limit.
    #[error(
        "{lanes} stripes of {cells} cells of {cell_bytes} bytes are not possible: the data of all stripes in flight is in memory, \
         at most {DATA_BYTES_MAX} bytes; give shorter cells or fewer lanes"
    )]
    Data {
        /// Stripes in flight.
        lanes: usize,
        /// Data cells of each stripe.
        cells: usize,
        /// Bytes of each cell.
        cell_bytes: usize,
    },
}

/// Memory of a relay for any session of a plan, in bytes: that of the largest session.
///
/// # Errors
/// [`ParityError`] for a plan that cannot be measured.
pub fn relay_bytes(plan: &Plan<'_>) -> Result<u64, ParityError> {
    let mut most = 0;
    for case in &plan.cases {
        for way in &plan.ways {
            let bytes = turn::shape(plan, case, *way).node_bytes(case.nodes)?;
            if bytes > RELAY_BYTES_MAX {
                let (case, way, lanes) = (case.to_string(), *way, plan.lanes);
                return Err(ParityError::RelayMemory { case, way, bytes, lanes });
            }
            most = most.max(bytes);
        }
    }
    Ok(most)
}

/// Checks that a plan can be measured.
fn check(plan: &Plan<'_>) -> Result<(), ParityError> {
    let twice = |what: String| Err(ParityError::Twice { what });
    if let Some(way) = repeated(&plan.ways) {
        return twice(format!("the way {way}"));
    }
    if let Some(case) = repeated(&plan.cases) {
        return twice(format!("'{case}'"));
    }
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
    relay_bytes(plan).map(drop)
}

/// The first value that occurs twice.
fn repeated<T: PartialEq>(values: &[T]) -> Option<&T> {
    values.iter().enumerate().find(|(at, value)| values[..*at].contains(value)).map(|(_, value)| value)
}

/// Runs the measurement. A failure in one case, or of one way, does not affect the others. If nodes
/// have ended, the measurement ends with a description of that.
///
/// # Errors
/// [`ParityError`], before anything is measured.
pub fn measure(
    plan: &Plan<'_>,
    host: &mut dyn RelayHost,
    on_step: &mut dyn FnMut(&Step<'_>),
) -> Result<ParityOutcome, ParityError> {
    check(plan)?;
    let mut outcome = ParityOutcome::default();
    let (mut done, total) = (0, plan.cases.len() * plan.ways.len() * (plan.rounds as usize + 1));
    let mut data: Option<(usize, Region)> = None;
    for (number, case) in plan.cases.iter().enumerate() {
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
            on_step(&Step { done, total, doing: &doing });
            done += 1;
        };
        one_case(plan, case, &region, host, &mut count, &mut outcome);
        data = Some((cells, region));
        if let Some(why) = host.gone() {
            let left = plan.cases.len() - number - 1;
            // First in the list, because it caused the others.
            let text = format!("{why}: nothing more is measured, {left} conditions are left out");
            outcome.failures.insert(0, text);
            break;
        }
        if plan.stop.load(Ordering::Relaxed) {
            outcome.stopped = true;
            break;
        }
    }
    Ok(outcome)
}

/// Runs all turns of a case. The first turn of each way does not count. A way that fails has no
/// further turns.
fn one_case(
    plan: &Plan<'_>,
    case: &Case,
    region: &Region,
    host: &mut dyn RelayHost,
    count: &mut dyn FnMut(Protection),
    outcome: &mut ParityOutcome,
) {
    let relays = match host.start(case.nodes, case.wire) {
        Ok(relays) => relays,
        Err(why) => return outcome.failures.push(format!("{case}: {why}")),
    };
    let take = |way: Protection| turn::turn(plan, case, way, &relays, region);
    let turns = take_turns(plan, count, &take, &mut |way, why| {
        outcome.failures.push(format!("{case}, {way}: {why}"));
    });
    outcome.lines.extend(line::lines(plan, case, &turns));
}

/// The turns of each way that count. A way that failed has none; its failure is added to `failed`
/// once.
fn take_turns(
    plan: &Plan<'_>,
    count: &mut dyn FnMut(Protection),
    take: &dyn Fn(Protection) -> Result<Turn, String>,
    failed: &mut dyn FnMut(Protection, String),
) -> Vec<Vec<Turn>> {
    let mut turns: Vec<Option<Vec<Turn>>> = plan.ways.iter().map(|_| Some(Vec::new())).collect();
    for round in 0..=plan.rounds {
        for (way, turns) in plan.ways.iter().zip(&mut turns) {
            if plan.stop.load(Ordering::Relaxed) {
                break;
            }
            count(*way);
            let Some(before) = turns else { continue };
            match take(*way) {
                Ok(turn) if round > 0 => before.push(turn),
                Ok(_) => {}
                Err(why) => {
                    failed(*way, why);
                    *turns = None;
                }
            }
        }
    }
    turns.into_iter().map(Option::unwrap_or_default).collect()
}

/// Random bytes for all lanes, which cannot be compressed.
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
        // The region was allocated with this length.
        let _fits = region.copy_in(at, &block);
    }
    Ok(region)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::{
        line::tests::{case, plan, turn},
        *,
    };
    use rackscan_fabric::Wire;

    /// A host that never has nodes, and reports at some time that they have ended.
    struct Nobody {
        asked: usize,
        gone_after: usize,
    }

    impl RelayHost for Nobody {
        fn start(&mut self, _nodes: usize, _wire: Wire) -> Result<Relays, String> {
            self.asked += 1;
            Err("no nodes".to_owned())
        }

        fn gone(&mut self) -> Option<String> {
            (self.asked >= self.gone_after).then(|| "node 1 has ended".to_owned())
        }
    }

    fn measured(cases: Vec<Case>, gone_after: usize) -> Result<(ParityOutcome, usize), ParityError> {
        let stop = AtomicBool::new(false);
        let plan = Plan { cases, ..plan(&stop) };
        let mut host = Nobody { asked: 0, gone_after };
        measure(&plan, &mut host, &mut |_| {}).map(|outcome| (outcome, host.asked))
    }

    #[test]
    fn a_run_whose_nodes_are_gone_says_so_and_ends() {
        let cases = vec![case(3, 4096), case(3, 8192), case(3, 16384)];
        let (outcome, asked) = measured(cases.clone(), 2).unwrap();
        assert_eq!((asked, outcome.failures.len(), outcome.stopped), (2, 3, false));
        assert!(outcome.failures[0].contains("node 1 has ended"), "{:?}", outcome.failures);
        assert!(outcome.failures[0].contains("1 conditions are left out"), "{:?}", outcome.failures);
        let (outcome, asked) = measured(cases, 99).unwrap();
        assert_eq!((asked, outcome.failures.len()), (3, 3), "a case that fails leaves the others");
    }

    #[test]
    fn what_is_asked_for_twice_or_needs_too_much_is_refused_before_anything_is_measured() {
        let twice = measured(vec![case(3, 4096), case(5, 4096), case(3, 4096)], 99).unwrap_err();
        assert!(
            twice.to_string().contains("'3 nodes, shm, blocks of 4096 bytes, memory' is asked for twice"),
            "{twice}"
        );
        let stop = AtomicBool::new(false);
        let mut asked = Plan { cases: vec![case(3, 4096)], ..plan(&stop) };
        asked.ways.push(Protection::Relay);
        assert!(matches!(check(&asked), Err(ParityError::Twice { .. })));
        asked.ways.pop();
        let least = relay_bytes(&asked).unwrap();
        asked.cases.push(case(5, 1 << 20));
        let more = relay_bytes(&asked).unwrap();
        assert!(least > 0 && more > least, "the largest session counts: {least} {more}");
        (asked.lanes, asked.ring_bytes) = (16, 64 << 20);
        assert!(matches!(check(&asked), Err(ParityError::RelayMemory { .. })));
    }

    #[test]
    fn a_way_that_fails_leaves_the_turns_of_the_others() {
        let stop = AtomicBool::new(false);
        let plan = plan(&stop);
        let take = |way: Protection| match way {
            Protection::Naive => Err("refused".to_owned()),
            _ => Ok(turn(1.0, 1_000_000)),
        };
        let (mut failed, mut counted) = (Vec::new(), 0);
        let turns = take_turns(&plan, &mut |_| counted += 1, &take, &mut |way, why| failed.push((way, why)));
        assert_eq!(failed, [(Protection::Naive, "refused".to_owned())]);
        let counts: Vec<usize> = turns.iter().map(Vec::len).collect();
        assert_eq!((counts, counted), (vec![2, 0, 2], 9));
        let lines = line::lines(&plan, &case(5, 4096), &turns);
        assert_eq!(lines.iter().map(|line| line.way).collect::<Vec<_>>(), ["none", "relay"]);
        assert_eq!(lines[0].over.keys().collect::<Vec<_>>(), [&"relay"], "there is no ratio to what failed");
    }
}
