//! Lists the keys with a given prefix of all participants, in order.
//!
//! Every participant is asked for its first keys after a given one, and returns a limited number of
//! them. The list ends at the smallest last key of a participant that has more keys: beyond it,
//! keys could be missing from the list.
//!
//! Invariants
//! - The list has no gaps: up to its end it contains every key with the prefix that had a committed
//!   or prepared version before the listing began.
//! - A listing contains no values. A reader that reads the values afterwards, and then lists the
//!   same keys again, has read a consistent state.

use super::step::{Event, Outcome, Step, interrupted, interruption, message};
use crate::{
    item::{Key, Version},
    message::{Found, KeyRange, LeaseId, ParticipantId, Reply, Request},
    termination::Message,
};
use std::collections::{BTreeMap, BTreeSet};

/// A listing in progress.
#[derive(Clone, Debug)]
pub(super) struct Scan {
    open: BTreeSet<ParticipantId>,
    keys: BTreeSet<Key>,
    /// The smallest key after which a participant may have more; `None` if none has.
    bound: Option<Key>,
    most: usize,
}

pub(super) fn begin(
    range: &KeyRange,
    participants: &BTreeMap<ParticipantId, LeaseId>,
) -> (Scan, Vec<Message>) {
    let ask = |(participant, lease): (&ParticipantId, &LeaseId)| {
        let range = KeyRange { values: false, ..range.clone() };
        message(*participant, Request::Scan { lease: *lease, range })
    };
    let open = participants.keys().copied().collect();
    let most = usize::try_from(range.most).expect("usize has at least 32 bits");
    let scan = Scan { open, keys: BTreeSet::new(), bound: None, most };
    (scan, participants.iter().map(ask).collect())
}

impl Scan {
    pub(super) fn step(&mut self, event: Event) -> Step {
        if let Some(why) = interruption(&event, |participant| self.open.contains(&participant)) {
            return interrupted(why);
        }
        let Event::Reply { from, reply: Reply::Scanned { items, more } } = event else {
            return Step::default();
        };
        if !self.open.remove(&from) {
            return Step::default();
        }
        if more && let Some((last, _)) = items.last() {
            let bound = self.bound.take().map_or_else(|| last.clone(), |bound| bound.min(last.clone()));
            self.bound = Some(bound);
        }
        self.keys.extend(items.into_iter().filter(|(_, found)| is_there(found)).map(|(key, _)| key));
        if self.open.is_empty() { self.end() } else { Step::default() }
    }

    fn end(&mut self) -> Step {
        let bound = self.bound.take();
        let within = |key: &Key| bound.as_ref().is_none_or(|bound| key <= bound);
        let mut keys: Vec<Key> = std::mem::take(&mut self.keys).into_iter().filter(within).collect();
        let goes_on = match keys.get(self.most.saturating_sub(1)) {
            Some(last) if keys.len() > self.most || bound.is_some() => Some(last.clone()),
            // All keys that were found are listed; those beyond the bound are not known.
            _ => bound,
        };
        keys.truncate(self.most);
        Step::end(Outcome::Listed { keys, goes_on })
    }
}

/// Whether a reader may find a value.
fn is_there(found: &Found) -> bool {
    let is_value = |version: &Version| version.value.bytes().is_some();
    is_value(&found.version) || found.beside.iter().any(is_value)
}
