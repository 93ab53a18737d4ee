//! Which bytes of a feed does a reader copy, and what are they worth?
//!
//! ```text
//! header -> pieces to copy -> header again -> records, or: too late
//! ```

use super::{BEGIN_AT, END_AT, LIFE_AT};
use crate::{
    limits::{FEED_HEADER_BYTES, FEED_READ_BYTES_MAX},
    log::{Record, Tail, read},
};
use std::ops::Range;

/// The header of a feed, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedHeader {
    /// Bytes ever written.
    pub end: u64,
    /// Bytes that may be gone.
    pub begin: u64,
    /// The home's life.
    pub life: u64,
}

impl FeedHeader {
    /// Out of a private copy of the memory's first bytes.
    #[must_use]
    pub fn of(bytes: &[u8; FEED_HEADER_BYTES]) -> Self {
        let word = |at: usize| {
            let word = bytes[at..].first_chunk();
            word.map_or(0, |word| u64::from_le_bytes(*word))
        };
        Self { end: word(END_AT), begin: word(BEGIN_AT), life: word(LIFE_AT) }
    }
}

/// Parts of the feed's memory, one behind the other as they are to be copied; the second is empty
/// but where the ring ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// The first part.
    pub first: Range<usize>,
    /// What goes on at the ring's beginning.
    pub second: Range<usize>,
}

impl Pieces {
    /// Bytes of both.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.first.len() + self.second.len()
    }
}

/// A reader cannot go on, and has to learn from the home what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Behind {
    /// The home was started anew.
    #[error("the feed is of life {found} of its home, expected {expected}: the home was started anew")]
    Life {
        /// In the header.
        found: u64,
        /// The reader's.
        expected: u64,
    },
    /// What it would read is overwritten.
    #[error("the feed begins at byte {begin}, and the reader is at {at}: it was away for too long")]
    Overwritten {
        /// The first byte that is surely there.
        begin: u64,
        /// Where the reader is.
        at: u64,
    },
    /// The bytes are no records.
    #[error("at byte {at} of the feed lies no record though the feed ends at {end}")]
    NoRecord {
        /// Where the reader is.
        at: u64,
        /// Where the feed ends.
        end: u64,
    },
}

/// A place in a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedReader {
    life: u64,
    tail: Tail,
    capacity: usize,
}

impl FeedReader {
    /// A reader that knows all up to a mark of this life, of a feed in so many bytes of memory.
    #[must_use]
    pub fn at(mark: Tail, life: u64, memory_bytes: usize) -> Self {
        let capacity = memory_bytes.saturating_sub(FEED_HEADER_BYTES) / super::WORD * super::WORD;
        Self { life, tail: mark, capacity }
    }

    /// Where it is, in bytes ever written: all before is read.
    #[must_use]
    pub fn offset_bytes(&self) -> u64 {
        self.tail.offset_bytes
    }

    /// What to copy, if there is anything new. A long feed is read in several turns.
    ///
    /// # Errors
    /// [`Behind`].
    pub fn wanted(&self, header: FeedHeader) -> Result<Option<Pieces>, Behind> {
        self.check(header)?;
        let at = self.tail.offset_bytes;
        let Some(new) = header.end.checked_sub(at).filter(|new| *new > 0 && self.capacity > 0) else {
            return Ok(None);
        };
        let new = usize::try_from(new).unwrap_or(usize::MAX).min(FEED_READ_BYTES_MAX).min(self.capacity);
        let from = usize::try_from(at % self.capacity as u64).unwrap_or(0);
        let here = new.min(self.capacity - from);
        let first = FEED_HEADER_BYTES + from..FEED_HEADER_BYTES + from + here;
        Ok(Some(Pieces { first, second: FEED_HEADER_BYTES..FEED_HEADER_BYTES + new - here }))
    }

    /// The records in bytes that were copied as wanted, if the header that was looked at afterwards
    /// does not say that they may have been overwritten meanwhile.
    ///
    /// # Errors
    /// [`Behind`]; nothing was taken then.
    pub fn take(&mut self, bytes: &[u8], after: FeedHeader) -> Result<Vec<Record>, Behind> {
        self.check(after)?;
        let (records, tail, _) = read(self.tail, bytes);
        if records.is_empty() && bytes.len() >= FEED_READ_BYTES_MAX.min(self.capacity) {
            // Not even one record in as much as a reader takes: nothing will become of it.
            return Err(Behind::NoRecord { at: self.tail.offset_bytes, end: after.end });
        }
        self.tail = tail;
        Ok(records)
    }

    fn check(&self, header: FeedHeader) -> Result<(), Behind> {
        if header.life != self.life {
            return Err(Behind::Life { found: header.life, expected: self.life });
        }
        if header.begin > self.tail.offset_bytes {
            return Err(Behind::Overwritten { begin: header.begin, at: self.tail.offset_bytes });
        }
        Ok(())
    }
}
