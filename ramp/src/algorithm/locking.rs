//! Reads and writes with strict two-phase locking.
//!
//! A transaction locks participants one after the other in their order, and at each participant the
//! keys in their order. So no transaction waits for a lock that precedes one it holds, and there
//! are no deadlocks. A write then prepares and commits as in RAMP, because participants fail
//! independently; its locks are released when it ends.
//!
//! Invariants
//! - No key is read or written before all locks are held.
//! - A read from several participants succeeds only if each of them confirms, at the end, that its
//!   locks were held all the time. A participant that restarted in between may have let others
//!   write.

use super::{
    step::{Abortion, Event, Interruption, Outcome, Participants, Step, interrupted, message},
    write::{self, Parts, Write},
};
use crate::{
    item::{Key, Version, Write as Item},
    message::{Found, Guard, Mode, ParticipantId, Reply, Request},
    termination::Message,
    timestamp::Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};

/// The growing phase: acquires the locks of one participant after the other.
#[derive(Clone, Debug)]
struct GrowingPhase {
    owner: Timestamp,
    wanted: BTreeMap<ParticipantId, Vec<(Key, Mode)>>,
    /// Participants whose locks are held, followed by the one that has not answered.
    asked: Vec<ParticipantId>,
    found: Vec<(Key, Version)>,
}

/// The result of an event in the growing phase.
enum Growth {
    Waits(Step),
    Complete,
    Failed(Interruption, Vec<Message>),
}

impl GrowingPhase {
    fn new(owner: Timestamp, wanted: BTreeMap<ParticipantId, Vec<(Key, Mode)>>) -> Self {
        Self { owner, wanted, asked: Vec::new(), found: Vec::new() }
    }

    fn ask_next(&mut self) -> Option<Message> {
        let (participant, wanted) = self.wanted.pop_first()?;
        self.asked.push(participant);
        Some(message(participant, Request::Lock { owner: self.owner, wanted }))
    }

    fn step(&mut self, event: Event) -> Growth {
        let waits_for = self.asked.last().copied();
        let why = match event {
            Event::Reply { from, reply: Reply::Locked { items } } if Some(from) == waits_for => {
                self.found.extend(items.into_iter().map(|(key, Found { version, .. })| (key, version)));
                return self
                    .ask_next()
                    .map_or(Growth::Complete, |next| Growth::Waits(Step::send(vec![next])));
            }
            Event::Reply { from, reply: Reply::Busy { found, most } } => {
                Interruption::Busy { participant: from, found, most }
            }
            Event::Lost { participant } if self.asked.contains(&participant) => {
                Interruption::Lost { participant }
            }
            Event::GiveUp => Interruption::GivenUp,
            _ => return Growth::Waits(Step::default()),
        };
        Growth::Failed(why, self.unlock_all())
    }

    fn unlock_all(&self) -> Vec<Message> {
        self.asked
            .iter()
            .map(|participant| message(*participant, Request::Unlock { owner: self.owner }))
            .collect()
    }
}

/// A read under shared locks.
#[derive(Clone, Debug)]
pub(super) struct LockedRead {
    growing: GrowingPhase,
    rounds: u32,
    /// Participants that have not confirmed that the locks were held; `None` before all locks are.
    open: Option<BTreeSet<ParticipantId>>,
}

pub(super) fn begin_read(owner: Timestamp, participants: Participants<Key>) -> (LockedRead, Vec<Message>) {
    let shared = |keys: Vec<Key>| keys.into_iter().map(|key| (key, Mode::Shared)).collect();
    let wanted =
        participants.into_iter().map(|(participant, (_, keys))| (participant, shared(keys))).collect();
    let mut growing = GrowingPhase::new(owner, wanted);
    let messages = growing.ask_next().into_iter().collect();
    (LockedRead { growing, rounds: 0, open: None }, messages)
}

impl LockedRead {
    pub(super) fn step(&mut self, event: Event) -> Step {
        if self.open.is_some() {
            return self.check(event);
        }
        match self.growing.step(event) {
            Growth::Waits(step) => step,
            Growth::Failed(why, messages) => Step { messages, outcome: Some(Outcome::Interrupted { why }) },
            Growth::Complete => {
                let messages = self.growing.unlock_all();
                self.rounds =
                    u32::try_from(messages.len()).expect("there are at most as many participants as keys");
                // One answer of one participant is consistent in itself.
                if messages.len() <= 1 {
                    return Step { messages, outcome: Some(self.outcome()) };
                }
                self.open = Some(self.growing.asked.iter().copied().collect());
                Step::send(messages)
            }
        }
    }

    fn check(&mut self, event: Event) -> Step {
        let Some(open) = &mut self.open else { return Step::default() };
        match event {
            Event::Reply { from, reply: Reply::Unlocked { held: true } } => {
                open.remove(&from);
                if open.is_empty() { Step::end(self.outcome()) } else { Step::default() }
            }
            Event::Reply { from, reply: Reply::Unlocked { held: false } } => {
                interrupted(Interruption::Unlocked { participant: from })
            }
            Event::Lost { participant } if open.contains(&participant) => {
                interrupted(Interruption::Lost { participant })
            }
            Event::GiveUp => interrupted(Interruption::GivenUp),
            Event::Reply { .. } | Event::Lost { .. } | Event::Back { .. } => Step::default(),
        }
    }

    fn outcome(&mut self) -> Outcome {
        Outcome::Read { items: std::mem::take(&mut self.growing.found), rounds: self.rounds }
    }
}

/// A write under exclusive locks.
#[derive(Clone, Debug)]
pub(super) struct LockedWrite {
    growing: GrowingPhase,
    parts: Option<Parts>,
    write: Option<Write>,
}

pub(super) fn begin_write(parts: Parts) -> (LockedWrite, Vec<Message>) {
    let exclusive =
        |items: &Vec<Item>| items.iter().map(|item| (item.key.clone(), Mode::Exclusive)).collect();
    let wanted = parts.items.iter().map(|(participant, items)| (*participant, exclusive(items))).collect();
    let mut growing = GrowingPhase::new(parts.timestamp, wanted);
    let messages = growing.ask_next().into_iter().collect();
    (LockedWrite { growing, parts: Some(parts), write: None }, messages)
}

impl LockedWrite {
    pub(super) fn step(&mut self, event: Event) -> Step {
        if let Some(write) = &mut self.write {
            return write.step(event);
        }
        match self.growing.step(event) {
            Growth::Waits(step) => step,
            Growth::Failed(why, messages) => {
                let timestamp = self.growing.owner;
                Step {
                    messages,
                    outcome: Some(Outcome::Aborted { timestamp, why: Abortion::NotLocked(why) }),
                }
            }
            Growth::Complete => {
                let Some(parts) = self.parts.take() else { return Step::default() };
                let (write, messages) = write::begin(parts, Guard::Locked);
                self.write = Some(write);
                Step::send(messages)
            }
        }
    }
}
