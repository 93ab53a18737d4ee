//! Encodes the header of a log, and defines the position at which the log continues ([`Tail`]).
//!
//! | bytes of the header | |
//! |---|---|
//! | 0..8 | the characters `RKSRAMP`, then a byte: format version 1 |
//! | 8..16 | the sequence number that precedes the first record's |
//! | 16..20 | a number that distinguishes this log from others, such as a random one |
//! | 20..24 | CRC-32C of bytes 0..20; the checksum of the first record continues it |
//!
//! All numbers are little-endian. A log has no header if its owner stores the begin of the
//! records outside of the log.

use crate::{bytes::Cursor, limits::LOG_HEADER_BYTES};
use serde::{Deserialize, Serialize};

/// The position at which a log goes on: behind its last whole record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tail {
    /// Offset behind all whole records. The next one is written here, over whatever is there.
    pub offset_bytes: u64,
    /// Number of the last record; 0 if there is none.
    pub sequence: u64,
    /// Its checksum; 0 if there is none.
    pub checksum: u32,
}

const MAGIC: [u8; 8] = *b"RKSRAMP\x01";
const SALT_AT: usize = 16;

/// Bytes that are not the header of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderFault {
    /// There are too few bytes.
    #[error(
        "the log has {found} bytes, and its header alone has {LOG_HEADER_BYTES}: it was never written completely, or was shortened"
    )]
    Short {
        /// How many.
        found: usize,
    },
    /// Not a log, or a log of another format version.
    #[error(
        "the log begins with {found:02x?}, expected {MAGIC:02x?}: it is not a log of transactions, or another version wrote it"
    )]
    Foreign {
        /// The first bytes.
        found: [u8; 8],
    },
    /// The header has changed.
    #[error(
        "the header of the log has checksum {found:08x}, expected {expected:08x}: its bytes have changed"
    )]
    Checksum {
        /// The checksum of the bytes.
        found: u32,
        /// The checksum in the header.
        expected: u32,
    },
}

impl Tail {
    /// The beginning of an empty log without a header.
    pub const START: Self = Self { offset_bytes: 0, sequence: 0, checksum: 0 };

    /// The header of a log that continues another one after its record `sequence`, and the position
    /// of its first record. `salt` distinguishes it from other logs.
    #[must_use]
    pub fn header(sequence: u64, salt: u32) -> ([u8; LOG_HEADER_BYTES], Self) {
        let mut bytes = [0; LOG_HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&sequence.to_le_bytes());
        bytes[16..20].copy_from_slice(&salt.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..20]);
        bytes[20..].copy_from_slice(&checksum.to_le_bytes());
        (bytes, Self { offset_bytes: LOG_HEADER_BYTES as u64, sequence, checksum })
    }

    /// The position of the first record of a log.
    ///
    /// # Errors
    /// [`HeaderFault`].
    pub fn from_header(log: &[u8]) -> Result<Self, HeaderFault> {
        let short = || HeaderFault::Short { found: log.len() };
        let header = log.get(..LOG_HEADER_BYTES).ok_or_else(short)?;
        let mut magic = MAGIC;
        magic.copy_from_slice(&header[..8]);
        if magic != MAGIC {
            return Err(HeaderFault::Foreign { found: magic });
        }
        let mut cursor = Cursor::over(&header[8..]);
        let sequence = cursor.u64().ok_or_else(short)?;
        let expected = cursor.u32().and_then(|_| cursor.u32()).ok_or_else(short)?;
        let found = crc32c::crc32c(&header[..20]);
        if found != expected {
            return Err(HeaderFault::Checksum { found, expected });
        }
        Ok(Self { offset_bytes: LOG_HEADER_BYTES as u64, sequence, checksum: expected })
    }

    /// The number that distinguishes this log from others; `None` if its header is not valid.
    #[must_use]
    pub fn salt(log: &[u8]) -> Option<u32> {
        Self::from_header(log).ok()?;
        Cursor::over(log.get(SALT_AT..)?).u32()
    }
}
