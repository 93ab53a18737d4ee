//! What do clients and homes say to each other?
//!
//! Values only: how they become bytes, and on which wire, is for those who have one. The home of a
//! key is the node that keeps it.
//!
//! Invariants
//! - A home votes once on a transaction, by preparing it or by promising never to, and never
//!   changes its vote. A transaction is committed if and only if all of its homes have prepared it:
//!   so anybody who has heard all votes knows how it ends.
//! - Every list from outside is checked against a limit before it is used; those of requests before
//!   they are decoded.

use crate::{
    item::{Fingerprint, Key, Metadata, Value, Version},
    limits::{HOMES_MAX, KEY_BYTES_MAX, PART_BYTES_MAX, READ_KEYS_MAX, SETTLED_PER_PART_MAX, WRITE_KEYS_MAX},
    list,
    log::Tail,
    slot::Place,
    timestamp::{ClientId, Timestamp},
};
use serde::{Deserialize, Serialize};
use std::fmt;

mod preconditions;
mod refusal;
mod size;

pub use preconditions::Preconditions;
pub use refusal::Refusal;

/// A node that keeps keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HomeId(pub u16);

impl fmt::Display for HomeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "home {}", self.0)
    }
}

/// The home of a key of this placement ([`crate::item::Key::placement`]) among those that there
/// are, ascending. It is the same one as long as they are.
#[must_use]
pub fn home_of(placement: Fingerprint, homes: &[HomeId]) -> HomeId {
    let place = usize::try_from(placement.0 % homes.len().max(1) as u64).unwrap_or_default();
    homes.get(place).copied().unwrap_or_default()
}

/// The right of a reader that versions which it may yet need stay. Given by a home, and gone with
/// that home's life.
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
    pub timestamp: Timestamp,
    /// All homes that it writes to, ascending: who knows how it ends, if its coordinator does not
    /// say.
    #[serde(deserialize_with = "list::at_most::<_, _, HOMES_MAX>")]
    pub homes: Vec<HomeId>,
    /// What the home counts on.
    pub guard: Guard,
    /// What readers of any of its keys are told of all of them.
    pub metadata: Metadata,
    /// What it writes here: keys ascending, each once.
    #[serde(deserialize_with = "list::at_most::<_, _, WRITE_KEYS_MAX>")]
    pub items: Vec<(Key, Value)>,
}

impl Part {
    /// Whether it is all that its transaction writes: then to prepare it is to commit it, because
    /// no other home has a vote.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.homes.len() == 1
    }

    /// Whether it is within limits and in order.
    ///
    /// # Errors
    /// [`Refusal::TooMuch`] and [`Refusal::Unordered`].
    pub fn check(&self) -> Result<(), Refusal> {
        let bytes = self.items.iter().map(|(key, value)| key.bytes().len() + value.len()).sum::<usize>();
        within(Bounded::Homes, self.homes.len(), HOMES_MAX)?;
        within(Bounded::Keys, self.items.len(), WRITE_KEYS_MAX)?;
        within(Bounded::Bytes, bytes, PART_BYTES_MAX)?;
        let pairs = self.items.iter().zip(self.items.iter().skip(1));
        let unordered = pairs.map(|((a, _), (b, _))| (a, b)).find(|(a, b)| a >= b);
        unordered.map_or(Ok(()), |(_, key)| Err(Refusal::Unordered { key: key.clone() }))
    }
}

/// What is bounded of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bounded {
    /// Homes of the transaction.
    Homes,
    /// Keys in one home.
    Keys,
    /// Bytes of keys and values in one home.
    Bytes,
    /// Bytes that scanned keys begin with.
    Prefix,
    /// Timestamps that are asked for.
    Timestamps,
    /// Ended transactions that are told of.
    Settled,
}

impl fmt::Display for Bounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Homes => "homes",
            Self::Keys => "keys in one home",
            Self::Bytes => "bytes in one home",
            Self::Prefix => "bytes of a prefix",
            Self::Timestamps => "timestamps",
            Self::Settled => "ended transactions",
        })
    }
}

fn within(what: Bounded, found: usize, most: usize) -> Result<(), Refusal> {
    if found <= most {
        return Ok(());
    }
    Err(Refusal::TooMuch { what, found: found as u64, most: most as u64 })
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
    /// It knows nothing of it any more, and will never prepare it. To another home, which has it in
    /// doubt, that is a refusal: what has ended in all homes leaves none in doubt. To its
    /// coordinator it says nothing.
    Forgotten,
}

