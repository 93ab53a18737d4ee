//! Defines the messages between clients and participants. They are plain values: the caller encodes
//! and sends them.
//!
//! Invariants
//! - A participant votes once on a transaction and never changes its vote. It votes either by
//!   preparing the transaction or by promising never to prepare it.
//! - A transaction is committed if and only if all of its participants have prepared it. So all
//!   votes together determine the outcome.
//! - Every list that a peer sends is checked against a limit before it is used. The lists in
//!   requests are checked while they are decoded.

use crate::{
    item::{Fingerprint, Key, Metadata, Value, Version},
    limits::{
        KEY_BYTES_MAX, PART_BYTES_MAX, PARTICIPANTS_MAX, READ_KEYS_MAX, SETTLED_PER_PART_MAX, WRITE_KEYS_MAX,
    },
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

/// Identifies a participant: a node that keeps keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ParticipantId(pub u16);

impl fmt::Display for ParticipantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "participant {}", self.0)
    }
}

/// The participant that keeps the keys of this placement ([`crate::item::Key::placement`]), out of
/// all participants, ascending. The result is the same as long as the list is.
#[must_use]
pub fn participant_of(placement: Fingerprint, participants: &[ParticipantId]) -> ParticipantId {
    let place = usize::try_from(placement.0 % participants.len().max(1) as u64).expect("below their number");
    participants.get(place).copied().unwrap_or_default()
}

/// Protects the versions that a reader may still need. A participant grants it, and it ends with
/// that life of the participant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId {
    /// The life of the participant: each start of it has another number. Its slots hold this
    /// number, too.
    pub life: u64,
    /// The number of the lease in that life.
    pub number: u64,
}

/// A point in time in one life of one participant: the number of versions superseded so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch(pub u64);

/// What a participant relies on when it prepares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Guard {
    /// Nothing: versions keep transactions apart.
    Open,
    /// The transaction holds exclusive locks on its keys; they stay until it ends.
    Locked,
}

/// How a key is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Shared with other readers.
    Shared,
    /// Held by one transaction only.
    Exclusive,
}

/// What a transaction writes at one participant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The transaction.
    pub timestamp: Timestamp,
    /// All participants that it writes to, ascending. They decide how it ends if its coordinator
    /// fails.
    #[serde(deserialize_with = "list::at_most::<_, _, PARTICIPANTS_MAX>")]
    pub participants: Vec<ParticipantId>,
    /// What the participant relies on.
    pub guard: Guard,
    /// What each version says about the other keys of the transaction.
    pub metadata: Metadata,
    /// The keys and values written here: keys ascending, each once.
    #[serde(deserialize_with = "list::at_most::<_, _, WRITE_KEYS_MAX>")]
    pub items: Vec<(Key, Value)>,
}

impl Part {
    /// Whether it is the only part of its transaction. Then preparing it commits it, because no
    /// other participant has a vote.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.participants.len() == 1
    }

    /// Checks the limits and the order of keys.
    ///
    /// # Errors
    /// [`Refusal::TooMuch`] and [`Refusal::Unordered`].
    pub fn check(&self) -> Result<(), Refusal> {
        let bytes = self.items.iter().map(|(key, value)| key.bytes().len() + value.len()).sum::<usize>();
        within(Bounded::Participants, self.participants.len(), PARTICIPANTS_MAX)?;
        within(Bounded::Keys, self.items.len(), WRITE_KEYS_MAX)?;
        within(Bounded::Bytes, bytes, PART_BYTES_MAX)?;
        let pairs = self.items.iter().zip(self.items.iter().skip(1));
        let unordered = pairs.map(|((a, _), (b, _))| (a, b)).find(|(a, b)| a >= b);
        unordered.map_or(Ok(()), |(_, key)| Err(Refusal::Unordered { key: key.clone() }))
    }
}

/// The bounded properties of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bounded {
    /// Participants of the transaction.
    Participants,
    /// Keys at one participant.
    Keys,
    /// Bytes of keys and values at one participant.
    Bytes,
    /// Bytes of the prefix of a scan.
    Prefix,
    /// Timestamps that a request asks for.
    Timestamps,
    /// Ended transactions that a request reports.
    Settled,
}

impl fmt::Display for Bounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Participants => "participants",
            Self::Keys => "keys at one participant",
            Self::Bytes => "bytes at one participant",
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

