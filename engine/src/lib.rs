//! Answers SQL statements: parses and plans a statement with DataFusion, and runs its scans where
//! the planner places them.
//!
//! This is the only crate that uses DataFusion. It does not decode pages or scan their rows:
//! `rackscan-scan` does that, in the engine and in the nodes alike, so every placement gives the
//! same rows. It does not estimate the costs of placements either: `rackscan-planner` does.
//!
//! ```text
//! SELECT text
//!   -> statement                                                      (parsing, rewrite)
//!   -> DataFusion's plan                                              (session, catalog, table, rules)
//!        filters, projections, partial aggregates -> a scan program   (pushdown, rules/partial_aggregate)
//!   -> ScanExec: segments distributed to partitions                   (request, exec)
//!        each segment: estimate -> planner::Feedback -> local | remote_fetch | remote_process
//!                         ^-- measurements of earlier segments        (exec/meter, exec/steering)
//!        keys of joins and top-k thresholds narrow later segments     (runtime_filter, rules/key_filters)
//!   -> batches and a report                                           (session, report, explain)
//!
//! INSERT, UPDATE, DELETE -> changed rows -> one transaction           (changes, session/changing)
//! changed rows of others -> layers over the tables                    (changes, catalog)
//! ```
//!
//! Some words of this crate: a partition is the part of a scan that one thread runs; to narrow a
//! scan is to add conditions to its filter while the query runs; the place of a row is its segment
//! and its number there.
//!
//! Folders and files, from SQL text to storage:
//! - `parsing`: text to statements, with limits on their depth and size.
//! - `rewrite`: changes parsed statements that DataFusion would plan with another meaning.
//! - `rules`: optimizer rules of our own, beside DataFusion's.
//! - `functions`: SQL functions whose DataFusion version gives other answers than PostgreSQL's.
//! - `session`: runs statements and transactions; contains [`Engine`] and [`SqlSession`].
//! - `catalog`, `snapshot`, `table`: the tables that a statement sees, as DataFusion scans them.
//! - `pushdown`: translates expressions and aggregates into scan programs.
//! - `request`, `exec`: runs a scan, segment by segment, each under its placement.
//! - `runtime_filter`: narrows running scans by keys of joins and thresholds of top-k operators.
//! - `memory`: the memory limit of queries, and spilling to disk.
//! - `changes`: changed rows and transactions.
//! - `flushing`: flushes changed rows into segments, as a new table version.
//! - `indexing`, `deriving`: indexes, foreign keys and materialised views.
//! - `explain`, `report`, `sql_text`, `trace`: how a query would run and how it ran.
//! - `error`, `limits`, `time_texts`: errors and their SQLSTATEs, limits, parsing of time
//!   constants.
//! - `forward`: forwards methods of a trait to a field.
//! - `visitors`: visits statements and plans, with each walk compiled once.
//!
//! An example: statements without tables get the answers of PostgreSQL. An [`Engine`] gives such
//! answers for the tables of a cluster.
//!
//! ```
//! use datafusion::{error::DataFusionError, execution::SessionStateBuilder, prelude::SessionContext};
//! use rackscan_engine::{arrow::util::pretty::pretty_format_batches, with_answers};
//!
//! let state = with_answers(SessionStateBuilder::new().with_default_features())?;
//! let context = SessionContext::new_with_state(state);
//! let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! let answer = |sql: &str| -> Result<String, DataFusionError> {
//!     let batches = runtime.block_on(async { context.sql(sql).await?.collect().await })?;
//!     Ok(pretty_format_batches(&batches)?.to_string())
//! };
//!
//! // DataFusion by itself truncates 3.7 to 3, and its integers wrap around.
//! let rounded = answer("SELECT CAST(3.7 AS int) AS n")?;
//! assert!(rounded.contains("| 4 |"), "{rounded}");
//! let error = answer("SELECT 9223372036854775807 + 1").unwrap_err().to_string();
//! assert!(error.contains("bigint out of range"), "{error}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod catalog;
mod changes;
mod deriving;
mod error;
mod exec;
mod explain;
mod flushing;
mod forward;
mod functions;
mod indexing;
mod limits;
mod memory;
mod parsing;
mod pushdown;
mod report;
mod request;
mod rewrite;
mod rules;
mod runtime_filter;
mod session;
mod snapshot;
mod sql_text;
mod table;
mod time_texts;
mod trace;
mod visitors;

pub use changes::{FoundRow, Isolation, RowChange, RowWriter};
pub use error::EngineError;
pub use exec::ScanError;
pub use explain::{ExplainMode, Explanation};
pub use flushing::{FlushOutcome, Flushed};
pub use limits::THREAD_STACK_BYTES;
pub use memory::{MemoryFigures, Replanned, SpillOptions};
pub use report::{
    Bounce, ConjunctZones, Figures, NodeLoss, PlacementPrice, QueryReport, ReasonCount, RemainingConjunct,
    RemainingReason, RuntimeFilterConjunct, RuntimeFilterReport, ScanFigures, ScanReason, ScanReport,
    SegmentCounts,
};
pub use request::{ScanRequest, SegmentPlace};
pub use rules::AggregatePushdown;
pub use session::{Engine, EngineOptions, OneStatement, QueryOutcome, QueryStream, SqlSession, with_answers};
pub use table::{ColumnDescription, TableDescription, TableInfo};
pub use trace::{TraceFile, TraceSink};

/// The rows of an answer; re-exported so that callers agree with the engine on its version.
pub use datafusion::arrow;
