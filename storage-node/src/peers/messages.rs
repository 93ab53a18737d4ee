//! Defines the messages between the participant and the thread that talks to other nodes.

use rackscan_ramp::{
    message::{ParticipantId, Reply, Request},
    timestamp::Timestamp,
};

use super::copied::Copied;

/// A message to another participant.
#[derive(Debug)]
pub(crate) struct Errand {
    /// The transaction that it is about.
    pub(crate) about: Timestamp,
    /// The receiver.
    pub(crate) to: ParticipantId,
    /// The request.
    pub(crate) request: Request,
}

/// A report to the participant.
#[derive(Debug)]
pub(crate) enum PeerReport {
    /// Another participant has answered.
    Heard {
        /// The transaction that it was asked about.
        about: Timestamp,
        /// The participant that answered.
        from: ParticipantId,
        /// Its answers.
        replies: Vec<Reply>,
    },
    /// The state of a log replica has changed.
    Copied(Copied),
    /// A node is available again.
    Back(ParticipantId),
    /// Some time has passed since the participant asked for a tick.
    Tick,
}
