//! How do records follow each other in a log, and where does what can be read end?
//!
//! | bytes of a record | |
//! |---|---|
//! | 0..4 | bytes of the body |
//! | 4..8 | CRC-32C of the checksum of the record before, and of all of this one but these four bytes |
//! | 8..16 | sequence number |
//! | 16 | kind |
//! | 17.. | body |
//!
//! Records stand one behind the other. Behind the last one are zeroes, or the end. A log that
//! stands by itself begins with a header:
//!
//! | bytes of the header | |
//! |---|---|
//! | 0..8 | `RKSRAMP`, 1 |
//! | 8..16 | sequence number before the first record's |
//! | 16..20 | a number that tells this log from others, such as a random one |
//! | 20..24 | CRC-32C of all before; the first record's checksum continues it |
//!
//! Invariants
//! - Reading gives whole records from the first on, and stops before the first one that is not
//!   whole: nothing behind it counts, because nobody was told of it before all in front of it was
//!   durable.
//! - A checksum continues that of the record before. So records of an earlier life of the log that
//!   lie behind a new one are not taken for its new versions, even where numbers and lengths fit.
//! - All numbers are little-endian.

use super::record::{Record, RecordFault};
use crate::{
    bytes::{Cursor, length_u32},
    limits::{LOG_HEADER_BYTES, RECORD_BYTES_MAX, RECORD_HEADER_BYTES},
};
use serde::{Deserialize, Serialize};

pub(super) const CHECKSUM_AT: usize = 4;
pub(super) const SEQUENCE_AT: usize = 8;

/// Where a log goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tail {
    /// Bytes of all whole records: the next one is written here, over whatever is there.
    pub offset_bytes: u64,
    /// Number of the last record; 0 if there is none.
    pub sequence: u64,
    /// Its checksum; 0 if there is none.
    pub checksum: u32,
}

const MAGIC: [u8; 8] = *b"RKSRAMP\x01";
const SALT_AT: usize = 16;

/// Bytes that do not begin a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderFault {
    /// There are too few.
    #[error("a log of {found} bytes, expected at least {LOG_HEADER_BYTES}: it was never begun, or cut")]
    Short {
        /// How many.
        found: usize,
    },
    /// Something else altogether, or another version of it.
    #[error(
        "a log begins with {found:02x?}, expected {MAGIC:02x?}: not a log of transactions, or one of another version"
    )]
    Foreign {
        /// The first bytes.
        found: [u8; 8],
    },
    /// The header has changed.
    #[error("checksum {found:08x} of a log's header, expected {expected:08x}: its bytes have changed")]
    Checksum {
        /// Of the bytes.
        found: u32,
        /// In the header.
        expected: u32,
    },
}

impl Tail {
    /// Of an empty log without a header.
    pub const START: Self = Self { offset_bytes: 0, sequence: 0, checksum: 0 };

    /// The header of a log that goes on after record `sequence` of another one, and where its
    /// records begin. `salt` tells it from others.
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

    /// Where the records of a log begin.
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

    /// The number that tells a log from others, if it begins as logs do.
    #[must_use]
    pub fn salt(log: &[u8]) -> Option<u32> {
        Self::from_header(log).ok()?;
        Cursor::over(log.get(SALT_AT..)?).u32()
    }
}

/// Records that are to be written and synced together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Where.
    pub offset_bytes: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Number of its last record: when the batch is durable, all up to this one are.
    pub sequence: u64,
}

/// What puts records into a log. Pure: whoever owns the disk takes batches and says when they are
/// durable.
#[derive(Clone, Debug)]
pub struct LogWriter {
    tail: Tail,
    /// Records since the last batch.
    open: Vec<u8>,
}

impl LogWriter {
    /// A writer that goes on at `tail`.
    #[must_use]
    pub fn after(tail: Tail) -> Self {
        Self { tail, open: Vec::new() }
    }

    /// Adds a record; its number.
    pub fn append(&mut self, record: &Record) -> u64 {
        let start = self.open.len();
        let sequence = self.tail.sequence + 1;
        self.open.extend_from_slice(&[0; SEQUENCE_AT]);
        self.open.extend_from_slice(&sequence.to_le_bytes());
        self.open.push(record.kind());
        record.append_to(&mut self.open);
        let body = length_u32(self.open.len() - start - RECORD_HEADER_BYTES);
        self.open[start..start + CHECKSUM_AT].copy_from_slice(&body.to_le_bytes());
        let checksum = checksum(self.tail.checksum, &self.open[start..]);
        self.open[start + CHECKSUM_AT..start + SEQUENCE_AT].copy_from_slice(&checksum.to_le_bytes());
        let bytes = (self.open.len() - start) as u64;
        self.tail = Tail { offset_bytes: self.tail.offset_bytes + bytes, sequence, checksum };
        sequence
    }

