//! A client of the simulation: a session that reads and writes, one transaction after the other. It
//! has a clock that may be wrong, leases, and a memory of the offsets of slots.

use crate::memory::Slots;
use rackscan_ramp::{
    algorithm::{Cluster, Coordinator},
    item::{Key, Value, Version},
    message::{Epoch, LeaseId, ParticipantId},
    slot::Place,
    timestamp::{ClientId, Clock, Timestamp},
};
use std::collections::BTreeMap;

/// What a client knows of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link {
    /// The life that it is connected to; 0 for none.
    pub(crate) life: u64,
    pub(crate) lease: Option<LeaseId>,
    /// Its slots, as mapped when the connection was made.
    pub(crate) memory: Option<Slots>,
    /// The last epoch that it was told.
    pub(crate) told: Epoch,
}

/// A transaction on its way.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) number: u64,
    pub(crate) coordinator: Coordinator,
    pub(crate) timestamp: Timestamp,
    /// What it writes; nothing, if it reads.
    pub(crate) writes: Vec<u32>,
    /// The versions that it is conditional on.
    pub(crate) expected: Vec<(u32, Timestamp)>,
    /// What it writes after it has read it.
    pub(crate) then: Vec<u32>,
    pub(crate) attempts: u32,
    pub(crate) from: u64,
}

pub(crate) struct Client {
    pub(crate) alive: bool,
    pub(crate) session: u32,
    pub(crate) clock: Clock,
    /// How wrong its clock is, in milliseconds.
    pub(crate) skew: i64,
    /// How much slower than others it is.
    pub(crate) slowness: u64,
    pub(crate) links: Vec<Link>,
    pub(crate) places: BTreeMap<Key, (u64, Place)>,
    pub(crate) running: Option<Running>,
    pub(crate) numbers: u64,
    /// Transactions that ended in all of their participants.
    pub(crate) settled: Vec<Timestamp>,
}

impl Client {
    pub(crate) fn new(session: u32, id: u32, nodes: usize) -> Self {
        let clock = Clock::after(ClientId(id), Timestamp::FIRST);
        let (links, places) = (vec![Link::default(); nodes], BTreeMap::new());
        let (alive, running, numbers, settled) = (true, None, 0, Vec::new());
        Self { alive, session, clock, skew: 0, slowness: 1, links, places, running, numbers, settled }
    }
}

/// Keys are dealt to participants by their number.
pub(crate) struct Participants<'c> {
    pub(crate) links: &'c [Link],
}

impl Cluster for Participants<'_> {
    fn participant(&self, key: &Key) -> ParticipantId {
        participant_of(number_of(key), self.links.len())
    }

    fn lease(&self, participant: ParticipantId) -> LeaseId {
        self.links[usize::from(participant.0)].lease.unwrap_or_default()
    }
}

pub(crate) fn participant_of(number: u32, nodes: usize) -> ParticipantId {
    ParticipantId(u16::try_from(usize::try_from(number).expect("a key") % nodes).expect("a node"))
}

pub(crate) fn key_of(number: u32) -> Key {
    Key::new(format!("key{number}").as_bytes()).expect("a key")
}

pub(crate) fn number_of(key: &Key) -> u32 {
    std::str::from_utf8(&key.bytes()[3..]).expect("digits").parse().expect("a number")
}

/// A value that names its writer in every part.
pub(crate) fn value_of(timestamp: Timestamp, copies: usize) -> Value {
    Value::new(&timestamp.to_bytes().repeat(copies)).expect("a value")
}

/// The writer of a value; `None` if its parts have several writers.
pub(crate) fn origin(version: &Version) -> Timestamp {
    let Some(bytes) = version.value.bytes() else { return version.timestamp };
    let whole = version.timestamp.to_bytes().repeat(bytes.len() / Timestamp::ENCODED_BYTES) == bytes;
    if whole { version.timestamp } else { Timestamp { time: u64::MAX, client: ClientId(u32::MAX) } }
}
