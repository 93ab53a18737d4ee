//! What do clients and homes say to each other?
//!
//! Values only: how they become bytes, and on which wire, is for those who have one. The home of a key is the node that keeps it.
//!
//! Invariants
//! - A home votes once on a transaction, by preparing it or by promising never to, and never changes its vote. A transaction is committed if and
//!   only if all of its homes have prepared it: so anybody who has heard all votes knows how it ends.
//! - Every list from outside is checked against a limit before it is used.

use crate::{
    item::{Key, Metadata, Oversize, Value, Version},
    limits::{HOMES_MAX, PART_BYTES_MAX, UNSETTLED_MAX, WRITE_KEYS_MAX},
    slot::Place,
    stamp::Stamp,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A node that keeps keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HomeId(pub u16);

impl fmt::Display for HomeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "home {}", self.0)
    }
}

/// The right of a reader that versions which it may yet need stay. Given by a home, and gone with that home's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId {
    /// Which life of the home: it never has two of the same number. Its slots carry it, too.
    pub life: u64,
    /// Which lease of that life.
    pub number: u64,
}

/// A moment in one life of one home: how many versions had been superseded by then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch(pub u64);

/// What a home counts on when it prepares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Guard {
    /// On nothing: versions keep transactions apart.
    Open,
    /// The transaction holds exclusive locks on its keys; they stay until it ends.
    Locked,
}

/// How a key is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// With others who only read.
    Shared,
    /// By nobody else.
    Exclusive,
}

/// What a transaction writes in one home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its place.
    pub stamp: Stamp,
    /// All homes that it writes to, ascending: who knows how it ends, if its coordinator does not say.
    pub homes: Vec<HomeId>,
    /// What the home counts on.
    pub guard: Guard,
    /// What readers of any of its keys are told of all of them.
    pub metadata: Metadata,
    /// What it writes here, each key once.
    pub items: Vec<(Key, Value)>,
}

impl Part {
    /// Whether it is within limits.
    ///
    /// # Errors
    /// [`Refusal::Part`].
    pub fn check(&self) -> Result<(), Refusal> {
        let bytes = self.items.iter().map(|(key, value)| key.bytes().len() + value.len()).sum::<usize>();
        let limits = [
            (PartLimit::Homes, self.homes.len(), HOMES_MAX),
            (PartLimit::Keys, self.items.len(), WRITE_KEYS_MAX),
            (PartLimit::Bytes, bytes, PART_BYTES_MAX),
        ];
        let beyond = limits.into_iter().find(|(_, found, most)| found > most);
        beyond.map_or(Ok(()), |(limit, found, most)| {
            Err(Refusal::Part { limit, found: found as u64, most: most as u64 })
        })
    }
}

/// What is bounded of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartLimit {
    /// Homes of the transaction.
    Homes,
    /// Keys in one home.
    Keys,
    /// Bytes of keys and values in one home.
    Bytes,
}

impl fmt::Display for PartLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Homes => "homes",
            Self::Keys => "keys in one home",
            Self::Bytes => "bytes in one home",
        })
    }
}

/// Why a home does not do what it was asked for. Nothing of the request was done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// A key or value.
    #[error(transparent)]
    Oversize(#[from] Oversize),
    /// A transaction that is too large.
    #[error("a transaction of {found} {limit}, expected at most {most}: write in smaller transactions")]
    Part {
        /// What there is too much of.
        limit: PartLimit,
        /// How much.
        found: u64,
        /// How much there may be.
        most: u64,
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
    #[error("the transaction {stamp} was given up before it was prepared: begin it again with a new stamp")]
    Promised {
        /// The transaction.
        stamp: Stamp,
    },
    /// As [`Refusal::Promised`], for all transactions up to a stamp.
    #[error(
        "the transaction {stamp} is not after {floor}, up to which all unknown ones were given up: begin it again with a newer stamp"
    )]
    Behind {
        /// The transaction.
        stamp: Stamp,
        /// Up to which.
        floor: Stamp,
    },
    /// Another transaction has this stamp.
    #[error("another transaction has the stamp {stamp}: give every client an id of its own")]
    Collision {
        /// The stamp.
        stamp: Stamp,
    },
    /// The locks are gone.
    #[error(
        "the transaction {stamp} does not hold the lock of {key}: the home was started anew; begin it again"
    )]
    NotLocked {
        /// The transaction.
        stamp: Stamp,
        /// The first key that is not locked.
        key: Key,
    },
    /// The log takes no more records.
    #[error("the log of this home takes no more records: free some space on its disk")]
    LogFull,
}

