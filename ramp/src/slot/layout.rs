//! Defines the byte layout of a slot. Decodes a reader's copy, and checks that it is one complete
//! committed version of the key.
//!
//! | bytes | |
//! |---|---|
//! | 0..8 | version number of the image (the encoded version in the slot): even, never 0, never used twice; odd while the image is being written |
//! | 8..16 | the version number of the image if the image is valid, else 0: a newer version is prepared, or the slot was freed |
//! | 16..20 | bytes of key, metadata and value together |
//! | 20..24 | CRC-32C of the version number, bytes 16..20, and all bytes from 24 to the end of the padding |
//! | 24..36 | timestamp: time, client |
//! | 36..38 | bytes of the key |
//! | 38 | kind of the metadata |
//! | 39 | 0: a value; 1: deleted |
//! | 40..48 | fingerprint of the key |
//! | 48..52 | bytes of the metadata |
//! | 52..56 | zeroes |
//! | 56..64 | number of the participant's life |
//! | 64.. | key, metadata, value, zeroes to a multiple of 8 |
//! | the last 8 | version number of the image, again |
//!
//! Invariants
//! - The functions are pure: bytes in, values out. All numbers are little-endian. No length in a
//!   slot is used before it is checked.
//! - Bytes 8..16 repeat the version number and are not a mere flag. Otherwise a reader could
//!   combine the bytes of a freed image with the flag of the image that came after it.
//! - The checksum covers the version number. So a mixture of two images is never accepted, in
//!   whatever order their words were copied.

use crate::{
    bytes::{Cursor, length_u16, length_u32},
    item::{Fingerprint, Key, Metadata, MetadataFault, Value, Version},
    limits::{SLOT_BYTES_MAX, SLOT_HEADER_BYTES},
    timestamp::Timestamp,
};

const VERSION_AT: usize = 0;
pub(super) const VALID_AT: usize = VERSION_AT + 8;
pub(super) const LENGTH_AT: usize = VALID_AT + 8;
const CHECKSUM_AT: usize = LENGTH_AT + 4;
const TIMESTAMP_AT: usize = CHECKSUM_AT + 4;
const KEY_BYTES_AT: usize = TIMESTAMP_AT + Timestamp::ENCODED_BYTES;
const METADATA_KIND_AT: usize = KEY_BYTES_AT + 2;
const VALUE_KIND_AT: usize = METADATA_KIND_AT + 1;
const FINGERPRINT_AT: usize = VALUE_KIND_AT + 1;
const METADATA_BYTES_AT: usize = FINGERPRINT_AT + 8;
const ZEROES_AT: usize = METADATA_BYTES_AT + 4;
const LIFE_AT: usize = ZEROES_AT + 4;

const _: () = assert!(TIMESTAMP_AT == 24 && FINGERPRINT_AT == 40 && LIFE_AT + 8 == SLOT_HEADER_BYTES);
// Fields that are stored individually are aligned words.
const _: () = assert!(VALID_AT.is_multiple_of(8) && LENGTH_AT.is_multiple_of(8));
// The overhead of an image, its header and its last word, fits into two cache lines.
const _: () = assert!(SLOT_HEADER_BYTES + 8 <= 128);