/// What a participant knows about the outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Vote {
    /// It has prepared it, and does not know the outcome.
    Prepared,
    /// It knows that all have prepared it.
    Committed,
    /// It has not prepared it and never will.
    Refused,
    /// It has no record of it any more, and will never prepare it. For another participant, which
    /// has the transaction in doubt, this is a refusal: a transaction that has ended everywhere
    /// leaves no participant in doubt. For the coordinator it decides nothing.
    Forgotten,
}

/// A range of keys to scan, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRange {
    /// The prefix of the keys.
    pub prefix: Vec<u8>,
    /// Only keys after this one.
    pub after: Option<Key>,
    /// The maximum number of keys; 0 counts as 1.
    pub most: u32,
    /// Whether to return values and metadata. If not, a value has no bytes, or it is deleted.
    pub values: bool,
}

/// A request to a participant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Protect versions for a reader from now on, until it closes the lease or is lost.
    Lease {
        /// The reader.
        client: ClientId,
    },
    /// The reader has finished all reads that began before it was told this epoch. Not answered.
    Advance {
        /// The reader's lease.
        lease: LeaseId,
        /// The epoch.
        epoch: Epoch,
    },
    /// The reader has finished all reads. Not answered.
    Close {
        /// The reader's lease.
        lease: LeaseId,
    },
    /// Returns the newest committed versions.
    Get {
        /// The reader's lease.
        lease: LeaseId,
        /// The keys.
        #[serde(deserialize_with = "list::at_most::<_, _, READ_KEYS_MAX>")]
        keys: Vec<Key>,
    },
    /// Returns the timestamps of the newest committed versions.
    Timestamps {
        /// The reader's lease.
        lease: LeaseId,
        /// The keys.
        #[serde(deserialize_with = "list::at_most::<_, _, READ_KEYS_MAX>")]
        keys: Vec<Key>,
    },
    /// Returns, for each key, the newest version, committed or prepared, that one of these
    /// transactions wrote. All of them are committed at some participant.
    Among {
        /// The reader's lease.
        lease: LeaseId,
        /// The keys.
        #[serde(deserialize_with = "list::at_most::<_, _, READ_KEYS_MAX>")]
        keys: Vec<Key>,
        /// The transactions.
        #[serde(deserialize_with = "list::at_most::<_, _, READ_KEYS_MAX>")]
        timestamps: Vec<Timestamp>,
    },
    /// Returns the newest versions of the keys in a range, in order, as many as fit into one
    /// answer.
    Scan {
        /// The reader's lease.
        lease: LeaseId,
        /// The range.
        range: KeyRange,
    },
    /// Returns the current end of the feed. A reader that scans after this and follows the feed
    /// from there misses nothing.
    Mark,
    /// Vote on a transaction: prepare it or refuse it. A transaction without other participants is
    /// committed by this vote ([`Part::is_whole`]), and answered like [`Request::Commit`].
    Prepare {
        /// What it writes here.
        part: Part,
        /// Transactions that have ended at all of their participants. They may be forgotten.
        #[serde(deserialize_with = "list::at_most::<_, _, SETTLED_PER_PART_MAX>")]
        settled: Vec<Timestamp>,
        /// Conditions of the write.
        preconditions: Preconditions,
    },
    /// Commit: all participants have prepared it.
    Commit {
        /// The transaction.
        timestamp: Timestamp,
    },
    /// Abort: a participant has refused it.
    Abort {
        /// The transaction.
        timestamp: Timestamp,
    },
    /// These transactions have ended at all of their participants, and their coordinators know it.
    /// Not answered.
    Settled {
        /// The transactions.
        #[serde(deserialize_with = "list::at_most::<_, _, SETTLED_PER_PART_MAX>")]
        timestamps: Vec<Timestamp>,
    },
    /// These transactions are committed at all of their participants, and their coordinators may
    /// not know it. Not answered.
    Ended {
        /// The transactions.
        #[serde(deserialize_with = "list::at_most::<_, _, SETTLED_PER_PART_MAX>")]
        timestamps: Vec<Timestamp>,
    },
    /// Write without concurrency control: at once, and only here.
    Put {
        /// What is written.
        part: Part,
        /// Conditions of the write.
        preconditions: Preconditions,
    },
    /// Returns its vote. If it has not voted yet, it refuses now.
    Inquire {
        /// The transaction.
        timestamp: Timestamp,
    },
    /// Lock keys, in ascending order, one after the other.
    Lock {
        /// The transaction.
        owner: Timestamp,
        /// Keys and lock modes.
        #[serde(deserialize_with = "list::at_most::<_, _, READ_KEYS_MAX>")]
        wanted: Vec<(Key, Mode)>,
    },
    /// Release all locks of a transaction that has prepared nothing here.
    Unlock {
        /// The transaction.
        owner: Timestamp,
    },
}

