//! Describes a simulation: the queries, page sizes, connections, threads and rounds to run, and the
//! check of their limits.
//!
//! Invariants
//! - A simulation that passed [`Simulation::check`] can begin: every count and the memory of all
//!   connections are within their limits.

use rackscan_client::limits::{FETCH_BYTES_MAX, MEMORY_BYTES_DEFAULT, MEMORY_BYTES_MIN};
use rackscan_format::limits::{PAGE_SIZE_MAX, PAGE_SIZE_MIN, SECTOR_BYTES};

use super::error::SimulationError;
use super::placement::Placement;
use super::queries::SimulatedQuery;
use crate::limits::{CASES_MAX, LOAD_MEMORY_BYTES_MAX, QUERY_CONNECTIONS_MAX, QUERY_THREADS_MAX};
use crate::record::Provenance;
use rackscan_fabric::Wire;

/// One simulation.
#[derive(Debug, Clone)]
pub struct Simulation {
    /// The queries.
    pub queries: Vec<SimulatedQuery>,
    /// Page sizes of the table, in bytes.
    pub page_sizes: Vec<u32>,
    /// The placements.
    pub placements: Vec<Placement>,
    /// Numbers of connections to the node.
    pub connections: Vec<u32>,
    /// Numbers of threads per connection; `local` has as many as all connections together.
    pub threads: Vec<u32>,
    /// The wire.
    pub wire: Wire,
    /// Turns of each placement.
    pub rounds: u32,
    /// Source of the figures.
    pub provenance: Provenance,
}

/// Runs that are compared with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) query: SimulatedQuery,
    pub(super) page_size_bytes: u32,
    pub(super) connections: u32,
    pub(super) threads: u32,
}

impl Case {
    /// Number of threads that work at once.
    pub(super) fn workers(&self) -> u32 {
        self.connections * self.threads
    }
}

impl Simulation {
    /// Checks that the simulation can begin.
    ///
    /// # Errors
    /// [`SimulationError`] with the first axis that is not possible.
    pub fn check(&self) -> Result<(), SimulationError> {
        let axes = [
            ("queries", self.queries.len()),
            ("page sizes", self.page_sizes.len()),
            ("placements", self.placements.len()),
            ("numbers of connections", self.connections.len()),
            ("numbers of threads", self.threads.len()),
        ];
        for (what, found) in axes {
            within(what, found as u64, CASES_MAX as u64)?;
        }
        within("turns", self.rounds.into(), CASES_MAX as u64)?;
        for found in self.page_sizes.iter().copied() {
            if !(PAGE_SIZE_MIN..=PAGE_SIZE_MAX).contains(&found) || !found.is_multiple_of(SECTOR_BYTES) {
                return Err(SimulationError::PageSize { found, step: SECTOR_BYTES, most: PAGE_SIZE_MAX });
            }
        }
        for found in &self.connections {
            within("connections", (*found).into(), QUERY_CONNECTIONS_MAX.into())?;
        }
        for found in &self.threads {
            within("threads of each connection", (*found).into(), QUERY_THREADS_MAX.into())?;
        }
        let threads = self.threads_most();
        let connections = self.connections.iter().copied().max().unwrap_or(1);
        let needed = u64::from(connections) * self.memory_bytes() as u64;
        if needed > LOAD_MEMORY_BYTES_MAX {
            let most = LOAD_MEMORY_BYTES_MAX;
            return Err(SimulationError::Memory { connections, threads, needed, most });
        }
        let cases = axes.iter().fold(1_u64, |product, (_, count)| product.saturating_mul(*count as u64));
        within("runs", cases, CASES_MAX as u64)
    }

    fn threads_most(&self) -> u32 {
        self.threads.iter().copied().max().unwrap_or(1)
    }

    /// Memory for the answers of each connection: one fetch per thread, within the client's own
    /// default.
    pub(super) fn memory_bytes(&self) -> usize {
        let wanted = FETCH_BYTES_MAX.saturating_mul(self.threads_most() as usize);
        wanted.clamp(MEMORY_BYTES_MIN, MEMORY_BYTES_DEFAULT)
    }

    /// Number of turns of the simulation.
    pub(super) fn turns(&self) -> usize {
        let cases = self.queries.len() * self.page_sizes.len() * self.connections.len() * self.threads.len();
        cases * self.placements.len() * self.rounds as usize
    }
}

fn within(what: &'static str, found: u64, most: u64) -> Result<(), SimulationError> {
    if (1..=most).contains(&found) {
        return Ok(());
    }
    Err(SimulationError::Count { what, found, most })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simulation() -> Simulation {
        Simulation {
            queries: vec![SimulatedQuery::Q06],
            page_sizes: vec![4096, 1 << 20],
            placements: Placement::ALL.to_vec(),
            connections: vec![1, 4],
            threads: vec![1],
            wire: Wire::Shm,
            rounds: 3,
            provenance: Provenance::now("query-io", 1.0),
        }
    }

    #[test]
    fn what_can_be_run_is_counted() {
        let simulation = simulation();
        simulation.check().unwrap();
        assert_eq!(simulation.turns(), 2 * 3 * 2 * 3);
        assert_eq!(simulation.memory_bytes(), FETCH_BYTES_MAX);
    }

    #[test]
    fn what_cannot_be_run_is_named() {
        type Change = fn(&mut Simulation);
        let cases: [(Change, &str); 8] = [
            (|plan| plan.queries.clear(), "0 queries"),
            (|plan| plan.page_sizes = vec![2048], "2048 bytes"),
            (|plan| plan.page_sizes = vec![6144], "multiple of 4096"),
            (|plan| plan.page_sizes = vec![2 << 20], "at most 1048576"),
            (|plan| plan.connections = vec![0], "0 connections"),
            (|plan| plan.threads = vec![100_000], "100000 threads"),
            (|plan| plan.rounds = 0, "0 turns"),
            (|plan| (plan.connections, plan.threads) = (vec![128], vec![256]), "34359738368 bytes of memory"),
        ];
        for (change, expected) in cases {
            let mut plan = simulation();
            change(&mut plan);
            let error = plan.check().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
