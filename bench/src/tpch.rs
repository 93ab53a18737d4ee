//! How long do the 22 queries take under each placement, beside other engines on the same machine?
//!
//! Invariants
//! - Only the time from the statement to its last row counts; loading, connecting and printing do not.
//! - The runs of all contenders of a query lie side by side (ours, peer, ours, peer ...), so that a noisy minute meets
//!   all of them; the best of each counts, and every time is kept.
//! - A contender that answers another number of rows than the first is an error, not a time.

use crate::{
    Provenance,
    peer::{Peer, PeerError},
};
use rackscan_engine::{Engine, EngineError};
use rackscan_planner::{Placement, Policy};
use rackscan_queries::Query;
use serde::Serialize;
use std::collections::BTreeMap;

/// What to measure.
#[derive(Clone, Debug)]
pub struct TpchOptions {
    /// The scale factor of the data that is loaded, for the record.
    pub scale: f64,
    /// Runs of each query.
    pub repeat: u32,
    /// Which queries.
    pub queries: Vec<Query>,
    /// Which placements.
    pub policies: Vec<Policy>,
    /// Threads of the engine, and of the peers.
    pub threads: usize,
    /// The wire between engine and nodes, for the record.
    pub wire: String,
}

/// One contender's times, as one JSON line.
#[derive(Clone, Debug, Serialize)]
pub struct TpchLine {
    /// Where the figures come from.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// `rackscan`, or a peer's name and version.
    pub engine: String,
    /// The placement asked for, or what the peer reads.
    pub placement: String,
    /// See [`TpchOptions::wire`].
    pub wire: String,
    /// See [`TpchOptions::threads`].
    pub threads: usize,
    /// See [`TpchOptions::repeat`].
    pub runs: u32,
    /// Milliseconds of every run of each query, in order.
    pub ms: BTreeMap<String, Vec<f64>>,
    /// The best of each query.
    pub best_ms: BTreeMap<String, f64>,
    /// The sum of the best.
    pub total_best_ms: f64,
    /// Segments by where they were really scanned, over all runs.
    pub segments: BTreeMap<String, u64>,
    /// Bytes read from devices, over all runs.
    pub disk_bytes: u64,
    /// Bytes that crossed the wire, over all runs.
    pub wire_bytes: u64,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum TpchError {
    /// Our engine failed.
    #[error("{query} under {policy}: {source}")]
    Engine {
        /// The query.
        query: String,
        /// The placement asked for.
        policy: String,
        /// What happened.
        source: Box<EngineError>,
    },
    /// A peer failed.
    #[error("{query}: {source}")]
    Peer {
        /// The query.
        query: String,
        /// What happened.
        source: PeerError,
    },
    /// Two contenders disagree about the answer's size.
    #[error("{query}: {contender} answered {found} rows, expected {expected} as {first} did")]
    Rows {
        /// The query.
        query: String,
        /// Who answered otherwise.
        contender: String,
        /// Its rows.
        found: u64,
        /// The first one's rows.
        expected: u64,
        /// The first one.
        first: String,
    },
}

/// Measures; `progress` is told each contender and query before its run.
///
/// # Errors
/// The first contender that fails or disagrees.
pub async fn run(
    engine: &Engine,
    peers: &mut [Peer],
    options: &TpchOptions,
    progress: &mut (dyn FnMut(&str, &str) + Send),
) -> Result<Vec<TpchLine>, TpchError> {
    let ours = options.policies.iter().map(|policy| line(options, "rackscan".to_owned(), policy.to_string()));
    let theirs =
        peers.iter().map(|peer| line(options, format!("{} {}", peer.name(), peer.version), "parquet".into()));
    let mut lines: Vec<TpchLine> = ours.chain(theirs).collect();
    for query in &options.queries {
        let mut first: Option<(String, u64)> = None;
        for _ in 0..options.repeat {
            for (index, line) in lines.iter_mut().enumerate() {
                let contender = format!("{} {}", line.engine, line.placement);
                progress(&contender, &query.name());
                let (ms, rows) = match options.policies.get(index) {
                    Some(policy) => run_ours(engine, *policy, query, line).await?,
                    None => peers[index - options.policies.len()]
                        .run(query.sql)
                        .map_err(|source| TpchError::Peer { query: query.name(), source })?,
                };
                let (first, expected) = first.get_or_insert_with(|| (contender.clone(), rows));
                if rows != *expected {
                    let (first, expected, query) = (first.clone(), *expected, query.name());
                    return Err(TpchError::Rows { query, contender, found: rows, expected, first });
                }
                line.ms.entry(query.name()).or_default().push(ms);
            }
        }
    }
    lines.iter_mut().for_each(summarise);
    Ok(lines)
}

async fn run_ours(
    engine: &Engine,
    policy: Policy,
    query: &Query,
    line: &mut TpchLine,
) -> Result<(f64, u64), TpchError> {
    engine.set_policy(policy);
    let outcome = engine.sql(query.sql).await.map_err(|source| TpchError::Engine {
        query: query.name(),
        policy: policy.to_string(),
        source: Box::new(source),
    })?;
    let figures = outcome.report.total();
    for placement in Placement::ALL {
        let count = figures.segments.of(placement);
        if count > 0 {
            *line.segments.entry(placement.to_string()).or_default() += count;
        }
    }
    line.disk_bytes += figures.work.disk_bytes;
    line.wire_bytes += figures.work.wire_bytes;
    Ok((rounded(outcome.report.elapsed.as_secs_f64() * 1000.0), outcome.rows() as u64))
}

fn line(options: &TpchOptions, engine: String, placement: String) -> TpchLine {
    TpchLine {
        provenance: Provenance::now("tpch", options.scale),
        engine,
        placement,
        wire: options.wire.clone(),
        threads: options.threads,
        runs: options.repeat,
        ms: BTreeMap::new(),
        best_ms: BTreeMap::new(),
        total_best_ms: 0.0,
        segments: BTreeMap::new(),
        disk_bytes: 0,
        wire_bytes: 0,
    }
}

fn summarise(line: &mut TpchLine) {
    for (query, times) in &line.ms {
        line.best_ms.insert(query.clone(), times.iter().copied().fold(f64::INFINITY, f64::min));
    }
    line.total_best_ms = rounded(line.best_ms.values().sum());
}

fn rounded(ms: f64) -> f64 {
    (ms * 1000.0).round() / 1000.0
}
