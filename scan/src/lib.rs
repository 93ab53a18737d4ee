//! Scans one segment with a program (a filter, and then rows or partial groups) and yields arrow
//! batches. All scans of the system run this code.
//!
//! The engine runs it over pages that it has read or fetched; a storage node runs it next to its
//! devices. The crate does no IO and starts no threads: [`SegmentScan::step`] returns which pages
//! are needed, and the caller supplies them. Joins, the final aggregation and everything across
//! segments happen in the engine.
//!
//! ```text
//! program + segment directory
//!   prune      zone maps decide for each page: no row passes, all rows pass, or undecided   (prune)
//!   read       the undecided pages of the filter's columns                                  (Step::Read)
//!   withhold   withheld rows are removed from every selection                               (run/window)
//!   select     parts of the filter in order, each on blocks that still have selected rows   (select)
//!   read       the pages of the output's columns that contain a selected row                (Step::Read)
//!   project    selected rows as arrow arrays, dictionary text as views                      (project)
//!   aggregate  or partial groups of these rows                                              (aggregate)
//! batches, each of whole blocks                                                             (Step::Batch)
//! ```
//!
//! | word | what it means |
//! |---|---|
//! | conjunct | one of the conditions that a filter connects by AND |
//! | leaf | a condition without AND, OR or NOT, such as a comparison |
//! | input | a column that the program reads |
//! | window | the blocks that a scan processes at a time |
//! | payload page | a page of a column that the output needs and the filter does not |
//!
//! Invariants
//! - The output rows depend only on program, segment, withheld rows and range of blocks. They do
//!   not depend on zone maps, page sizes, encodings, limits or the order in which pages are
//!   supplied. They are the rows that a segment without the withheld rows would give.
//! - NULL, comparison, arithmetic and cast semantics are those of arrow's kernels, as DataFusion
//!   uses them.
//! - Instruction sets and quotas change when a scan ends and how fast it is, never a bit of its
//!   output.
//! - No input makes the scan panic, not even a corrupt page or a hostile program.
//!
//! ```text
//! run          the state machine of a scan: window by window, prune, read, select, read, emit
//! plan, prune  the prepared program; what zone maps decide about conjuncts
//! predicate    the filter as predicates over stored values
//! select       evaluates predicates on a block: by narrow (integers), text, evaluate (arrow kernels)
//! pages        the pages of the program's columns, and which block lies in which page
//! emit         selected rows to batches: project (rows), aggregate (groups)
//! quota        bounds on processor time and memory
//! estimate     what a scan would read and yield, from zone maps alone
//! wire         the byte format of a batch between a node and its client
//! ```

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
mod stored;
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