/// Why a reader does not use bytes that it read one-sidedly. It asks the participant for the key
/// instead, so none of these fails a read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlotFault {
    /// Fewer bytes than the image needs, or than any image has.
    #[error(
        "the copy of a slot has {found} bytes, expected {expected}: read as many bytes as the participant reports"
    )]
    Short {
        /// Bytes read.
        found: usize,
        /// Bytes needed.
        expected: usize,
    },
    /// The slot was never written, or is just being written.
    #[error(
        "the slot has version number {found}, expected an even number above 0: it was never written (0), or is being written"
    )]
    Changing {
        /// The version.
        found: u64,
    },
    /// The image is not valid: a newer version is prepared, or the slot was freed.
    #[error(
        "the image in the slot has version number {expected}, and the slot marks {found} as valid (0 for none): a newer version is prepared, or the slot was freed"
    )]
    Invalid {
        /// The version that is valid; 0 for none.
        found: u64,
        /// The version of the image.
        expected: u64,
    },
    /// No image has this length.
    #[error("the image in the slot has {found} bytes, the maximum is {most}")]
    Length {
        /// Length of the image.
        found: u64,
        /// The longest there is.
        most: usize,
    },
    /// The image changed while it was read.
    #[error(
        "the image in the slot begins with version number {expected} and ends with {found}: it changed while it was read"
    )]
    Torn {
        /// The version at its end.
        found: u64,
        /// The version at its beginning.
        expected: u64,
    },
    /// The bytes are of several images.
    #[error(
        "the bytes of the slot have checksum {found:08x}, expected {expected:08x}: they changed while they were read"
    )]
    Checksum {
        /// The checksum of the bytes.
        found: u32,
        /// The checksum in the header.
        expected: u32,
    },
    /// The memory is of another life of the participant.
    #[error(
        "the slot belongs to life {found:#x} of its participant, expected life {expected:#x}: the participant has restarted"
    )]
    Life {
        /// The life in the slot.
        found: u64,
        /// The expected life.
        expected: u64,
    },
    /// The slot was given to another key.
    #[error(
        "the slot contains a key with fingerprint {found:016x?}, expected {expected:016x?}: the slot was reused for another key; read the key from its participant"
    )]
    OtherKey {
        /// The fingerprint of the other key.
        found: Fingerprint,
        /// The fingerprint of the wanted key.
        expected: Fingerprint,
    },
    /// A whole image with invalid metadata.
    #[error("a complete slot has invalid metadata: {source}")]
    Metadata {
        /// Why.
        #[from]
        source: MetadataFault,
    },
    /// Lengths that contradict each other.
    #[error(
        "the slot's checksum is right, but its lengths contradict each other: key and metadata take at least {found} bytes, but key, metadata and value together only {most}"
    )]
    Parts {
        /// Key and metadata.
        found: usize,
        /// Key, metadata and value.
        most: usize,
    },
}

/// The length of the image of a version, in bytes.
#[must_use]
pub fn image_bytes(key: &Key, version: &Version) -> usize {
    let payload = key.bytes().len() + version.metadata.len() + version.value.len();
    SLOT_HEADER_BYTES + payload.next_multiple_of(8) + 8
}

/// A version, its key, and the life of its participant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Image<'a> {
    pub(super) key: &'a Key,
    pub(super) version: &'a Version,
    pub(super) life: u64,
}

/// The bytes of an image with version `number`, including the word that makes it valid.
pub(super) fn encode(image: Image<'_>, number: u64) -> Vec<u8> {
    let Image { key, version, life } = image;
    let payload = key.bytes().len() + version.metadata.len() + version.value.len();
    let mut bytes = Vec::with_capacity(SLOT_HEADER_BYTES + payload + 16);
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&length_u32(payload).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&version.timestamp.to_bytes());
    bytes.extend_from_slice(&length_u16(key.bytes().len()).to_le_bytes());
    bytes.push(version.metadata.kind());
    bytes.push(u8::from(version.value.bytes().is_none()));
    bytes.extend_from_slice(&key.fingerprint().0.to_le_bytes());
    bytes.extend_from_slice(&length_u32(version.metadata.len()).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&life.to_le_bytes());
    bytes.extend_from_slice(key.bytes());
    version.metadata.append_to(&mut bytes);
    bytes.extend_from_slice(version.value.bytes().unwrap_or_default());
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let checksum = checksum(&bytes);
    bytes[CHECKSUM_AT..TIMESTAMP_AT].copy_from_slice(&checksum.to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes
}

/// The checksum of an image without its last word: it covers all but the valid word and the
/// checksum itself.
fn checksum(image: &[u8]) -> u32 {
    let version = crc32c::crc32c(&image[VERSION_AT..VALID_AT]);
    let length = crc32c::crc32c_append(version, &image[LENGTH_AT..CHECKSUM_AT]);
    crc32c::crc32c_append(length, &image[TIMESTAMP_AT..])
}

