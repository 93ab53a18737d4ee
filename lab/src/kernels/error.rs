//! What can end the measuring of kernels?

use std::num::TryFromIntError;

use rackscan_format::chunk::ChunkError;
use rackscan_format::page::PageFault;
use rackscan_format::program::ProgramError;
use rackscan_scan::{ScanError, wire::WireError};

/// Why kernels were not measured, or not all of them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// A scale factor that is too small, too large or no number.
    #[error("scale factor {found}; expected more than 0 and at most {most}")]
    Scale {
        /// It.
        found: f64,
        /// The largest.
        most: f64,
    },
    /// No turn, or too many.
    #[error("{found} turns; expected 1 to {most}")]
    Rounds {
        /// How many.
        found: u32,
        /// How many are possible.
        most: u32,
    },
    /// A name that no kernel has.
    #[error("there is no kernel {found:?}; expected one of {}", known.join(", "))]
    Unknown {
        /// It.
        found: String,
        /// The names there are.
        known: Vec<&'static str>,
    },
    /// Two turns, or two levels, gave a different number of rows.
    #[error("{kernel} at level {level}: {found} rows came out, {expected} did before; a defect")]
    Disagree {
        /// The kernel.
        kernel: String,
        /// The level of vectors.
        level: String,
        /// Rows that came out now.
        found: u64,
        /// Rows that came out before.
        expected: u64,
    },
    /// A column that the table does not have, or of another type.
    #[error("lineitem has no column {column}; a defect")]
    NoColumn {
        /// Its name.
        column: String,
    },
    /// More rows, nodes or bytes than the format can number.
    #[error("a number does not fit: {0}")]
    TooMany(#[from] TryFromIntError),
    /// Rows could not be made pages.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// A page that was just made is not right.
    #[error("a page in memory: {0}")]
    Page(#[from] PageFault),
    /// A program that is not one.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A scan failed.
    #[error(transparent)]
    Scan(#[from] Box<ScanError>),
    /// A batch does not come back from its encoded form.
    #[error(transparent)]
    Wire(#[from] WireError),
}

impl From<ScanError> for KernelError {
    fn from(error: ScanError) -> Self {
        Self::Scan(Box::new(error))
    }
}
