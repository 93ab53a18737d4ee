//! Which IOs were asked for, when, where and by whom?
//!
//! ```text
//! file -- detect --> Source (one per format) --> TraceReader: an iterator of Records, which counts what it refuses
//! Records --> TraceWriter --> our CSV, or fio's iolog v3
//! ```
//!
//! Formats read: our CSV, fio iolog v2 and v3, the text of blkparse, the binary of blktrace (its
//! files per processor merged), the CSV of the MSR Cambridge traces, and any CSV whose columns are
//! named. Formats written: our CSV and fio iolog v3. What the bytes mean: `docs/formats.md`.
//!
//! Invariants
//! - Readers stream: memory does not grow with the file.
//! - Nothing in a file panics; what is refused is named by file and line, or by the byte in a
//!   binary file.

#![forbid(unsafe_code)]

mod blktrace;
mod csv;
mod decimal;
mod defects;
mod detect;
mod devices;
mod error;
mod fio;
mod format;
mod input;
pub mod limits;
mod line;
mod order;
mod reader;
mod record;
mod source;
mod units;
mod writer;

pub use csv::ColumnNames;
pub use defects::Defects;
pub use devices::NamedDevice;
pub use error::{Defect, Place, TraceError};
pub use format::{Format, WriteFormat};
pub use order::Reorder;
pub use reader::{OnDefect, ReadOptions, TraceReader};
pub use record::{Operation, Record};
pub use source::{Fault, Source};
pub use units::{DetectedUnits, OffsetUnit, TimeUnit};
pub use writer::TraceWriter;
