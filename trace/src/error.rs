//! Why is a file no trace, a line no record, or a record not written?

use std::{fmt, io, path::PathBuf, sync::Arc};

use crate::{Format, limits::SHOWN_BYTES_MAX};

/// A place in a file that is no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// The file.
    pub file: Arc<PathBuf>,
    /// Where in it.
    pub place: Place,
    /// What was found there and what was expected.
    pub reason: String,
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.file.display(), self.place, self.reason)
    }
}

/// Where in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A line of a text, counted from 1.
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
    /// Reading on failed.
    #[error("{}: reading failed after {position_bytes} bytes: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// How far it was read.
        position_bytes: u64,
        /// Why no further.
        error: io::Error,
    },
    /// There is nothing in the file.
    #[error("{}: the file is empty, expected a trace", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// No format begins like this.
    #[error(
        "{}: begins with {found}, which no known format does: name the format ({}), or name the columns of a CSV file",
        path.display(), Format::NAMES
    )]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// Its beginning.
        found: String,
    },
    /// The file is compressed.
    #[error("{}: is compressed with {with}: decompress it first", path.display())]
    Compressed {
        /// The file.
        path: PathBuf,
        /// How.
        with: &'static str,
    },
    /// The file begins otherwise than files of the format do.
    #[error("{}: is not {format}: {reason}", path.display())]
    NotOfFormat {
        /// The file.
        path: PathBuf,
        /// The format that was asked for.
        format: Format,
        /// What was found and what was expected.
        reason: String,
    },
    /// The columns of a CSV file cannot be told.
    #[error("{}: {reason}", path.display())]
    Columns {
        /// The file.
        path: PathBuf,
        /// What was found and what to do.
        reason: String,
    },
    /// An option names something that does not exist.
    #[error("{what} {found:?}: expected {expected}")]
    Option {
        /// Which.
        what: &'static str,
        /// Its value.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// A line is no record, and reading was to stop there.
    #[error("{0}")]
    Defect(Defect),
    /// There are refused lines and no record.
    #[error("{}: none of the first {refused} entries is a record of {format}; the first: {first}", path.display())]
    NoRecordsButDefects {
        /// The file.
        path: PathBuf,
        /// The format it was read as.
        format: Format,
        /// How many entries were refused.
        refused: u64,
        /// The first of them.
        first: Box<Defect>,
    },
    /// There is no record.
    #[error("{}: holds no IO ({format})", path.display())]
    NoRecords {
        /// The file.
        path: PathBuf,
        /// The format it was read as.
        format: Format,
    },
    /// The file cannot be written any further.
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
        /// Why no more.
        error: io::Error,
    },
    /// A record has no form in the format.
    #[error("{}: {reason}", path.display())]
    NotWritable {
        /// The file.
        path: PathBuf,
        /// What, and what would do.
        reason: String,
    },
}

/// A piece of a file as an error shows it: quoted, escaped and short.
pub(crate) fn shown(text: &str) -> String {
    let cut = (0..=text.len().min(SHOWN_BYTES_MAX)).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    let dots = if cut < text.len() { "..." } else { "" };
    format!("{:?}{dots}", &text[..cut])
}
