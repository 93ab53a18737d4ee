//! The reading end of a feed: computes which bytes to copy, and decodes the records in them. The
//! caller copies the bytes.
//!
//! ```text
//! read the header -> copy the new bytes, in up to two pieces -> read the header again -> records, or an error: the bytes may have been overwritten
//! ```

use super::{BEGIN_AT, END_AT, LIFE_AT};
use crate::{
    limits::{FEED_HEADER_BYTES, FEED_READ_BYTES_MAX},
    log::{Record, Tail, read},
};
use std::ops::Range;

/// The header of a feed, at one point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedHeader {
    /// Bytes ever written.
    pub end: u64,
    /// Bytes that may be overwritten.
    pub begin: u64,
    /// The participant's life.
    pub life: u64,
}

impl FeedHeader {
    /// Decodes a private copy of the first bytes of the memory.
    #[must_use]
    pub fn of(bytes: &[u8; FEED_HEADER_BYTES]) -> Self {
        let word = |at: usize| {
            let word = bytes[at..].first_chunk();
            word.map_or(0, |word| u64::from_le_bytes(*word))
        };
        Self { end: word(END_AT), begin: word(BEGIN_AT), life: word(LIFE_AT) }
    }
}

/// Ranges of the feed's memory to copy, in this order. The second is empty unless the bytes wrap
/// around the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// The first part.
    pub first: Range<usize>,
    /// The rest, at the beginning of the ring.
    pub second: Range<usize>,
}

impl Pieces {
    /// Bytes of both.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.first.len() + self.second.len()
    }
}

/// The reader cannot continue, and has to scan the participant again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Behind {
    /// The participant was started anew.
    #[error(
        "the feed belongs to life {found} of its participant, expected life {expected}: the participant has restarted; scan it again"
    )]
    Life {
        /// The life in the header.
        found: u64,
        /// The reader's life.
        expected: u64,
    },
    /// The bytes that it would read are overwritten.
    #[error(
        "the reader of the feed was too slow: its next byte is {at}, but the feed begins at byte {begin} by now; scan the participant again"
    )]
    Overwritten {
        /// The first byte that is not overwritten.
        begin: u64,
        /// The reader's position.
        at: u64,
    },
    /// The bytes are not records.
    #[error(
        "the bytes of the feed from {at} on are not a record, although the feed ends at byte {end}: scan the participant again"
    )]
    NoRecord {
        /// The reader's position.
        at: u64,
        /// Where the feed ends.
        end: u64,
    },
}

/// A reader of a feed: its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedReader {
    life: u64,
    tail: Tail,
    capacity: usize,
}

impl FeedReader {
    /// A reader that begins at a mark of this life, of a feed in memory of this size.
    #[must_use]
    pub fn at(mark: Tail, life: u64, memory_bytes: usize) -> Self {
        let capacity = memory_bytes.saturating_sub(FEED_HEADER_BYTES) / super::WORD * super::WORD;
        Self { life, tail: mark, capacity }
    }

    /// Its position, in bytes ever written: all before is read.
    #[must_use]
    pub fn offset_bytes(&self) -> u64 {
        self.tail.offset_bytes
    }

    /// What to copy, if there is anything new. A long feed is read in several steps.
    ///
    /// # Errors
    /// [`Behind`].
    pub fn wanted(&self, header: FeedHeader) -> Result<Option<Pieces>, Behind> {
        self.check(header)?;
        let at = self.tail.offset_bytes;
        let Some(new) = header.end.checked_sub(at).filter(|new| *new > 0 && self.capacity > 0) else {
            return Ok(None);
        };
        let new = new.min(FEED_READ_BYTES_MAX as u64).min(self.capacity as u64);
        let new = usize::try_from(new).expect("at most FEED_READ_BYTES_MAX");
        let from = usize::try_from(at % self.capacity as u64).expect("below the capacity");
        let here = new.min(self.capacity - from);
        let first = FEED_HEADER_BYTES + from..FEED_HEADER_BYTES + from + here;
        Ok(Some(Pieces { first, second: FEED_HEADER_BYTES..FEED_HEADER_BYTES + new - here }))
    }

    /// The records in bytes that were copied as [`FeedReader::wanted`] says. `after` is the header
    /// as read after copying; it must not say that the bytes may have been overwritten meanwhile.
    ///
    /// # Errors
    /// [`Behind`]; nothing was taken then.
    pub fn take(&mut self, bytes: &[u8], after: FeedHeader) -> Result<Vec<Record>, Behind> {
        self.check(after)?;
        let (records, tail, _) = read(self.tail, bytes);
        if records.is_empty() && bytes.len() >= FEED_READ_BYTES_MAX.min(self.capacity) {
            // Not even one record in the maximum that a reader takes, so there will never be one.
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
