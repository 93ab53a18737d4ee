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
//!
//! An example: the values above 105 of a column of 3,000 numbers from 100 to 106, in one page.
//!
//! ```
//! use rackscan_format::chunk::{ChunkInput, ChunkWriter, Values};
//! use rackscan_format::ids::{ColumnId, DeviceId, NodeId, SegmentId, TableId};
//! use rackscan_format::program::*;
//! use rackscan_format::schema::{ColumnDefinition, ColumnType, TableDefinition};
//! use rackscan_format::segment::{ChunkDirectory, Extent, PageEntry, SegmentDirectory};
//! use rackscan_scan::{ScanLimits, SegmentScan, Step};
//! use std::sync::Arc;
//!
//! let (table, segment, column, column_type) = (TableId(7), SegmentId(0), ColumnId(0), ColumnType::Int64);
//! let numbers: Vec<i64> = (0..3000).map(|row| 100 + row % 7).collect();
//! let (values, validity, page_bytes) = (Values::Integers(&numbers), None, 128 << 10);
//! let chunk = ChunkInput { table, segment, column, column_type, values, validity, page_bytes };
//! let mut written = Vec::new();
//! ChunkWriter::new().encode(&chunk, &mut |page| written.push(page))?;
//! let page = written.remove(0);
//!
//! let extent = Extent { device: DeviceId(0), offset_bytes: 0, length_bytes: 4096 };
//! let entry = PageEntry { extent, first_row: page.first_row, rows: page.rows, zone: page.zone };
//! let chunks = vec![ChunkDirectory { pages: vec![entry] }];
//! let directory = Arc::new(SegmentDirectory { table, segment, rows: 3000, chunks });
//! let columns = vec![ColumnDefinition { name: "n".into(), column_type, nullable: false }];
//! let definition = TableDefinition {
//!     id: table, name: "t".into(), columns, partition_key: column, sorted_by: None, page_size: page_bytes,
//!     segment_rows: 1 << 20, nodes: vec![NodeId(0)], rows: 3000, source: "example".into(), succeeds: None,
//!     derived: Vec::new(), protection: None,
//! };
//! let limit = Literal::Int64(105);
//! let program = ScanProgram {
//!     version: PROGRAM_VERSION, table, inputs: vec![Input { column, column_type }],
//!     nodes: vec![
//!         Node::Column(0),
//!         Node::Literal(limit),
//!         Node::Compare { op: Comparison::Greater, left: 0, right: 1 },
//!     ],
//!     filter: vec![2], output: Output::Rows(vec![0]), limit_rows: None, key_filters: Vec::new(),
//! };
//! let program = Arc::new(program.verify(&definition)?);
//!
//! let (mut scan, mut rows) = (SegmentScan::new(program, directory, 0, ScanLimits::default())?, 0);
//! loop {
//!     match scan.step()? {
//!         Step::Read(wanted) => scan.supply(wanted[0].column, wanted[0].page, page.bytes.clone())?,
//!         Step::Batch(found) => rows += found.batch.num_rows(),
//!         Step::Done => break,
//!     }
//! }
//! assert_eq!(rows, numbers.iter().filter(|number| **number > 105).count());
//! assert_eq!(scan.stats().pages_read, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
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
