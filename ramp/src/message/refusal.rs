//! Why does a participant not do what it was asked for?
//!
//! Invariants
//! - Each reason has its own variant, so that who asked can tell what helps: a newer timestamp,
//!   another read, another clock.
//! - Nothing of a refused request was done.

use super::Bounded;
use crate::{
    item::{Key, Oversize},
    limits::{CLOCK_SKEW_MS_MAX, UNSETTLED_MAX},
    timestamp::Timestamp,
    utc::Utc,
};
use serde::{Deserialize, Serialize};

/// Why a home does not do what it was asked for. Nothing of the request was done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// A key or value.
    #[error(transparent)]
    Oversize(#[from] Oversize),
    /// A request that is too large.
    #[error("a request with {found} {what}, expected at most {most}: divide the transaction")]
    TooMuch {
        /// What there is too much of.
        what: Bounded,
        /// How much.
        found: u64,
        /// How much there may be.
        most: u64,
    },
    /// Keys out of order, or one of them twice.
    #[error("the key {key} does not come after the one before it, expected keys ascending and each once")]
    Unordered {
        /// The second of the two.
        key: Key,
    },
    /// No memory for another version.
    #[error(
        "the version store holds {used} of {budget} bytes, and {wanted} more were wanted; readers hold {held} of old versions: \
         end long reads, or give the store more memory"
    )]
    Full {
        /// Bytes of the versions that were to be added.
        wanted: u64,
        /// Bytes in use.
        used: u64,
        /// Bytes that may be in use.
        budget: u64,
        /// Bytes of superseded versions that readers may yet ask for.
        held: u64,
    },
    /// Too many transactions of which it is not known that they ended everywhere.
    #[error(
        "{found} transactions have not ended in all of their homes, expected fewer than {UNSETTLED_MAX}: is a home down?"
    )]
    Unsettled {
        /// How many.
        found: u64,
    },
    /// The home has promised, to others who asked, that it will never prepare this transaction.
    #[error(
        "the transaction {timestamp} was given up before it was prepared: begin it again with a new timestamp"
    )]
    Promised {
        /// The transaction.
        timestamp: Timestamp,
    },
    /// As [`Refusal::Promised`], for all transactions up to a timestamp.
    #[error(
        "the transaction {timestamp} is not after {floor}, up to which all unknown ones were given up: begin it again with a newer timestamp"
    )]
    Behind {
        /// The transaction.
        timestamp: Timestamp,
        /// Up to which.
        floor: Timestamp,
    },
    /// Another transaction has this timestamp.
    #[error("another transaction has the timestamp {timestamp}: give every client an id of its own")]
    Collision {
        /// The timestamp.
        timestamp: Timestamp,
    },
    /// The locks are gone.
    #[error(
        "the transaction {timestamp} does not hold the lock of {key}: the home was started anew; begin it again"
    )]
    NotLocked {
        /// The transaction.
        timestamp: Timestamp,
        /// The first key that is not locked.
        key: Key,
    },
    /// What lies there moves away.
    #[error("{key} is closed, because what lies there has moved: look up where it is now, and begin again")]
    Closed {
        /// The first key of which that is so.
        key: Key,
    },
    /// The home has no feed.
    #[error("this home has no feed to follow: give its node more memory for transactions")]
    NoFeed,
    /// The log takes no more records.
    #[error("the log of this home takes no more records: free some space on its disk")]
    LogFull,
    /// A key has a version that is as new, or newer: the write would be lost behind it. With a
    /// newer timestamp the same may be prepared.
    #[error(
        "the timestamp {timestamp} is not newer than {newest}, which is the newest one of the keys that it writes, {key} among them: \
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
    /// A key has another newest version than the one that the write is conditional on.
    #[error(
        "the newest version of {key} is {found} ({}), expected {expected}: another transaction has written it; read it again and write again",
        if *.committed { "committed" } else { "prepared" }
    )]
    Conflict {
        /// The first key of which that is so.
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
        "the clock of the client says {}, which is {} s ahead of the clock of {host}, which says {}, expected at most {} s: \
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
    /// A timestamp that no clock has led to: it would leave too few newer ones.
    #[error(
        "the timestamp {timestamp} is beyond {limit}, expected an earlier one: the client's timestamps are wrong; start it again"
    )]
    BeyondHorizon {
        /// The transaction.
        timestamp: Timestamp,
        /// The last time that a timestamp may have here now.
        limit: u64,
    },
    /// Conditions that are not about the items of the part, in their order.
    #[error(
        "a condition on item {item} of {items}, expected positions of items, ascending: the request is damaged"
    )]
    NoSuchItem {
        /// Its position.
        item: u32,
        /// How many items there are.
        items: u64,
    },
    /// What would be recorded now could not be acknowledged, or not be kept. Nothing of it was
    /// done.
    #[error("{why}")]
    Unrecorded {
        /// What is missing, and what to do.
        why: String,
    },
    /// The same, because a disk is full.
    #[error("{why}")]
    DiskFull {
        /// Whose disk that is, and what to do.
        why: String,
    },
}

impl Refusal {
    /// If a newer timestamp helps: the timestamp that it must be newer than.
    #[must_use]
    pub fn newest(&self) -> Option<Timestamp> {
        match self {
            Self::Outdated { newest, .. } => Some(*newest),
            Self::Behind { floor, .. } => Some(*floor),
            _ => None,
        }
    }
}