/// What a home has to say to how a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Vote {
    /// It has prepared it, and does not know how it ended.
    Prepared,
    /// It knows that all have prepared it.
    Committed,
    /// It has not prepared it and never will.
    Refused,
    /// It knows nothing of it any more, and will never prepare it. To another home, which has it in doubt, that is a refusal: what has ended
    /// in all homes leaves none in doubt. To its coordinator it says nothing.
    Forgotten,
}

/// What a home is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// To keep versions for a reader from now on.
    Lease,
    /// A reader has no read any more that began before it was told this epoch. Not answered.
    Advance {
        /// Its lease.
        lease: LeaseId,
        /// The epoch.
        epoch: Epoch,
    },
    /// A reader reads no more. Not answered.
    Close {
        /// Its lease.
        lease: LeaseId,
    },
    /// The newest committed versions.
    Get {
        /// The reader's lease.
        lease: LeaseId,
        /// Of these keys.
        keys: Vec<Key>,
    },
    /// The stamps of the newest committed versions.
    Stamps {
        /// The reader's lease.
        lease: LeaseId,
        /// Of these keys.
        keys: Vec<Key>,
    },
    /// Of each key the newest version, committed or prepared, of one of these transactions. All of them are committed somewhere.
    Among {
        /// The reader's lease.
        lease: LeaseId,
        /// Of these keys.
        keys: Vec<Key>,
        /// The transactions.
        stamps: Vec<Stamp>,
    },
    /// To vote on a transaction: prepare it or refuse.
    Prepare {
        /// What it writes here.
        part: Part,
        /// Transactions that have ended in all of their homes: they may be forgotten.
        settled: Vec<Stamp>,
    },
    /// All homes have prepared it.
    Commit {
        /// The transaction.
        stamp: Stamp,
    },
    /// A home has refused it.
    Abort {
        /// The transaction.
        stamp: Stamp,
    },
    /// These have ended in all of their homes, and their coordinators know. Not answered.
    Settled {
        /// The transactions.
        stamps: Vec<Stamp>,
    },
    /// These are committed in all of their homes, and their coordinators may not know. Not answered.
    Ended {
        /// The transactions.
        stamps: Vec<Stamp>,
    },
    /// To write without concurrency control: at once, and here only.
    Put {
        /// What is written.
        part: Part,
    },
    /// How it votes; who has not voted yet refuses.
    Inquire {
        /// The transaction.
        stamp: Stamp,
    },
    /// To lock keys, ascending, one after the other.
    Lock {
        /// For this transaction.
        owner: Stamp,
        /// Keys and how.
        wanted: Vec<(Key, Mode)>,
    },
    /// To release all locks of a transaction that has not prepared anything here.
    Unlock {
        /// The transaction.
        owner: Stamp,
    },
}

/// What was found under a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The newest committed version.
    pub version: Version,
    /// Newer ones that are prepared, ascending: if one of them is needed, it is here.
    pub beside: Vec<Version>,
    /// Where to look next time, without asking.
    pub place: Option<Place>,
}

/// What a home answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// To [`Request::Lease`].
    Leased {
        /// The lease.
        lease: LeaseId,
        /// The present.
        epoch: Epoch,
    },
    /// The home has no such lease: it was started anew, or has too many leases. Read again from the beginning, with a new one.
    Unleased,
    /// To [`Request::Get`].
    Found {
        /// By key.
        items: Vec<(Key, Found)>,
        /// The present.
        epoch: Epoch,
    },
    /// To [`Request::Stamps`].
    Latest {
        /// By key; [`Stamp::FIRST`] where there is nothing.
        stamps: Vec<(Key, Stamp)>,
    },
    /// To [`Request::Among`].
    Named {
        /// By key; none where no such transaction wrote.
        items: Vec<(Key, Option<Version>)>,
    },
    /// To [`Request::Prepare`]: it is prepared, and will be after a crash.
    Prepared,
    /// To [`Request::Prepare`], [`Request::Put`] and [`Request::Lock`].
    Refused {
        /// Why.
        why: Refusal,
    },
    /// To [`Request::Commit`] and [`Request::Put`]: it is visible, and will be after a crash.
    Committed,
    /// To [`Request::Abort`]: it will never be visible.
    Aborted,
    /// To [`Request::Inquire`]: the vote, which a crash does not change.
    Voted {
        /// The vote.
        vote: Vote,
    },
    /// To [`Request::Lock`]: all are held.
    Locked {
        /// What is under the keys that were locked for reading.
        items: Vec<(Key, Found)>,
    },
    /// To [`Request::Lock`]: too many wait already.
    Busy {
        /// How many.
        found: u64,
        /// How many may.
        most: u64,
    },
    /// To [`Request::Unlock`].
    Unlocked {
        /// Whether the locks had been held until now. If not, what was read under them may not belong together.
        held: bool,
    },
}
