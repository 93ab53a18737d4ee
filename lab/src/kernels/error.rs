//! Errors of the kernel measurement.

use std::num::TryFromIntError;

use rackscan_format::chunk::ChunkError;
use rackscan_format::page::PageFault;
use rackscan_format::program::ProgramError;
use rackscan_scan::{ScanError, wire::WireError};

/// Why some or all kernels were not measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// A scale factor that is too small, too large or not a number.
    #[error("scale factor {found}; expected more than 0 and at most {most}")]
    Scale {
        /// The scale factor.
        found: f64,
        /// The maximum.
        most: f64,
    },
    /// No round, or too many.
    #[error("{found} turns; expected 1 to {most}")]
    Rounds {
        /// The number of rounds.
        found: u32,
        /// The maximum.
        most: u32,
    },
    /// Not the name of a kernel.
    #[error("there is no kernel {found:?}; expected one of {}", known.join(", "))]
    Unknown {
        /// The name.
        found: String,
        /// The existing names.
        known: Vec<&'static str>,
    },
    /// Two turns, or two levels, gave different numbers of rows.
    #[error("{kernel} at level {level}: {found} rows came out, expected {expected} as before; this is a bug")]
    Disagree {
        /// The kernel.
        kernel: String,
        /// The level of vectors.
        level: String,
        /// Rows of this turn.
        found: u64,
        /// Rows of the earlier turn.
        expected: u64,
    },
    /// A column that the table does not have, or that has another type.
    #[error("lineitem has no column {column}; this is a bug")]
    NoColumn {
        /// Its name.
        column: String,
    },
    /// More rows, nodes or bytes than the format can number.
    #[error("a number does not fit: {0}")]
    TooMany(#[from] TryFromIntError),
    /// Rows could not be encoded as pages.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// A page that was just encoded is invalid.
    #[error("a page in memory: {0}")]
    Page(#[from] PageFault),
    /// A scan program is invalid.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A scan failed.
    #[error(transparent)]
    Scan(#[from] Box<ScanError>),
    /// A batch could not be decoded from its encoded form.
    #[error(transparent)]
    Wire(#[from] WireError),
}

impl From<ScanError> for KernelError {
    fn from(error: ScanError) -> Self {
        Self::Scan(Box::new(error))
    }
}