/// Keys in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRange {
    /// What they begin with.
    pub prefix: Vec<u8>,
    /// Only those behind this one.
    pub after: Option<Key>,
    /// At most so many, one at least.
    pub most: u32,
    /// Whether values and what is known of siblings are wanted. Without, a value has no bytes, or
    /// it is deleted.
    pub values: bool,
}

/// What a home is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// To keep versions for a reader from now on, until it closes the lease or is lost.
    Lease {
        /// Whose reads they are.
        client: ClientId,
    },
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
        #[serde(deserialize_with = "list::at_most::<_, _, READ_KEYS_MAX>")]
        keys: Vec<Key>,
    },
    /// The timestamps of the newest committed versions.
    Timestamps {
        /// The reader's lease.
        lease: LeaseId,
        /// Of these keys.
        #[serde(deserialize_with = "list::at_most::<_, _, READ_KEYS_MAX>")]
        keys: Vec<Key>,
    },
    /// Of each key the newest version, committed or prepared, of one of these transactions. All of
    /// them are committed somewhere.
    Among {
        /// The reader's lease.
        lease: LeaseId,
        /// Of these keys.
        #[serde(deserialize_with = "list::at_most::<_, _, READ_KEYS_MAX>")]
        keys: Vec<Key>,
        /// The transactions.
        #[serde(deserialize_with = "list::at_most::<_, _, READ_KEYS_MAX>")]
        timestamps: Vec<Timestamp>,
    },
    /// The newest versions of keys of a range, in order, as many as fit an answer.
    Scan {
        /// The reader's lease.
        lease: LeaseId,
        /// Which keys.
        range: KeyRange,
    },
    /// Where the feed is now: who scans after this and follows the feed from there misses nothing.
    Mark,
    /// To vote on a transaction: prepare it or refuse. One that has no other home is committed with
    /// its vote ([`Part::is_whole`]), and answered as [`Request::Commit`] is.
    Prepare {
        /// What it writes here.
        part: Part,
        /// Transactions that have ended in all of their homes: they may be forgotten.
        #[serde(deserialize_with = "list::at_most::<_, _, SETTLED_PER_PART_MAX>")]
        settled: Vec<Timestamp>,
        /// What must be so.
        preconditions: Preconditions,
    },
    /// All homes have prepared it.
    Commit {
        /// The transaction.
        timestamp: Timestamp,
    },
    /// A home has refused it.
    Abort {
        /// The transaction.
        timestamp: Timestamp,
    },
    /// These have ended in all of their homes, and their coordinators know. Not answered.
    Settled {
        /// The transactions.
        #[serde(deserialize_with = "list::at_most::<_, _, SETTLED_PER_PART_MAX>")]
        timestamps: Vec<Timestamp>,
    },
    /// These are committed in all of their homes, and their coordinators may not know. Not
    /// answered.
    Ended {
        /// The transactions.
        #[serde(deserialize_with = "list::at_most::<_, _, SETTLED_PER_PART_MAX>")]
        timestamps: Vec<Timestamp>,
    },
    /// To write without concurrency control: at once, and here only.
    Put {
        /// What is written.
        part: Part,
        /// What must be so.
        preconditions: Preconditions,
    },
    /// How it votes; who has not voted yet refuses.
    Inquire {
        /// The transaction.
        timestamp: Timestamp,
    },
    /// To lock keys, ascending, one after the other.
    Lock {
        /// For this transaction.
        owner: Timestamp,
        /// Keys and how.
        #[serde(deserialize_with = "list::at_most::<_, _, READ_KEYS_MAX>")]
        wanted: Vec<(Key, Mode)>,
    },
    /// To release all locks of a transaction that has not prepared anything here.
    Unlock {
        /// The transaction.
        owner: Timestamp,
    },
}

