//! Defines the reasons why rows could not be printed.

use arrow::error::ArrowError;
use std::io;

/// Why rows could not be printed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrintError {
    /// The writer failed; a closed pipe prints no message.
    #[error("cannot write the rows: {0}")]
    Io(#[from] io::Error),
    /// A value could not be formatted.
    #[error("cannot format the rows: {0}")]
    Format(ArrowError),
}

impl From<ArrowError> for PrintError {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::IoError(_, error) => Self::Io(error),
            other => Self::Format(other),
        }
    }
}

impl PrintError {
    /// Whether the reader has closed the pipe.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
