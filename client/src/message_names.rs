//! Names answers in error messages; requests have their names in `rackscan_format`.

use rackscan_format::{ids::NodeId, message::Answer};

use crate::ClientError;

/// The error for an answer of the wrong kind.
pub(crate) fn unexpected_answer(
    node: NodeId,
    during: &'static str,
    answer: &Answer,
    expected: &str,
) -> ClientError {
    let found = match answer {
        Answer::Status(_) => "a status",
        Answer::Catalog { .. } => "a part of a catalog",
        Answer::Fetched { .. } => "pages",
        Answer::Cache(_) => "a page cache",
        Answer::Processed { .. } => "the result of a scan",
        Answer::Appended { .. } => "a stored segment",
        Answer::ParityPlaced { .. } => "stored parity",
        Answer::Verified(_) => "what of stripes is corrupt",
        Answer::LoadHeld { .. } => "what a load holds",
        Answer::Participant(_) => "a participant of transactions",
        Answer::Posts { .. } => "boxes",
        Answer::Transacted { .. } => "messages of a transaction",
        Answer::LogKept(_) | Answer::CopyOfLog { .. } => "a copy of a log",
        Answer::Done => "done",
        Answer::Transferred { .. } => "the end of a raw request",
    };
    ClientError::BadAnswer { node, during, found: found.to_owned(), expected: expected.to_owned() }
}
