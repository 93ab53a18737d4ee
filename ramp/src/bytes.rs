//! Reads little-endian numbers from a byte slice, and converts lengths to the smaller integers that
//! are written.
//!
//! Invariant: a read beyond the end of the slice returns `None`.

use crate::timestamp::{ClientId, Timestamp};

/// The bytes that are still to be read, from the front. All numbers are little-endian.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn over(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn timestamp(&mut self) -> Option<Timestamp> {
        Some(Timestamp { time: self.u64()?, client: ClientId(self.u32()?) })
    }
}

/// A length that limits keep far below 32 bits.
pub(crate) fn length_u32(length: usize) -> u32 {
    u32::try_from(length).expect("a length within the limits of this crate")
}

/// A length that limits keep below 16 bits.
pub(crate) fn length_u16(length: usize) -> u16 {
    u16::try_from(length).expect("a length within the limits of this crate")
}
