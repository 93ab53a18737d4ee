//! Defines the events that reach a transaction, the steps with which it responds, and its outcomes.

use crate::{
    item::{Key, Version},
    message::{LeaseId, ParticipantId, Refusal, Reply, Request},
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
        from: ParticipantId,
        /// Its answer.
        reply: Reply,
    },
    /// The connection to a participant is lost: unanswered requests may never be answered.
    Lost {
        /// The participant.
        participant: ParticipantId,
    },
    /// A lost participant can be reached again.
    Back {
        /// The participant.
        participant: ParticipantId,
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
    CommittedInPart {
        /// The transaction.
        timestamp: Timestamp,
        /// The participants.
        missing: Vec<ParticipantId>,
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
        missing: Vec<ParticipantId>,
        /// The reason of one of them: preferably one that a newer timestamp would not have helped.
        why: Abortion,
    },
    /// These participants have not said whether they prepared it. It will be visible completely or
    /// not at all; they decide which.
    Unknown {
        /// The transaction.
        timestamp: Timestamp,
        /// The participants.
        missing: Vec<ParticipantId>,
    },
}

/// Why a read cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Interruption {
    /// The participant cannot be reached.
    #[error("{participant} cannot be reached: try again when its node is running and reachable")]
    Lost {
        /// The participant.
        participant: ParticipantId,
    },
    /// The participant does not know the lease.
    #[error(
        "{participant} has restarted or has no more leases, so this reader has no lease there: request a new lease and read again"
    )]
    Unleased {
        /// The participant.
        participant: ParticipantId,
    },
    /// The locks did not last to the end.
    #[error("{participant} has lost the locks of this transaction, probably by a restart: read again")]
    Unlocked {
        /// The participant.
        participant: ParticipantId,
    },
    /// Too many wait for locks.
    #[error(
        "{participant} would have {found} waiting lock requests or locked keys, the maximum is {most}: try again later"
    )]
    Busy {
        /// The participant.
        participant: ParticipantId,
        /// How many wait.
        found: u64,
        /// How many may.
        most: u64,
    },
    /// The owner gave up.
    #[error("the transaction was cancelled by its client before it had ended")]
    GivenUp,
}

/// Why a transaction was aborted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Abortion {
    /// A participant refused it.
    #[error("{participant} refused: {why}")]
    Refused {
        /// The participant.
        participant: ParticipantId,
        /// Why.
        why: Refusal,
    },
    /// A participant has promised another one, which asked for its vote, never to prepare it.
    #[error(
        "{participant} had not prepared the transaction yet when another participant asked for its vote, and voted to abort"
    )]
    Promised {
        /// The participant.
        participant: ParticipantId,
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
pub(super) type Participants<T> = BTreeMap<ParticipantId, (LeaseId, Vec<T>)>;

pub(super) fn message(to: ParticipantId, request: Request) -> Message {
    Message { to, request }
}

pub(super) fn interrupted(why: Interruption) -> Step {
    Step::end(Outcome::Interrupted { why })
}

/// The reason why this event interrupts a reader, if it does. A lost participant matters only if
/// the reader waits for it.
pub(super) fn interruption(event: &Event, waits_for: impl Fn(ParticipantId) -> bool) -> Option<Interruption> {
    match event {
        Event::Reply { from, reply: Reply::Unleased } => Some(Interruption::Unleased { participant: *from }),
        Event::Lost { participant } if waits_for(*participant) => {
            Some(Interruption::Lost { participant: *participant })
        }
        Event::GiveUp => Some(Interruption::GivenUp),
        _ => None,
    }
}
