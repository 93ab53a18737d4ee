//! Defines the records of a participant's log, and encodes them.
//!
//! | kind | body |
//! |---|---|
//! | 1 prepare, 2 put | a part: what a transaction writes at this participant |
//! | 3 commit, 4 refuse, 5 settle, 6 floor, 7 end | a timestamp |
//!
//! The fields of a part, with their bytes: timestamp 12, guard 1, kind of metadata 1, number of
//! participants 2, number of items 4, length of the metadata 4; the participants, 2 each; the
//! metadata; and for each item: length of the key 2, whether it is deleted 1, length of the value
//! 4, the key, the value.
//!
//! Invariants
//! - All numbers are little-endian. Every length is checked before it is used. Bytes behind the
//!   last field are an error.
//! - A vote or an acknowledgement is sent only after the record with the same content is durable.

use crate::{
    bytes::{Cursor, length_u16, length_u32},
    item::{Key, Metadata, MetadataFault, Oversize, Value},
    limits::{PARTICIPANTS_MAX, WRITE_KEYS_MAX},
    message::{Guard, Part, ParticipantId},
    timestamp::Timestamp,
};

/// One entry of a participant's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// It has voted for a transaction. If it is the only participant, that commits the transaction.
    Prepare(Part),
    /// It has written a part without a vote.
    Put(Part),
    /// All participants have voted for it.
    Commit(Timestamp),
    /// It will never vote for it. What it had prepared is discarded, because another participant
    /// has refused.
    Refuse(Timestamp),
    /// All participants and the coordinator know how it ended.
    Settle(Timestamp),
    /// It will never vote for unknown transactions up to this timestamp.
    Floor(Timestamp),
    /// All participants have committed it.
    End(Timestamp),
}

/// A body that is not a valid record, although its checksum is right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    /// An unknown kind.
    #[error("a log record has the unknown kind {found}, expected 1 to 7: perhaps a newer version wrote it")]
    Kind {
        /// The kind.
        found: u8,
    },
    /// The body ends too soon.
    #[error("a log record ends within its {what}")]
    Short {
        /// The part of the record that is cut.
        what: &'static str,
    },
    /// Bytes follow the record.
    #[error("a log record has {found} bytes behind its last field, expected none")]
    LeftOver {
        /// Bytes left.
        found: usize,
    },
    /// A number beyond its range.
    #[error("a log record contains {found} in its field '{what}', expected at most {most}")]
    Number {
        /// What it counts.
        what: &'static str,
        /// The number.
        found: u64,
        /// The maximum.
        most: u64,
    },
    /// Invalid metadata.
    #[error(transparent)]
    Metadata(#[from] MetadataFault),
    /// A key or value that is too long.
    #[error(transparent)]
    Oversize(#[from] Oversize),
}

impl Record {
    pub(super) fn kind(&self) -> u8 {
        match self {
            Self::Prepare(_) => 1,
            Self::Put(_) => 2,
            Self::Commit(_) => 3,
            Self::Refuse(_) => 4,
            Self::Settle(_) => 5,
            Self::Floor(_) => 6,
            Self::End(_) => 7,
        }
    }

    pub(super) fn append_to(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Prepare(part) | Self::Put(part) => append_part(part, bytes),
            Self::Commit(timestamp)
            | Self::Refuse(timestamp)
            | Self::Settle(timestamp)
            | Self::Floor(timestamp)
            | Self::End(timestamp) => {
                bytes.extend_from_slice(&timestamp.to_bytes());
            }
        }
    }

    pub(super) fn from_bytes(kind: u8, bytes: &[u8]) -> Result<Self, RecordFault> {
        let mut cursor = Cursor::over(bytes);
        let record = match kind {
            1 => Self::Prepare(take_part(&mut cursor)?),
            2 => Self::Put(take_part(&mut cursor)?),
            3..=7 => {
                let timestamp = cursor.timestamp().ok_or(RecordFault::Short { what: "timestamp" })?;
                match kind {
                    3 => Self::Commit(timestamp),
                    4 => Self::Refuse(timestamp),
                    5 => Self::Settle(timestamp),
                    6 => Self::Floor(timestamp),
                    _ => Self::End(timestamp),
                }
            }
            found => return Err(RecordFault::Kind { found }),
        };
        if cursor.left() > 0 {
            return Err(RecordFault::LeftOver { found: cursor.left() });
        }
        Ok(record)
    }
}

