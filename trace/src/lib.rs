//! Reads and writes traces of block IO: which IOs were requested, when, where and by whom.
//!
//! ```text
//! file -- detect --> Source (one per format) --> TraceReader: an iterator of Records, which counts defects
//! Records --> TraceWriter --> our CSV, or fio's iolog v3
//! ```
//!
//! Formats read: our CSV, fio iolog v2 and v3, the text of blkparse, the binary of blktrace (its
//! files per processor merged), the CSV of the MSR Cambridge and the SPC (UMass) traces, and any
//! CSV whose columns are named. Formats written: our CSV and fio iolog v3. The crate only converts
//! bytes to records and back; replaying a trace is the work of `lab`. What the bytes mean:
//! `docs/formats.md`.
//!
//! | file | holds |
//! |---|---|
//! | `reader`, `writer` | [`TraceReader`] and [`TraceWriter`], the entry points |
//! | `record` | one IO |
//! | `format`, `detect` | the list of formats; recognition of the format of a file |
//! | `source` | the trait that every format implements, and the one for formats of lines |
//! | `csv/`, `fio/`, `blktrace/` | the formats; `csv/` also reads MSR and SPC traces, `blktrace/` blkparse |
//! | `input`, `line` | buffered reading of files, and of lines |
//! | `units`, `decimal` | units of times and offsets; exact decimal numbers |
//! | `devices` | numbers for devices that a trace identifies by name |
//! | `order` | sorts records that arrive slightly out of order |
//! | `defects`, `error`, `limits` | entries that were refused; errors; all bounds |
//!
//! Invariants
//! - Readers stream: memory does not grow with the file.
//! - Nothing in a file panics; what is refused is named by file and line, or by the byte in a
//!   binary file.
//!
//! An example: an MSR trace is read, a line that is no IO is counted, and our CSV is written.
//!
//! ```
//! use rackscan_trace::{Format, Operation, ReadOptions, Record, TraceReader, TraceWriter, WriteFormat};
//! use std::{path::Path, time::Duration};
//!
//! let text = "128166372003061629,hm,0,Read,383496192,32768,31954\n\
//!             128166372003061639,hm,0,Erase,0,512,1\n\
//!             128166372003071629,hm,0,Write,4096,512,1\n";
//! let options = ReadOptions::default();
//! let mut trace = TraceReader::over(Path::new("hm_0.csv"), Box::new(text.as_bytes()), &options)?;
//! let records = trace.by_ref().collect::<Result<Vec<Record>, _>>()?;
//! assert_eq!((trace.format(), records.len(), trace.defects().count()), (Format::Msr, 2, 1));
//! assert_eq!((records[1].operation, records[1].offset_bytes), (Operation::Write, 4096));
//! assert_eq!(records[1].at, Duration::from_millis(1));
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("trace.csv");
//! let mut writer = TraceWriter::create(&path, WriteFormat::Csv)?;
//! for record in &records {
//!     writer.write(record)?;
//! }
//! assert_eq!(writer.finish()?, 2);
//! let again = TraceReader::open(&path, &options)?.collect::<Result<Vec<Record>, _>>()?;
//! assert_eq!(again, records);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
