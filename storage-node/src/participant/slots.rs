//! Provides the memory of the participant's slots and of its feed, which clients and other nodes
//! may read one-sidedly.
//!
//! A slot contains the newest committed version of a key. The feed contains the recent records of
//! transactions, for clients that follow all changes.

use rackscan_fabric::Region;
use rackscan_ramp::slot::SlotMemory;

/// A region with slots, or with a feed.
#[derive(Debug)]
pub(crate) struct RegionSlots(pub(crate) Region);

impl SlotMemory for RegionSlots {
    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn write(&mut self, offset: usize, words: &[u8]) {
        self.0.copy_in(offset, words).expect("a slot lies within the memory");
    }

    fn store_word(&mut self, offset: usize, word: u64) {
        self.0.store_u64(offset, word).expect("a slot lies within the memory, and words are aligned");
    }
}
