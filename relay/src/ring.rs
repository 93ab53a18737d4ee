//! Computes how far a sender may go in a ring of its receiver, and which slot contains which slice.
//! A ring is a number of slots in the receiver's memory, for one step in one lane; slices use the
//! slots in turn.
//!
//! ```text
//! in the receiver's memory:
//!   slots     a ring of 4:  | slice 8 | slice 5 | slice 6 | slice 7 |     position 8 lies in slot 8 mod 4
//!   journal   | name of the slice sent first | name of the second | ...   one for all rings of a link, in the order of sending
//! in the sender's memory:
//!   credits   | position before which the receiver needs no slice any more | ...   one for each ring
//! ```
//!
//! A sender writes the name of the slice (stripe, ring and number) into the journal, and then the
//! slice into its slot. The second write carries the slice's checksum as immediate data, which
//! notifies the receiver. Notifications arrive in the order of sending, so the receiver knows which
//! name belongs to which notification. The receiver grants credit by a one-sided write into the
//! sender's memory, each time that a quarter of the ring has become free.
//!
//! Invariants
//! - This file computes with numbers only. Positions count slices over the whole session and never
//!   start over.
//! - `credit <= sent <= credit + slots` at the sender. The receiver checks the same of what has
//!   arrived; anything else is a violation of the protocol.
//! - Credit never shrinks: a value below the known one is outdated and ignored.

use std::collections::VecDeque;

use crate::limits::CREDITS_PER_RING;

/// Identifies a slice that a sender has sent. It is written into the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SliceName {
    /// The ring, among those of the sender at this receiver.
    pub(crate) ring: u16,
    /// The number of the slice in its cell; three bytes.
    pub(crate) slice: u32,
    /// The lowest 16 bits of the stripe's number.
    pub(crate) stripe: u16,
}

impl SliceName {
    /// Bytes in the journal.
    pub(crate) const BYTES: usize = 8;

    pub(crate) fn to_word(self) -> u64 {
        u64::from(self.ring) << 48 | u64::from(self.stripe) << 32 | u64::from(self.slice)
    }

    /// Decodes any word that a peer may have written.
    pub(crate) fn from_word(word: u64) -> Self {
        let part = |shift: u32| u16::try_from(word >> shift & 0xFFFF).expect("16 bits");
        Self { ring: part(48), slice: u32::from(part(16)) << 16 | u32::from(part(0)), stripe: part(32) }
    }
}

/// The credit of a ring, as its receiver writes it into the sender's memory: a position, and a
/// proof that it is complete. An adapter may store a word byte by byte, and a mix of two positions
/// may be greater than both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credit(pub(crate) u64);

impl Credit {
    pub(crate) const BYTES: usize = 16;

    /// The proof of the position. Zeroed memory is position 0.
    fn proof(self) -> u64 {
        self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.0.to_le_bytes());
        bytes[8..].copy_from_slice(&self.proof().to_le_bytes());
        bytes
    }

    /// Decodes a credit; `None` if position and proof do not match. Then it is being written, and
    /// its writer wakes the reader afterwards.
    pub(crate) fn from_words(position: u64, proof: u64) -> Option<Self> {
        let credit = Self(position);
        (credit.proof() == proof).then_some(credit)
    }
}

/// A violation by the peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RingFault {
    #[error("the sender wrote slice {slice} into a ring of {slots} slots without credit for it")]
    Overrun { slice: u32, slots: u32 },
    #[error(
        "the receiver granted credit up to position {position}, but the sender has sent only {sent} slices"
    )]
    Credit { position: u64, sent: u64 },
}

/// A sender's end of a ring.
#[derive(Clone, Debug)]
pub(crate) struct Outlet {
    slots: u32,
    sent: u64,
    credit: u64,
}

impl Outlet {
    pub(crate) fn new(slots: u32) -> Self {
        Self { slots, sent: 0, credit: 0 }
    }

    /// Whether there is a free slot.
    pub(crate) fn has_room(&self) -> bool {
        self.sent - self.credit < u64::from(self.slots)
    }

    /// The position of the next slice.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Counts a slice that is sent.
    pub(crate) fn send(&mut self) {
        self.sent += 1;
    }

    /// Takes the credit that the receiver has written into our memory. Returns whether it is new: a
    /// smaller one than is known is old, and changes nothing.
    pub(crate) fn take_credit(&mut self, Credit(position): Credit) -> Result<bool, RingFault> {
        if position > self.sent {
            return Err(RingFault::Credit { position, sent: self.sent });
        }
        let is_new = position > self.credit;
        self.credit = self.credit.max(position);
        Ok(is_new)
    }
}

/// A slice that has arrived and was not taken yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) name: SliceName,
    pub(crate) checksum: u32,
}

/// A receiver's end of a ring.
#[derive(Clone, Debug)]
pub(crate) struct Inlet {
    slots: u32,
    arrived: u64,
    /// The credit that the sender was granted: it may overwrite slices before this position.
    published: u64,
    /// The position of the first slice of the present stripe.
    base: u64,
    /// Slices that were not taken yet: at most as many as slots.
    waiting: VecDeque<Arrived>,
}

impl Inlet {
    pub(crate) fn new(slots: u32) -> Self {
        Self { slots, arrived: 0, published: 0, base: 0, waiting: VecDeque::new() }
    }

