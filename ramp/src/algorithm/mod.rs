//! In which order do a transaction's messages go, and what has it read or written in the end?
//!
//! One interface for all algorithms: `begin_read` or `begin_write` gives a [`Coordinator`] and its
//! first messages; each [`Event`] gives a [`Step`]: more messages, and at last an [`Outcome`].
//! Whoever has wires delivers them. A GET by a one-sided read is the same to a coordinator: its
//! owner answers [`Request::Get`] key by key with what it found in slots, and asks the home for the
//! rest.
//!
//! | algorithm | write | read | a version carries |
//! |---|---|---|---|
//! | `ramp-fast` | PREPARE, COMMIT | GET; what a sibling tells of and was not found, by its timestamp | its write set |
//! | `ramp-small` | PREPARE, COMMIT | timestamps; then the newest version of those timestamps | its timestamp |
//! | `ramp-hybrid` | PREPARE, COMMIT | GET; what a sibling's filter may tell of, by its timestamps | a Bloom filter |
//! | `s2pl` | locks, PREPARE, COMMIT | locks | its timestamp |
//! | `none` | PUT | GET | its timestamp |
//!
//! Invariants
//! - COMMIT goes out after all homes have said that they prepared, ABORT after one has refused:
//!   nothing else decides.
//! - [`Outcome::Committed`] is said after all homes have said so, [`Outcome::Aborted`] only where
//!   nothing can ever be seen, and whatever is neither says what is known and which homes have not
//!   answered.
//! - Readers of RAMP wait for nobody but homes: two rounds at most.
//! - No clock, no wire, no thread.

mod locking;
mod none;
mod read;
mod scan;
mod small;
mod write;

pub use crate::termination::Message;
use crate::{
    bloom::Bloom,
    item::{Fingerprint, Key, Metadata, Version, Write as Item},
    limits::{READ_KEYS_MAX, WRITE_KEYS_MAX},
    message::{HomeId, KeyRange, LeaseId, Refusal, Reply, Request},
    timestamp::Timestamp,
};
use std::{collections::BTreeMap, fmt, str::FromStr};

/// How transactions are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// RAMP-Fast: a read takes one round, or two where it meets a write.
    Fast,
    /// RAMP-Small: least metadata, a read always takes two rounds.
    Small,
    /// RAMP-Hybrid: RAMP-Fast with filters in place of write sets.
    Hybrid,
    /// Strict two-phase locking.
    Locking,
    /// Nothing keeps them apart.
    None,
}

impl Algorithm {
    /// All there are.
    pub const ALL: [Self; 5] = [Self::Fast, Self::Small, Self::Hybrid, Self::Locking, Self::None];

    /// The name by which it is chosen.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fast => "ramp-fast",
            Self::Small => "ramp-small",
            Self::Hybrid => "ramp-hybrid",
            Self::Locking => "s2pl",
            Self::None => "none",
        }
    }

    /// What a version says about the keys that were written with it.
    #[must_use]
    pub fn metadata(self, keys: &[Key]) -> Metadata {
        let mut set: Vec<Fingerprint> = keys.iter().map(Key::fingerprint).collect();
        set.sort_unstable();
        match self {
            // Who writes one key has no siblings to tell of.
            _ if keys.len() <= 1 => Metadata::Timestamp,
            Self::Fast => Metadata::WriteSet(set),
            Self::Hybrid => Metadata::Filter(Bloom::of(&set)),
            Self::Small | Self::Locking | Self::None => Metadata::Timestamp,
        }
    }

    /// Begins to read keys, each once. `timestamp` is the transaction's, with which it locks.
    ///
    /// # Errors
    /// [`KeyCount`].
    pub fn begin_read(
        self,
        timestamp: Timestamp,
        keys: &[Key],
        cluster: &impl Cluster,
    ) -> Result<(Coordinator, Vec<Message>), KeyCount> {
        KeyCount { verb: "read", found: keys.len(), most: READ_KEYS_MAX }.check()?;
        let homes = by_home(keys.iter().cloned(), cluster, Key::clone);
        let (machine, messages) = match self {
            Self::Fast | Self::Hybrid | Self::None => read::begin(self, homes),
            Self::Small => small::begin(homes),
            Self::Locking => locking::begin_read(timestamp, homes),
        };
        Ok((Coordinator { machine }, messages))
    }

    /// Begins to write values under keys; of what is written twice under a key the last counts.
    ///
    /// # Errors
    /// [`KeyCount`].
    pub fn begin_write(
        self,
        begun: Begun<'_>,
        items: Vec<Item>,
        cluster: &impl Cluster,
    ) -> Result<(Coordinator, Vec<Message>), KeyCount> {
        let Begun { timestamp, wall_ms, settled } = begun;
        let items: BTreeMap<Key, Item> = items.into_iter().map(|item| (item.key.clone(), item)).collect();
        KeyCount { verb: "write", found: items.len(), most: WRITE_KEYS_MAX }.check()?;
        let keys: Vec<Key> = items.keys().cloned().collect();
        let metadata = self.metadata(&keys);
        let homes = by_home(items.into_values(), cluster, |item| item.key.clone());
        let items = homes.into_iter().map(|(home, (_, items))| (home, items)).collect();
        let write = write::Parts { timestamp, metadata, settled: settled.to_vec(), wall_ms, items };
        let (machine, messages) = match self {
            Self::Fast | Self::Small | Self::Hybrid => write::begin(write),
            Self::Locking => locking::begin_write(write),
            Self::None => none::begin_write(write),
        };
        Ok((Coordinator { machine }, messages))
    }
}

