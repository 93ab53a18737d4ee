//! Writes without concurrency control, as a baseline for comparisons: each participant writes its
//! part at once, independently of the others. Readers may see some parts of a transaction without
//! the others.
//!
//! Invariant: the outcome at a participant that has not answered is unknown. If some participants
//! have refused and others have written, the outcome of the transaction names both.

use super::{
    step::{Abortion, Event, Outcome, Step, message},
    write::Parts,
};
use crate::{
    message::{Guard, ParticipantId, Reply, Request},
    termination::Message,
    timestamp::Timestamp,
};
use std::collections::BTreeSet;

/// A write without concurrency control.
#[derive(Clone, Debug)]
pub(super) struct Put {
    timestamp: Timestamp,
    open: BTreeSet<ParticipantId>,
    written: usize,
    refused: Vec<(ParticipantId, Abortion)>,
}

pub(super) fn begin_write(parts: Parts) -> (Put, Vec<Message>) {
    let (timestamp, participants) = (parts.timestamp, parts.participants());
    // Participants never ask each other about the outcome.
    let parts = parts.parts(&[], Guard::Open);
    let put = |(participant, part, preconditions)| message(participant, Request::Put { part, preconditions });
    let messages = parts.map(put).collect();
    let put = Put { timestamp, open: participants.into_iter().collect(), written: 0, refused: Vec::new() };
    (put, messages)
}

impl Put {
    pub(super) fn step(&mut self, event: Event) -> Step {
        match event {
            Event::Reply { from, reply: Reply::Committed } if self.open.remove(&from) => self.written += 1,
            Event::Reply { from, reply: Reply::Refused { why } } if self.open.remove(&from) => {
                self.refused.push((from, Abortion::Refused { participant: from, why }));
            }
            Event::GiveUp => return self.unknown(self.open.iter().copied().collect()),
            _ => return Step::default(),
        }
        if !self.open.is_empty() {
            return Step::default();
        }
        let timestamp = self.timestamp;
        // Prefer a refusal that a newer timestamp does not help; else the one that demands the
        // newest timestamp.
        let worst = |(_, why): &(ParticipantId, Abortion)| {
            why.newest().map_or((true, Timestamp::FIRST), |newest| (false, newest))
        };
        let missing = self.refused.iter().map(|(participant, _)| *participant).collect();
        match std::mem::take(&mut self.refused).into_iter().max_by_key(worst) {
            None => Step::end(Outcome::Committed { timestamp }),
            Some((_, why)) if self.written == 0 => Step::end(Outcome::Aborted { timestamp, why }),
            Some((_, why)) => Step::end(Outcome::Torn { timestamp, missing, why }),
        }
    }

    fn unknown(&self, missing: Vec<ParticipantId>) -> Step {
        Step::end(Outcome::Unknown { timestamp: self.timestamp, missing })
    }
}
