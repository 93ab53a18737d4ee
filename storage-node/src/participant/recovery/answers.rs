//! Parses what other nodes answer about the log replicas that they store for this node.

use rackscan_client::Lines;
use rackscan_format::{
    ids::NodeId,
    message::{Answer, CopyHeld, LogGeneration, Refusal, RefusalCode},
};

use super::super::lost_end::Offer;
use crate::limits::SEEK_PERIOD;

/// The answer of a node that may keep a replica: what it has, and the newest generation that it
/// knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NodeAnswer {
    Nothing,
    Asked,
    Has(Option<CopyHeld>, Option<LogGeneration>),
}

/// The answers of the other nodes.
pub(super) struct Answers {
    pub(super) offers: Vec<Offer>,
    /// The nodes that have not answered; none if the log is lost.
    pub(super) silent: Vec<NodeId>,
    /// The next generation's number and quorum, if the log is lost and others know a generation.
    pub(super) generation: Option<(u64, u16)>,
}

/// What a node has answered. A node that answers with something else is disconnected; one that
/// refuses is asked again.
pub(super) fn answered(lines: &mut Lines, node: usize, outcome: Result<Answer, Box<Refusal>>) -> NodeAnswer {
    match outcome {
        Ok(Answer::CopyOfLog { held, generation, .. }) => NodeAnswer::Has(held, generation),
        Ok(other) => {
            lines.hang_up(node, &format!("it answered what it keeps of a log with {other:?}"));
            NodeAnswer::Nothing
        }
        Err(refusal) if refusal.code == RefusalCode::NotFound => {
            tracing::warn!(node, reason = refusal.text, "a node keeps no copies");
            NodeAnswer::Has(None, None)
        }
        Err(refusal) => {
            tracing::debug!(node, reason = refusal.text, "a node does not say yet what it keeps of a log");
            std::thread::sleep(SEEK_PERIOD);
            NodeAnswer::Nothing
        }
    }
}