/// How a transaction that writes begins.
#[derive(Clone, Copy, Debug)]
pub struct Begun<'s> {
    /// Its timestamp.
    pub timestamp: Timestamp,
    /// The wall clock of its client when that was made, in milliseconds since 1970.
    pub wall_ms: u64,
    /// Transactions of which the participants may forget how they ended.
    pub settled: &'s [Timestamp],
}

/// Begins to list the keys of a range, of all these homes, with the leases there.
#[must_use]
pub fn begin_listing(range: &KeyRange, homes: &BTreeMap<HomeId, LeaseId>) -> (Coordinator, Vec<Message>) {
    let (machine, messages) = scan::begin(range, homes);
    (Coordinator { machine }, messages)
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No algorithm has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the algorithm '{found}' does not exist, expected one of {}", Algorithm::ALL.map(Algorithm::name).join(", "))]
pub struct NoSuchAlgorithm {
    /// The name.
    pub found: String,
}

impl FromStr for Algorithm {
    type Err = NoSuchAlgorithm;

    fn from_str(text: &str) -> Result<Self, NoSuchAlgorithm> {
        let found = Self::ALL.into_iter().find(|algorithm| algorithm.name() == text);
        found.ok_or_else(|| NoSuchAlgorithm { found: text.to_owned() })
    }
}

/// Where keys are, and by which right they are read there.
pub trait Cluster {
    /// The home of a key: always the same one.
    fn home(&self, key: &Key) -> HomeId;
    /// The lease that the reader has from a home. If it has none, any other is refused there.
    fn lease(&self, home: HomeId) -> LeaseId;
}

/// A transaction of no keys, or of too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a transaction that is to {verb} {found} keys, expected 1 to {most}: divide it, or leave it out")]
pub struct KeyCount {
    /// What it does.
    pub verb: &'static str,
    /// How many.
    pub found: usize,
    /// How many it may.
    pub most: usize,
}

impl KeyCount {
    fn check(self) -> Result<(), Self> {
        if (1..=self.most).contains(&self.found) { Ok(()) } else { Err(self) }
    }
}

/// What happens to a transaction from outside.
#[derive(Clone, Debug)]
pub enum Event {
    /// A home has answered a message of this transaction.
    Reply {
        /// The home.
        from: HomeId,
        /// Its answer.
        reply: Reply,
    },
    /// What was sent to a home and not answered may never be.
    Lost {
        /// The home.
        home: HomeId,
    },
    /// A home that was lost can be reached again.
    Back {
        /// The home.
        home: HomeId,
    },
    /// The owner waits no longer.
    GiveUp,
}

/// What a transaction does next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// To be sent.
    pub messages: Vec<Message>,
    /// How it ended, if it has. What comes later changes nothing.
    pub outcome: Option<Outcome>,
}

impl Step {
    fn send(messages: Vec<Message>) -> Self {
        Self { messages, outcome: None }
    }

    fn end(outcome: Outcome) -> Self {
        Self { messages: Vec::new(), outcome: Some(outcome) }
    }
}

