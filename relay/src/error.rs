//! What can go wrong at each boundary of this crate?
//!
//! Invariants
//! - What ends a session names who is to blame, and travels to everybody who takes part.

use std::fmt;

use rackscan_fabric::{ConnectError, RegionError, RegisterError};
use rackscan_format::ids::NodeId;
use rackscan_stripe::StripeError;

use crate::{
    limits::{CELL_BYTES_MAX, LANES_MAX, RINGS_MAX, SECTOR_BYTES, SLICE_BYTES_MAX, SLICES_MAX, SLOTS_MAX},
    message::{Cause, Ends, short},
    shape::Member,
};

/// Why a session cannot have this shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// Stripes of so many nodes do not exist.
    #[error(transparent)]
    Stripe(#[from] StripeError),
    /// Slices are not whole sectors, or too long.
    #[error(
        "slices of {found} bytes: the length must be a multiple of {SECTOR_BYTES} up to {SLICE_BYTES_MAX}"
    )]
    Slice {
        /// What was asked for.
        found: usize,
    },
    /// Cells are not whole sectors, too long, or of too many slices.
    #[error(
        "cells of {found} bytes: the length must be a multiple of {SECTOR_BYTES} up to {CELL_BYTES_MAX}, and at most {SLICES_MAX} slices"
    )]
    Cell {
        /// What was asked for.
        found: u64,
    },
    /// No lanes, or too many.
    #[error("{found} lanes; from 1 to {LANES_MAX} are possible")]
    Lanes {
        /// What was asked for.
        found: usize,
    },
    /// No slots, or too many.
    #[error("rings of {found} slots; from 1 to {SLOTS_MAX} are possible")]
    Slots {
        /// What was asked for.
        found: usize,
    },
    /// A rebuild without a member whose cells are lost.
    #[error("a rebuild in which no member has lost anything")]
    NothingLost,
    /// No relays are known over so many nodes.
    #[error("{nodes} nodes cannot compute parities among themselves: no relays over them are known")]
    NoRelay {
        /// How many.
        nodes: usize,
    },
    /// More rings than a link can have.
    #[error("{found} rings on one link, at most {RINGS_MAX} are possible: ask for fewer lanes")]
    Rings {
        /// What was asked for.
        found: usize,
    },
}

/// Why a session has ended: who is to blame, and for what. Stripes that were under way then are not
/// stored everywhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{who} {}: {why}", cause.words())]
pub struct SessionEnd {
    /// Who.
    pub who: Who,
    /// What it did.
    pub cause: Cause,
    /// The details.
    pub why: String,
}

/// Somebody who takes part in a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Whoever opened it.
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

/// The same by place among the members, as it travels.
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

    /// What a peer says. A member that does not exist is the peer itself.
    pub(crate) fn heard(ends: Ends, members: usize, peer: Option<usize>) -> Self {
        let member = ends.member.map(usize::from);
        let member = if member.is_some_and(|member| member >= members) { peer } else { member };
        Self { member, cause: ends.cause, why: ends.why }
    }

    pub(crate) fn to_message(&self) -> Ends {
        let member = self.member.and_then(|member| u8::try_from(member).ok());
        Ends { member, cause: self.cause, why: self.why.clone() }
    }

    pub(crate) fn named(self, members: &[Member]) -> SessionEnd {
        let member = self.member.and_then(|member| members.get(member));
        let who = member.map_or(Who::Client, |member| Who::Node {
            node: member.node,
            address: member.address.to_string(),
        });
        SessionEnd { who, cause: self.cause, why: self.why }
    }
}

/// Why a node cannot begin, or go on.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Its devices cannot be waited for.
    #[error("a relay cannot wait for its devices: {source}")]
    Reap {
        /// What the system said.
        #[from]
        source: rackscan_device::ReapError,
    },
    /// Its listener cannot be watched.
    #[error("a relay cannot watch its listener: {source}")]
    Watch {
        /// What the ring said.
        #[from]
        source: rackscan_device::SubmitError,
    },
}

/// Why a session could not be opened, or a stripe not be taken.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The session cannot be like this.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A node was not reached.
    #[error("node {node} cannot be opened for stripes: {source}")]
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
    #[error("node {node} cannot be given memory: {source}")]
    Register {
        /// Which.
        node: NodeId,
        /// Why.
        source: RegisterError,
    },
    /// The nodes did not agree in time.
    #[error("the session was not open in time; still silent: {silent}")]
    TimedOut {
        /// The nodes that have not answered.
        silent: String,
    },
    /// The system gave no random number to name the session by.
    #[error("the session has no name: the system gives no random numbers: {why}")]
    Random {
        /// What it said.
        why: String,
    },
    /// Nodes must be in ascending order of their ids, and each once.
    #[error("the nodes of a session must be given once each, by ascending ids")]
    Order,
    /// All lanes have a stripe.
    #[error("{lanes} stripes are under way, as many as the session has lanes; wait for one to end")]
    LanesFull {
        /// How many.
        lanes: usize,
    },
    /// The session is not open yet.
    #[error("the session is not open yet")]
    NotOpen,
    /// The session has ended.
    #[error("the session has ended: {0}")]
    Ended(SessionEnd),
    /// The stripe does not fit the session.
    #[error("stripe {stripe}: {what} is {found}, expected {expected}")]
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