impl Request {
    /// Whether it is within limits; parts are checked where they are prepared.
    ///
    /// # Errors
    /// [`Refusal::TooMuch`].
    pub fn check(&self) -> Result<(), Refusal> {
        match self {
            Self::Get { keys, .. } | Self::Timestamps { keys, .. } => {
                within(Bounded::Keys, keys.len(), READ_KEYS_MAX)
            }
            Self::Among { keys, timestamps, .. } => {
                within(Bounded::Keys, keys.len(), READ_KEYS_MAX)?;
                within(Bounded::Timestamps, timestamps.len(), READ_KEYS_MAX)
            }
            Self::Lock { wanted, .. } => within(Bounded::Keys, wanted.len(), READ_KEYS_MAX),
            Self::Scan { range, .. } => within(Bounded::Prefix, range.prefix.len(), KEY_BYTES_MAX),
            Self::Prepare { settled: timestamps, .. }
            | Self::Settled { timestamps }
            | Self::Ended { timestamps } => within(Bounded::Settled, timestamps.len(), SETTLED_PER_PART_MAX),
            _ => Ok(()),
        }
    }
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

impl Found {
    /// About how many bytes it takes in an answer.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.beside.iter().chain([&self.version]).map(Version::bytes).sum()
    }
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
        /// The highest timestamp that the home knows of: a client that begins again goes on after
        /// it.
        newest: Timestamp,
    },
    /// The home has no such lease: it was started anew, or has too many leases. Read again from the
    /// beginning, with a new one.
    Unleased,
    /// To [`Request::Get`], in one answer or several of some keys each.
    Found {
        /// By key.
        items: Vec<(Key, Found)>,
        /// The present.
        epoch: Epoch,
    },
    /// To [`Request::Timestamps`], as [`Reply::Found`].
    Latest {
        /// By key; [`Timestamp::FIRST`] where there is nothing.
        timestamps: Vec<(Key, Timestamp)>,
    },
    /// To [`Request::Among`], as [`Reply::Found`].
    Named {
        /// Every key that was asked for; none where no such transaction wrote.
        items: Vec<(Key, Option<Version>)>,
    },
    /// To [`Request::Scan`].
    Scanned {
        /// By key, in order; deleted ones too, and ones of which nothing is committed yet.
        items: Vec<(Key, Found)>,
        /// Whether there may be more behind the last one.
        more: bool,
    },
    /// To [`Request::Mark`].
    Marked {
        /// Where the next record of the feed will be.
        tail: Tail,
    },
    /// To [`Request::Prepare`]: it is prepared, and will be after a crash.
    Prepared,
    /// To [`Request::Prepare`] and [`Request::Put`], and to anything that is too large.
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
    /// To [`Request::Unlock`], and to the [`Request::Lock`] that it ends while that waits.
    Unlocked {
        /// Whether the locks had been held until now. If not, what was read under them may not
        /// belong together.
        held: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new(name.as_bytes()).unwrap()
    }

    const TIMESTAMP: Timestamp = Timestamp { time: 7, client: ClientId(3) };

    fn part(names: &[&str]) -> Part {
        let items = names.iter().map(|name| (key(name), Value::new(name.as_bytes()).unwrap())).collect();
        let metadata = Metadata::WriteSet(vec![Fingerprint(1), Fingerprint(2)]);
        Part { timestamp: TIMESTAMP, homes: vec![HomeId(1)], guard: Guard::Open, metadata, items }
    }

    #[test]
    fn the_home_of_a_key_is_its_fingerprint_s_place_among_all() {
        let homes = [HomeId(3), HomeId(5), HomeId(9)];
        let of = |fingerprint| home_of(Fingerprint(fingerprint), &homes);
        assert_eq!([0, 1, 2, 3, u64::MAX].map(of), [3, 5, 9, 3, 3].map(HomeId));
    }

    #[test]
    fn messages_survive_their_bytes() {
        let request = Request::Prepare {
            part: part(&["a", "b"]),
            settled: vec![TIMESTAMP],
            preconditions: Default::default(),
        };
        let bytes = postcard::to_stdvec(&request).unwrap();
        assert_eq!(postcard::from_bytes::<Request>(&bytes), Ok(request));
        let version = Version { timestamp: TIMESTAMP, metadata: Metadata::Timestamp, value: Value::DELETED };
        let found = Found { version, beside: vec![Version::first()], place: None };
        let reply = Reply::Found { items: vec![(key("a"), found)], epoch: Epoch(5) };
        let bytes = postcard::to_stdvec(&reply).unwrap();
        assert_eq!(postcard::from_bytes::<Reply>(&bytes), Ok(reply));
        let refused = Reply::Refused { why: Refusal::NotLocked { timestamp: TIMESTAMP, key: key("a") } };
        let bytes = postcard::to_stdvec(&refused).unwrap();
        assert_eq!(postcard::from_bytes::<Reply>(&bytes), Ok(refused));
    }

    #[test]
    fn a_write_without_conditions_carries_a_clock_reading_and_one_byte() {
        let bytes = |preconditions| postcard::to_stdvec(&preconditions).unwrap().len();
        let wall_ms = 1_764_072_000_000;
        assert_eq!(bytes(Preconditions { wall_ms, expected: vec![] }), 7);
        let last = Timestamp { time: u64::MAX, client: ClientId(u32::MAX) };
        let on = Preconditions { wall_ms, expected: vec![(4095, last)] };
        assert!(bytes(on.clone()) <= 7 + 20, "as sessions count it");
        let part = part(&["a"]);
        let request = Request::Prepare { part, settled: vec![], preconditions: on };
        let bytes = postcard::to_stdvec(&request).unwrap();
        assert_eq!(postcard::from_bytes::<Request>(&bytes), Ok(request));
    }

    #[test]
    fn keys_and_values_beyond_their_limits_do_not_come_out_of_bytes() {
        let long = postcard::to_stdvec(&vec![b'k'; 1025]).unwrap();
        assert!(postcard::from_bytes::<Key>(&long).is_err());
        assert!(postcard::from_bytes::<Key>(&[0]).is_err(), "no bytes at all");
        let long = postcard::to_stdvec(&Some(vec![0_u8; (1 << 20) + 1])).unwrap();
        assert!(postcard::from_bytes::<Value>(&long).is_err());
    }

    #[test]
    fn lists_beyond_their_limits_do_not_come_out_of_the_bytes_of_a_request() {
        let lease = LeaseId::default();
        let keys = |count| vec![key("a"); count];
        let timestamps = |count| vec![TIMESTAMP; count];
        let write = |homes, items| Part {
            homes: vec![HomeId(1); homes],
            items: vec![(key("a"), Value::DELETED); items],
            ..part(&[])
        };
        let noted = |count| Part { metadata: Metadata::WriteSet(vec![Fingerprint(1); count]), ..part(&[]) };
        let prepare = |part, settled| Request::Prepare {
            part,
            settled: timestamps(settled),
            preconditions: Default::default(),
        };
        let expected = |count| Preconditions { wall_ms: 0, expected: vec![(0, TIMESTAMP); count] };
        let lists: [(usize, &dyn Fn(usize) -> Request); 13] = [
            (WRITE_KEYS_MAX, &|count| Request::Put { part: write(1, 1), preconditions: expected(count) }),
            (READ_KEYS_MAX, &|count| Request::Get { lease, keys: keys(count) }),
            (READ_KEYS_MAX, &|count| Request::Timestamps { lease, keys: keys(count) }),
            (READ_KEYS_MAX, &|count| Request::Among { lease, keys: keys(count), timestamps: timestamps(1) }),
            (READ_KEYS_MAX, &|count| Request::Among { lease, keys: keys(1), timestamps: timestamps(count) }),
            (READ_KEYS_MAX, &|count| Request::Lock {
                owner: TIMESTAMP,
                wanted: vec![(key("a"), Mode::Shared); count],
            }),
            (SETTLED_PER_PART_MAX, &|count| Request::Settled { timestamps: timestamps(count) }),
            (SETTLED_PER_PART_MAX, &|count| Request::Ended { timestamps: timestamps(count) }),
            (SETTLED_PER_PART_MAX, &|count| prepare(part(&["a"]), count)),
            (HOMES_MAX, &|count| prepare(write(count, 1), 0)),
            (WRITE_KEYS_MAX, &|count| prepare(write(1, count), 0)),
            (WRITE_KEYS_MAX, &|count| Request::Put {
                part: write(1, count),
                preconditions: Default::default(),
            }),
            (WRITE_KEYS_MAX, &|count| Request::Put { part: noted(count), preconditions: Default::default() }),
        ];
        for (most, request) in lists {
            for (count, fits) in [(most, true), (most + 1, false)] {
                let bytes = postcard::to_stdvec(&request(count)).unwrap();
                assert_eq!(postcard::from_bytes::<Request>(&bytes).is_ok(), fits, "{:?}", request(1));
            }
        }
    }

    #[test]
    fn a_request_beyond_a_limit_says_which() {
        let keys = vec![key("a"); READ_KEYS_MAX + 1];
        let error = Request::Get { lease: LeaseId::default(), keys }.check().unwrap_err();
        let expected = Refusal::TooMuch { what: Bounded::Keys, found: 4097, most: 4096 };
        assert_eq!(error, expected);
        let timestamps = vec![TIMESTAMP; SETTLED_PER_PART_MAX + 1];
        let error = Request::Settled { timestamps }.check().unwrap_err().to_string();
        assert_eq!(
            error,
            "a request with 257 ended transactions, expected at most 256: divide the transaction"
        );
        assert_eq!(Request::Lease { client: ClientId(1) }.check(), Ok(()));
    }

    #[test]
    fn a_key_that_comes_twice_or_too_late_is_refused() {
        assert_eq!(part(&["a", "b", "c"]).check(), Ok(()));
        for names in [["a", "a"], ["b", "a"]] {
            assert_eq!(part(&names).check(), Err(Refusal::Unordered { key: key("a") }));
        }
    }
}
