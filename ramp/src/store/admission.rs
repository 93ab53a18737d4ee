//! Decides whether a part may be prepared, given the versions of its keys.
//!
//! Invariants
//! - An admitted part is newer than every version of its keys, prepared or committed. So, when it
//!   is committed, it supersedes everything that was acknowledged before it began, whichever clocks
//!   the timestamps came from.
//! - A part whose conditions do not hold is refused for that reason, and not for its timestamp: a
//!   newer timestamp would not help.
//! - A part is checked once, before the vote. Parts that are replayed from a log are not checked
//!   again; logs of older releases contain parts that this check would refuse.

use super::{Store, chain::Chain};
use crate::{
    limits::{TIME_MAX, TIME_STEP_MAX},
    message::{Part, Refusal},
    slot::SlotMemory,
    timestamp::Timestamp,
};

impl<M: SlotMemory> Store<M> {
    /// Checks a part whose items have these conditions
    /// ([`crate::message::Preconditions::expected`]).
    ///
    /// # Errors
    /// [`Refusal::BeyondHorizon`], [`Refusal::NoSuchItem`], [`Refusal::Conflict`] and
    /// [`Refusal::Outdated`].
    pub fn admit(&self, part: &Part, expected: &[(u32, Timestamp)]) -> Result<(), Refusal> {
        let timestamp = part.timestamp;
        let limit = TIME_MAX.max(self.newest.time.saturating_add(TIME_STEP_MAX));
        if timestamp.time > limit {
            return Err(Refusal::BeyondHorizon { timestamp, limit });
        }
        let (mut conditions, mut outdated) = (expected.iter().peekable(), None);
        for (position, (key, _)) in (0_u32..).zip(&part.items) {
            let newest = self.chains.get(key).and_then(Chain::newest);
            let (found, committed) = newest.unwrap_or((Timestamp::FIRST, true));
            if let Some((_, expected)) = conditions.next_if(|(item, _)| *item == position)
                && *expected != found
            {
                let (key, expected) = (key.clone(), *expected);
                return Err(Refusal::Conflict { key, expected, found, committed });
            }
            if found >= timestamp && outdated.as_ref().is_none_or(|(_, newest)| found > *newest) {
                outdated = Some((key, found));
            }
        }
        if let Some((item, _)) = conditions.next() {
            return Err(Refusal::NoSuchItem { item: *item, items: part.items.len() as u64 });
        }
        match outdated {
            Some((key, newest)) => Err(Refusal::Outdated { timestamp, key: key.clone(), newest }),
            None => Ok(()),
        }
    }
}
