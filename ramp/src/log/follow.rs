//! How far is a log whole that comes in pieces, cut anywhere?
//!
//! For those who keep a log and do not do what it says: checksums, numbers and lengths are held
//! against each other, bodies are not looked into.
//!
//! Invariants
//! - A piece that does not go on with the log is refused as a whole.
//! - What is remembered of a record that is not whole yet is its head and a checksum, however long
//!   it is.

use super::frame::{CHECKSUM_AT, Damage, SEQUENCE_AT, Tail};
use crate::{
    bytes::Cursor,
    limits::{RECORD_BYTES_MAX, RECORD_HEADER_BYTES},
};

/// A log, up to where it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follower {
    /// Behind the last whole record.
    tail: Tail,
    /// The first bytes of the record after it, as many as have come.
    head: [u8; RECORD_HEADER_BYTES],
    head_bytes: usize,
    /// Of its body, what is to come.
    body_left: usize,
    /// Of its body, what has come.
    body_bytes: usize,
    checksum: u32,
}

impl Follower {
    /// Goes on at `tail`.
    #[must_use]
    pub fn after(tail: Tail) -> Self {
        let head = [0; RECORD_HEADER_BYTES];
        Self { tail, head, head_bytes: 0, body_left: 0, body_bytes: 0, checksum: 0 }
    }

    /// Behind the last whole record.
    #[must_use]
    pub fn tail(&self) -> Tail {
        self.tail
    }

    /// Behind the last byte that has come.
    #[must_use]
    pub fn through_bytes(&self) -> u64 {
        self.tail.offset_bytes + (self.head_bytes + self.body_bytes) as u64
    }

    /// Takes what follows.
    ///
    /// # Errors
    /// What is wrong with the first record that does not follow. Nothing of the piece was taken;
    /// but [`Follower::whole`] says how far it goes on.
    pub fn take(&mut self, piece: &[u8]) -> Result<(), Damage> {
        let mut next = *self;
        next.follow(piece)?;
        *self = next;
        Ok(())
    }

    /// Takes the whole records that a piece goes on with, and what may yet become one. What is
    /// wrong with the first one that does not follow, if any is.
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

    /// The head of a record is there.
    fn begin(&mut self) -> Result<(), Damage> {
        let mut head = Cursor::over(&self.head);
        let body = head.u32().unwrap_or(u32::MAX);
        let found = head.u32().and_then(|_| head.u64()).unwrap_or(u64::MAX);
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
        self.body_left = usize::try_from(body).unwrap_or(usize::MAX);
        // One without a body is whole at once, also at the end of a piece.
        if self.body_left == 0 { self.end() } else { Ok(()) }
    }

    /// A record is there.
    fn end(&mut self) -> Result<(), Damage> {
        if self.head_bytes == 0 {
            return Ok(());
        }
        let expected = Cursor::over(&self.head[CHECKSUM_AT..]).u32().unwrap_or_default();
        if self.checksum != expected {
            return Err(Damage::Checksum { found: self.checksum, expected });
        }
        let (offset_bytes, sequence) = (self.through_bytes(), self.tail.sequence.saturating_add(1));
        *self = Self::after(Tail { offset_bytes, sequence, checksum: expected });
        Ok(())
    }
}
