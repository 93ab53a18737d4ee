//! Which rows come out of these pages?
//!
//! The one evaluator of the system: the engine runs it over pages it read or fetched, a storage
//! node runs it next to its devices. It does no IO; it says which pages it wants and is given them.
//!
//! ```text
//! program + segment directory
//!   prune      zone maps decide conjuncts: never, always, or look inside       (prune)
//!   read       the pages of the filter's columns that are still undecided      (Step::Read)
//!   withhold   rows that are not there any more are in no selection           (run/window)
//!   select     conjuncts in order, each on the blocks still alive              (narrow, text, evaluate -> selection)
//!   read       the payload pages that still hold a selected row                (Step::Read)
//!   project    selected rows as arrow arrays, dictionary text as views         (project)
//!   aggregate  or partial groups of them                                       (aggregate)
//! batches, each of whole blocks                                                (Step::Batch)
//! ```
//!
//! Invariants
//! - The rows that come out depend only on program, segment, withheld rows and range of blocks: not
//!   on zone maps, page sizes, encodings, limits or the order in which pages are supplied. They are
//!   those of a segment without the withheld rows.
//! - NULL, comparison, arithmetic and cast semantics are those of arrow's kernels, as DataFusion
//!   uses them.
//! - Instructions and quotas change when a scan ends and how fast it is, never a bit of what comes
//!   out.
//! - No input, corrupt pages and hostile programs included, makes the scan panic.

#![forbid(unsafe_code)]

mod aggregate;
mod constants;
mod emit;
mod error;
mod estimate;
mod evaluate;
mod limits;
mod narrow;
mod pages;
mod pattern;
mod plan;
mod predicate;
mod project;
mod prune;
mod quota;
mod run;
mod select;
mod selection;
mod step;
mod text;
mod types;
pub mod wire;

pub use error::ScanError;
pub use estimate::{Estimator, ScanEstimate};
pub use limits::{BATCH_ROWS_DEFAULT, BATCH_ROWS_MIN, MEMORY_BYTES_DEFAULT, ScanLimits};
pub use quota::{Bounced, CpuQuota, Quota, QuotaKind};
pub use run::SegmentScan;
pub use step::{PageWanted, ScanBatch, ScanStats, Step};
pub use types::{arrow_type, output_schema};
