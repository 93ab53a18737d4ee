//! Defines the errors of reading and writing traces, and defects: entries of a file that are not
//! records.

use std::{fmt, io, path::PathBuf, sync::Arc};

use crate::{Format, limits::SHOWN_BYTES_MAX};

/// An entry of a file that is not a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// The file.
    pub file: Arc<PathBuf>,
    /// The position in the file.
    pub place: Place,
    /// What was found there and what was expected.
    pub reason: String,
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.file.display(), self.place, self.reason)
    }
}

/// A position in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A line of a text file, counted from 1.
    Line(u64),
    /// A byte of a binary file, counted from 0.
    Byte(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Byte(byte) => write!(f, "byte {byte}"),
        }
    }
}

/// Why a trace cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file cannot be opened.
    #[error("{}: cannot be opened: {error}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// Reading the file failed.
    #[error("{}: reading failed after {position_bytes} bytes: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The number of bytes read before.
        position_bytes: u64,
        /// The system's error.
        error: io::Error,
    },
    /// The file is empty.
    #[error("{}: the file is empty, expected a trace", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file begins like no known format.
    #[error(
        "{}: the file begins with {found}, like no known format: name the format ({}), or name the columns of a CSV file",
        path.display(), Format::NAMES
    )]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// The beginning of the file.
        found: String,
    },
    /// The file is compressed.
    #[error("{}: the file is compressed with {with}: decompress it first", path.display())]
    Compressed {
        /// The file.
        path: PathBuf,
        /// The compression.
        with: &'static str,
    },
    /// The file does not begin like the format that was asked for.
    #[error("{}: is not {format}: {reason}", path.display())]
    NotOfFormat {
        /// The file.
        path: PathBuf,
        /// The format that was asked for.
        format: Format,
        /// What was found and what was expected.
        reason: String,
    },
    /// The columns of a CSV file are not known.
    #[error("{}: {reason}", path.display())]
    Columns {
        /// The file.
        path: PathBuf,
        /// What was found and what to do.
        reason: String,
    },
    /// An option has an invalid value.
    #[error("{what} is {found:?}, expected {expected}")]
    Option {
        /// The option.
        what: &'static str,
        /// Its value.
        found: String,
        /// The valid values.
        expected: String,
    },
    /// An entry is not a record, and [`OnDefect::Stop`](crate::OnDefect::Stop) was set.
    #[error("{0}")]
    Defect(Defect),
    /// All entries were refused.
    #[error("{}: none of the first {refused} entries is a record of {format}; the first one is refused for this reason: {first}", path.display())]
    NoRecordsButDefects {
        /// The file.
        path: PathBuf,
        /// The format it was read as.
        format: Format,
        /// The number of refused entries.
        refused: u64,
        /// The first refused entry.
        first: Box<Defect>,
    },
    /// The file has no records and no refused entries.
    #[error("{}: the file contains no IO; it was read as {format}", path.display())]
    NoRecords {
        /// The file.
        path: PathBuf,
        /// The format it was read as.
        format: Format,
    },
    /// Writing the file failed.
    #[error(
        "{}: writing the trace failed: {error}; it holds the first {records_written} of {records} records",
        path.display()
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// Records given so far.
        records: u64,
        /// Records that are in the file.
        records_written: u64,
        /// The system's error.
        error: io::Error,
    },
    /// The format cannot represent a record.
    #[error("{}: {reason}", path.display())]
    NotWritable {
        /// The file.
        path: PathBuf,
        /// What cannot be represented, and what to do.
        reason: String,
    },
}

/// The beginning of a text, quoted, escaped and shortened, for error messages.
pub(crate) fn excerpt(text: &str) -> String {
    let cut = (0..=text.len().min(SHOWN_BYTES_MAX)).rev().find(|&at| text.is_char_boundary(at));
    let cut = cut.expect("a cut: byte 0 is a boundary");
    let dots = if cut < text.len() { "..." } else { "" };
    format!("{:?}{dots}", &text[..cut])
}
