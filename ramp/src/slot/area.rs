//! Allocates slots in registered memory, and orders the writes to each slot so that a concurrent
//! reader detects an incomplete image. (The image is the encoded version in a slot.)
//!
//! ```text
//! publish:    valid = 0 | version = odd | length .. value | last word | version = even | valid = version
//! invalidate: valid = 0                   revalidate: valid = version
//! ```
//!
//! Invariants
//! - Slots begin and end at multiples of 64 bytes and never overlap. A slot never changes its size,
//!   and is used only for images that fit.
//! - The version number of an image is never used again in an area, in any slot.
//! - A freed slot is invalid before its key is changed in any other way, and before the slot is
//!   used for another key.
//! - Only the owner of the area writes to it. Peers may read at any time, and use only what
//!   `layout::decode` accepts.

use super::layout::{self, Image, LENGTH_AT, VALID_AT};
use crate::{
    item::{Key, Version},
    limits::{SLOT_ALIGNMENT_BYTES, SLOT_BYTES_MAX, SLOT_CLASSES_PER_DOUBLING},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Memory that peers may read. Callers guarantee that offsets are multiples of 8 and inside the
/// memory.
pub trait SlotMemory {
    /// Its length.
    fn bytes(&self) -> usize;
    /// Copies whole words in. A peer may see them in any order.
    fn write(&mut self, offset: usize, words: &[u8]);
    /// Stores one word, which becomes visible after all that was written before.
    fn store_word(&mut self, offset: usize, word: u64);
}

/// Slot memory that no peer reads: for nodes whose clients only send messages, and for tests.
#[derive(Clone, Debug, Default)]
pub struct SlotVector {
    bytes: Vec<u8>,
}

impl SlotVector {
    /// Zeroed memory.
    #[must_use]
    pub fn zeroed(bytes: usize) -> Self {
        Self { bytes: vec![0; bytes] }
    }

    /// Its bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }
}

impl SlotMemory for SlotVector {
    fn bytes(&self) -> usize {
        self.bytes.len()
    }

    fn write(&mut self, offset: usize, words: &[u8]) {
        self.bytes[offset..offset + words.len()].copy_from_slice(words);
    }

    fn store_word(&mut self, offset: usize, word: u64) {
        self.write(offset, &word.to_le_bytes());
    }
}

/// The location of a slot, as told to readers, which read all of it at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    /// Offset from the beginning of the area.
    pub offset_bytes: u64,
    /// Length of the slot; its image may be shorter.
    pub length_bytes: u32,
}

/// A slot that is in use.
#[derive(Debug)]
pub(crate) struct Slot {
    offset: usize,
    bytes: usize,
    /// The version number of the image in it.
    number: u64,
    valid: bool,
}

impl Slot {
    /// Its location.
    pub(crate) fn place(&self) -> Place {
        let length_bytes = u32::try_from(self.bytes).expect("a slot has at most SLOT_BYTES_MAX bytes");
        Place { offset_bytes: self.offset as u64, length_bytes }
    }
}

/// The slots of one participant.
#[derive(Debug)]
pub struct SlotArea<M> {
    memory: M,
    life: u64,
    /// The version number of the last image.
    number: u64,
    /// The offset behind all slots.
    end: usize,
    /// Offsets of free slots, by size.
    free: BTreeMap<usize, Vec<usize>>,
}

impl<M: SlotMemory> SlotArea<M> {
    /// An area in `memory`, which is zeroed, of a participant in this `life`.
    pub fn new(memory: M, life: u64) -> Self {
        Self { memory, life, number: 0, end: 0, free: BTreeMap::new() }
    }

    /// The memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Puts a version into the slot of its key, or into another one if it does not fit there.
    /// `None` if there is no slot that it fits in.
    pub(crate) fn publish(&mut self, slot: Option<Slot>, key: &Key, version: &Version) -> Option<Slot> {
        let wanted = class_of(layout::image_bytes(key, version));
        let fits =
            |slot: &Slot| wanted.is_some_and(|wanted| wanted <= slot.bytes && slot.bytes <= 4 * wanted);
        let slot = match slot {
            Some(slot) if fits(&slot) => slot,
            other => {
                other.into_iter().for_each(|slot| self.give_up(slot));
                self.take(wanted?)?
            }
        };
        Some(self.fill(slot, Image { key, version, life: self.life }))
    }

    fn fill(&mut self, slot: Slot, image: Image<'_>) -> Slot {
        self.number += 2;
        let (number, at) = (self.number, slot.offset);
        let bytes = layout::encode(image, number);
        self.memory.store_word(at + VALID_AT, 0);
        self.memory.store_word(at, number - 1);
        self.memory.write(at + LENGTH_AT, &bytes[LENGTH_AT..]);
        self.memory.store_word(at, number);
        self.memory.store_word(at + VALID_AT, number);
        Slot { number, valid: true, ..slot }
    }

    /// Tells readers that a newer version is prepared.
    pub(crate) fn invalidate(&mut self, slot: &mut Slot) {
        if slot.valid {
            self.memory.store_word(slot.offset + VALID_AT, 0);
            slot.valid = false;
        }
    }

    /// Makes the image valid again, because the newer version was aborted.
    pub(crate) fn revalidate(&mut self, slot: &mut Slot) {
        if !slot.valid {
            self.memory.store_word(slot.offset + VALID_AT, slot.number);
            slot.valid = true;
        }
    }