/// The committed version of `key` in `bytes`, which are a private copy of a slot of a participant
/// in this `life`. There may be more bytes than the image has.
///
/// # Errors
/// Which check failed.
pub fn decode(bytes: &[u8], key: &Key, life: u64) -> Result<Version, SlotFault> {
    let short = |expected| SlotFault::Short { found: bytes.len(), expected };
    let least = || short(SLOT_HEADER_BYTES + 8);
    let mut header = Cursor::over(bytes.get(..SLOT_HEADER_BYTES).ok_or_else(least)?);
    let number = header.u64().ok_or_else(least)?;
    if number == 0 || !number.is_multiple_of(2) {
        return Err(SlotFault::Changing { found: number });
    }
    let valid = header.u64().ok_or_else(least)?;
    if valid != number {
        return Err(SlotFault::Invalid { found: valid, expected: number });
    }
    let payload = header.u32().ok_or_else(least)?;
    let too_long = SlotFault::Length { found: u64::from(payload), most: SLOT_BYTES_MAX };
    let fits = |bytes: &usize| *bytes <= SLOT_BYTES_MAX - SLOT_HEADER_BYTES - 8;
    let payload_bytes = usize::try_from(payload).ok().filter(fits).ok_or(too_long)?;
    let last_at = SLOT_HEADER_BYTES + payload_bytes.next_multiple_of(8);
    let last = bytes.get(last_at..).and_then(|rest| Cursor::over(rest).u64());
    let last = last.ok_or_else(|| short(last_at + 8))?;
    if last != number {
        return Err(SlotFault::Torn { found: last, expected: number });
    }
    let (expected, found) = (header.u32().ok_or_else(least)?, checksum(&bytes[..last_at]));
    if found != expected {
        return Err(SlotFault::Checksum { found, expected });
    }
    whole(&bytes[TIMESTAMP_AT..SLOT_HEADER_BYTES + payload_bytes], key, life)
}