/// How a transaction ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// What was read, with the number of rounds of messages that it took.
    Read {
        /// By key.
        items: Vec<(Key, Version)>,
        /// Rounds.
        rounds: u32,
    },
    /// Keys that there are, or may soon be.
    Listed {
        /// In order.
        keys: Vec<Key>,
        /// Behind which key there may be more.
        goes_on: Option<Key>,
    },
    /// Nothing was read: begin again, where a lease is gone with a new one.
    Interrupted {
        /// Why.
        why: Interruption,
    },
    /// All of it is visible, and stays.
    Committed {
        /// The transaction.
        timestamp: Timestamp,
    },
    /// It is committed, but these homes have not said that they know: there it may be invisible
    /// until they are asked again. To be ended by `Termination::settle`, or by those homes
    /// themselves.
    Sealed {
        /// The transaction.
        timestamp: Timestamp,
        /// The homes.
        missing: Vec<HomeId>,
    },
    /// Nothing of it is visible, or ever will be.
    Aborted {
        /// The transaction.
        timestamp: Timestamp,
        /// Why.
        why: Abortion,
    },
    /// Without concurrency control only: some homes have written their part, and these have refused
    /// theirs.
    Torn {
        /// The transaction.
        timestamp: Timestamp,
        /// The homes that have refused.
        missing: Vec<HomeId>,
        /// Why one of them did: if a newer timestamp would not have helped there, that one.
        why: Abortion,
    },
    /// These homes have not said whether they prepared it: it will be visible wholly or not at all,
    /// and they know.
    Unknown {
        /// The transaction.
        timestamp: Timestamp,
        /// The homes.
        missing: Vec<HomeId>,
    },
}

/// Why a read does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Interruption {
    /// The home cannot be reached.
    #[error("{home} cannot be reached: try again when it is back")]
    Lost {
        /// The home.
        home: HomeId,
    },
    /// The home does not know the lease.
    #[error("{home} was started anew: take a new lease and read again")]
    Unleased {
        /// The home.
        home: HomeId,
    },
    /// The locks did not last to the end.
    #[error("{home} lost the locks of this transaction: read again")]
    Unlocked {
        /// The home.
        home: HomeId,
    },
    /// Too many wait for locks.
    #[error("{home} has {found} requests for locks, expected at most {most}: try again later")]
    Busy {
        /// The home.
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

/// Why a transaction did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Abortion {
    /// A home refused it.
    #[error("{home} refused: {why}")]
    Refused {
        /// The home.
        home: HomeId,
        /// Why.
        why: Refusal,
    },
    /// A home promised, to somebody else who asked, never to prepare it.
    #[error("{home} had not prepared it when it was asked how it ends")]
    Promised {
        /// The home.
        home: HomeId,
    },
    /// It never held its locks.
    #[error(transparent)]
    NotLocked(Interruption),
}

impl Abortion {
    /// If the same may be committed with a newer timestamp: what that must be newer than.
    #[must_use]
    pub fn newest(&self) -> Option<Timestamp> {
        match self {
            Self::Refused { why, .. } => why.newest(),
            Self::Promised { .. } | Self::NotLocked(_) => None,
        }
    }
}

/// A transaction on its way.
#[derive(Clone, Debug)]
pub struct Coordinator {
    machine: Machine,
}

#[derive(Clone, Debug)]
enum Machine {
    Read(read::Read),
    Small(small::Small),
    LockedRead(locking::LockedRead),
    LockedWrite(locking::LockedWrite),
    Write(write::Write),
    Put(none::Put),
    Scan(scan::Scan),
    Ended,
}

impl Coordinator {
    /// What to do now that this has happened.
    #[must_use]
    pub fn step(&mut self, event: Event) -> Step {
        let step = match &mut self.machine {
            Machine::Read(read) => read.step(event),
            Machine::Small(small) => small.step(event),
            Machine::LockedRead(read) => read.step(event),
            Machine::LockedWrite(write) => write.step(event),
            Machine::Write(write) => write.step(event),
            Machine::Put(put) => put.step(event),
            Machine::Scan(scan) => scan.step(event),
            Machine::Ended => Step::default(),
        };
        if step.outcome.is_some() {
            self.machine = Machine::Ended;
        }
        step
    }
}

/// What a transaction has to do in each of its homes, with its lease there.
type Homes<T> = BTreeMap<HomeId, (LeaseId, Vec<T>)>;

fn by_home<T>(items: impl Iterator<Item = T>, cluster: &impl Cluster, key: impl Fn(&T) -> Key) -> Homes<T> {
    let mut homes = Homes::new();
    for item in items {
        let home = cluster.home(&key(&item));
        homes.entry(home).or_insert_with(|| (cluster.lease(home), Vec::new())).1.push(item);
    }
    homes
}

fn message(to: HomeId, request: Request) -> Message {
    Message { to, request }
}

fn interrupted(why: Interruption) -> Step {
    Step::end(Outcome::Interrupted { why })
}

/// Why a reader cannot go on, if this event says so. Whoever is lost has not answered.
fn interruption(event: &Event, waits_for: impl Fn(HomeId) -> bool) -> Option<Interruption> {
    match event {
        Event::Reply { from, reply: Reply::Unleased } => Some(Interruption::Unleased { home: *from }),
        Event::Lost { home } if waits_for(*home) => Some(Interruption::Lost { home: *home }),
        Event::GiveUp => Some(Interruption::GivenUp),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
