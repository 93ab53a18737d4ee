//! Writes without concurrency control, as a baseline for comparisons.
//!
//! Each participant writes its part at once, independently of the others. Readers may see a
//! mixture.
//!
//! Invariant: the outcome of a participant that has not answered is unknown. If some participants
//! have refused and others have written, the outcome names both.

use super::{
    step::{Abortion, Event, Outcome, Step, message},
    write::Parts,
};
use crate::{
    message::{Guard, HomeId, Reply, Request},
    termination::Message,
    timestamp::Timestamp,
};
use std::collections::BTreeSet;

/// A write without concurrency control.
#[derive(Clone, Debug)]
pub(super) struct Put {
    timestamp: Timestamp,
    open: BTreeSet<HomeId>,
    written: usize,
    refused: Vec<(HomeId, Abortion)>,
}

pub(super) fn begin_write(parts: Parts) -> (Put, Vec<Message>) {
    let (timestamp, homes) = (parts.timestamp, parts.homes());
    // Participants never ask each other about the outcome.
    let parts = parts.parts(&[], Guard::Open);
    let put = |(home, part, preconditions)| message(home, Request::Put { part, preconditions });
    let messages = parts.map(put).collect();
    let put = Put { timestamp, open: homes.into_iter().collect(), written: 0, refused: Vec::new() };
    (put, messages)
}

impl Put {
    pub(super) fn step(&mut self, event: Event) -> Step {
        match event {
            Event::Reply { from, reply: Reply::Committed } if self.open.remove(&from) => self.written += 1,
            Event::Reply { from, reply: Reply::Refused { why } } if self.open.remove(&from) => {
                self.refused.push((from, Abortion::Refused { home: from, why }));
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
        let worst = |(_, why): &(HomeId, Abortion)| {
            why.newest().map_or((true, Timestamp::FIRST), |newest| (false, newest))
        };
        let missing = self.refused.iter().map(|(home, _)| *home).collect();
        match std::mem::take(&mut self.refused).into_iter().max_by_key(worst) {
            None => Step::end(Outcome::Committed { timestamp }),
            Some((_, why)) if self.written == 0 => Step::end(Outcome::Aborted { timestamp, why }),
            Some((_, why)) => Step::end(Outcome::Torn { timestamp, missing, why }),
        }
    }

    fn unknown(&self, missing: Vec<HomeId>) -> Step {
        Step::end(Outcome::Unknown { timestamp: self.timestamp, missing })
    }
}
