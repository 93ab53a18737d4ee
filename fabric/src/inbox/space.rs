//! Records which granules (units of allocation) of a ring are in use, for the receiver.
//!
//! Invariants
//! - `granules given back <= head <= end of the packets taken <= head + granules`.
//! - A granule is given back to the senders only when its packet was taken, its sender has left, or
//!   it is padding. Granules are given back in order.

use std::sync::atomic::Ordering;

use super::{
    claim::ClaimRing,
    layout::{InboxMap, Packet, granules_of, slot_of},
};
use crate::error::OutOfBounds;

/// The receiver's side of one ring.
#[derive(Debug)]
pub(super) struct SpaceReader {
    ring: usize,
    /// The first granule that is in use.
    head: u64,
    given_back: u64,
    /// The end of the last packet that was taken, in the order of positions.
    seen_end: u64,
    /// Packets beyond the head that were taken already, by slot: position and number of granules.
    taken: Vec<(u64, u16)>,
}

fn claims(map: &InboxMap, ring: usize) -> Result<ClaimRing<'_>, OutOfBounds> {
    Ok(ClaimRing { claims: map.ring_claims(ring)?, head: map.ring_head(ring)?, hint: map.ring_hint(ring)? })
}

impl SpaceReader {
    pub(super) fn new(map: &InboxMap, ring: usize) -> Self {
        let granules = map.layout.granules;
        let first = granules as u64;
        Self { ring, head: first, given_back: first, seen_end: first, taken: vec![(0, 0); granules] }
    }

    /// Describes what is wrong with the position of a packet, if anything.
    pub(super) fn problem(&self, packet: &Packet) -> Option<String> {
        let granules = self.taken.len();
        let Packet { position, length, .. } = *packet;
        let count = granules_of(length as usize);
        let slot = slot_of(position, granules);
        let inside = position >= self.head && position - self.head < granules as u64;
        let whole = slot as u64 + count <= granules as u64;
        let fresh = inside && self.taken[slot].0 != position;
        if inside && whole && fresh && position + count <= self.head + granules as u64 {
            return None;
        }
        Some(format!(
            "it wrote a packet of {length} bytes at the impossible granule {position} of a ring whose head is {}",
            self.head
        ))
    }

    /// Marks the granules of a packet as taken: it was copied out, or nobody wants it. It must have
    /// no `problem`.
    pub(super) fn take(&mut self, map: &InboxMap, packet: &Packet) {
        let count = granules_of(packet.length as usize);
        self.seen_end = self.seen_end.max(packet.position + count);
        if packet.position == self.head {
            self.head += count;
        } else {
            self.mark(packet.position, count);
        }
        if self.head < self.seen_end {
            self.advance(map);
        }
    }

    fn mark(&mut self, position: u64, count: u64) {
        let slot = slot_of(position, self.taken.len());
        // Callers have checked that the granules lie in the ring.
        let count = u16::try_from(count).expect("the granules of a ring fit 15 bits");
        self.taken[slot] = (position, count);
    }

    /// Moves the head over taken packets and padding.
    pub(super) fn advance(&mut self, map: &InboxMap) {
        let Ok(claims) = claims(map, self.ring) else { return };
        for _ in 0..self.taken.len() {
            let (position, count) = self.taken[slot_of(self.head, self.taken.len())];
            if position == self.head && count > 0 {
                self.head += u64::from(count);
                continue;
            }
            match claims.claims_from(self.head).next() {
                Some((_, claim)) if claim.padding => self.head += u64::from(claim.count),
                _ => break,
            }
        }
        self.seen_end = self.seen_end.max(self.head);
    }

    /// Takes the granules that a sender which is gone has claimed and never reported. Everything
    /// that it reported was taken before.
    pub(super) fn sweep(&mut self, map: &InboxMap, sender: u16) {
        let Ok(claims) = claims(map, self.ring) else { return };
        for (position, claim) in claims.claims_from(self.head) {
            let taken = self.taken[slot_of(position, self.taken.len())].0 == position;
            if claim.sender == sender && !claim.padding && !taken {
                self.mark(position, u64::from(claim.count));
                self.seen_end = self.seen_end.max(position + u64::from(claim.count));
            }
        }
        self.advance(map);
    }

    /// Gives granules back if there are at least `least`. Returns whether it did.
    pub(super) fn give_back(&mut self, map: &InboxMap, least: u64) -> bool {
        if self.head - self.given_back < least.max(1) {
            return false;
        }
        self.given_back = self.head;
        if let Ok(word) = map.ring_head(self.ring) {
            word.store(self.head, Ordering::Release);
        }
        true
    }

    /// Number of granules that were claimed and not given back, as far as the receiver has seen.
    pub(super) fn granules_in_use(&self) -> u64 {
        self.seen_end - self.given_back
    }
}
