//! Defines a job of the driver: a request to a node, and where its reply goes.

use std::time::Instant;

use rackscan_format::{
    ids::NodeId,
    message::{Answer, ReplyMessage, Request},
};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{ClientError, hedge::Hedge, target::Span};

/// A request on its way to a node.
#[derive(Debug)]
pub(crate) struct Job {
    /// Position of the node in the cluster.
    pub(crate) node: usize,
    /// The request; the key in its target is filled in by the driver, which knows the connection.
    pub(crate) request: Request,
    /// The name of the request, for error messages.
    pub(crate) during: &'static str,
    /// Target memory that the node may use until it has answered.
    pub(crate) span: Option<Span>,
    /// One of the node's permits; it is released when nobody waits for this request any more.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
    /// Whether other nodes can make up for this one if it is unresponsive.
    pub(crate) can_go_without: bool,
    /// How the caller is notified that other nodes have answered similar requests far sooner.
    pub(crate) race: Option<Hedge>,
    /// The deadline of the answer.
    pub(crate) deadline: Instant,
    /// Where the answer goes; `None` when nobody waits for it. Closing the cluster waits for such a
    /// request.
    pub(crate) answer: Option<oneshot::Sender<Result<Reply, ClientError>>>,
}

/// A node's answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) message: ReplyMessage,
    /// The job's target memory, which the node does not use any more.
    pub(crate) span: Option<Span>,
    /// Bytes of the request's and the reply's messages.
    pub(crate) message_bytes: u64,
}

impl Reply {
    /// Takes the answer out of the reply.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the node refused the request.
    pub(crate) fn take_answer(&mut self, node: NodeId, during: &'static str) -> Result<Answer, ClientError> {
        let outcome = std::mem::replace(&mut self.message.outcome, Ok(Answer::Done));
        outcome.map_err(|refusal| ClientError::Refused { node, during, refusal: Box::new(refusal) })
    }
}
