//! Turns the result of a request into a reply.
//!
//! Invariants
//! - A time in an answer is the time of the whole request.

use rackscan_format::message::{Answer, Payload, Refusal, RefusalCode, ReplyMessage};

use super::core::Core;
use crate::task::{Place, Progress, Work};

/// A request that was refused before it began.
pub(super) struct Refused(pub(super) Option<Refusal>);

impl Work for Refused {
    fn advance(&mut self, _core: &mut Core, _place: Place) -> Progress {
        self.0.take().map_or(Progress::Working, |refusal| Progress::Finished(Err(refusal)))
    }
}

/// Encodes a reply. If an answer cannot be encoded, the reply is a refusal that says why.
pub(super) fn encoded(reply: ReplyMessage) -> Option<Vec<u8>> {
    let (id, load) = (reply.id, reply.load);
    let bytes = reply.encode().or_else(|error| {
        let refusal = Refusal::new(RefusalCode::Malformed, format!("the answer cannot be sent: {error}"));
        ReplyMessage { id, outcome: Err(refusal), load }.encode()
    });
    bytes.inspect_err(|error| tracing::error!(%error, "a refusal cannot be sent")).ok()
}

/// Whether a reply may be written into a box: only if it refers to no bytes that were written
/// elsewhere, which a reader of the box might not see yet.
pub(super) fn fits_a_box(outcome: &Result<Answer, Refusal>) -> bool {
    match outcome {
        Ok(Answer::Transacted { messages }) => matches!(messages, Payload::Here(_)),
        Ok(_) => false,
        Err(_) => true,
    }
}

/// Writes the time that a request took into its answer, and returns the number of bytes it was
/// about.
pub(super) fn timestamp(outcome: &mut Result<Answer, Refusal>, us: u64) -> u64 {
    match outcome {
        Ok(Answer::Fetched { cost, .. } | Answer::Transferred { cost, .. }) => {
            cost.elapsed_us = us;
            cost.disk_bytes
        }
        Ok(Answer::Processed { cost, written_bytes, .. }) => {
            cost.elapsed_us = us;
            *written_bytes
        }
        Ok(Answer::Catalog { written_bytes, .. }) => *written_bytes,
        Ok(Answer::Appended { stored_bytes }) => *stored_bytes,
        Ok(Answer::Verified(verified)) => verified.bytes,
        Ok(Answer::Transacted { messages: Payload::Here(bytes) }) => bytes.len() as u64,
        Ok(Answer::Transacted { messages: Payload::Beside(target) }) => target.length_bytes,
        Ok(Answer::CopyOfLog { written_bytes, .. } | Answer::LoadHeld { written_bytes, .. }) => {
            *written_bytes
        }
        Ok(Answer::ParityPlaced { extents }) => {
            extents.iter().map(|extent| u64::from(extent.length_bytes)).sum()
        }
        Ok(
            Answer::Status(_)
            | Answer::Cache(_)
            | Answer::Participant(_)
            | Answer::Posts { .. }
            | Answer::LogKept(_)
            | Answer::Done,
        )
        | Err(_) => 0,
    }
}
