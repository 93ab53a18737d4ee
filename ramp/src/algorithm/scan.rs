//! Which keys are there that begin alike, and what comes first of all homes?
//!
//! Every home is asked for its first keys behind a place. Keys are listed up to the last one that a
//! home with more has named: beyond it something may be missing.
//!
//! Invariants
//! - What is listed has no gaps: every key that had something committed or prepared before it
//!   began, and begins so, is in it, up to its end.
//! - A listing says nothing of values. Who reads them afterwards, and then finds the same keys in
//!   another listing, has read what belongs together.

use super::{Event, Machine, Message, Outcome, Step, interrupted, interruption, message};
use crate::{
    item::{Key, Version},
    message::{Found, HomeId, KeyRange, LeaseId, Reply, Request},
};
use std::collections::{BTreeMap, BTreeSet};

/// A listing on its way.
#[derive(Clone, Debug)]
pub(super) struct Scan {
    open: BTreeSet<HomeId>,
    keys: BTreeSet<Key>,
    /// The first key behind which a home may have more; `None` if none has.
    bound: Option<Key>,
    most: usize,
}

pub(super) fn begin(range: &KeyRange, homes: &BTreeMap<HomeId, LeaseId>) -> (Machine, Vec<Message>) {
    let ask = |(home, lease): (&HomeId, &LeaseId)| {
        let range = KeyRange { values: false, ..range.clone() };
        message(*home, Request::Scan { lease: *lease, range })
    };
    let open = homes.keys().copied().collect();
    let most = usize::try_from(range.most).unwrap_or(usize::MAX);
    let scan = Scan { open, keys: BTreeSet::new(), bound: None, most };
    (Machine::Scan(scan), homes.iter().map(ask).collect())
}

impl Scan {
    pub(super) fn step(&mut self, event: Event) -> Step {
        if let Some(why) = interruption(&event, |home| self.open.contains(&home)) {
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
            // All that was found is listed; what is behind the bound is not known.
            _ => bound,
        };
        keys.truncate(self.most);
        Step::end(Outcome::Listed { keys, goes_on })
    }
}

/// Whether a reader may find something.
fn is_there(found: &Found) -> bool {
    let is_value = |version: &Version| version.value.bytes().is_some();
    is_value(&found.version) || found.beside.iter().any(is_value)
}
