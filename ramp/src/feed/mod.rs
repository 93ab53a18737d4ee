//! How does a reader follow what a home writes, without asking?
//!
//! A home that is fed from leaves what it prepares, commits and refuses in a ring of registered
//! memory, as records like those of its log. A reader that knows a place in it copies what was
//! written since, by one-sided reads, and has the same records in the same order.
//!
//! | bytes | |
//! |---|---|
//! | 0..8 | end: bytes ever written; what lies before it is there |
//! | 8..16 | begin: what lies before it may be overwritten at this moment |
//! | 16..24 | the home's life |
//! | 64.. | the ring: byte `p` of all bytes ever written lies at `p` modulo its length |
//!
//! Invariants
//! - `begin` moves before bytes are overwritten, `end` after they are written. So bytes that were
//!   copied between two looks at the header are those of the feed if they lie before the first
//!   look's `end` and not before the second one's `begin`.
//! - A checksum continues that of the record before (`log/frame`): what is torn, overwritten or of
//!   another life is no record.
//! - A reader that was away for too long is told so; it never gets records with some left out.
//! - Only the home writes. Readers write nothing, so any number of them costs a home nothing.
//! - What is in a feed may not be durable yet. That is right: a reader counts a transaction when
//!   some home records its COMMIT, which none does before all homes have voted for it, durably.
//!   That record itself may be seen before it is durable here, and lost; the votes decide, and they
//!   stay.

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

/// The end of a feed that its home holds.
#[derive(Debug)]
pub struct Feed<M> {
    memory: M,
    writer: LogWriter,
    /// Bytes of the ring, a multiple of a word.
    capacity: usize,
    begin: u64,
    end: u64,
    /// What lies in the word in which the feed ends, and has to be written again with what follows.
    last_word: [u8; WORD],
}

impl<M: SlotMemory> Feed<M> {
    /// An empty feed in zeroed memory; `None` if that has no room for a ring.
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

    /// Where a reader begins that knows all up to now; nothing waits to be published.
    #[must_use]
    pub fn mark(&mut self) -> Tail {
        self.publish();
        self.writer.tail()
    }

    /// Lets readers see what was added.
    pub fn publish(&mut self) {
        let Some(batch) = self.writer.take_batch() else { return };
        let end = batch.offset_bytes + batch.bytes.len() as u64;
        let room = self.capacity as u64;
        // A word more than the bytes: the one in which they begin is written again as a whole.
        let begin = (end + WORD as u64).saturating_sub(room);
        if batch.bytes.len() + 2 * WORD > self.capacity {
            // Nobody can follow this; all must begin anew.
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

    /// Writes bytes at the end, word by word, round the ring.
    fn write(&mut self, bytes: &[u8]) {
        let used = usize::try_from(self.end % WORD as u64).unwrap_or(0);
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
        let at = usize::try_from(first % self.capacity as u64).unwrap_or(0);
        let (here, round) = words.split_at(words.len().min(self.capacity - at));
        self.memory.write(FEED_HEADER_BYTES + at, here);
        if !round.is_empty() {
            self.memory.write(FEED_HEADER_BYTES, round);
        }
    }
}

#[cfg(test)]
mod tests;
