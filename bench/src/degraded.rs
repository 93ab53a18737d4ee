//! Measures queries over tables with parity while nodes are lost.
//!
//! A measurement has phases. First all nodes are available, then they are lost one after the other,
//! then all are back. In each phase, every query runs several times, and the queries alternate. The
//! caller kills the nodes, and makes sure that this process cannot read the devices of killed nodes
//! directly.
//!
//! Invariants
//! - Every answer equals that of the first phase, row by row; otherwise no line is returned.
//! - Times with lost nodes are compared with the times before and after with all nodes, so that a
//!   machine that has become slower meanwhile is noticed.

use crate::Provenance;
use arrow::{array::RecordBatch, compute::concat_batches};
use rackscan_engine::{Engine, EngineError};
use rackscan_format::ids::NodeId;
use rackscan_lab::median;
use rackscan_planner::Policy;
use rackscan_queries::Query;
use serde::Serialize;

/// What to measure.
#[derive(Clone, Debug)]
pub struct DegradedOptions {
    /// The scale factor of the loaded tables.
    pub scale: f64,
    /// The queries.
    pub queries: Vec<Query>,
    /// Counted runs of each query in each phase.
    pub repeat: u32,
    /// Where scans run, if possible.
    pub policy: Policy,
    /// Threads of the engine.
    pub threads: usize,
    /// Nodes of the cluster.
    pub nodes: usize,
    /// Name of the tables' parity.
    pub parity: String,
}

/// One query without some nodes.
#[derive(Clone, Debug, Serialize)]
pub struct DegradedLine {
    /// Source of the figures.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// The query.
    pub query: String,
    /// See [`DegradedOptions::policy`].
    pub placement: String,
    /// See [`DegradedOptions::threads`].
    pub threads: usize,
    /// See [`DegradedOptions::nodes`].
    pub nodes: usize,
    /// See [`DegradedOptions::parity`].
    pub parity: String,
    /// The nodes that were lost.
    pub lost: Vec<u16>,
    /// Milliseconds of each run with all nodes, before and after.
    pub whole_ms: Vec<f64>,
    /// Milliseconds of each run without those nodes.
    pub ms: Vec<f64>,
    /// Median with all nodes.
    pub whole_median_ms: f64,
    /// Median without the lost nodes.
    pub median_ms: f64,
    /// `median_ms` over `whole_median_ms`.
    pub over_whole: f64,
    /// Pages of lost nodes that a run reconstructed.
    pub pages_reconstructed: u64,
    /// Bytes that other nodes read from their cells for them.
    pub survivor_bytes: u64,
    /// Bytes that a run moved over wires.
    pub wire_bytes: u64,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum DegradedError {
    /// A query failed.
    #[error("query {query} with {lost} nodes lost: {source}")]
    Engine {
        /// The query.
        query: String,
        /// Number of lost nodes.
        lost: usize,
        /// The cause.
        source: Box<EngineError>,
    },
    /// An answer differs from that with all nodes.
    #[error(
        "query {query} with {lost} nodes lost returned {found} rows, which differ from its {expected} rows with all nodes; please report this"
    )]
    Answer {
        /// The query.
        query: String,
        /// Number of lost nodes.
        lost: usize,
        /// Rows of the answer.
        found: usize,
        /// Rows of the first answer.
        expected: usize,
    },
}

/// Result of a query in one phase.
#[derive(Clone, Debug, Default)]
struct Measured {
    ms: Vec<f64>,
    pages_reconstructed: u64,
    survivor_bytes: u64,
    wire_bytes: u64,
}

/// A completed phase.
#[derive(Debug)]
struct Phase {
    lost: Vec<NodeId>,
    /// In the order of the queries.
    queries: Vec<Measured>,
}

/// The phases so far, and the answers to compare with.
#[derive(Debug, Default)]
pub struct Degraded {
    answers: Vec<RecordBatch>,
    phases: Vec<Phase>,
}

