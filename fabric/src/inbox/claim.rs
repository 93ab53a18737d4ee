//! Divides a ring among many senders, each of which may be killed between any two instructions.
//!
//! A ring has one claim word for each slot. To claim the next `n` slots, a sender replaces the word
//! of the first of them by a claim that contains the sender, `n` and the lap (how often positions
//! have passed the ring's end). That compare-and-swap is the only step that allocates slots. The
//! end of the claimed slots is not stored anywhere: it is where a walk from claim to claim meets a
//! word of an earlier lap. Each sender begins its walk where its previous one ended, so a sender
//! that is alone takes one step.
//!
//! Invariants
//! - A position is claimed at most once: its word was of an earlier lap when it was replaced, and
//!   laps only grow.
//! - Claims follow each other without gaps, so each can be found by walking from any earlier one.
//!   Each claim names its sender.
//! - Nothing is claimed beyond `head + capacity`. Only the receiver frees slots, by moving the
//!   head.
//! - A walk ends after a bounded number of steps, whatever the words contain.

use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::{Claim, lap_of, slot_of};

/// A word that other threads and processes change at the same time.
pub(super) trait Word {
    fn get(&self) -> u64;
    fn set(&self, value: u64);
    /// Sets the word if it still has the value `found`.
    fn replace(&self, found: u64, value: u64) -> bool;
}

impl Word for AtomicU64 {
    fn get(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    fn set(&self, value: u64) {
        self.store(value, Ordering::Release);
    }

    fn replace(&self, found: u64, value: u64) -> bool {
        self.compare_exchange(found, value, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// A ring as its senders see it.
#[derive(Debug)]
pub(super) struct ClaimRing<'a, W = AtomicU64> {
    pub(super) claims: &'a [W],
    /// The first slot in use.
    pub(super) head: &'a W,
    /// The start of a claim near the end, which saves new senders a long walk.
    pub(super) hint: &'a W,
}

/// A sender's position in a ring.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cursor {
    /// The start of some claim, or the end of the last claim; 0 before the first walk.
    at: u64,
    head_seen: u64,
    claimed: u64,
}

/// Words that no honest process writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Damaged;

/// Number of claims between two updates of the hint.
const CLAIMS_PER_HINT: u64 = 16;
/// Positions beyond this are impossible, and arithmetic below it does not overflow.
const POSITION_MAX: u64 = 1 << 62;

impl<W: Word> ClaimRing<'_, W> {
    fn capacity(&self) -> u64 {
        self.claims.len() as u64
    }

    fn claim_at(&self, position: u64) -> (u64, Claim) {
        let word = self.claims[slot_of(position, self.claims.len())].get();
        (word, Claim::decode(word))
    }

    fn read_head(&self, cursor: &mut Cursor) -> Result<(), Damaged> {
        let head = self.head.get();
        if head < cursor.head_seen || head > POSITION_MAX {
            return Err(Damaged);
        }
        cursor.head_seen = head;
        Ok(())
    }

    /// Moves a cursor that was lapped to a position from which it can walk.
    fn catch_up(&self, cursor: &mut Cursor) -> Result<(), Damaged> {
        self.read_head(cursor)?;
        let hint = self.hint.get();
        let hint_is_near = hint >= cursor.head_seen && hint - cursor.head_seen <= self.capacity();
        let near = if hint_is_near { hint } else { cursor.head_seen };
        cursor.at = cursor.at.max(near).max(cursor.head_seen);
        Ok(())
    }

    /// Moves the cursor to the end of the claims and returns the word at that position. `steps` is
    /// the remaining number of steps.
    fn walk_to_end(&self, cursor: &mut Cursor, steps: &mut usize) -> Result<u64, Damaged> {
        if cursor.at == 0 {
            self.catch_up(cursor)?;
        }
        loop {
            *steps = steps.checked_sub(1).ok_or(Damaged)?;
            let lap = lap_of(cursor.at, self.claims.len());
            let (word, claim) = self.claim_at(cursor.at);
            if claim.lap == lap {
                cursor.at = self.after(cursor.at, claim).ok_or(Damaged)?;
            } else if lap.wrapping_sub(claim.lap) < u32::MAX / 2 {
                return Ok(word);
            } else {
                let before = cursor.at;
                self.catch_up(cursor)?;
                if cursor.at == before {
                    return Err(Damaged);
                }
            }
        }
    }

    /// More steps than any walk takes while all processes are honest, lost races included: each
    /// lost race was won by the claim of another sender.
    fn steps_max(&self) -> usize {
        4 * self.claims.len() + (1 << 16)
    }

    /// The position after a claim, if the claim is possible.
    pub(super) fn after(&self, position: u64, claim: Claim) -> Option<u64> {
        let count = u64::from(claim.count);
        let slot = slot_of(position, self.claims.len()) as u64;
        (count > 0 && slot + count <= self.capacity()).then(|| position + count)
    }

    fn has_room_at(&self, cursor: &mut Cursor, count: u64) -> Result<bool, Damaged> {
        if cursor.at + count <= cursor.head_seen + self.capacity() {
            return Ok(true);
        }
        self.read_head(cursor)?;
        Ok(cursor.at + count <= cursor.head_seen + self.capacity())
    }

    /// Whether `count` contiguous slots could be claimed now.
    pub(super) fn has_room(&self, cursor: &mut Cursor, count: u64) -> Result<bool, Damaged> {
        self.walk_to_end(cursor, &mut self.steps_max())?;
        let to_end = self.capacity() - slot_of(cursor.at, self.claims.len()) as u64;
        let padding = if to_end < count { to_end } else { 0 };
        self.has_room_at(cursor, padding + count)
    }

    /// Claims `count` contiguous slots for `sender`. Returns their position, or `None` if there is
    /// no room.
    pub(super) fn claim(&self, cursor: &mut Cursor, count: u64, sender: u16) -> Result<Option<u64>, Damaged> {
        let mut steps = self.steps_max();
        loop {
            let found = self.walk_to_end(cursor, &mut steps)?;
            let to_end = self.capacity() - slot_of(cursor.at, self.claims.len()) as u64;
            let padding = to_end < count;
            let taken = if padding { to_end } else { count };
            if !self.has_room_at(cursor, taken)? {
                return Ok(None);
            }
            let lap = lap_of(cursor.at, self.claims.len());
            let claim = Claim { lap, sender, padding, count: u16::try_from(taken).map_err(|_| Damaged)? };
            let word = &self.claims[slot_of(cursor.at, self.claims.len())];
            if !word.replace(found, claim.encode()) {
                continue;
            }
            let position = cursor.at;
            cursor.at += taken;
            cursor.claimed += 1;
            if cursor.claimed.is_multiple_of(CLAIMS_PER_HINT) {
                self.hint.set(position);
            }
            if !padding {
                return Ok(Some(position));
            }
        }
    }

    /// The claims from `from`, which must be the start of a claim, to the end. At most as many as
    /// there are slots.
    pub(super) fn claims_from(&self, from: u64) -> impl Iterator<Item = (u64, Claim)> + '_ {
        let mut at = from;
        std::iter::from_fn(move || {
            let (_, claim) = self.claim_at(at);
            let next = self.after(at, claim).filter(|_| claim.lap == lap_of(at, self.claims.len()))?;
            if next - from > self.capacity() {
                return None;
            }
            let here = at;
            at = next;
            Some((here, claim))
        })
    }
}
