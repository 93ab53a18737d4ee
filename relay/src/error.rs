//! Defines the errors of this crate, and the failures that end a session.
//!
//! Invariant: the failure that ends a session names the place at fault (the client or a node), and
//! is sent to all places of the session.

use std::fmt;

use rackscan_fabric::{ConnectError, RegionError, RegisterError};
use rackscan_format::ids::NodeId;

use crate::{
    message::{Cause, Ends, short},
    shape::Member,
    shape_error::ShapeError,
};

/// Why a session has ended, and which place was at fault. Stripes that were in progress are not
/// stored everywhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{who} {}: {why}", cause.words())]
pub struct SessionEnd {
    /// The place at fault.
    pub who: Who,
    /// The kind of fault.
    pub cause: Cause,
    /// The details.
    pub why: String,
}

/// A place of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// The client that opened it.
    Client,
    /// A storage node.
    Node {
        /// Which.
        node: NodeId,
        /// Where it listens.
        address: String,
    },
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client => f.write_str("the client"),
            Self::Node { node, address } => write!(f, "node {node} ({address})"),
        }
    }
}

/// A [`SessionEnd`] with the index of the member in place of its name, as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) member: Option<usize>,
    pub(crate) cause: Cause,
    pub(crate) why: String,
}

impl Failure {
    pub(crate) fn new(member: Option<usize>, cause: Cause, why: impl ToString) -> Self {
        Self { member, cause, why: short(why.to_string()) }
    }

    /// A failure that a peer reports. If it names a member that does not exist, the peer itself is
    /// at fault.
    pub(crate) fn from_message(ends: Ends, members: usize, peer: Option<usize>) -> Self {
        let member = ends.member.map(usize::from);
        let member = if member.is_some_and(|member| member >= members) { peer } else { member };
        Self { member, cause: ends.cause, why: ends.why }
    }

    pub(crate) fn to_message(&self) -> Ends {
        let byte = |member| u8::try_from(member).expect("the index of a member is below NODES_MAX");
        let member = self.member.map(byte);
        Ends { member, cause: self.cause, why: self.why.clone() }
    }

    pub(crate) fn into_session_end(self, members: &[Member]) -> SessionEnd {
        let member = self.member.and_then(|member| members.get(member));
        let who = member.map_or(Who::Client, |member| Who::Node {
            node: member.node,
            address: member.address.to_string(),
        });
        SessionEnd { who, cause: self.cause, why: self.why }
    }
}

/// Why a node cannot start, or continue.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Its devices cannot be waited for.
    #[error("the relay of this node cannot wait for its devices: {source}")]
    Reap {
        /// What the system said.
        #[from]
        source: rackscan_device::ReapError,
    },
    /// Its listener cannot be watched.
    #[error("the relay of this node cannot watch its listener for new connections: {source}")]
    Watch {
        /// What the ring said.
        #[from]
        source: rackscan_device::SubmitError,
    },
}

/// Why a session could not be opened, or a stripe was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// No session can have this shape.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A node was not reached.
    #[error("cannot open a session for stripes: connecting to node {node} failed: {source}")]
    Connect {
        /// Which.
        node: NodeId,
        /// Why.
        source: ConnectError,
    },
    /// There is not enough memory.
    #[error(transparent)]
    Memory(#[from] RegionError),
    /// Memory could not be shared with a node.
    #[error("cannot open a session for stripes: registering memory for node {node} failed: {source}")]
    Register {
        /// Which.
        node: NodeId,
        /// Why.
        source: RegisterError,
    },
    /// The nodes did not agree in time.
    #[error("cannot open a session for stripes: these nodes have not answered in time: {silent}")]
    TimedOut {
        /// The nodes that have not answered.
        silent: String,
    },
    /// The system gave no random number to identify the session.
    #[error(
        "cannot open a session for stripes: the operating system's random number generator failed, and it is \
         needed for the session's identifier: {why}"
    )]
    Random {
        /// What it said.
        why: String,
    },
    /// Nodes must be in ascending order of their ids, and each once.
    #[error("the list of a session's nodes must contain each node once, in ascending order of ids")]
    Order,
    /// All lanes are in use.
    #[error("the session has {lanes} stripes in progress, which is its maximum: wait until one ends")]
    LanesFull {
        /// How many.
        lanes: usize,
    },
    /// The session is not open yet.
    #[error("cannot write a stripe: its session is not open yet")]
    NotOpen,
    /// The session has ended.
    #[error("the session that writes stripes has ended: {0}")]
    Ended(SessionEnd),
    /// The stripe does not fit the session.
    #[error("cannot write stripe {stripe}: {what} is {found}, expected {expected}")]
    Stripe {
        /// Its number.
        stripe: u64,
        /// What does not fit.
        what: &'static str,
        /// What was given.
        found: u64,
        /// What fits.
        expected: String,
    },
}