impl Request {
    /// Checks the limits of all lists but those in parts, which are checked when they are prepared.
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

/// What a participant has under a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The newest committed version.
    pub version: Version,
    /// Newer prepared versions, ascending. They save a second round if the reader needs one of
    /// them.
    pub beside: Vec<Version>,
    /// The slot from which the key can be read one-sidedly next time.
    pub place: Option<Place>,
}

impl Found {
    /// The approximate number of bytes in an answer.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.beside.iter().chain([&self.version]).map(Version::bytes).sum()
    }
}

/// A participant's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// To [`Request::Lease`].
    Leased {
        /// The lease.
        lease: LeaseId,
        /// The current epoch.
        epoch: Epoch,
        /// The highest timestamp that the participant knows of. A client that restarts makes
        /// timestamps above it.
        newest: Timestamp,
    },
    /// The participant has no such lease: it has restarted, or has too many leases. Read again from
    /// the beginning, with a new lease.
    Unleased,
    /// To [`Request::Get`]: one or several answers, with some of the keys each.
    Found {
        /// By key.
        items: Vec<(Key, Found)>,
        /// The current epoch.
        epoch: Epoch,
    },
    /// To [`Request::Timestamps`], in parts like [`Reply::Found`].
    Latest {
        /// By key; [`Timestamp::FIRST`] for a key without versions.
        timestamps: Vec<(Key, Timestamp)>,
    },
    /// To [`Request::Among`], in parts like [`Reply::Found`].
    Named {
        /// Every key that was asked for; `None` if no such transaction wrote it.
        items: Vec<(Key, Option<Version>)>,
    },
    /// To [`Request::Scan`].
    Scanned {
        /// By key, in order, including deleted keys and keys of which nothing is committed yet.
        items: Vec<(Key, Found)>,
        /// Whether there may be more keys after the last one.
        more: bool,
    },
    /// To [`Request::Mark`].
    Marked {
        /// The position of the next record of the feed.
        tail: Tail,
    },
    /// To [`Request::Prepare`]: it is durably prepared.
    Prepared,
    /// To [`Request::Prepare`] and [`Request::Put`], and to any request that is too large.
    Refused {
        /// Why.
        why: Refusal,
    },
    /// To [`Request::Commit`] and [`Request::Put`]: it is visible, and durably so.
    Committed,
    /// To [`Request::Abort`]: it will never be visible.
    Aborted,
    /// To [`Request::Inquire`]: the vote, which is durable.
    Voted {
        /// The vote.
        vote: Vote,
    },
    /// To [`Request::Lock`]: all locks are held.
    Locked {
        /// The versions of the keys that were locked for reading.
        items: Vec<(Key, Found)>,
    },
    /// To [`Request::Lock`]: too many requests wait already.
    Busy {
        /// The number of requests.
        found: u64,
        /// The maximum.
        most: u64,
    },
    /// To [`Request::Unlock`], and to a waiting [`Request::Lock`] that it ends.
    Unlocked {
        /// Whether the locks had been held until now. If not, what was read under them may not be
        /// consistent.
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
        Part {
            timestamp: TIMESTAMP,
            participants: vec![ParticipantId(1)],
            guard: Guard::Open,
            metadata,
            items,
        }
    }

    #[test]
    fn the_participant_of_a_key_is_its_fingerprint_s_place_among_all() {
        let participants = [ParticipantId(3), ParticipantId(5), ParticipantId(9)];
        let of = |fingerprint| participant_of(Fingerprint(fingerprint), &participants);
        assert_eq!([0, 1, 2, 3, u64::MAX].map(of), [3, 5, 9, 3, 3].map(ParticipantId));
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
        let write = |participants, items| Part {
            participants: vec![ParticipantId(1); participants],
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
            (PARTICIPANTS_MAX, &|count| prepare(write(count, 1), 0)),
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
        assert_eq!(error, "a request has 257 ended transactions, the maximum is 256: divide the request");
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
