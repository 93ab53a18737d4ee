//! Defines the descriptor of a column, which describes the column's buffers in an encoded batch.

use super::{
    lanes::Lanes,
    layout::{ALIGNMENT, word32, word64},
};

/// Bytes of a descriptor on the wire.
pub(super) const DESCRIPTOR_BYTES: usize = 40;

/// The layout of a column's buffers: 40 bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Descriptor {
    /// Whether a validity bitmap comes first.
    pub(super) nullable: bool,
    /// The integers of the rows; with a dictionary, the codes of the rows; for texts without one,
    /// their lengths.
    pub(super) lanes: Lanes,
    /// The lengths of dictionary entries.
    pub(super) entry_lanes: Lanes,
    /// The number of dictionary entries; 0 without a dictionary.
    pub(super) entries: u32,
    /// The total bytes of the texts.
    pub(super) text_bytes: u64,
}

impl Descriptor {
    pub(super) fn to_bytes(self) -> [u8; DESCRIPTOR_BYTES] {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        bytes[0] = u8::from(self.nullable);
        bytes[1] = self.lanes.width;
        bytes[2] = self.entry_lanes.width;
        bytes[4..8].copy_from_slice(&self.entries.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.text_bytes.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.lanes.reference.to_le_bytes());
        let least = u64::try_from(self.entry_lanes.reference);
        let least = least.expect("the smallest length of an entry: `lanes::encode` got unsigned lengths");
        bytes[32..40].copy_from_slice(&least.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; DESCRIPTOR_BYTES]) -> Self {
        let reference = bytes[16..].first_chunk().map_or(0, |word| i128::from_le_bytes(*word));
        Self {
            nullable: bytes[0] != 0,
            lanes: Lanes { width: bytes[1], reference },
            entry_lanes: Lanes { width: bytes[2], reference: word64(bytes, 32).into() },
            entries: word32(bytes, 4),
            text_bytes: word64(bytes, 8),
        }
    }
}

const _: () = assert!(DESCRIPTOR_BYTES == 40 && ALIGNMENT.is_multiple_of(8));