    /// Takes in a slice that has arrived.
    pub(crate) fn arrive(&mut self, name: SliceName, checksum: u32) -> Result<(), RingFault> {
        if self.arrived - self.published >= u64::from(self.slots) {
            return Err(RingFault::Overrun { slice: name.slice, slots: self.slots });
        }
        self.arrived += 1;
        self.waiting.push_back(Arrived { name, checksum });
        Ok(())
    }

    /// The next slice that was not taken yet.
    pub(crate) fn take(&mut self) -> Option<Arrived> {
        self.waiting.pop_front()
    }

    /// The number of slices that have arrived.
    #[cfg(test)]
    pub(crate) fn arrived(&self) -> u64 {
        self.arrived
    }

    /// The slot of a slice of the present stripe.
    pub(crate) fn slot(&self, slice: u32) -> usize {
        usize::try_from((self.base + u64::from(slice)) % u64::from(self.slots)).expect("below the slots")
    }

    /// The number of slices, beginning with this one, that are contiguous in memory: up to the end
    /// of the ring.
    pub(crate) fn contiguous(&self, slice: u32) -> u32 {
        self.slots - u32::try_from(self.slot(slice)).expect("below the slots")
    }

    /// The credit to grant, if the first `tail` slices of the present stripe are not needed any
    /// more and enough has become free to be worth a write.
    pub(crate) fn publish(&mut self, tail: u64) -> Option<u64> {
        let free = self.base + tail;
        let worth = (u64::from(self.slots) / CREDITS_PER_RING as u64).max(1);
        if free - self.published < worth {
            return None;
        }
        self.published = free;
        Some(free)
    }

    /// Ends the stripe: the next one begins after its slices.
    pub(crate) fn end_stripe(&mut self, slices: u32) {
        self.base += u64::from(slices);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(slice: u32) -> SliceName {
        SliceName { ring: 0, slice, stripe: 0 }
    }

    #[test]
    fn a_name_survives_its_word() {
        for (ring, slice, stripe) in [(0, 0, 0), (16383, (1 << 20) - 1, u16::MAX), (1, 0x1_0002, 3)] {
            let name = SliceName { ring, slice, stripe };
            assert_eq!(SliceName::from_word(name.to_word()), name);
        }
    }

    #[test]
    fn a_slice_without_credit_is_a_violation() {
        let mut inlet = Inlet::new(2);
        assert_eq!(inlet.arrive(name(0), 0), Ok(()));
        assert_eq!(inlet.arrive(name(1), 0), Ok(()));
        assert_eq!(inlet.arrive(name(2), 0), Err(RingFault::Overrun { slice: 2, slots: 2 }));
        assert_eq!(inlet.publish(1), Some(1));
        assert_eq!(inlet.arrive(name(2), 0), Ok(()));
    }

    #[test]
    fn credit_beyond_what_was_sent_is_a_violation_and_an_old_word_is_nothing_new() {
        let mut outlet = Outlet::new(4);
        (0..3).for_each(|_| outlet.send());
        assert_eq!(outlet.take_credit(Credit(2)), Ok(true));
        assert_eq!(outlet.take_credit(Credit(2)), Ok(false));
        assert_eq!(outlet.take_credit(Credit(1)), Ok(false));
        assert_eq!(
            (outlet.credit, outlet.take_credit(Credit(2))),
            (2, Ok(false)),
            "an old word takes nothing back"
        );
        assert_eq!(outlet.take_credit(Credit(4)), Err(RingFault::Credit { position: 4, sent: 3 }));
        assert_eq!(outlet.take_credit(Credit(3)), Ok(true));
    }

    proptest! {
        #[test]
        fn a_credit_that_is_written_byte_by_byte_is_the_old_one_the_new_one_or_none(
            before in any::<u64>(), after in any::<u64>(), written: [bool; Credit::BYTES],
        ) {
            let mut seen = Credit(before).to_bytes();
            let new = Credit(after).to_bytes();
            (0..seen.len()).filter(|&at| written[at]).for_each(|at| seen[at] = new[at]);
            let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| seen[at + byte]));
            if let Some(Credit(position)) = Credit::from_words(word(0), word(8)) {
                prop_assert!(position == before || position == after, "{position}");
            }
        }

        #[test]
        fn both_ends_agree_whatever_the_order_and_a_sender_is_never_stuck(
            slots in 1_u32..40, stripes in prop::collection::vec(1_u32..50, 1..6), seed in any::<u64>(),
        ) {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut inlet, mut outlet) = (Inlet::new(slots), Outlet::new(slots));
            for slices in stripes {
                let (mut sent, mut done) = (0, 0);
                while done < slices {
                    if sent < slices && outlet.has_room() && random.bool() {
                        let slot = usize::try_from(outlet.sent() % u64::from(slots)).unwrap();
                        prop_assert_eq!(inlet.slot(sent), slot);
                        prop_assert!(inlet.contiguous(sent) >= 1 && inlet.contiguous(sent) as usize + slot == slots as usize);
                        inlet.arrive(name(sent), 0).unwrap();
                        outlet.send();
                        sent += 1;
                    } else if done < sent {
                        prop_assert_eq!(inlet.take().map(|arrived| arrived.name.slice), Some(done));
                        done += 1;
                        if let Some(word) = inlet.publish(u64::from(done)) {
                            prop_assert_eq!(outlet.take_credit(Credit(word)), Ok(true));
                        }
                    } else if sent < slices {
                        prop_assert!(outlet.has_room(), "all is done, and the sender may not go on");
                    }
                }
                inlet.end_stripe(slices);
            }
        }
    }
}
