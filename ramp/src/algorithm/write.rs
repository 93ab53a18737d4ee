//! Writes a transaction in two phases (PREPARE, COMMIT), so that it becomes visible at all
//! participants or at none.
//!
//! ```text
//! state        event                                          next state
//! preparing    all participants have prepared                 committing
//! preparing    the only participant has prepared, which also  committed
//!              commits
//! preparing    a participant is lost                          preparing: it is asked for its vote when it is back
//! preparing    a participant has refused                      aborted
//! preparing    the owner stops waiting (`GiveUp`)             unknown, with the participants that have not voted
//! committing   all participants have confirmed                committed
//! committing   a participant is lost                          committing: COMMIT is sent again when it is back
//! committing   the owner stops waiting (`GiveUp`)             committed, with the participants that have not confirmed
//! ```
//!
//! Invariants
//! - PREPARE is sent once: a participant that has promised never to prepare the transaction is not
//!   asked again.
//! - If a participant has refused, the others are told to abort. The owner decides whether to retry
//!   with a newer timestamp.
//! - Only a participant's refusal aborts. The loss of a participant does not: it may have prepared,
//!   and the other participants may then have committed the transaction.

use super::step::{Abortion, Event, Outcome, Step, message};
use crate::{
    item::{Metadata, Write as Item},
    message::{Guard, Part, ParticipantId, Preconditions, Reply, Request, Vote},
    termination::Message,
    timestamp::Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};

/// All that a transaction writes.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) timestamp: Timestamp,
    pub(super) metadata: Metadata,
    pub(super) settled: Vec<Timestamp>,
    /// The wall clock of the client, in milliseconds since 1970.
    pub(super) wall_ms: u64,
    pub(super) items: BTreeMap<ParticipantId, Vec<Item>>,
}

impl Parts {
    pub(super) fn participants(&self) -> Vec<ParticipantId> {
        self.items.keys().copied().collect()
    }

    /// The part for each participant. `participants` are the participants that may be asked for
    /// their votes.
    pub(super) fn parts(
        self,
        participants: &[ParticipantId],
        guard: Guard,
    ) -> impl Iterator<Item = (ParticipantId, Part, Preconditions)> {
        let Self { timestamp, metadata, wall_ms, items, .. } = self;
        items.into_iter().map(move |(participant, items)| {
            let conditions = (0..).zip(&items);
            let expected = conditions.filter_map(|(at, item)| Some((at, item.expected?))).collect();
            let items = items.into_iter().map(|Item { key, value, .. }| (key, value)).collect();
            let part = Part {
                timestamp,
                participants: participants.to_vec(),
                guard,
                metadata: metadata.clone(),
                items,
            };
            (participant, part, Preconditions { wall_ms, expected })
        })
    }
}

/// A write in two phases.
#[derive(Clone, Debug)]
pub(super) struct Write {
    timestamp: Timestamp,
    participants: Vec<ParticipantId>,
    /// Participants that have not answered in this phase.
    open: BTreeSet<ParticipantId>,
    committing: bool,
    guard: Guard,
}

pub(super) fn begin(parts: Parts, guard: Guard) -> (Write, Vec<Message>) {
    let (timestamp, participants, settled) = (parts.timestamp, parts.participants(), parts.settled.clone());
    let prepare = |(participant, part, preconditions)| {
        message(participant, Request::Prepare { part, settled: settled.clone(), preconditions })
    };
    let messages = parts.parts(&participants, guard).map(prepare).collect();
    let open = participants.iter().copied().collect();
    (Write { timestamp, participants, open, committing: false, guard }, messages)
}

impl Write {
    pub(super) fn step(&mut self, event: Event) -> Step {
        match event {
            Event::Reply { from, reply } if self.open.contains(&from) => self.heard(from, reply),
            Event::Back { participant } if self.open.contains(&participant) => {
                let timestamp = self.timestamp;
                let request = if self.committing {
                    Request::Commit { timestamp }
                } else {
                    Request::Inquire { timestamp }
                };
                Step::send(vec![message(participant, request)])
            }
            Event::GiveUp => {
                let (timestamp, missing) = (self.timestamp, self.open.iter().copied().collect());
                let is_committed = self.committing;
                Step::end(if is_committed {
                    Outcome::CommittedInPart { timestamp, missing }
                } else {
                    Outcome::Unknown { timestamp, missing }
                })
            }
            // A lost participant may have processed the request. It is asked when it is back,
            // unless the owner gives up before.
            Event::Reply { .. } | Event::Lost { .. } | Event::Back { .. } => Step::default(),
        }
    }

    fn heard(&mut self, from: ParticipantId, reply: Reply) -> Step {
        match reply {
            Reply::Prepared | Reply::Voted { vote: Vote::Prepared } if !self.committing => {
                self.prepared(from)
            }
            Reply::Refused { why } if !self.committing => {
                self.abort(from, Abortion::Refused { participant: from, why })
            }
            Reply::Voted { vote: Vote::Refused } if !self.committing => {
                self.abort(from, Abortion::Promised { participant: from })
            }
            Reply::Voted { vote: Vote::Forgotten } if !self.committing => {
                Step::end(Outcome::Unknown { timestamp: self.timestamp, missing: vec![from] })
            }
            // Another participant has terminated the transaction, with the same outcome.
            Reply::Voted { vote: Vote::Committed } if !self.committing => self.commit(),
            // The vote of the only participant commits the transaction.
            Reply::Committed if !self.committing && self.participants.len() == 1 => {
                Step::end(Outcome::Committed { timestamp: self.timestamp })
            }
            Reply::Committed if self.committing => {
                self.open.remove(&from);
                let done = Outcome::Committed { timestamp: self.timestamp };
                if self.open.is_empty() { Step::end(done) } else { Step::default() }
            }
            _ => Step::default(),
        }
    }

    fn prepared(&mut self, from: ParticipantId) -> Step {
        self.open.remove(&from);
        if self.open.is_empty() { self.commit() } else { Step::default() }
    }

    fn commit(&mut self) -> Step {
        self.committing = true;
        self.open = self.participants.iter().copied().collect();
        Step::send(self.to_all(&Request::Commit { timestamp: self.timestamp }))
    }

    fn abort(&self, from: ParticipantId, why: Abortion) -> Step {
        let mut messages = self.to_all(&Request::Abort { timestamp: self.timestamp });
        // The participant that refused has nothing to undo but its locks, and refuses again if it
        // is asked.
        messages.retain(|message| message.to != from || self.guard == Guard::Locked);
        Step { messages, outcome: Some(Outcome::Aborted { timestamp: self.timestamp, why }) }
    }

    fn to_all(&self, request: &Request) -> Vec<Message> {
        self.participants.iter().map(|participant| message(*participant, request.clone())).collect()
    }
}
