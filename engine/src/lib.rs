//! How does SQL become placed scans?
//!
//! ```text
//! text --> DataFusion's plan                                        (session, catalog)
//!            filters, projections, partial aggregates --> program   (pushdown, rules/partial_aggregate)
//!            ScanExec: segments dealt to partitions                 (request, exec)
//!              each segment: estimate --> planner::Feedback --> local | remote_fetch | remote_process
//!                            what it did ----^                                                        (meter, steering)
//!              operators above: keys of joins, thresholds --> the programs of segments still to begin    (narrowing, rules/key_filters)
//!            batches, figures                                       (report, explain)
//! INSERT, UPDATE, DELETE --> rows and values --> one transaction      (changes, session/changing)
//! rows that others have changed --> layers over tables                (changes, catalog)
//! ```
//!
//! The only crate that knows DataFusion. It does not know what is inside a storage node, nor how
//! rows come out of pages: `scan` does that, here and in the nodes alike, so every placement gives
//! the same rows.

#![forbid(unsafe_code)]

mod catalog;
mod changes;
mod deriving;
mod error;
mod exec;
mod explain;
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
mod sealing;
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
pub use limits::THREAD_STACK_BYTES;
pub use memory::{MemoryFigures, Replanned, SpillOptions};
pub use report::{
    Bounce, ConjunctZones, Figures, NodeLoss, PlacementPrice, QueryReport, ReasonCount, RemainingConjunct,
    RemainingReason, RuntimeFilterConjunct, RuntimeFilterReport, ScanFigures, ScanReason, ScanReport,
    SegmentCounts,
};
pub use request::{ScanRequest, SegmentPlace};
pub use rules::AggregatePushdown;
pub use sealing::{SealOutcome, Sealed};
pub use session::{Engine, EngineOptions, OneStatement, QueryOutcome, QueryStream, SqlSession, with_answers};
pub use table::{ColumnDescription, TableDescription, TableInfo};
pub use trace::{TraceFile, TraceSink};

/// The rows of an answer; re-exported so that callers agree with the engine on its version.
pub use datafusion::arrow;