    /// Where the next record will be.
    #[must_use]
    pub fn tail(&self) -> Tail {
        self.tail
    }

    /// Number of the last record; 0 if there is none.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.tail.sequence
    }

    /// Bytes that wait for a batch.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.open.len()
    }

    /// All records since the last batch, if there are any: one write and one sync for all who wait.
    pub fn take_batch(&mut self) -> Option<Batch> {
        if self.open.is_empty() {
            return None;
        }
        let bytes = std::mem::take(&mut self.open);
        let offset_bytes = self.tail.offset_bytes - bytes.len() as u64;
        Some(Batch { offset_bytes, bytes, sequence: self.tail.sequence })
    }
}

/// Of a record, after one with another checksum.
fn checksum(before: u32, record: &[u8]) -> u32 {
    let chained = crc32c::crc32c(&before.to_le_bytes());
    let length = crc32c::crc32c_append(chained, &record[..CHECKSUM_AT]);
    crc32c::crc32c_append(length, &record[SEQUENCE_AT..])
}

/// Why reading stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The record goes on behind the end.
    #[error("a record of {expected} bytes, of which {found} are there: it was not written to its end")]
    Short {
        /// Bytes there.
        found: u64,
        /// Bytes of the record.
        expected: u64,
    },
    /// No record is so long.
    #[error("a record of {found} bytes, expected at most {RECORD_BYTES_MAX}")]
    Length {
        /// What it says.
        found: u64,
    },
    /// The bytes are not those that were written, or not behind this record.
    #[error(
        "checksum {found:08x}, expected {expected:08x}: the bytes were not all written, have changed, or are of an older log"
    )]
    Checksum {
        /// Of the bytes.
        found: u32,
        /// In the record.
        expected: u32,
    },
    /// Another number than the next.
    #[error("record {found}, expected {expected}")]
    Sequence {
        /// Its number.
        found: u64,
        /// The next number.
        expected: u64,
    },
    /// A whole record that makes no sense.
    #[error(transparent)]
    Record(#[from] RecordFault),
}

/// Where a log was cut, and why. Whoever owns the disk zeroes these bytes before anything is
/// appended, so that what nobody was told of does not come back by another accident.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the log is cut at byte {offset_bytes}, behind record {sequence}; {bytes} bytes are left out: {damage}"
)]
pub struct Cut {
    /// First byte that does not count.
    pub offset_bytes: u64,
    /// Number of the last record that counts.
    pub sequence: u64,
    /// Bytes from there to the last one that is not zero.
    pub bytes: u64,
    /// What was found there.
    pub damage: Damage,
}

/// All whole records of a log after `start`, of which `bytes` are what follows; where it goes on,
/// and what was cut off, if anything was.
#[must_use]
pub fn read(start: Tail, bytes: &[u8]) -> (Vec<Record>, Tail, Option<Cut>) {
    let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let (mut records, mut tail, mut at) = (Vec::new(), start, 0);
    while at < written {
        match next(tail, &bytes[at..]) {
            Ok((record, length)) => {
                tail.offset_bytes += length as u64;
                tail.sequence += 1;
                tail.checksum = Cursor::over(&bytes[at + CHECKSUM_AT..]).u32().unwrap_or_default();
                at += length;
                records.push(record);
            }
            Err(damage) => {
                let Tail { offset_bytes, sequence, .. } = tail;
                let cut = Cut { offset_bytes, sequence, bytes: (written - at) as u64, damage };
                return (records, tail, Some(cut));
            }
        }
    }
    (records, tail, None)
}

/// The record that `bytes` begin with, and its length.
fn next(tail: Tail, bytes: &[u8]) -> Result<(Record, usize), Damage> {
    let short = |expected: u64| Damage::Short { found: bytes.len() as u64, expected };
    let mut cursor = Cursor::over(bytes);
    let header = || short(RECORD_HEADER_BYTES as u64);
    let body = u64::from(cursor.u32().ok_or_else(header)?);
    let expected = cursor.u32().ok_or_else(header)?;
    let sequence = cursor.u64().ok_or_else(header)?;
    let kind = cursor.u8().ok_or_else(header)?;
    let length = RECORD_HEADER_BYTES as u64 + body;
    let whole = usize::try_from(length).ok().filter(|length| *length <= RECORD_BYTES_MAX);
    let whole = whole.ok_or(Damage::Length { found: length })?;
    let record = bytes.get(..whole).ok_or_else(|| short(length))?;
    let found = checksum(tail.checksum, record);
    if found != expected {
        return Err(Damage::Checksum { found, expected });
    }
    if sequence != tail.sequence + 1 {
        return Err(Damage::Sequence { found: sequence, expected: tail.sequence + 1 });
    }
    Ok((Record::from_bytes(kind, &record[RECORD_HEADER_BYTES..])?, whole))
}
