//! Begins transactions and listings of keys, and passes each event to the state machine of the
//! algorithm in use.

use super::{
    choice::Algorithm,
    locking, none, read, scan, small,
    step::{Event, Participants, Step},
    write,
};
use crate::{
    item::{Key, Write as Item},
    limits::{READ_KEYS_MAX, WRITE_KEYS_MAX},
    message::{Guard, KeyRange, LeaseId, ParticipantId},
    termination::Message,
    timestamp::Timestamp,
};
use std::collections::BTreeMap;

/// Says where keys are, and with which leases they are read there.
pub trait Cluster {
    /// The participant of a key: always the same one.
    fn participant(&self, key: &Key) -> ParticipantId;
    /// The reader's lease at a participant. Without a lease, any value will do: the participant
    /// refuses it.
    fn lease(&self, participant: ParticipantId) -> LeaseId;
}

/// A transaction has no keys, or too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a transaction would {verb} {found} keys, expected 1 to {most}: divide the transaction, or omit it if it has no keys"
)]
pub struct KeyCount {
    /// What it does with the keys.
    pub verb: &'static str,
    /// How many.
    pub found: usize,
    /// The maximum.
    pub most: usize,
}

impl KeyCount {
    fn check(self) -> Result<(), Self> {
        if (1..=self.most).contains(&self.found) { Ok(()) } else { Err(self) }
    }
}

/// The parameters of a transaction that writes.
#[derive(Clone, Copy, Debug)]
pub struct Begun<'s> {
    /// Its timestamp.
    pub timestamp: Timestamp,
    /// The wall clock of its client when that was made, in milliseconds since 1970.
    pub wall_ms: u64,
    /// Transactions whose outcome the participants may forget.
    pub settled: &'s [Timestamp],
}

impl Algorithm {
    /// Begins to read keys, each once. `timestamp` is that of the transaction, which owns the
    /// locks.
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
        let participants = by_participant(keys.iter().cloned(), cluster, Key::clone);
        Ok(match self {
            Self::Fast | Self::Hybrid | Self::None => started(Machine::Read, read::begin(self, participants)),
            Self::Small => started(Machine::Small, small::begin(participants)),
            Self::Locking => started(Machine::LockedRead, locking::begin_read(timestamp, participants)),
        })
    }

    /// Begins to write items. If a key occurs twice, its last item counts.
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
        let participants = by_participant(items.into_values(), cluster, |item| item.key.clone());
        let items = participants.into_iter().map(|(participant, (_, items))| (participant, items)).collect();
        let write = write::Parts { timestamp, metadata, settled: settled.to_vec(), wall_ms, items };
        Ok(match self {
            Self::Fast | Self::Small | Self::Hybrid => {
                started(Machine::Write, write::begin(write, Guard::Open))
            }
            Self::Locking => started(Machine::LockedWrite, locking::begin_write(write)),
            Self::None => started(Machine::Put, none::begin_write(write)),
        })
    }
}

/// Begins to list the keys of a range at all these participants, with the reader's leases.
#[must_use]
pub fn begin_listing(
    range: &KeyRange,
    participants: &BTreeMap<ParticipantId, LeaseId>,
) -> (Coordinator, Vec<Message>) {
    started(Machine::Scan, scan::begin(range, participants))
}

/// A transaction in progress.
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
    /// Processes an event, and returns what to do next.
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

/// The coordinator of a machine that has just begun, with its first messages.
fn started<T>(machine: impl Fn(T) -> Machine, begun: (T, Vec<Message>)) -> (Coordinator, Vec<Message>) {
    (Coordinator { machine: machine(begun.0) }, begun.1)
}

fn by_participant<T>(
    items: impl Iterator<Item = T>,
    cluster: &impl Cluster,
    key: impl Fn(&T) -> Key,
) -> Participants<T> {
    let mut participants = Participants::new();
    for item in items {
        let participant = cluster.participant(&key(&item));
        participants
            .entry(participant)
            .or_insert_with(|| (cluster.lease(participant), Vec::new()))
            .1
            .push(item);
    }
    participants
}
