//! Names requests and answers in error messages and logs.

use rackscan_format::{
    ids::NodeId,
    message::{Answer, Request},
};

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

/// The name of a request, for error messages and logs.
pub(crate) fn request_name(request: &Request) -> &'static str {
    match request {
        Request::Status => "status",
        Request::Catalog { .. } => "catalog",
        Request::Fetch { .. } => "fetch",
        Request::Process { .. } => "process",
        Request::Append { .. } => "append",
        Request::Keep { .. } => "keep",
        Request::ReadRaw { .. } => "raw read",
        Request::WriteRaw { .. } => "raw write",
        Request::AppendParity(_) => "append parity",
        Request::ReserveParity(_) => "reserve parity",
        Request::LoadHeld(_) => "load held",
        Request::KeepMap(_) => "keep map",
        Request::ReadMap(_) => "read map",
        Request::Verify(_) => "verify",
        Request::Repair(_) => "repair",
        Request::Adopt(_) => "adopt",
        Request::PreparePublish { .. } => "prepare",
        Request::CommitPublish { .. } | Request::CommitInPlace { .. } => "commit",
        Request::AbortLoad { .. } => "abort",
        Request::Drop { .. } => "drop",
        Request::Echo { .. } => "echo",
        Request::OpenCache => "open cache",
        Request::CacheUsed { .. } => "cache used",
        Request::OpenParticipant => "open participant",
        Request::OpenPosts { .. } => "open posts",
        Request::Transact { .. } => "transact",
        Request::KeepLog(_) => "keep log",
        Request::AcceptLoss => "accept loss",
        Request::HoldTables(_) => "hold tables",
        Request::ReleaseTables(_) => "release tables",
        Request::CopyOfLog(_) => "copy of log",
        Request::Stop => "stop",
    }
}
