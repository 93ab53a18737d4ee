//! Defines what the replicas' thread answers to a request.

use rackscan_format::message::{CopyHeld, LogGeneration, LogKept};

/// What comes of a request.
#[derive(Debug)]
pub(crate) enum Kept {
    /// What there is of the log now.
    Log(LogKept),
    /// What there is of a node's log, some of its bytes, and its newest generation that is known.
    Copy(Option<CopyHeld>, Vec<u8>, Option<LogGeneration>),
}
