//! Simulates queries by running only their filters, and compares the placements, as the paper's
//! section 4.5 does.
//!
//! ```text
//! for each page size                a node is loaded with TPC-H's lineitem      (QueryHost)
//!   for each number of connections  this process connects to the node           (ground)
//!     for each case                 a query and a number of threads
//!       for each round              a turn of each placement: local, remote-fetch, remote-process;
//!                                   in reverse order in every second round      (turn, scan)
//!                                   the first round does not count
//! ```
//!
//! Invariants
//! - Placements that are compared alternate over one set of connections.
//! - Every turn of a query over one table counts the same number of rows; otherwise the simulation
//!   ends.
//! - If a simulation ends early, its lines contain the results until then.

mod error;
mod ground;
mod line;
mod page;
mod placement;
mod plan;
mod program;
mod queries;
mod scan;
mod turn;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use error::SimulationError;
pub use line::{CpuShare, QueryLine};
pub use page::report;
pub use placement::Placement;
pub use plan::Simulation;
pub use queries::{SimulatedQuery, TABLE, UnknownQuery};

use az::SaturatingAs;

use self::ground::Ground;
use self::line::{Common, Turns};
use self::plan::Case;
use self::program::scan_program;
use self::scan::Work;
use self::turn::{Shift, turn};
use crate::experiment::{RunningNode, Step};

/// Loads the table into a node.
pub trait QueryHost {
    /// Starts a node with all rows of lineitem in pages of this size, replacing the previous node.
    ///
    /// # Errors
    /// A text that says why it could not.
    fn load(&mut self, page_size_bytes: u32) -> Result<RunningNode, String>;
}

/// Result of a simulation.
#[derive(Debug, Clone)]
pub struct SimulationOutcome {
    /// A line for each placement of each case that had a turn.
    pub lines: Vec<QueryLine>,
    /// The failure that ended it early.
    pub failure: Option<String>,
    /// Whether the caller stopped it.
    pub stopped: bool,
}

/// Callback that receives the progress.
type OnStep<'a> = &'a mut dyn FnMut(&Step<'_>);

/// A running simulation.
struct Feedback<'a> {
    simulation: &'a Simulation,
    stop: &'a AtomicBool,
    done: usize,
    all: Vec<Turns>,
    /// Rows of each query, as its first turn counted them.
    rows: BTreeMap<SimulatedQuery, u64>,
}

impl Simulation {
    /// Measures everything, until it is done, fails, or `stop` is set.
    pub fn run(&self, host: &mut dyn QueryHost, stop: &AtomicBool, on_step: OnStep<'_>) -> SimulationOutcome {
        let mut feedback =
            Feedback { simulation: self, stop, done: 0, all: Vec::new(), rows: BTreeMap::new() };
        let ended = self.check().and_then(|()| feedback.page_sizes(host, on_step));
        let stopped = stop.load(Ordering::Relaxed);
        // A failure caused by the stop is not reported.
        let failure = ended.err().filter(|_| !stopped).map(|error| error.to_string());
        let partial = failure.clone().or(stopped.then(|| "it was asked to stop".to_owned()));
        let (provenance, wire, rounds) = (&self.provenance, self.wire, self.rounds);
        let common = Common { provenance, wire, rounds, partial };
        let lines = feedback.all.iter().flat_map(|turns| turns.lines(&common)).collect();
        SimulationOutcome { lines, failure, stopped }
    }
}

impl Feedback<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn tell(&self, on_step: OnStep<'_>, doing: &str) {
        on_step(&Step { done: self.done, total: self.simulation.turns(), doing });
    }

    fn page_sizes(&mut self, host: &mut dyn QueryHost, on_step: OnStep<'_>) -> Result<(), SimulationError> {
        for page_size_bytes in self.simulation.page_sizes.iter().copied() {
            if self.is_stopped() {
                return Ok(());
            }
            self.tell(on_step, &format!("loading pages of {page_size_bytes} B"));
            let node = host.load(page_size_bytes).map_err(SimulationError::Host)?;
            for connections in self.simulation.connections.iter().copied() {
                let ground = Ground::connect(&node, self.simulation, connections, self.stop)?;
                self.cases(&ground, page_size_bytes, on_step)?;
            }
        }
        Ok(())
    }

    fn cases(
        &mut self,
        ground: &Ground,
        page_size_bytes: u32,
        on_step: OnStep<'_>,
    ) -> Result<(), SimulationError> {
        let simulation = self.simulation;
        let connections = ground.clusters.len().saturating_as::<u32>();
        for query in simulation.queries.iter().copied() {
            let program = Arc::new(scan_program(query, &ground.table.definition)?);
            let work = Work { program, segments: ground.table.segments.clone() };
            for threads in simulation.threads.iter().copied() {
                let case = Case { query, page_size_bytes, connections, threads };
                self.case(ground, &work, case, on_step)?;
            }
        }
        Ok(())
    }

    fn case(
        &mut self,
        ground: &Ground,
        work: &Work,
        case: Case,
        on_step: OnStep<'_>,
    ) -> Result<(), SimulationError> {
        let simulation = self.simulation;
        let place = self.all.len();
        let table_rows = ground.table.definition.rows;
        self.all.push(Turns::new(case, &simulation.placements, table_rows));
        // The first round does not count: memory that is used for the first time costs more.
        for round in 0..=simulation.rounds {
            let mut placements = simulation.placements.clone();
            if round % 2 == 0 {
                placements.reverse();
            }
            for placement in placements {
                if self.is_stopped() {
                    return Ok(());
                }
                self.tell(on_step, &describe(case, placement));
                let Case { connections, threads, .. } = case;
                let shift = Shift { ground, work, placement, connections, threads, stop: self.stop };
                let turn = turn(&shift)?;
                if turn.short {
                    return Ok(());
                }
                self.agree(case.query, placement, turn.counters.rows)?;
                if round > 0 {
                    self.all[place].push(placement, turn);
                    self.done += 1;
                }
            }
        }
        Ok(())
    }

    fn agree(
        &mut self,
        query: SimulatedQuery,
        placement: Placement,
        found: u64,
    ) -> Result<(), SimulationError> {
        match *self.rows.entry(query).or_insert(found) {
            expected if expected == found => Ok(()),
            expected => Err(SimulationError::Disagree { query, placement, found, expected }),
        }
    }
}

fn describe(case: Case, placement: Placement) -> String {
    let Case { query, page_size_bytes, connections, threads } = case;
    format!("{query} {placement}, pages of {page_size_bytes} B, {connections} x {threads}")
}