    /// Frees the slot for other keys.
    pub(crate) fn give_up(&mut self, mut slot: Slot) {
        self.invalidate(&mut slot);
        self.free.entry(slot.bytes).or_default().push(slot.offset);
    }

    /// Allocates a slot of this size, or up to four times as large if there is no room for a new
    /// one.
    fn take(&mut self, bytes: usize) -> Option<Slot> {
        let slot = |offset, bytes| Slot { offset, bytes, number: 0, valid: false };
        if let Some(offset) = self.free.get_mut(&bytes).and_then(Vec::pop) {
            return Some(slot(offset, bytes));
        }
        if bytes <= self.memory.bytes() - self.end {
            let offset = self.end;
            self.end += bytes;
            return Some(slot(offset, bytes));
        }
        let larger = self.free.range_mut(bytes..=4 * bytes).find(|(_, offsets)| !offsets.is_empty());
        larger.and_then(|(bytes, offsets)| offsets.pop().map(|offset| slot(offset, *bytes)))
    }
}

/// The size class of images of this length; `None` if they are too long for any slot.
fn class_of(image_bytes: usize) -> Option<usize> {
    let step = image_bytes.next_power_of_two() / (2 * SLOT_CLASSES_PER_DOUBLING);
    let class = image_bytes.next_multiple_of(step.max(SLOT_ALIGNMENT_BYTES));
    (class <= SLOT_BYTES_MAX).then_some(class)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        item::{Metadata, Value},
        slot::{SlotFault, decode},
        timestamp::{ClientId, Timestamp},
    };

    fn key(text: &str) -> Key {
        Key::new(text.as_bytes()).unwrap()
    }

    fn version(time: u64, bytes: usize) -> Version {
        let value = vec![u8::try_from(time % 251).unwrap(); bytes];
        let timestamp = Timestamp { time, client: ClientId(1) };
        Version { timestamp, metadata: Metadata::Timestamp, value: Value::new(&value).unwrap() }
    }

    fn read(area: &SlotArea<SlotVector>, place: Place, key: &Key) -> Result<Version, SlotFault> {
        let from = usize::try_from(place.offset_bytes).unwrap();
        let length = usize::try_from(place.length_bytes).unwrap();
        decode(&area.memory().as_slice()[from..from + length], key, 3)
    }

    #[test]
    fn an_update_of_about_the_same_length_stays_in_its_place() {
        let mut area = SlotArea::new(SlotVector::zeroed(8192), 3);
        let first = area.publish(None, &key("a"), &version(1, 1000)).unwrap();
        let place = first.place();
        let second = area.publish(Some(first), &key("a"), &version(2, 900)).unwrap();
        assert_eq!(second.place(), place);
        assert_eq!(read(&area, place, &key("a")), Ok(version(2, 900)));
    }

    #[test]
    fn a_place_that_was_left_is_not_believed_and_is_used_again() {
        let mut area = SlotArea::new(SlotVector::zeroed(8192), 3);
        let first = area.publish(None, &key("a"), &version(1, 100)).unwrap();
        let left = first.place();
        area.publish(Some(first), &key("a"), &version(2, 1000)).unwrap();
        assert_eq!(read(&area, left, &key("a")), Err(SlotFault::Invalid { found: 0, expected: 2 }));
        let other = area.publish(None, &key("b"), &version(3, 100)).unwrap();
        assert_eq!(other.place(), left);
        assert!(matches!(read(&area, left, &key("a")), Err(SlotFault::OtherKey { .. })));
    }

    #[test]
    fn an_invalid_slot_becomes_valid_again_only_as_what_it_was() {
        let mut area = SlotArea::new(SlotVector::zeroed(4096), 3);
        let mut slot = area.publish(None, &key("a"), &version(1, 10)).unwrap();
        let place = slot.place();
        area.invalidate(&mut slot);
        assert_eq!(read(&area, place, &key("a")), Err(SlotFault::Invalid { found: 0, expected: 2 }));
        area.revalidate(&mut slot);
        assert_eq!(read(&area, place, &key("a")), Ok(version(1, 10)));
    }

    #[test]
    fn an_area_that_is_full_gives_no_slot_and_a_large_one_in_need() {
        let mut area = SlotArea::new(SlotVector::zeroed(1024), 3);
        let large = area.publish(None, &key("a"), &version(1, 500)).unwrap();
        assert!(area.publish(None, &key("b"), &version(2, 500)).is_none());
        assert!(
            area.publish(None, &key("b"), &version(2, SLOT_BYTES_MAX)).is_none(),
            "too large for any slot"
        );
        let place = large.place();
        area.give_up(large);
        area.publish(None, &key("c"), &version(3, 400)).unwrap();
        let last = area.publish(None, &key("d"), &version(4, 300));
        assert!(last.is_none_or(|slot| slot.place() != place));
    }

    #[test]
    fn at_most_an_eighth_of_a_slot_lies_idle() {
        for bytes in (72..SLOT_BYTES_MAX - 64).step_by(8) {
            let class = class_of(bytes).unwrap();
            assert!(class >= bytes && class.is_multiple_of(SLOT_ALIGNMENT_BYTES));
            assert!(class - bytes < SLOT_ALIGNMENT_BYTES.max(class / 8 + 1), "{bytes} in {class}");
        }
    }
}
