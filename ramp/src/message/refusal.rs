//! Defines the reasons for which a participant refuses a request.
//!
//! Invariants
//! - Each reason has its own variant, so that the client knows what to change: a newer timestamp,
//!   another read, or another clock.
//! - A refused request has changed nothing.

use super::Bounded;
use crate::{
    item::{Key, Oversize},
    limits::{CLOCK_SKEW_MS_MAX, UNSETTLED_MAX},
    timestamp::Timestamp,
    utc::Utc,
};
use serde::{Deserialize, Serialize};

/// Why a participant refuses a request. Nothing of the request was done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// A key or value is too long.
    #[error(transparent)]
    Oversize(#[from] Oversize),
    /// The request is too large.
    #[error("a request has {found} {what}, the maximum is {most}: divide the request")]
    TooMuch {
        /// What exceeds its limit.
        what: Bounded,
        /// How much.
        found: u64,
        /// The limit.
        most: u64,
    },
    /// The keys are out of order, or one of them occurs twice.
    #[error(
        "a request contains the key {key} behind an equal or higher one, expected keys in ascending order, each once: please report this"
    )]
    Unordered {
        /// The second of the two.
        key: Key,
    },
    /// There is no memory for another version.
    #[error(
        "the version store uses {used} of its {budget} bytes and needs {wanted} more; readers protect {held} bytes of old versions: \
         end long reads, or give the store more memory"
    )]
    Full {
        /// Bytes of the versions that were to be added.
        wanted: u64,
        /// Bytes in use.
        used: u64,
        /// Bytes that may be in use.
        budget: u64,
        /// Bytes of superseded versions that leases protect.
        held: u64,
    },
    /// Too many transactions may not have ended at all of their participants.
    #[error(
        "{found} transactions have not ended at all of their participants, expected fewer than {UNSETTLED_MAX}: start participants that are down, then try again"
    )]
    Unsettled {
        /// How many.
        found: u64,
    },
    /// The participant has promised another one, which asked for its vote, never to prepare this
    /// transaction.
    #[error(
        "the transaction {timestamp} was aborted before it was prepared: begin it again with a new timestamp"
    )]
    Promised {
        /// The transaction.
        timestamp: Timestamp,
    },
    /// As [`Refusal::Promised`], for all transactions up to a timestamp.
    #[error(
        "the transaction {timestamp} is not newer than {floor}, and up to that timestamp this participant refuses all transactions that it does not know: \
         begin it again with a newer timestamp"
    )]
    Behind {
        /// The transaction.
        timestamp: Timestamp,
        /// The last timestamp that was refused in bulk.
        floor: Timestamp,
    },
    /// Another transaction has this timestamp.
    #[error(
        "another transaction has the timestamp {timestamp}, so two clients have the same id: give every client an id of its own"
    )]
    Collision {
        /// The timestamp.
        timestamp: Timestamp,
    },
    /// The transaction does not hold its locks.
    #[error(
        "the transaction {timestamp} does not hold the lock of {key}: the participant has restarted; begin the transaction again"
    )]
    NotLocked {
        /// The transaction.
        timestamp: Timestamp,
        /// The first key that is not locked.
        key: Key,
    },
    /// The key lies under a closed prefix ([`crate::closing`]).
    #[error(
        "the key {key} cannot be written, because it is closed: the items under its prefix have moved; look up where they are now, and begin again"
    )]
    Closed {
        /// The first such key.
        key: Key,
    },
    /// The participant has no feed.
    #[error(
        "this participant has no feed that a reader could follow: give its node more memory for transactions"
    )]
    NoFeed,
    /// The log takes no more records.
    #[error("the log of this participant accepts no more records: free some space on its disk")]
    LogFull,
    /// A key has a version with the same or a newer timestamp, which would hide the write. With a
    /// newer timestamp the same write may succeed.
    #[error(
        "the transaction {timestamp} writes the key {key}, which already has a version that is not older, {newest}: \
         write again with a newer timestamp"
    )]
    Outdated {
        /// The transaction.
        timestamp: Timestamp,
        /// A key that has a version as new as this transaction, or newer.
        key: Key,
        /// The newest timestamp of all keys of the part.
        newest: Timestamp,
    },
    /// The newest version of a key is not the one that the write is conditional on.
    #[error(
        "the newest version of {key} is {found} ({}), expected {expected}: another transaction has written this key; read it again and write again",
        if *.committed { "committed" } else { "prepared" }
    )]
    Conflict {
        /// The first such key.
        key: Key,
        /// The timestamp of the version that was expected; [`Timestamp::FIRST`] for none.
        expected: Timestamp,
        /// The timestamp of the newest version.
        found: Timestamp,
        /// Whether that version is committed. If not, it may yet be aborted.
        committed: bool,
    },
    /// The clock of the client is too far ahead of the participant's.
    #[error(
        "the clock of the client reads {}, which is {} s ahead of the clock of {host}, which reads {}; the maximum is {} s: \
         set the clocks of both hosts",
        Utc(*client_ms), client_ms.saturating_sub(*host_ms) / 1000, Utc(*host_ms), CLOCK_SKEW_MS_MAX / 1000
    )]
    ClockAhead {
        /// The wall clock of the client, in milliseconds since 1970.
        client_ms: u64,
        /// The host of the participant.
        host: String,
        /// The wall clock of the participant, in milliseconds since 1970.
        host_ms: u64,
    },
    /// The timestamp is too far in the future to come from a clock. It would leave too few newer
    /// timestamps.
    #[error(
        "the timestamp {timestamp} of a transaction is above the limit {limit}, which no correct clock reaches: set the client's clock and restart the client"
    )]
    BeyondHorizon {
        /// The transaction.
        timestamp: Timestamp,
        /// The highest time that is accepted now.
        limit: u64,
    },
    /// The conditions do not name items of the part in ascending order.
    #[error(
        "a request contains a condition on item {item} of {items}, expected positions of existing items in ascending order: please report this"
    )]
    NoSuchItem {
        /// Its position.
        item: u32,
        /// How many items there are.
        items: u64,
    },
    /// A record could not be acknowledged or stored now.
    #[error("{why}")]
    Unrecorded {
        /// The cause, and what to do.
        why: String,
    },
    /// As [`Refusal::Unrecorded`], because a disk is full.
    #[error("{why}")]
    DiskFull {
        /// The node whose disk is full, and what to do.
        why: String,
    },
}

impl Refusal {
    /// The timestamp that a retry must exceed, if a newer timestamp helps.
    #[must_use]
    pub fn newest(&self) -> Option<Timestamp> {
        match self {
            Self::Outdated { newest, .. } => Some(*newest),
            Self::Behind { floor, .. } => Some(*floor),
            _ => None,
        }
    }
}
