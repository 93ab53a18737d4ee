//! Measures the 22 TPC-H queries under each placement, next to other engines on the same machine. A
//! contender is a placement of this engine, or another engine.
//!
//! Invariants
//! - Only the time from the statement to its last row counts; loading, connecting, opening files
//!   and printing do not.
//! - The runs of all contenders of a query alternate, in reverse order in every second turn, so
//!   that noise affects all of them and none always follows the same one. Medians count, and every
//!   time is kept.
//! - With cold caches, a run starts with no data in any memory that this machine gives access to.
//! - If a contender answers with another number of rows than the first one, the measurement reports
//!   an error, not a time.

mod compare;
mod line;
mod page;

pub use line::{Caches, Over, OverBest, TpchLine};
pub use page::report;

use crate::{
    Provenance,
    cold::{ColdError, drop_caches},
    peer::{Peer, PeerError},
};
use line::rounded;
use rackscan_engine::{Engine, EngineError};
use rackscan_lab::Step;
use rackscan_planner::{Placement, Policy};
use rackscan_queries::Query;
use std::collections::BTreeMap;

/// What to measure.
#[derive(Clone, Debug)]
pub struct TpchOptions {
    /// Scale factor of the loaded data, for the record.
    pub scale: f64,
    /// Number of turns that count.
    pub repeat: u32,
    /// Warm-up turns before them.
    pub warm_up: u32,
    /// The queries.
    pub queries: Vec<Query>,
    /// The placements.
    pub policies: Vec<Policy>,
    /// Threads of the engine, and of the peers.
    pub threads: usize,
    /// The wire between engine and nodes, for the record.
    pub wire: String,
    /// State of caches when a run starts. The caller must turn off the nodes' page caches.
    pub caches: Caches,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum TpchError {
    /// This engine failed.
    #[error("query {query} with placement {policy}: {source}")]
    Engine {
        /// The query.
        query: String,
        /// The requested placement.
        policy: String,
        /// The cause.
        source: Box<EngineError>,
    },
    /// A peer failed.
    #[error("query {query}: {source}")]
    Peer {
        /// The query.
        query: String,
        /// The cause.
        source: PeerError,
    },
    /// The caches could not be dropped.
    #[error(transparent)]
    Cold(#[from] ColdError),
    /// Two contenders returned different numbers of rows.
    #[error("query {query}: {contender} returned {found} rows, expected {expected}, which {first} returned")]
    Rows {
        /// The query.
        query: String,
        /// The contender that differs.
        contender: String,
        /// Its number of rows.
        found: u64,
        /// The number of rows of the first contender.
        expected: u64,
        /// The first contender.
        first: String,
    },
}

/// Runs the measurement; `progress` is called before each run.
///
/// # Errors
/// The first contender that fails or differs.
pub async fn run(
    engine: &Engine,
    peers: &mut [Peer],
    options: &TpchOptions,
    progress: &mut (dyn FnMut(&Step<'_>) + Send),
) -> Result<Vec<TpchLine>, TpchError> {
    let node_cache_bytes = engine.cluster().statuses().iter().map(|node| node.cache.budget_bytes).sum();
    let mut lines = lines(peers, options, node_cache_bytes);
    let turns = options.warm_up + options.repeat;
    let total = options.queries.len() * turns as usize * lines.len();
    let mut done = 0;
    for query in &options.queries {
        let mut first: Option<(String, u64)> = None;
        for turn in 0..turns {
            for index in order(turn, lines.len()) {
                let line = &mut lines[index];
                progress(&Step { done, total, doing: &format!("{} {}", query.name(), line.name) });
                done += 1;
                let counts = turn >= options.warm_up;
                let peer = index.checked_sub(options.policies.len()).and_then(|peer| peers.get_mut(peer));
                let (ms, rows) = match peer {
                    Some(peer) => run_peer(peer, query, options.caches)?,
                    None => run_ours(engine, query, options.caches, line, counts).await?,
                };
                let (first, expected) = first.get_or_insert_with(|| (line.name.clone(), rows));
                if rows != *expected {
                    let (first, expected, query) = (first.clone(), *expected, query.name());
                    let contender = line.name.clone();
                    return Err(TpchError::Rows { query, contender, found: rows, expected, first });
                }
                if counts {
                    line.ms.entry(query.name()).or_default().push(ms);
                }
            }
        }
    }
    compare::summarise(&mut lines);
    Ok(lines)
}

/// The order of the contenders in a turn: forward, or in reverse in every second turn.
fn order(turn: u32, contenders: usize) -> Vec<usize> {
    if turn.is_multiple_of(2) { (0..contenders).collect() } else { (0..contenders).rev().collect() }
}

fn run_peer(peer: &mut Peer, query: &Query, caches: Caches) -> Result<(f64, u64), TpchError> {
    let failed = |source| TpchError::Peer { query: query.name(), source };
    if caches == Caches::Cold {
        peer.reopen().map_err(failed)?;
        drop_caches()?;
    }
    peer.run(query.sql).map_err(failed)
}

async fn run_ours(
    engine: &Engine,
    query: &Query,
    caches: Caches,
    line: &mut TpchLine,
    counts: bool,
) -> Result<(f64, u64), TpchError> {
    if caches == Caches::Cold {
        drop_caches()?;
    }
    engine.set_policy(line.policy.unwrap_or_default());
    let outcome = engine.sql(query.sql).await.map_err(|source| TpchError::Engine {
        query: query.name(),
        policy: line.name.clone(),
        source: Box::new(source),
    })?;
    if counts {
        let figures = &outcome.report.total;
        for placement in Placement::ALL {
            let count = figures.segments.of(placement);
            if count > 0 {
                *line.segments.entry(placement.to_string()).or_default() += count;
            }
        }
        let work = figures.all_work();
        line.disk_bytes += work.disk_bytes;
        line.wire_bytes += work.wire_bytes;
        line.disk_bytes_of.insert(query.name(), work.disk_bytes);
        line.wire_bytes_of.insert(query.name(), work.wire_bytes);
    }
    Ok((rounded(outcome.report.elapsed.as_secs_f64() * 1000.0), outcome.rows() as u64))
}

/// A line for each contender, without times: this engine's placements first.
fn lines(peers: &[Peer], options: &TpchOptions, node_cache_bytes: u64) -> Vec<TpchLine> {
    let line = |engine: String, placement: String, name: String, policy: Option<Policy>| TpchLine {
        provenance: Provenance::now("tpch", options.scale),
        engine,
        placement,
        name,
        wire: options.wire.clone(),
        threads: options.threads,
        caches: options.caches,
        node_cache_bytes,
        warm_up: options.warm_up,
        runs: options.repeat,
        ms: BTreeMap::new(),
        best_ms: BTreeMap::new(),
        median_ms: BTreeMap::new(),
        total_best_ms: 0.0,
        total_median_ms: 0.0,
        over: BTreeMap::new(),
        over_best_forced: None,
        segments: BTreeMap::new(),
        disk_bytes: 0,
        wire_bytes: 0,
        disk_bytes_of: BTreeMap::new(),
        wire_bytes_of: BTreeMap::new(),
        is_ours: policy.is_some(),
        policy,
    };
    let ours = options.policies.iter();
    let ours =
        ours.map(|policy| line("rackscan".to_owned(), policy.to_string(), policy.to_string(), Some(*policy)));
    let theirs = peers.iter().map(|peer| {
        let engine = format!("{} {}", peer.engine().package(), peer.version);
        line(engine, peer.engine().reads().to_owned(), peer.engine().name().to_owned(), None)
    });
    ours.chain(theirs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_turn_goes_back() {
        assert_eq!(order(0, 3), [0, 1, 2]);
        assert_eq!(order(1, 3), [2, 1, 0]);
    }
}
