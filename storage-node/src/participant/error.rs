//! The errors of a participant's files.

use std::{
    io,
    path::{Path, PathBuf},
};

use rackscan_format::codec::CodecError;
use rackscan_ramp::log::{HeaderFault, RecoverError};

/// Why a participant's files are not used.
#[derive(Debug, thiserror::Error)]
pub enum ParticipantFileError {
    /// The system refused.
    #[error("{file}: {action} failed: {source}", file = file.display())]
    Os {
        /// The file or folder.
        file: PathBuf,
        /// What was attempted.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The file is not a log.
    #[error("{file}: {source}; restore it from a copy, or move it away to begin without what it holds", file = file.display())]
    Header {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: HeaderFault,
    },
    /// The log cannot be recovered to a store that fits in memory.
    #[error(
        "{file}: {source}; it was written with a budget of more memory than {budget_bytes} bytes for versions (raise `transactions`), or by something else",
        file = file.display()
    )]
    Recover {
        /// The file.
        file: PathBuf,
        /// The first record at fault.
        source: RecoverError,
        /// The memory for versions.
        budget_bytes: usize,
    },
    /// Other nodes keep replicas, and none of them is valid.
    #[error(
        "{file}: the log is lost, and no replica in other nodes is valid: {reason}; put the best one in its place by hand",
        file = file.display()
    )]
    Copies {
        /// The log's file.
        file: PathBuf,
        /// What was found.
        reason: String,
    },
    /// Keys were written, and the node is configured to keep none: readers would not see them.
    #[error(
        "{file}: a file of {bytes} bytes with written keys and rows, and the configuration gives no memory for them: \
         set `transactions` above 0, or move the file away to begin without what it holds",
        file = file.display()
    )]
    NoMemory {
        /// The log's file.
        file: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// The file of the life's number is not valid.
    #[error("{file}: {source}; remove it: the count then begins at a random number", file = file.display())]
    Life {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: CodecError,
    },
}

pub(super) fn os(file: &Path, action: &'static str) -> impl Fn(io::Error) -> ParticipantFileError {
    move |source| ParticipantFileError::Os { file: file.to_owned(), action, source }
}
