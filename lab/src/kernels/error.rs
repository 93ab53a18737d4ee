//! Defines the errors of the measurement of scan kernels.

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
    #[error("scale factor {found} is not possible; expected more than 0 and at most {most}")]
    Scale {
        /// The scale factor.
        found: f64,
        /// The maximum.
        most: f64,
    },
    /// No round, or too many.
    #[error("{found} turns are not possible; expected 1 to {most}")]
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
    #[error(
        "kernel {kernel} at vector level {level} returned {found} rows, expected {expected} as in earlier runs; please report this"
    )]
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
    #[error("the generated table lineitem has no column {column}; please report this")]
    NoColumn {
        /// Its name.
        column: String,
    },
    /// More rows, nodes or bytes than the format can number.
    #[error("a count of rows or bytes is too large for its type: {0}; please report this")]
    TooMany(#[from] TryFromIntError),
    /// Rows could not be encoded as pages.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// A page that was just encoded is invalid.
    #[error("a page that was just encoded is invalid: {0}; please report this")]
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
