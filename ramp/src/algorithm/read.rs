//! Reads keys with RAMP-Fast or RAMP-Hybrid, or without concurrency control, which skips the check.
//!
//! ```text
//! first round    GET all keys
//! check          for each key: look for transactions that were found at other keys, that also wrote this key, and that are newer than the version found here
//!                  there are none                              -> done
//!                  the reply contains the version of one       -> that version is the result
//! second round     otherwise                                   -> ask for the newest of their versions
//! ```
//!
//! Invariants
//! - Every version that the second round asks for is committed: its transaction was found committed
//!   at another key, so all participants have prepared it. The version still exists, because the
//!   lease is older than the first round.
//! - A write set names exactly the keys that its transaction wrote. A filter may name other keys,
//!   too, so the answer to the second round may be that there is no such version.

use super::{
    choice::Algorithm,
    step::{Event, Interruption, Outcome, Participants, Step, interrupted, interruption, message},
};
use crate::{
    item::{Key, Version},
    message::{Found, LeaseId, ParticipantId, Reply, Request},
    termination::Message,
    timestamp::Timestamp,
};
use std::collections::BTreeMap;

/// The state of a key.
#[derive(Clone, Debug)]
struct KeyState {
    participant: ParticipantId,
    found: Option<Found>,
}

/// A read by RAMP-Fast or RAMP-Hybrid, or without concurrency control.
#[derive(Clone, Debug)]
pub(super) struct Read {
    leases: BTreeMap<ParticipantId, LeaseId>,
    keys: BTreeMap<Key, KeyState>,
    /// Keys that this round has not answered.
    open: usize,
    /// For each participant of the second round, the number of keys that it has not answered.
    second: BTreeMap<ParticipantId, usize>,
    rounds: u32,
    checks: bool,
}

pub(super) fn begin(algorithm: Algorithm, participants: Participants<Key>) -> (Read, Vec<Message>) {
    let leases = participants.iter().map(|(participant, (lease, _))| (*participant, *lease)).collect();
    let messages: Vec<Message> = participants
        .iter()
        .map(|(participant, (lease, keys))| {
            message(*participant, Request::Get { lease: *lease, keys: keys.clone() })
        })
        .collect();
    let keys: BTreeMap<Key, KeyState> = participants
        .into_iter()
        .flat_map(|(participant, (_, keys))| {
            keys.into_iter().map(move |key| (key, KeyState { participant, found: None }))
        })
        .collect();
    let open = keys.len();
    let checks = algorithm != Algorithm::None;
    let read = Read { leases, keys, open, second: BTreeMap::new(), rounds: 1, checks };
    (read, messages)
}

impl Read {
    pub(super) fn step(&mut self, event: Event) -> Step {
        let first_round = self.rounds == 1;
        let waits_for = |participant: ParticipantId| {
            if first_round {
                self.keys.values().any(|wanted| wanted.participant == participant && wanted.found.is_none())
            } else {
                self.second.get(&participant).is_some_and(|keys| *keys > 0)
            }
        };
        if let Some(why) = interruption(&event, waits_for) {
            return interrupted(why);
        }
        match event {
            Event::Reply { reply: Reply::Found { items, .. }, .. } if first_round => self.found(items),
            Event::Reply { from, reply: Reply::Named { items } } if !first_round => self.named(from, items),
            _ => Step::default(),
        }
    }

    fn found(&mut self, items: Vec<(Key, Found)>) -> Step {
        for (key, found) in items {
            if let Some(wanted) = self.keys.get_mut(&key).filter(|wanted| wanted.found.is_none()) {
                wanted.found = Some(found);
                self.open -= 1;
            }
        }
        if self.open > 0 {
            return Step::default();
        }
        let missed = if self.checks { self.missed() } else { Vec::new() };
        let missed: Vec<(Key, Vec<Timestamp>)> =
            missed.into_iter().filter(|(key, timestamps)| !self.take_from_beside(key, timestamps)).collect();
        if missed.is_empty() { self.end() } else { self.ask(missed) }
    }

    /// For each key the transactions that were found at other keys, may have written this one, and
    /// are newer than the version found here; descending.
    fn missed(&self) -> Vec<(Key, Vec<Timestamp>)> {
        let mut met: Vec<&Version> = self
            .keys
            .values()
            .filter_map(|wanted| wanted.found.as_ref())
            .map(|found| &found.version)
            .collect();
        met.sort_unstable_by_key(|version| std::cmp::Reverse(version.timestamp));
        met.dedup_by_key(|version| version.timestamp);
        let missed = |(key, wanted): (&Key, &KeyState)| {
            let own = wanted.found.as_ref()?.version.timestamp;
            let newer = met.iter().take_while(|version| version.timestamp > own);
            let timestamps: Vec<Timestamp> = newer
                .filter(|version| version.metadata.may_have(key))
                .map(|version| version.timestamp)
                .collect();
            (!timestamps.is_empty()).then(|| (key.clone(), timestamps))
        };
        self.keys.iter().filter_map(missed).collect()
    }

    /// Takes the newest of the missed versions if the first round returned it as prepared. Returns
    /// whether it did.
    fn take_from_beside(&mut self, key: &Key, timestamps: &[Timestamp]) -> bool {
        let Some(found) = self.keys.get_mut(key).and_then(|wanted| wanted.found.as_mut()) else {
            return false;
        };
        let place = found.beside.iter().position(|version| Some(&version.timestamp) == timestamps.first());
        if let Some(place) = place {
            found.version = found.beside.swap_remove(place);
        }
        place.is_some()
    }

    fn ask(&mut self, missed: Vec<(Key, Vec<Timestamp>)>) -> Step {
        self.rounds = 2;
        self.open = missed.len();
        let mut requests: BTreeMap<ParticipantId, (Vec<Key>, Vec<Timestamp>)> = BTreeMap::new();
        for (key, timestamps) in missed {
            let Some(wanted) = self.keys.get(&key) else { continue };
            let (keys, all) = requests.entry(wanted.participant).or_default();
            keys.push(key);
            all.extend(timestamps);
        }
        let mut messages = Vec::with_capacity(requests.len());
        for (participant, (keys, mut timestamps)) in requests {
            timestamps.sort_unstable();
            timestamps.dedup();
            self.second.insert(participant, keys.len());
            let lease = self.leases.get(&participant).copied().unwrap_or_default();
            messages.push(message(participant, Request::Among { lease, keys, timestamps }));
        }
        Step::send(messages)
    }

    fn named(&mut self, from: ParticipantId, items: Vec<(Key, Option<Version>)>) -> Step {
        let Some(open) = self.second.get_mut(&from).filter(|open| **open > 0) else { return Step::default() };
        let answered = items.len().min(*open);
        self.open -= answered;
        *open -= answered;
        for (key, version) in items {
            let found = self.keys.get_mut(&key).and_then(|wanted| wanted.found.as_mut());
            // There is none, or an older one, if the filter or fingerprint was a false positive.
            if let (Some(found), Some(version)) = (found, version)
                && version.timestamp > found.version.timestamp
            {
                found.version = version;
            }
        }
        if self.open > 0 { Step::default() } else { self.end() }
    }

    fn end(&mut self) -> Step {
        let keys = std::mem::take(&mut self.keys).into_iter();
        let items: Option<Vec<(Key, Version)>> =
            keys.map(|(key, wanted)| Some((key, wanted.found?.version))).collect();
        // Every key has been found by now.
        items.map_or_else(
            || interrupted(Interruption::GivenUp),
            |items| Step::end(Outcome::Read { items, rounds: self.rounds }),
        )
    }
}
