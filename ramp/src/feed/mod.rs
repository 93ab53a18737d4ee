//! Feeds: a participant publishes its records in registered memory, and readers follow them with
//! one-sided reads.
//!
//! A feed is a ring: memory in which the newest records overwrite the oldest ones. The participant
//! appends what it prepares, commits and refuses, as records like those of its log. A reader that
//! knows a position in the ring copies the bytes that were written since, and so gets the same
//! records in the same order.
//!
//! | bytes | |
//! |---|---|
//! | 0..8 | end: the number of bytes ever written; all bytes before it are readable |
//! | 8..16 | begin: bytes before it may be overwritten at this moment |
//! | 16..24 | the number of the participant's life |
//! | 64.. | the ring: byte `p` of all bytes ever written lies at `p` modulo its length |
//!
//! - This file: the writing end. `reader`: the reading end. `follow`: the trait of types that
//!   process the records of all participants.
//!
//! Invariants
//! - `begin` moves before bytes are overwritten, `end` after they are written. So bytes that were
//!   copied between two reads of the header are valid if they lie before the `end` of the first
//!   read and not before the `begin` of the second.
//! - The checksum of a record covers that of the record before (`log/frame`). So torn or
//!   overwritten bytes, and those of another life, are not mistaken for records.
//! - A reader that falls too far behind gets an error; it never gets records with a gap.
//! - Only the participant writes. Readers write nothing, so any number of them costs the
//!   participant nothing.
//! - A record in a feed may not be durable yet. That is safe: a reader counts a transaction when
//!   some participant records its COMMIT, which happens only after all participants have durably
//!   voted for it. A crash may lose that COMMIT record, but not the votes, and the votes decide.

mod follow;
mod reader;

pub use follow::Follow;
pub use reader::{Behind, FeedHeader, FeedReader, Pieces};

use crate::{
    limits::FEED_HEADER_BYTES,
    log::{LogWriter, Record, Tail},
    slot::SlotMemory,
};

const END_AT: usize = 0;
const BEGIN_AT: usize = 8;
const LIFE_AT: usize = 16;
const WORD: usize = 8;

/// The writing end of a feed.
#[derive(Debug)]
pub struct Feed<M> {
    memory: M,
    writer: LogWriter,
    /// Bytes of the ring, a whole number of words.
    capacity: usize,
    begin: u64,
    end: u64,
    /// The word in which the feed ends, which has to be written again together with what follows.
    last_word: [u8; WORD],
}

impl<M: SlotMemory> Feed<M> {
    /// An empty feed in zeroed memory; `None` if the memory is too small for a ring.
    #[must_use]
    pub fn new(mut memory: M, life: u64) -> Option<Self> {
        let capacity = memory.bytes().checked_sub(FEED_HEADER_BYTES)? / WORD * WORD;
        if capacity == 0 {
            return None;
        }
        memory.store_word(LIFE_AT, life);
        let writer = LogWriter::after(Tail::START);
        Some(Self { memory, writer, capacity, begin: 0, end: 0, last_word: [0; WORD] })
    }

    /// The memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Adds a record. Readers see it after [`Feed::publish`].
    pub fn append(&mut self, record: &Record) {
        self.writer.append(record);
    }

    /// Publishes all records, and returns the position from which a reader follows that knows all
    /// of them.
    #[must_use]
    pub fn mark(&mut self) -> Tail {
        self.publish();
        self.writer.tail()
    }

    /// Makes added records visible to readers.
    pub fn publish(&mut self) {
        let Some(batch) = self.writer.take_batch() else { return };
        let end = batch.offset_bytes + batch.bytes.len() as u64;
        let room = self.capacity as u64;
        // One word more than the bytes, because the word in which they begin is written again as a
        // whole.
        let begin = (end + WORD as u64).saturating_sub(room);
        if batch.bytes.len() + 2 * WORD > self.capacity {
            // No reader can follow so many bytes: all must begin anew.
            self.begin = end;
            self.memory.store_word(BEGIN_AT, end);
            self.last_word = [0; WORD];
        } else {
            if begin > self.begin {
                self.begin = begin;
                self.memory.store_word(BEGIN_AT, begin);
            }
            self.write(&batch.bytes);
        }
        self.end = end;
        self.memory.store_word(END_AT, end);
    }

    /// Writes bytes at the end of the ring, in whole words, and wraps around.
    fn write(&mut self, bytes: &[u8]) {
        let used = usize::try_from(self.end % WORD as u64).expect("below the bytes of a word");
        let mut words = Vec::with_capacity(bytes.len() + 2 * WORD);
        words.extend_from_slice(&self.last_word[..used]);
        words.extend_from_slice(bytes);
        let left_over = words.len() % WORD;
        words.resize(words.len().next_multiple_of(WORD), 0);
        self.last_word = [0; WORD];
        if left_over > 0
            && let Some(last) = words.last_chunk::<WORD>()
        {
            self.last_word = *last;
        }
        let first = self.end - used as u64;
        let at = usize::try_from(first % self.capacity as u64).expect("below the capacity");
        let (here, round) = words.split_at(words.len().min(self.capacity - at));
        self.memory.write(FEED_HEADER_BYTES + at, here);
        if !round.is_empty() {
            self.memory.write(FEED_HEADER_BYTES, round);
        }
    }
}

#[cfg(test)]
mod tests;
