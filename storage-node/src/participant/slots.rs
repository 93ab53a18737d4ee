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
        let written = self.0.copy_in(offset, words);
        // The caller stays within the memory. If it did not, readers would find no whole slot and
        // ask.
        debug_assert!(written.is_ok(), "{written:?}");
    }

    fn store_word(&mut self, offset: usize, word: u64) {
        let stored = self.0.store_u64(offset, word);
        debug_assert!(stored.is_ok(), "{stored:?}");
    }
}