fn append_part(part: &Part, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&part.timestamp.to_bytes());
    bytes.push(u8::from(part.guard == Guard::Locked));
    bytes.push(part.metadata.kind());
    bytes.extend_from_slice(&length_u16(part.participants.len()).to_le_bytes());
    bytes.extend_from_slice(&length_u32(part.items.len()).to_le_bytes());
    bytes.extend_from_slice(&length_u32(part.metadata.len()).to_le_bytes());
    part.participants.iter().for_each(|participant| bytes.extend_from_slice(&participant.0.to_le_bytes()));
    part.metadata.append_to(bytes);
    for (key, value) in &part.items {
        bytes.extend_from_slice(&length_u16(key.bytes().len()).to_le_bytes());
        bytes.push(u8::from(value.bytes().is_none()));
        bytes.extend_from_slice(&length_u32(value.len()).to_le_bytes());
        bytes.extend_from_slice(key.bytes());
        bytes.extend_from_slice(value.bytes().unwrap_or_default());
    }
}

fn at_most(what: &'static str, found: u64, most: usize) -> Result<usize, RecordFault> {
    let fault = RecordFault::Number { what, found, most: most as u64 };
    usize::try_from(found).ok().filter(|found| *found <= most).ok_or(fault)
}

fn take_part(cursor: &mut Cursor<'_>) -> Result<Part, RecordFault> {
    let short = |what| RecordFault::Short { what };
    let header = || short("header");
    let timestamp = cursor.timestamp().ok_or_else(header)?;
    let guard = match cursor.u8().ok_or_else(header)? {
        0 => Guard::Open,
        1 => Guard::Locked,
        found => return Err(RecordFault::Number { what: "guard", found: u64::from(found), most: 1 }),
    };
    let metadata_kind = cursor.u8().ok_or_else(header)?;
    let participants =
        at_most("participants", u64::from(cursor.u16().ok_or_else(header)?), PARTICIPANTS_MAX)?;
    let items = at_most("items", u64::from(cursor.u32().ok_or_else(header)?), WRITE_KEYS_MAX)?;
    let metadata_bytes = usize::try_from(cursor.u32().ok_or_else(header)?).map_err(|_| short("metadata"))?;
    let participant = |_| cursor.u16().map(ParticipantId).ok_or(short("participants"));
    let participants =
        (0..participants).map(participant).collect::<Result<Vec<ParticipantId>, RecordFault>>()?;
    let metadata = cursor.take(metadata_bytes).ok_or(short("metadata"))?;
    let metadata = Metadata::from_bytes(metadata_kind, metadata)?;
    let item = |_| take_item(cursor);
    let items = (0..items).map(item).collect::<Result<Vec<(Key, Value)>, RecordFault>>()?;
    Ok(Part { timestamp, participants, guard, metadata, items })
}

fn take_item(cursor: &mut Cursor<'_>) -> Result<(Key, Value), RecordFault> {
    let short = || RecordFault::Short { what: "item" };
    let key_bytes = usize::from(cursor.u16().ok_or_else(short)?);
    let deleted = at_most("kind of value", u64::from(cursor.u8().ok_or_else(short)?), 1)? == 1;
    let value_bytes = usize::try_from(cursor.u32().ok_or_else(short)?).map_err(|_| short())?;
    let key = Key::new(cursor.take(key_bytes).ok_or_else(short)?)?;
    let value = cursor.take(value_bytes).ok_or_else(short)?;
    Ok((key, if deleted { Value::DELETED } else { Value::new(value)? }))
}
