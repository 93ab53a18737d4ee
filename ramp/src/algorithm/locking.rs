//! How does strict two-phase locking read and write?
//!
//! Homes one after the other, in their order, and in each its keys in theirs: nobody waits for what
//! comes before something that it holds, so there are no deadlocks. A write then prepares and
//! commits as in RAMP, because homes fail by themselves; its locks go when it ends.
//!
//! Invariants
//! - Nothing is read or written before all locks are held.
//! - A read from several homes counts only if each of them says, at the end, that its locks were
//!   held all the time: a home that was started anew in between has let others write.

use super::{
    Abortion, Event, Homes, Interruption, Machine, Message, Outcome, Step, interrupted, message,
    write::{self, Parts, Write},
};
use crate::{
    item::{Key, Version, Write as Item},
    message::{Found, Guard, HomeId, Mode, Reply, Request},
    timestamp::Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};

/// Locks of one home after the other.
#[derive(Clone, Debug)]
struct Growing {
    owner: Timestamp,
    wanted: BTreeMap<HomeId, Vec<(Key, Mode)>>,
    /// Homes whose locks are held, and then the one that is waited for.
    asked: Vec<HomeId>,
    found: Vec<(Key, Version)>,
}

/// What locking came to.
enum Grown {
    Waits(Step),
    All,
    Failed(Interruption, Vec<Message>),
}

impl Growing {
    fn new(owner: Timestamp, wanted: BTreeMap<HomeId, Vec<(Key, Mode)>>) -> Self {
        Self { owner, wanted, asked: Vec::new(), found: Vec::new() }
    }

    fn ask_next(&mut self) -> Option<Message> {
        let (home, wanted) = self.wanted.pop_first()?;
        self.asked.push(home);
        Some(message(home, Request::Lock { owner: self.owner, wanted }))
    }

    fn step(&mut self, event: Event) -> Grown {
        let waits_for = self.asked.last().copied();
        let why = match event {
            Event::Reply { from, reply: Reply::Locked { items } } if Some(from) == waits_for => {
                self.found.extend(items.into_iter().map(|(key, Found { version, .. })| (key, version)));
                return self.ask_next().map_or(Grown::All, |next| Grown::Waits(Step::send(vec![next])));
            }
            Event::Reply { from, reply: Reply::Busy { found, most } } => {
                Interruption::Busy { home: from, found, most }
            }
            Event::Lost { home } if self.asked.contains(&home) => Interruption::Lost { home },
            Event::GiveUp => Interruption::GivenUp,
            _ => return Grown::Waits(Step::default()),
        };
        Grown::Failed(why, self.unlock_all())
    }

    fn unlock_all(&self) -> Vec<Message> {
        self.asked.iter().map(|home| message(*home, Request::Unlock { owner: self.owner })).collect()
    }
}

/// A read under shared locks.
#[derive(Clone, Debug)]
pub(super) struct LockedRead {
    growing: Growing,
    rounds: u32,
    /// Homes that have not said that the locks were held, once all are.
    open: Option<BTreeSet<HomeId>>,
}

pub(super) fn begin_read(owner: Timestamp, homes: Homes<Key>) -> (Machine, Vec<Message>) {
    let shared = |keys: Vec<Key>| keys.into_iter().map(|key| (key, Mode::Shared)).collect();
    let wanted = homes.into_iter().map(|(home, (_, keys))| (home, shared(keys))).collect();
    let mut growing = Growing::new(owner, wanted);
    let messages = growing.ask_next().into_iter().collect();
    (Machine::LockedRead(LockedRead { growing, rounds: 0, open: None }), messages)
}

impl LockedRead {
    pub(super) fn step(&mut self, event: Event) -> Step {
        if self.open.is_some() {
            return self.check(event);
        }
        match self.growing.step(event) {
            Grown::Waits(step) => step,
            Grown::Failed(why, messages) => Step { messages, outcome: Some(Outcome::Interrupted { why }) },
            Grown::All => {
                let messages = self.growing.unlock_all();
                self.rounds = u32::try_from(messages.len()).unwrap_or(u32::MAX);
                // What one home gives together belongs together.
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
                interrupted(Interruption::Unlocked { home: from })
            }
            Event::Lost { home } if open.contains(&home) => interrupted(Interruption::Lost { home }),
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
    growing: Growing,
    parts: Option<Parts>,
    write: Option<Write>,
}

pub(super) fn begin_write(parts: Parts) -> (Machine, Vec<Message>) {
    let exclusive =
        |items: &Vec<Item>| items.iter().map(|item| (item.key.clone(), Mode::Exclusive)).collect();
    let wanted = parts.items.iter().map(|(home, items)| (*home, exclusive(items))).collect();
    let mut growing = Growing::new(parts.timestamp, wanted);
    let messages = growing.ask_next().into_iter().collect();
    (Machine::LockedWrite(LockedWrite { growing, parts: Some(parts), write: None }), messages)
}

impl LockedWrite {
    pub(super) fn step(&mut self, event: Event) -> Step {
        if let Some(write) = &mut self.write {
            return write.step(event);
        }
        match self.growing.step(event) {
            Grown::Waits(step) => step,
            Grown::Failed(why, messages) => {
                let timestamp = self.growing.owner;
                Step {
                    messages,
                    outcome: Some(Outcome::Aborted { timestamp, why: Abortion::NotLocked(why) }),
                }
            }
            Grown::All => {
                let Some(parts) = self.parts.take() else { return Step::default() };
                let (write, messages) = write::begin_with(parts, Guard::Locked);
                self.write = Some(write);
                Step::send(messages)
            }
        }
    }
}
