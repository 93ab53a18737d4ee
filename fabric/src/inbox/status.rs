//! Reads the status ring: finds published entries in the order of their claims.
//!
//! All senders write into the status ring, which records the order of arrival (section 3.1 of the
//! paper). A claimed entry that is not published yet is a *gap*. The reader skips gaps and returns
//! to them once they are published, so a sender that lost its processor in between delays nobody.
//!
//! Invariants
//! - `published head <= every gap < frontier`, and a sender has at most one gap.
//! - An entry is given back to the senders only when it and all entries before it were taken.

use std::{collections::VecDeque, sync::atomic::Ordering};

use super::{
    claim::ClaimRing,
    layout::{Control, Header, InboxMap, Kind, lap_of},
};
use crate::error::OutOfBounds;

/// A published entry: its position and its control word.
pub(super) type PublishedEntry = (u64, u64);

#[derive(Debug)]
pub(super) struct StatusReader {
    /// The first entry that was not examined yet.
    frontier: u64,
    /// Entries before the frontier that were not published when they were passed.
    gaps: VecDeque<u64>,
    given_back: u64,
}

/// Claims that honest senders cannot make: more gaps than there are senders, or a claim of several
/// entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Nonsense;

fn ring(map: &InboxMap) -> Result<ClaimRing<'_>, OutOfBounds> {
    Ok(ClaimRing {
        claims: map.status_claims()?,
        head: map.header(Header::StatusHead)?,
        hint: map.header(Header::StatusHint)?,
    })
}

/// The control word of the entry at `position`, once it is published.
fn published(map: &InboxMap, position: u64) -> Option<u64> {
    let word = map.entry(position).ok()?[0].load(Ordering::Acquire);
    (Control::lap(word) == lap_of(position, map.layout.entries)).then_some(word)
}

impl StatusReader {
    pub(super) fn new(map: &InboxMap) -> Self {
        let first = map.layout.entries as u64;
        Self { frontier: first, gaps: VecDeque::new(), given_back: first }
    }

    /// Whether every published entry before `mark` was taken.
    pub(super) fn has_passed(&self, map: &InboxMap, mark: u64) -> bool {
        self.frontier >= mark && !self.gaps.iter().any(|gap| published(map, *gap).is_some())
    }

    /// The next published entry: one of the gaps, or the entry at the frontier.
    pub(super) fn next(&mut self, map: &InboxMap) -> Option<PublishedEntry> {
        if !self.gaps.is_empty()
            && let Some(found) = self.next_gap(map)
        {
            return Some(found);
        }
        let word = published(map, self.frontier)?;
        self.frontier += 1;
        Some((self.frontier - 1, word))
    }

    fn next_gap(&mut self, map: &InboxMap) -> Option<PublishedEntry> {
        let at = self.gaps.iter().position(|gap| published(map, *gap).is_some())?;
        let gap = self.gaps.remove(at)?;
        Some((gap, published(map, gap)?))
    }

    /// As `next`, but also looks beyond entries at the frontier that are claimed and not published.
    pub(super) fn next_beyond(&mut self, map: &InboxMap) -> Result<Option<PublishedEntry>, Nonsense> {
        let Some((position, word)) = self.first_beyond(map)? else { return Ok(None) };
        self.gaps.extend(self.frontier..position);
        if self.gaps.len() > map.layout.shape.senders {
            return Err(Nonsense);
        }
        self.frontier = position + 1;
        Ok(Some((position, word)))
    }

    fn first_beyond(&self, map: &InboxMap) -> Result<Option<PublishedEntry>, Nonsense> {
        let ring = ring(map).map_err(|_| Nonsense)?;
        for (position, claim) in ring.claims_from(self.frontier) {
            if claim.count != 1 || claim.padding {
                return Err(Nonsense);
            }
            if let Some(word) = published(map, position) {
                return Ok(Some((position, word)));
            }
        }
        Ok(None)
    }

    /// Whether `next` or `next_beyond` would return something, an error included.
    pub(super) fn has_entries(&self, map: &InboxMap) -> bool {
        self.gaps.iter().any(|gap| published(map, *gap).is_some())
            || !matches!(self.first_beyond(map), Ok(None))
            || published(map, self.frontier).is_some()
    }

    /// The end of what is claimed.
    pub(super) fn end(&self, map: &InboxMap) -> u64 {
        let last = ring(map).ok().and_then(|ring| ring.claims_from(self.frontier).last());
        last.map_or(self.frontier, |(position, _)| position + 1)
    }

    /// Publishes as void the entries that were claimed and not published by senders for which
    /// `is_gone` is true.
    pub(super) fn publish_void(&self, map: &InboxMap, is_gone: impl Fn(u16) -> bool) {
        let Ok(ring) = ring(map) else { return };
        let behind = self.gaps.iter().filter_map(|gap| ring.claims_from(*gap).next());
        for (position, claim) in behind.chain(ring.claims_from(self.frontier)) {
            if published(map, position).is_some() || !is_gone(claim.sender) {
                continue;
            }
            let lap = lap_of(position, map.layout.entries);
            let control = Control { lap, sender: claim.sender, per_packet: false, kind: Kind::Void };
            if let Ok(words) = map.entry(position) {
                words[0].store(control.encode(), Ordering::Release);
            }
        }
    }

    /// Number of entries that were taken and not given back.
    fn held(&self) -> u64 {
        self.gaps.front().unwrap_or(&self.frontier) - self.given_back
    }

    /// Gives entries back if there are at least `least`. Returns whether it did.
    pub(super) fn give_back(&mut self, map: &InboxMap, least: u64) -> bool {
        if self.held() < least.max(1) {
            return false;
        }
        self.given_back = *self.gaps.front().unwrap_or(&self.frontier);
        if let Ok(word) = map.header(Header::StatusHead) {
            word.store(self.given_back, Ordering::Release);
        }
        true
    }
}
