//! Checks a log that arrives in pieces, which may begin and end anywhere in a record.
//!
//! Log replicas use it. They store a log and do not execute it, so only checksums, sequence numbers
//! and lengths are checked, not the bodies of records.
//!
//! Invariants
//! - A piece that does not continue the log is refused as a whole.
//! - Of a record that has not arrived completely, memory holds only the header and a checksum,
//!   however long the record is.

use super::{
    frame::{CHECKSUM_AT, Damage, SEQUENCE_AT},
    tail::Tail,
};
use crate::{
    bytes::Cursor,
    limits::{RECORD_BYTES_MAX, RECORD_HEADER_BYTES},
};

/// A log up to the byte that arrived last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follower {
    /// The position behind the last whole record.
    tail: Tail,
    /// The header of the record after it, as far as it has arrived.
    head: [u8; RECORD_HEADER_BYTES],
    head_bytes: usize,
    /// Bytes of its body that have not arrived.
    body_left: usize,
    /// Bytes of its body that have arrived.
    body_bytes: usize,
    checksum: u32,
}

impl Follower {
    /// A follower that continues at `tail`.
    #[must_use]
    pub fn after(tail: Tail) -> Self {
        let head = [0; RECORD_HEADER_BYTES];
        Self { tail, head, head_bytes: 0, body_left: 0, body_bytes: 0, checksum: 0 }
    }

    /// The position behind the last whole record.
    #[must_use]
    pub fn tail(&self) -> Tail {
        self.tail
    }

    /// The offset behind the last byte that has arrived.
    #[must_use]
    pub fn through_bytes(&self) -> u64 {
        self.tail.offset_bytes + (self.head_bytes + self.body_bytes) as u64
    }

    /// Takes the next piece of the log.
    ///
    /// # Errors
    /// The damage of the first record that does not continue the log. Nothing of the piece was
    /// taken. [`Follower::whole`] takes the records before the damage.
    pub fn take(&mut self, piece: &[u8]) -> Result<(), Damage> {
        let mut next = *self;
        next.follow(piece)?;
        *self = next;
        Ok(())
    }

    /// Takes the whole records at the beginning of a piece, and the beginning of one that may
    /// become whole. Returns the damage of the first record that does not continue the log, if
    /// there is one.
    pub fn whole(&mut self, piece: &[u8]) -> Option<Damage> {
        let damage = self.follow(piece).err();
        if damage.is_some() {
            *self = Self::after(self.tail);
        }
        damage
    }

    fn follow(&mut self, mut piece: &[u8]) -> Result<(), Damage> {
        while !piece.is_empty() {
            if self.head_bytes < RECORD_HEADER_BYTES {
                let taken = piece.len().min(RECORD_HEADER_BYTES - self.head_bytes);
                self.head[self.head_bytes..self.head_bytes + taken].copy_from_slice(&piece[..taken]);
                self.head_bytes += taken;
                piece = &piece[taken..];
                if self.head_bytes < RECORD_HEADER_BYTES {
                    return Ok(());
                }
                self.begin()?;
            }
            let taken = piece.len().min(self.body_left);
            self.checksum = crc32c::crc32c_append(self.checksum, &piece[..taken]);
            (self.body_left, self.body_bytes) = (self.body_left - taken, self.body_bytes + taken);
            piece = &piece[taken..];
            if self.body_left == 0 {
                self.end()?;
            }
        }
        Ok(())
    }

    /// Checks the header of a record, which is complete.
    fn begin(&mut self) -> Result<(), Damage> {
        let mut head = Cursor::over(&self.head);
        let body = head.u32().expect("the header is complete");
        let found = head.u32().and_then(|_| head.u64()).expect("the header is complete");
        let length = RECORD_HEADER_BYTES as u64 + u64::from(body);
        if length > RECORD_BYTES_MAX as u64 {
            return Err(Damage::Length { found: length });
        }
        let expected = self.tail.sequence.saturating_add(1);
        if found != expected {
            return Err(Damage::Sequence { found, expected });
        }
        let chained = crc32c::crc32c(&self.tail.checksum.to_le_bytes());
        let chained = crc32c::crc32c_append(chained, &self.head[..CHECKSUM_AT]);
        self.checksum = crc32c::crc32c_append(chained, &self.head[SEQUENCE_AT..]);
        self.body_left = usize::try_from(body).expect("a body is below RECORD_BYTES_MAX");
        // A record without a body is whole at once, even at the end of a piece.
        if self.body_left == 0 { self.end() } else { Ok(()) }
    }

    /// Checks a record, which is complete.
    fn end(&mut self) -> Result<(), Damage> {
        if self.head_bytes == 0 {
            return Ok(());
        }
        let expected = Cursor::over(&self.head[CHECKSUM_AT..]).u32().expect("the header is complete");
        if self.checksum != expected {
            return Err(Damage::Checksum { found: self.checksum, expected });
        }
        let (offset_bytes, sequence) = (self.through_bytes(), self.tail.sequence.saturating_add(1));
        *self = Self::after(Tail { offset_bytes, sequence, checksum: expected });
        Ok(())
    }
}
