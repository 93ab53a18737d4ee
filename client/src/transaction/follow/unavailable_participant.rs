//! Keeps the state of an unavailable participant, and interprets the records of a replica of its
//! log.

use std::collections::BTreeMap;

use rackscan_format::ids::NodeId;
use rackscan_ramp::{
    feed::Follow,
    item::Version,
    limits::LOG_HEADER_BYTES,
    log::{Damage, Record, Tail, read},
    message::{Found, Part, ParticipantId},
    timestamp::Timestamp,
};

use super::CaughtUp;

/// An unavailable participant, and the replica of its log that is read instead.
#[derive(Debug)]
pub(super) struct UnavailableParticipant {
    pub(super) participant: ParticipantId,
    /// Its position among all participants.
    pub(super) at: usize,
    pub(super) replica_node: NodeId,
    /// The number of the log.
    pub(super) log: u32,
    /// The point behind the last told record; `None` if none was told.
    pub(super) tail: Option<Tail>,
    /// Bytes behind that point that are not a whole record yet.
    pub(super) rest: Vec<u8>,
    /// Transactions in doubt, which are prepared there without an end in the log, and their
    /// participants.
    pub(super) doubtful: BTreeMap<Timestamp, Vec<ParticipantId>>,
}

impl UnavailableParticipant {
    pub(super) fn id(&self) -> ParticipantId {
        self.participant
    }

    /// Returns the whole records in bytes that follow those read before, and keeps the rest.
    pub(super) fn records(&mut self, bytes: &[u8]) -> Result<Vec<Record>, String> {
        self.rest.extend_from_slice(bytes);
        let (tail, skipped) = match self.tail {
            Some(tail) => (tail, 0),
            None if self.rest.len() < LOG_HEADER_BYTES => return Ok(Vec::new()),
            None => (Tail::from_header(&self.rest).map_err(|fault| fault.to_string())?, LOG_HEADER_BYTES),
        };
        let (records, end, cut) = read(tail, &self.rest[skipped..]);
        let is_cut_short = |damage: &Damage| matches!(damage, Damage::Short { .. });
        if let Some(cut) = cut.filter(|cut| !is_cut_short(&cut.damage)) {
            return Err(format!("record {}: {}", cut.sequence, cut.damage));
        }
        let told = usize::try_from(end.offset_bytes - tail.offset_bytes);
        let told = told.expect("the bytes of records that were read: they are in memory");
        self.rest.drain(..skipped + told);
        self.tail = Some(end);
        Ok(records)
    }

    /// Offset of the first byte that was not read.
    pub(super) fn offset_bytes(&self) -> u64 {
        self.tail.map_or(0, |tail| tail.offset_bytes) + self.rest.len() as u64
    }

    /// Tells a record of a log like one of a feed. A log differs in that it begins with the items
    /// that existed when it was begun, and that a commit which comes with its vote has no record of
    /// its own.
    pub(super) fn tell<F: Follow>(
        &mut self,
        record: Record,
        prefix: &[u8],
        follow: &mut F,
        caught: &mut CaughtUp,
    ) -> Result<(), F::Fault> {
        let participant = self.participant;
        let mut part_told = |mut part: Part, is_committed: bool| {
            part.items.retain(|(key, _)| key.bytes().starts_with(prefix));
            if part.items.is_empty() {
                return Ok(());
            }
            caught.records += 1;
            if is_committed && part.participants.is_empty() {
                let Part { timestamp, metadata, items, .. } = part;
                let found = |value| Found {
                    version: Version { timestamp, value, metadata: metadata.clone() },
                    beside: Vec::new(),
                    place: None,
                };
                return follow.scanned(
                    participant,
                    items.into_iter().map(|(key, value)| (key, found(value))).collect(),
                );
            }
            let timestamp = part.timestamp;
            if !is_committed {
                self.doubtful.insert(timestamp, part.participants.clone());
            }
            follow.record(participant, Record::Prepare(part))?;
            if is_committed { follow.record(participant, Record::Commit(timestamp)) } else { Ok(()) }
        };
        match record {
            Record::Prepare(part) => {
                let is_whole = part.is_whole();
                part_told(part, is_whole)
            }
            Record::Put(part) => part_told(part, true),
            Record::Commit(timestamp) | Record::Refuse(timestamp)
                if self.doubtful.remove(&timestamp).is_some() =>
            {
                follow.record(participant, record)
            }
            _ => Ok(()),
        }
    }
}
