//! Defines the errors of a participant's files: the log of transactions, and the other files that
//! [`super::files`] lists.

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
    #[error("{file} is not a valid log of transactions: {source}; restore it from a copy, or move it away, and the node starts without the keys and rows in it", file = file.display())]
    Header {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: HeaderFault,
    },
    /// The log cannot be recovered to a store that fits in memory.
    #[error(
        "{file}: the log of transactions cannot be recovered: {source}; it was written when the node had more than {budget_bytes} bytes of memory for \
         versions (then raise `transactions`), or by another program",
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
        "{file}: the log of transactions is lost, and no replica of it in other nodes is valid: {reason}; copy the best replica to this file yourself",
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
        "{file} is a file of {bytes} bytes with written keys and rows, and the configuration gives no memory for them: \
         set `transactions` above 0, or move the file away, and the node starts without them",
        file = file.display()
    )]
    NoMemory {
        /// The log's file.
        file: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// The file of the life's number is not valid.
    #[error("{file} is damaged: {source}; remove it, and the node counts its starts from a random number on", file = file.display())]
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