impl Degraded {
    /// Runs all queries while these nodes are lost: one warm-up each, then the runs that count.
    /// `progress` receives the number of completed runs.
    ///
    /// # Errors
    /// The first query that fails or gives another answer.
    pub async fn phase(
        &mut self,
        engine: &Engine,
        options: &DegradedOptions,
        lost: &[NodeId],
        progress: &(dyn Fn(u64, &str) + Sync),
    ) -> Result<(), DegradedError> {
        engine.set_policy(options.policy);
        let mut queries = vec![Measured::default(); options.queries.len()];
        let mut done = 0;
        for turn in 0..=options.repeat {
            for (place, query) in options.queries.iter().enumerate() {
                progress(done, &query.name());
                done += 1;
                let measured = self.once(engine, query, place, lost.len()).await?;
                if turn > 0 {
                    let ms = queries[place].ms.iter().chain(&measured.ms).copied().collect();
                    queries[place] = Measured { ms, ..measured };
                }
            }
        }
        self.phases.push(Phase { lost: lost.to_vec(), queries });
        Ok(())
    }

    async fn once(
        &mut self,
        engine: &Engine,
        query: &Query,
        place: usize,
        lost: usize,
    ) -> Result<Measured, DegradedError> {
        let failed = |source| DegradedError::Engine { query: query.name(), lost, source: Box::new(source) };
        let outcome = engine.sql(query.sql).await.map_err(failed)?;
        let rows = outcome.rows();
        let answer = concat_batches(&outcome.schema, &outcome.batches);
        match self.answers.get(place) {
            None => self.answers.extend(answer.ok()),
            Some(expected) if answer.as_ref().is_ok_and(|answer| answer == expected) => {}
            Some(expected) => {
                let (query, expected) = (query.name(), expected.num_rows());
                return Err(DegradedError::Answer { query, lost, found: rows, expected });
            }
        }
        let figures = &outcome.report.total;
        Ok(Measured {
            ms: vec![outcome.report.elapsed.as_secs_f64() * 1e3],
            pages_reconstructed: figures.work.pages_reconstructed,
            survivor_bytes: figures.work.survivor_bytes,
            wire_bytes: figures.all_work().wire_bytes,
        })
    }

    /// A line for each query of each phase without some nodes.
    #[must_use]
    pub fn lines(&self, options: &DegradedOptions) -> Vec<DegradedLine> {
        let (whole, degraded): (Vec<&Phase>, Vec<&Phase>) =
            self.phases.iter().partition(|phase| phase.lost.is_empty());
        let line = |phase: &Phase, place: usize, query: &Query| {
            let whole_ms: Vec<f64> =
                whole.iter().flat_map(|phase| &phase.queries[place].ms).copied().collect();
            let measured = &phase.queries[place];
            let of = |ms: &[f64]| median(ms.to_vec()).unwrap_or_default();
            let (whole_median_ms, median_ms) = (of(&whole_ms), of(&measured.ms));
            DegradedLine {
                provenance: Provenance::now("degraded", options.scale),
                query: query.name(),
                placement: options.policy.to_string(),
                threads: options.threads,
                nodes: options.nodes,
                parity: options.parity.clone(),
                lost: phase.lost.iter().map(|node| node.0).collect(),
                whole_ms,
                ms: measured.ms.clone(),
                whole_median_ms,
                median_ms,
                over_whole: median_ms / whole_median_ms,
                pages_reconstructed: measured.pages_reconstructed,
                survivor_bytes: measured.survivor_bytes,
                wire_bytes: measured.wire_bytes,
            }
        };
        let queries = || options.queries.iter().enumerate();
        degraded
            .into_iter()
            .flat_map(|phase| queries().map(move |(place, query)| (phase, place, query)))
            .map(|(phase, place, query)| line(phase, place, query))
            .collect()
    }
}
