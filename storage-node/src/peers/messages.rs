//! The messages between the home and the thread that talks to other nodes.

use rackscan_ramp::{
    message::{HomeId, Reply, Request},
    timestamp::Timestamp,
};

use super::copied::Copied;

/// A message to another home.
#[derive(Debug)]
pub(crate) struct Errand {
    /// The transaction that it is about.
    pub(crate) about: Timestamp,
    /// The receiver.
    pub(crate) to: HomeId,
    /// The request.
    pub(crate) request: Request,
}

/// A report to the home.
#[derive(Debug)]
pub(crate) enum PeerReport {
    /// Another home has answered.
    Heard {
        /// The transaction that it was asked about.
        about: Timestamp,
        /// The home that answered.
        from: HomeId,
        /// Its answers.
        replies: Vec<Reply>,
    },
    /// The state of a log replica has changed.
    Copied(Copied),
    /// A node is available again.
    Back(HomeId),
    /// Some time has passed since the home asked for a tick.
    Tick,
}
