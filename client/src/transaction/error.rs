//! Defines the errors of transactions.
//!
//! Invariants
//! - Each error says whether something was written: nothing was, unless it is
//!   [`TransactionError::Unknown`].

use std::time::Duration;

use rackscan_ramp::{
    algorithm::{Abortion, Interruption, KeyCount},
    item::Key,
    limits::CLOCK_SKEW_MS_MAX,
    message::{ParticipantId, Refusal},
    timestamp::{ClockError, Timestamp},
    utc::Utc,
};

/// Why a transaction has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransactionError {
    /// A participant is unavailable. Nothing was written, and nothing ever will be.
    #[error("nothing was done, because {participant} is unavailable: {reason}; try again when its node runs")]
    NodeDown {
        /// The participant, which keeps some of the keys.
        participant: ParticipantId,
        /// Why it is unavailable.
        reason: String,
    },
    /// A participant has its maximum of connections. Nothing was written, and nothing ever will be.
    #[error("nothing was done, because {participant} accepts no further connection: {reason}")]
    NodeFull {
        /// The participant, which keeps some of the keys.
        participant: ParticipantId,
        /// What the node said.
        reason: String,
    },
    /// The transaction was aborted. Nothing was written, and nothing ever will be.
    #[error("the transaction {timestamp} was aborted, and nothing of it is visible: {why}")]
    Aborted {
        /// The transaction.
        timestamp: Timestamp,
        /// Why.
        why: Abortion,
    },
    /// A key has another newest version than the one that the write was conditional on. Nothing was
    /// written, and nothing ever will be.
    #[error(
        "conflict: nothing was written, because another transaction has written {key}: the newest version at {participant} is {found} ({}), \
         expected {expected}; read it again and write again",
        if *.committed { "committed" } else { "prepared" }
    )]
    Conflict {
        /// The participant that refused.
        participant: ParticipantId,
        /// The first such key.
        key: Key,
        /// The timestamp of the version that was expected; [`Timestamp::FIRST`] for none.
        expected: Timestamp,
        /// The timestamp of the newest version there.
        found: Timestamp,
        /// Whether that one is committed. If not, it may yet be aborted.
        committed: bool,
    },
    /// Others wrote the same keys with newer timestamps during every attempt. Nothing was written,
    /// and nothing ever will be.
    #[error(
        "nothing was written: during each of {attempts} attempts other transactions wrote the same keys, and their newest timestamp {newest} is \
         not older than that of the last attempt, {timestamp}; write again, or set a longer timeout"
    )]
    Contended {
        /// The last attempt.
        timestamp: Timestamp,
        /// The newest timestamp that it met.
        newest: Timestamp,
        /// How often it was tried.
        attempts: u32,
    },
    /// This host's clock is ahead of a participant's by more than it may be. Nothing was written,
    /// and nothing ever will be.
    #[error(
        "nothing was written, because the clocks differ: {client_host} (this client) says {}, and {host} ({participant}) says {}; the client is \
         {} s ahead, expected at most {} s; set the clocks of both hosts and write again",
        Utc(*client_ms), Utc(*host_ms), client_ms.saturating_sub(*host_ms) / 1000, CLOCK_SKEW_MS_MAX / 1000
    )]
    ClockAhead {
        /// The participant that refused.
        participant: ParticipantId,
        /// The host of this client.
        client_host: String,
        /// Its clock, in milliseconds since 1970.
        client_ms: u64,
        /// The host of the participant.
        host: String,
        /// Its clock, in milliseconds since 1970.
        host_ms: u64,
    },
    /// No timestamp can be made. Nothing was done.
    #[error("nothing was done: {0}")]
    Clock(#[from] ClockError),
    /// Participants were lost before they had voted. The transaction is atomic all the same, and
    /// they know its outcome.
    #[error(
        "it is not known whether the transaction {timestamp} is committed: {} did not answer in time; it will be visible wholly or not at all: \
         read its keys to find out",
        listed(participants)
    )]
    Unknown {
        /// The transaction.
        timestamp: Timestamp,
        /// The participants that did not answer.
        participants: Vec<ParticipantId>,
    },
    /// The read was interrupted. Nothing was read.
    #[error("nothing was read: {why}")]
    Interrupted {
        /// Why.
        why: Interruption,
    },
    /// There was no time left. Nothing was read, or written.
    #[error(
        "nothing was done, because {} did not answer within {waited:?}: try again, or set a longer timeout",
        listed(participants)
    )]
    TimedOut {
        /// How long the session waited.
        waited: Duration,
        /// The participants that owe an answer.
        participants: Vec<ParticipantId>,
    },
    /// No keys, or too many.
    #[error(transparent)]
    Keys(#[from] KeyCount),
    /// More than the session's memory has room for. Nothing was done.
    #[error(
        "a message to {participant} has {bytes} bytes, expected at most {bytes_max}: divide the transaction, or give the session more memory"
    )]
    TooLarge {
        /// The participant.
        participant: ParticipantId,
        /// The bytes of the message; 0 if the participant did not say.
        bytes: u64,
        /// The maximum.
        bytes_max: u64,
    },
    /// Keys of a range were added or removed during every attempt to read it. Nothing was read.
    #[error(
        "keys in the range were added or removed during each of {attempts} attempts: read a smaller range, or its keys one by one"
    )]
    Changing {
        /// How often it was tried.
        attempts: u32,
    },
    /// No node that was asked is configured to keep keys, so no keys or rows can have been written
    /// there.
    #[error("{participant} keeps no keys: give its node memory for `transactions` in its configuration")]
    KeepsNoKeys {
        /// The node.
        participant: ParticipantId,
    },
    /// The participant does not accept this transaction now, or has no room for another reader.
    #[error("{participant} accepts no transaction of this session: {reason}")]
    NoParticipant {
        /// The node.
        participant: ParticipantId,
        /// Why.
        reason: String,
    },
}

impl TransactionError {
    fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Aborted { why: Abortion::Refused { why, .. }, .. } => Some(why),
            _ => None,
        }
    }

    /// Whether nothing was written because a disk is full.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        matches!(self.refusal(), Some(Refusal::DiskFull { .. }))
    }

    /// Whether nothing was written because a log is as long as its node's configuration allows.
    #[must_use]
    pub fn is_log_full(&self) -> bool {
        matches!(self.refusal(), Some(Refusal::LogFull))
    }
}

fn listed(participants: &[ParticipantId]) -> String {
    participants.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
