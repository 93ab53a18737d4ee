//! Defines the events that reach a transaction, the steps with which it responds, and its outcomes.

use crate::{
    item::{Key, Version},
    message::{HomeId, LeaseId, Refusal, Reply, Request},
    termination::Message,
    timestamp::Timestamp,
};
use std::collections::BTreeMap;

/// Something that happens to a transaction from outside.
#[derive(Clone, Debug)]
pub enum Event {
    /// A participant has answered a message of this transaction.
    Reply {
        /// The participant.
        from: HomeId,
        /// Its answer.
        reply: Reply,
    },
    /// The connection to a participant is lost: unanswered requests may never be answered.
    Lost {
        /// The participant.
        home: HomeId,
    },
    /// A lost participant can be reached again.
    Back {
        /// The participant.
        home: HomeId,
    },
    /// The owner gives up.
    GiveUp,
}

/// What a transaction does next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Messages to send.
    pub messages: Vec<Message>,
    /// How it ended, if it has. Later events change nothing.
    pub outcome: Option<Outcome>,
}

impl Step {
    pub(super) fn send(messages: Vec<Message>) -> Self {
        Self { messages, outcome: None }
    }

    pub(super) fn end(outcome: Outcome) -> Self {
        Self { messages: Vec::new(), outcome: Some(outcome) }
    }
}

/// How a transaction ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The read is complete.
    Read {
        /// By key.
        items: Vec<(Key, Version)>,
        /// Rounds of messages that it took.
        rounds: u32,
    },
    /// Keys that exist, or are prepared.
    Listed {
        /// In order.
        keys: Vec<Key>,
        /// The key after which there may be more.
        goes_on: Option<Key>,
    },
    /// Nothing was read: begin again, with a new lease if the old one is invalid.
    Interrupted {
        /// Why.
        why: Interruption,
    },
    /// It is committed and visible at all participants.
    Committed {
        /// The transaction.
        timestamp: Timestamp,
    },
    /// It is committed, but these participants have not confirmed it: there it may be invisible
    /// until they are asked again. `Termination::settle`, or these participants themselves, will
    /// end it.
    Sealed {
        /// The transaction.
        timestamp: Timestamp,
        /// The participants.
        missing: Vec<HomeId>,
    },
    /// Nothing of it is visible, or ever will be.
    Aborted {
        /// The transaction.
        timestamp: Timestamp,
        /// Why.
        why: Abortion,
    },
    /// Only without concurrency control: some participants have written their parts, and these have
    /// refused theirs.
    Torn {
        /// The transaction.
        timestamp: Timestamp,
        /// The participants that have refused.
        missing: Vec<HomeId>,
        /// The reason of one of them: preferably one that a newer timestamp would not have helped.
        why: Abortion,
    },
    /// These participants have not said whether they prepared it. It will be visible completely or
    /// not at all; they decide which.
    Unknown {
        /// The transaction.
        timestamp: Timestamp,
        /// The participants.
        missing: Vec<HomeId>,
    },
}

/// Why a read cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Interruption {
    /// The participant cannot be reached.
    #[error("{home} cannot be reached: try again when it is back")]
    Lost {
        /// The participant.
        home: HomeId,
    },
    /// The participant does not know the lease.
    #[error("{home} was started anew: take a new lease and read again")]
    Unleased {
        /// The participant.
        home: HomeId,
    },
    /// The locks did not last to the end.
    #[error("{home} lost the locks of this transaction: read again")]
    Unlocked {
        /// The participant.
        home: HomeId,
    },
    /// Too many wait for locks.
    #[error("{home} has {found} requests for locks, expected at most {most}: try again later")]
    Busy {
        /// The participant.
        home: HomeId,
        /// How many wait.
        found: u64,
        /// How many may.
        most: u64,
    },
    /// The owner gave up.
    #[error("the transaction was given up by its owner")]
    GivenUp,
}

/// Why a transaction was aborted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Abortion {
    /// A participant refused it.
    #[error("{home} refused: {why}")]
    Refused {
        /// The participant.
        home: HomeId,
        /// Why.
        why: Refusal,
    },
    /// A participant has promised another one, which asked for its vote, never to prepare it.
    #[error("{home} had not prepared it when another participant asked for its vote")]
    Promised {
        /// The participant.
        home: HomeId,
    },
    /// It did not get its locks.
    #[error(transparent)]
    NotLocked(Interruption),
}

impl Abortion {
    /// The timestamp that a retry must exceed, if a newer timestamp helps.
    #[must_use]
    pub fn newest(&self) -> Option<Timestamp> {
        match self {
            Self::Refused { why, .. } => why.newest(),
            Self::Promised { .. } | Self::NotLocked(_) => None,
        }
    }
}

/// What a transaction does at each of its participants, with its lease there.
pub(super) type Homes<T> = BTreeMap<HomeId, (LeaseId, Vec<T>)>;

pub(super) fn message(to: HomeId, request: Request) -> Message {
    Message { to, request }
}

pub(super) fn interrupted(why: Interruption) -> Step {
    Step::end(Outcome::Interrupted { why })
}

/// The reason why this event interrupts a reader, if it does. A lost participant matters only if
/// the reader waits for it.
pub(super) fn interruption(event: &Event, waits_for: impl Fn(HomeId) -> bool) -> Option<Interruption> {
    match event {
        Event::Reply { from, reply: Reply::Unleased } => Some(Interruption::Unleased { home: *from }),
        Event::Lost { home } if waits_for(*home) => Some(Interruption::Lost { home: *home }),
        Event::GiveUp => Some(Interruption::GivenUp),
        _ => None,
    }
}
