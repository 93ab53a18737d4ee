//! Writes a transaction in two phases, so that it is visible at all participants or at none.
//!
//! ```text
//! preparing --all prepared--> committing --all confirmed--> committed
//!     |  \--the only participant has prepared and committed it: committed
//!     |  \--a participant is lost: asked for its vote when it is back     \--a participant is lost: told again when it is back; or given up: sealed
//!     \--one refused: aborted
//! ```
//!
//! Invariants
//! - PREPARE is sent once: a participant that has promised never to prepare it is not asked again.
//! - If a participant has refused, the others are told to abort. Retrying with a newer timestamp is
//!   up to the owner.
//! - Only a participant's refusal aborts. A lost participant may have prepared, and the others may
//!   have ended the transaction with it.

use super::step::{Abortion, Event, Outcome, Step, message};
use crate::{
    item::{Metadata, Write as Item},
    message::{Guard, HomeId, Part, Preconditions, Reply, Request, Vote},
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
    pub(super) items: BTreeMap<HomeId, Vec<Item>>,
}

impl Parts {
    pub(super) fn homes(&self) -> Vec<HomeId> {
        self.items.keys().copied().collect()
    }

    /// The part for each participant. `homes` are the participants that may be asked for their
    /// votes.
    pub(super) fn parts(
        self,
        homes: &[HomeId],
        guard: Guard,
    ) -> impl Iterator<Item = (HomeId, Part, Preconditions)> {
        let Self { timestamp, metadata, wall_ms, items, .. } = self;
        items.into_iter().map(move |(home, items)| {
            let conditions = (0..).zip(&items);
            let expected = conditions.filter_map(|(at, item)| Some((at, item.expected?))).collect();
            let items = items.into_iter().map(|Item { key, value, .. }| (key, value)).collect();
            let part = Part { timestamp, homes: homes.to_vec(), guard, metadata: metadata.clone(), items };
            (home, part, Preconditions { wall_ms, expected })
        })
    }
}

/// A write in two phases.
#[derive(Clone, Debug)]
pub(super) struct Write {
    timestamp: Timestamp,
    homes: Vec<HomeId>,
    /// Participants that have not answered in this phase.
    open: BTreeSet<HomeId>,
    committing: bool,
    guard: Guard,
}

pub(super) fn begin(parts: Parts, guard: Guard) -> (Write, Vec<Message>) {
    let (timestamp, homes, settled) = (parts.timestamp, parts.homes(), parts.settled.clone());
    let prepare = |(home, part, preconditions)| {
        message(home, Request::Prepare { part, settled: settled.clone(), preconditions })
    };
    let messages = parts.parts(&homes, guard).map(prepare).collect();
    let open = homes.iter().copied().collect();
    (Write { timestamp, homes, open, committing: false, guard }, messages)
}

impl Write {
    pub(super) fn step(&mut self, event: Event) -> Step {
        match event {
            Event::Reply { from, reply } if self.open.contains(&from) => self.heard(from, reply),
            Event::Back { home } if self.open.contains(&home) => {
                let timestamp = self.timestamp;
                let request = if self.committing {
                    Request::Commit { timestamp }
                } else {
                    Request::Inquire { timestamp }
                };
                Step::send(vec![message(home, request)])
            }
            Event::GiveUp => {
                let (timestamp, missing) = (self.timestamp, self.open.iter().copied().collect());
                let sealed = self.committing;
                Step::end(if sealed {
                    Outcome::Sealed { timestamp, missing }
                } else {
                    Outcome::Unknown { timestamp, missing }
                })
            }
            // A lost participant may have processed the request. It is asked when it is back,
            // unless the owner gives up before.
            Event::Reply { .. } | Event::Lost { .. } | Event::Back { .. } => Step::default(),
        }
    }

    fn heard(&mut self, from: HomeId, reply: Reply) -> Step {
        match reply {
            Reply::Prepared | Reply::Voted { vote: Vote::Prepared } if !self.committing => {
                self.prepared(from)
            }
            Reply::Refused { why } if !self.committing => {
                self.abort(from, Abortion::Refused { home: from, why })
            }
            Reply::Voted { vote: Vote::Refused } if !self.committing => {
                self.abort(from, Abortion::Promised { home: from })
            }
            Reply::Voted { vote: Vote::Forgotten } if !self.committing => {
                Step::end(Outcome::Unknown { timestamp: self.timestamp, missing: vec![from] })
            }
            // Another participant has terminated the transaction, with the same outcome.
            Reply::Voted { vote: Vote::Committed } if !self.committing => self.commit(),
            // The vote of the only participant commits the transaction.
            Reply::Committed if !self.committing && self.homes.len() == 1 => {
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

    fn prepared(&mut self, from: HomeId) -> Step {
        self.open.remove(&from);
        if self.open.is_empty() { self.commit() } else { Step::default() }
    }

    fn commit(&mut self) -> Step {
        self.committing = true;
        self.open = self.homes.iter().copied().collect();
        Step::send(self.to_all(&Request::Commit { timestamp: self.timestamp }))
    }

    fn abort(&self, from: HomeId, why: Abortion) -> Step {
        let mut messages = self.to_all(&Request::Abort { timestamp: self.timestamp });
        // The participant that refused has nothing to undo but its locks, and refuses again if it
        // is asked.
        messages.retain(|message| message.to != from || self.guard == Guard::Locked);
        Step { messages, outcome: Some(Outcome::Aborted { timestamp: self.timestamp, why }) }
    }

    fn to_all(&self, request: &Request) -> Vec<Message> {
        self.homes.iter().map(|home| message(*home, request.clone())).collect()
    }
}
