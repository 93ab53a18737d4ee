//! Reads keys with RAMP-Small.
//!
//! The first round returns the timestamps of all keys. The second returns, for each key, the newest
//! version whose timestamp is among them. Versions carry no other metadata, so a read always takes
//! two rounds, unless no key has a version.
//!
//! Invariants
//! - Every timestamp that is asked for is committed at some participant, so its versions are
//!   prepared at all of them.
//! - A key that has a version in the first round has that version, or a newer one, in the second.

use super::step::{Event, Interruption, Outcome, Participants, Step, interrupted, interruption, message};
use crate::{
    item::{Key, Version},
    message::{ParticipantId, Reply, Request},
    termination::Message,
    timestamp::Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};

/// A read by RAMP-Small.
#[derive(Clone, Debug)]
pub(super) struct Small {
    participants: Participants<Key>,
    /// For each participant, the number of keys that it has not answered in this round.
    open: BTreeMap<ParticipantId, usize>,
    timestamps: BTreeMap<Key, Timestamp>,
    found: BTreeMap<Key, Version>,
    second_round: bool,
}

pub(super) fn begin(participants: Participants<Key>) -> (Small, Vec<Message>) {
    let messages: Vec<Message> = participants
        .iter()
        .map(|(participant, (lease, keys))| {
            message(*participant, Request::Timestamps { lease: *lease, keys: keys.clone() })
        })
        .collect();
    let open = open_of(&participants);
    let (timestamps, found) = (BTreeMap::new(), BTreeMap::new());
    (Small { participants, open, timestamps, found, second_round: false }, messages)
}

fn open_of(participants: &Participants<Key>) -> BTreeMap<ParticipantId, usize> {
    participants.iter().map(|(participant, (_, keys))| (*participant, keys.len())).collect()
}

impl Small {
    pub(super) fn step(&mut self, event: Event) -> Step {
        if let Some(why) = interruption(&event, |participant| self.open.contains_key(&participant)) {
            return interrupted(why);
        }
        let Event::Reply { from, reply } = event else { return Step::default() };
        match reply {
            Reply::Latest { timestamps } if !self.second_round => {
                self.answered(from, timestamps.len());
                self.timestamps.extend(timestamps);
                if self.open.is_empty() { self.ask() } else { Step::default() }
            }
            Reply::Named { items } if self.second_round => {
                self.answered(from, items.len());
                self.found.extend(items.into_iter().filter_map(|(key, version)| Some((key, version?))));
                if self.open.is_empty() { self.end(2) } else { Step::default() }
            }
            _ => Step::default(),
        }
    }

    fn answered(&mut self, from: ParticipantId, keys: usize) {
        if let Some(open) = self.open.get_mut(&from) {
            *open = open.saturating_sub(keys);
            if *open == 0 {
                self.open.remove(&from);
            }
        }
    }

    fn ask(&mut self) -> Step {
        self.second_round = true;
        let timestamps: BTreeSet<Timestamp> =
            self.timestamps.values().copied().filter(|timestamp| *timestamp != Timestamp::FIRST).collect();
        if timestamps.is_empty() {
            return self.end(1);
        }
        self.open = open_of(&self.participants);
        let timestamps: Vec<Timestamp> = timestamps.into_iter().collect();
        let ask = |(participant, (lease, keys)): (&ParticipantId, &(_, Vec<Key>))| {
            message(
                *participant,
                Request::Among { lease: *lease, keys: keys.clone(), timestamps: timestamps.clone() },
            )
        };
        Step::send(self.participants.iter().map(ask).collect())
    }

    fn end(&mut self, rounds: u32) -> Step {
        let mut items = Vec::new();
        for (participant, (_, keys)) in &self.participants {
            for key in keys {
                let seen = self.timestamps.get(key).copied().unwrap_or(Timestamp::FIRST);
                let version = self.found.remove(key);
                // The first round found a version that is gone now: the lease no longer protects
                // it.
                if version.is_none() && seen != Timestamp::FIRST {
                    return interrupted(Interruption::Unleased { participant: *participant });
                }
                items.push((key.clone(), version.unwrap_or_else(Version::first)));
            }
        }
        Step::end(Outcome::Read { items, rounds })
    }
}
