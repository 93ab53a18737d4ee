//! Frames the records of a log: adds a length, a checksum and a sequence number to each. Reads them
//! back up to the first record that is incomplete or damaged.
//!
//! | bytes of a record | |
//! |---|---|
//! | 0..4 | bytes of the body |
//! | 4..8 | CRC-32C of the checksum of the record before, and of all bytes of this one except these four |
//! | 8..16 | sequence number |
//! | 16 | kind |
//! | 17.. | body |
//!
//! Records follow each other without gaps, behind the header of the log (`tail`). Behind the last
//! record are zeroes, or the end of the file.
//!
//! Invariants
//! - Reading returns the records before the first one that is incomplete or damaged. All bytes
//!   behind that one are ignored: no record in them was acknowledged, because an acknowledgement
//!   waits until all earlier records are durable.
//! - The checksum of a record covers that of the record before. So older records that lie behind a
//!   new one are not mistaken for its continuation, even if their numbers and lengths fit.
//! - All numbers are little-endian.

use super::{
    record::{Record, RecordFault},
    tail::Tail,
};
use crate::{
    bytes::{Cursor, length_u32},
    limits::{RECORD_BYTES_MAX, RECORD_HEADER_BYTES},
};

pub(super) const CHECKSUM_AT: usize = 4;
pub(super) const SEQUENCE_AT: usize = 8;

/// Records that are to be written and synced together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Where they are written.
    pub offset_bytes: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Number of its last record: when the batch is durable, all up to this one are.
    pub sequence: u64,
}

/// Appends records to a log, in memory. The owner of the disk takes batches, writes them, and
/// reports when they are durable.
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

    /// Adds a record and returns its number.
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

    /// The position of the next record.
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

    /// All records since the last batch, if there are any. One write and one sync make all of them
    /// durable.
    pub fn take_batch(&mut self) -> Option<Batch> {
        if self.open.is_empty() {
            return None;
        }
        let bytes = std::mem::take(&mut self.open);
        let offset_bytes = self.tail.offset_bytes - bytes.len() as u64;
        Some(Batch { offset_bytes, bytes, sequence: self.tail.sequence })
    }
}

/// The checksum of a record that follows one with the checksum `before`.
fn checksum(before: u32, record: &[u8]) -> u32 {
    let chained = crc32c::crc32c(&before.to_le_bytes());
    let length = crc32c::crc32c_append(chained, &record[..CHECKSUM_AT]);
    crc32c::crc32c_append(length, &record[SEQUENCE_AT..])
}

/// Why reading a log stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The record continues beyond the end of the bytes.
    #[error(
        "the last record has {expected} bytes, of which {found} are present: it was not written completely"
    )]
    Short {
        /// Bytes present.
        found: u64,
        /// Bytes of the record.
        expected: u64,
    },
    /// The record is longer than any may be.
    #[error(
        "the header of a record states {found} bytes, the maximum is {RECORD_BYTES_MAX}: the header is damaged"
    )]
    Length {
        /// The length in its header.
        found: u64,
    },
    /// The bytes are not those that were written, or were written behind another record.
    #[error(
        "the bytes of a record have checksum {found:08x}, expected {expected:08x}: some were not written, have changed, or belong to an older log"
    )]
    Checksum {
        /// The checksum of the bytes.
        found: u32,
        /// The checksum in the record.
        expected: u32,
    },
    /// Its sequence number is not the next one.
    #[error("a record has sequence number {found}, expected {expected}")]
    Sequence {
        /// Its number.
        found: u64,
        /// The next number.
        expected: u64,
    },
    /// A whole record with an invalid body.
    #[error(transparent)]
    Record(#[from] RecordFault),
}

/// Where a log was cut, and why. The owner of the disk zeroes these bytes before it appends
/// anything, so that unacknowledged records cannot reappear after another crash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the log is cut at byte {offset_bytes}, behind record {sequence}, and the {bytes} bytes after that are ignored: {damage}"
)]
pub struct Cut {
    /// Offset of the first byte that does not count.
    pub offset_bytes: u64,
    /// Number of the last record that counts.
    pub sequence: u64,
    /// Bytes from there up to and including the last one that is not zero.
    pub bytes: u64,
    /// Why they do not count.
    pub damage: Damage,
}

/// Reads all whole records in `bytes`, which follow `start` in the log. Returns them, the position
/// at which the log goes on, and what was cut off, if anything was.
#[must_use]
pub fn read(start: Tail, bytes: &[u8]) -> (Vec<Record>, Tail, Option<Cut>) {
    let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let (mut records, mut tail, mut at) = (Vec::new(), start, 0);
    while at < written {
        match next(tail, &bytes[at..]) {
            Ok((record, length)) => {
                tail.offset_bytes += length as u64;
                tail.sequence += 1;
                let checksum = Cursor::over(&bytes[at + CHECKSUM_AT..]).u32();
                tail.checksum = checksum.expect("a whole record has a checksum");
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

/// The first record in `bytes`, and its length.
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