/// Checks that a whole image, given from its timestamp on, holds the wanted key, and returns its
/// version.
fn whole(bytes: &[u8], key: &Key, life: u64) -> Result<Version, SlotFault> {
    let (header, payload) = bytes.split_at(SLOT_HEADER_BYTES - TIMESTAMP_AT);
    let mut header = Cursor::over(header);
    let parts = |found| SlotFault::Parts { found, most: payload.len() };
    let field = || parts(usize::MAX);
    let timestamp = header.timestamp().ok_or_else(field)?;
    let key_bytes = usize::from(header.u16().ok_or_else(field)?);
    let metadata_kind = header.u8().ok_or_else(field)?;
    let value_kind = header.u8().ok_or_else(field)?;
    let fingerprint = Fingerprint(header.u64().ok_or_else(field)?);
    let metadata_bytes = usize::try_from(header.u32().ok_or_else(field)?).map_err(|_| field())?;
    let found_life = header.u32().and_then(|_| header.u64()).ok_or_else(field)?;
    if found_life != life {
        return Err(SlotFault::Life { found: found_life, expected: life });
    }
    let mut payload = Cursor::over(payload);
    let found_key = payload.take(key_bytes).ok_or_else(|| parts(key_bytes))?;
    if fingerprint != key.fingerprint() || found_key != key.bytes() {
        return Err(SlotFault::OtherKey { found: fingerprint, expected: key.fingerprint() });
    }
    let metadata =
        payload.take(metadata_bytes).ok_or_else(|| parts(key_bytes.saturating_add(metadata_bytes)))?;
    let metadata = Metadata::from_bytes(metadata_kind, metadata)?;
    let rest = payload.take(payload.left()).unwrap_or_default();
    let value = if value_kind == 0 { Value::new(rest) } else { Ok(Value::DELETED) };
    // This does not fail: a slot is far smaller than the longest value.
    let value = value.map_err(|_| parts(rest.len()))?;
    Ok(Version { timestamp, metadata, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timestamp::ClientId;
    use proptest::prelude::*;

    fn key(text: &str) -> Key {
        Key::new(text.as_bytes()).unwrap()
    }

    fn version(time: u64, siblings: &[&str], value: &[u8]) -> Version {
        let mut set: Vec<Fingerprint> = siblings.iter().map(|name| key(name).fingerprint()).collect();
        set.sort_unstable();
        let timestamp = Timestamp { time, client: ClientId(0xC11E) };
        Version { timestamp, metadata: Metadata::WriteSet(set), value: Value::new(value).unwrap() }
    }

    fn image(key: &Key, version: &Version, number: u64) -> Vec<u8> {
        encode(Image { key, version, life: 7 }, number)
    }

    #[test]
    fn an_image_has_these_bytes_in_every_release() {
        // The checksum was computed by another implementation.
        let found = image(&key("a"), &version(0x0102_0304_0506_0708, &["a"], b"hello"), 0x10);
        let words: Vec<String> =
            found.chunks(8).map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
        let expected = [
            "1000000000000000",
            "1000000000000000",
            "0e00000074cad6d9",
            "0807060504030201",
            "1ec1000001000100",
            "f2416bee97e58844",
            "0800000000000000",
            "0700000000000000",
            "61f2416bee97e588",
            "4468656c6c6f0000",
            "1000000000000000",
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn a_version_survives_its_slot() {
        let deleted = Version { value: Value::DELETED, ..version(9, &[], b"") };
        for version in [version(1, &["a", "b"], b"value"), version(2, &[], b""), deleted] {
            let mut bytes = image(&key("b"), &version, 4);
            assert_eq!(bytes.len(), image_bytes(&key("b"), &version));
            assert_eq!(decode(&bytes, &key("b"), 7), Ok(version.clone()));
            bytes.resize(bytes.len() + 100, 0xEE);
            assert_eq!(decode(&bytes, &key("b"), 7), Ok(version), "a reader reads the whole slot");
        }
    }

    #[test]
    fn each_check_names_itself() {
        let (a, found) = (key("a"), version(3, &["a", "b"], b"value"));
        let good = image(&a, &found, 6);
        let with = |at: usize, bytes: &[u8]| {
            let mut changed = good.clone();
            changed[at..at + bytes.len()].copy_from_slice(bytes);
            decode(&changed, &a, 7).unwrap_err()
        };
        let last_at = good.len() - 8;
        assert_eq!(decode(&good[..71], &a, 7), Err(SlotFault::Short { found: 71, expected: good.len() }));
        assert_eq!(decode(&good[..9], &a, 7), Err(SlotFault::Short { found: 9, expected: 72 }));
        assert_eq!(with(0, &[7]), SlotFault::Changing { found: 7 });
        assert_eq!(decode(&[0; 200], &a, 7), Err(SlotFault::Changing { found: 0 }));
        assert_eq!(with(8, &[0]), SlotFault::Invalid { found: 0, expected: 6 });
        assert_eq!(with(8, &[8]), SlotFault::Invalid { found: 8, expected: 6 });
        let length = SlotFault::Length { found: 0xFF00_0016, most: SLOT_BYTES_MAX };
        assert_eq!(with(19, &[0xFF]), length);
        assert_eq!(with(last_at, &[4]), SlotFault::Torn { found: 4, expected: 6 });
        assert!(matches!(with(66, &[1]), SlotFault::Checksum { .. }));
        assert_eq!(decode(&good, &a, 8), Err(SlotFault::Life { found: 7, expected: 8 }));
        let other = SlotFault::OtherKey { found: a.fingerprint(), expected: key("b").fingerprint() };
        assert_eq!(decode(&good, &key("b"), 7), Err(other));
    }

    proptest! {
        #[test]
        fn a_changed_bit_is_noticed(bit in 0_usize..8 * 112, number in 1_u64..1000) {
            let a = key("a");
            let mut bytes = image(&a, &version(3, &["a", "b"], b"some value"), 2 * number);
            prop_assert_eq!(bytes.len(), 112 - 8);
            let bit = bit % (8 * bytes.len());
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(decode(&bytes, &a, 7).is_err(), "bit {}", bit);
        }
    }
}
