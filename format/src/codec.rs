//! Encodes structures of variable size as bytes, and decodes them with checks.
//!
//! Directories, definitions, programs and messages are encoded by `postcard` (its wire format is
//! specified and stable: varints, little-endian floats, no field names). In files and bulk
//! transfers, such a structure is preceded by an envelope: magic, version, kind, length and
//! CRC-32C. Structures of fixed size that are read in place (the page header) have their own
//! layouts.
//!
//! Invariants
//! - Decoding never allocates more than a small multiple of the bytes it is given.
//! - Bytes left over after a structure are an error, so different bytes do not decode to the same
//!   structure.

use serde::{Serialize, de::DeserializeOwned};

/// Bytes before the structure: magic, version, kind, length, checksum.
pub const ENVELOPE_BYTES: usize = 16;
const MAGIC: [u8; 4] = *b"RKS\x01";

/// The kind of structure in an envelope. The numbers are part of the format and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Envelope {
    /// The tables and segments a node keeps: its metadata file before tables had versions that
    /// replace one another.
    EarlierCatalog = 1,
    /// The catalog that a node sends to a client.
    CatalogReply = 2,
    /// The directory of a segment that a client sends to a node.
    Segment = 3,
    /// The record of a node's scratch area.
    Scratch = 4,
    /// The number of the current life of a node's participant, which distinguishes its starts.
    ParticipantLife = 5,
    /// The tables and segments a node keeps: its metadata file before table definitions listed
    /// derivations.
    SucceedingCatalog = 6,
    /// The tables and segments a node keeps: its metadata file before tables could be protected by
    /// parity.
    DerivingCatalog = 7,
    /// The tables and segments a node keeps: its metadata file.
    Catalog = 8,
    /// The map of a protected table.
    Map = 9,
    /// The segments of a load that a node holds, which it sends to the loading client.
    LoadHeld = 10,
    /// The newest generation of a log that a node knows; the log may be its own.
    LogGeneration = 11,
}

/// Why bytes are not the structure they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// There are fewer bytes than the structure needs.
    #[error("{what}: found {found} bytes, expected at least {expected}")]
    Short {
        /// The structure.
        what: &'static str,
        /// Bytes given.
        found: usize,
        /// Bytes needed.
        expected: usize,
    },
    /// The bytes are another structure, or another version of it.
    #[error(
        "{what}: the bytes begin with {found:02x?}, expected {expected:02x?}; another version of rackscan may have written them"
    )]
    Foreign {
        /// The structure.
        what: &'static str,
        /// The first bytes found.
        found: [u8; 8],
        /// The first bytes expected.
        expected: [u8; 8],
    },
    /// The bytes changed since they were written.
    #[error(
        "{what}: found checksum {found:08x}, expected {expected:08x}: the bytes have changed since they were written"
    )]
    Checksum {
        /// The structure.
        what: &'static str,
        /// Computed over the bytes found.
        found: u32,
        /// Stored beside it.
        expected: u32,
    },
    /// The structure itself does not parse.
    #[error("{what}: {reason}")]
    Malformed {
        /// The structure.
        what: &'static str,
        /// The error of the decoder.
        reason: String,
    },
}

/// Encodes a structure without an envelope, for messages, which the fabric frames.
///
/// # Errors
/// When the structure cannot be encoded (a sequence of unknown length; none of ours has one).
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, CodecError> {
    postcard::to_stdvec(value).map_err(|error| CodecError::Malformed {
        what: std::any::type_name::<T>(),
        reason: error.to_string(),
    })
}

/// As [`encode`], appending to `bytes`.
///
/// # Errors
/// As [`encode`]; then `bytes` is empty.
pub fn append<T: Serialize>(value: &T, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
    *bytes = postcard::to_extend(value, std::mem::take(bytes)).map_err(|error| CodecError::Malformed {
        what: std::any::type_name::<T>(),
        reason: error.to_string(),
    })?;
    Ok(())
}

/// Decodes a structure that must fill `bytes` exactly.
///
/// # Errors
/// When the bytes do not parse as `what`, or some are left over.
pub fn decode<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, CodecError> {
    let (value, rest) = postcard::take_from_bytes(bytes)
        .map_err(|error| CodecError::Malformed { what, reason: format!("cannot be decoded: {error}") })?;
    if rest.is_empty() {
        return Ok(value);
    }
    Err(CodecError::Malformed {
        what,
        reason: format!("found {} bytes after the end of the structure", rest.len()),
    })
}

/// Encodes a structure within an envelope, for files and bulk transfers.
///
/// # Errors
/// As [`encode`]; and when the structure takes 4 GiB or more.
pub fn encode_envelope<T: Serialize>(kind: Envelope, value: &T) -> Result<Vec<u8>, CodecError> {
    let body = encode(value)?;
    let length = u32::try_from(body.len()).map_err(|_| CodecError::Malformed {
        what: std::any::type_name::<T>(),
        reason: format!("its encoding has {} bytes, expected less than 4 GiB", body.len()),
    })?;
    let mut encoded = Vec::with_capacity(ENVELOPE_BYTES + body.len());
    encoded.extend_from_slice(&first_bytes(kind));
    encoded.extend_from_slice(&length.to_le_bytes());
    encoded.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
    encoded.extend_from_slice(&body);
    Ok(encoded)
}

/// Decodes a structure from its envelope; bytes after it (padding) are ignored.
///
/// # Errors
/// The first part of the envelope or of the structure that is wrong.
pub fn decode_envelope<T: DeserializeOwned>(
    kind: Envelope,
    what: &'static str,
    bytes: &[u8],
) -> Result<T, CodecError> {
    let Some((head, rest)) = bytes.split_first_chunk::<ENVELOPE_BYTES>() else {
        return Err(CodecError::Short { what, found: bytes.len(), expected: ENVELOPE_BYTES });
    };
    let [m0, m1, m2, m3, k0, k1, k2, k3, l0, l1, l2, l3, c0, c1, c2, c3] = *head;
    let found = [m0, m1, m2, m3, k0, k1, k2, k3];
    let expected = first_bytes(kind);
    if found != expected {
        return Err(CodecError::Foreign { what, found, expected });
    }
    let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    let Some(body) = rest.get(..length) else {
        return Err(CodecError::Short { what, found: bytes.len(), expected: ENVELOPE_BYTES + length });
    };
    let expected = u32::from_le_bytes([c0, c1, c2, c3]);
    let found = crc32c::crc32c(body);
    if found != expected {
        return Err(CodecError::Checksum { what, found, expected });
    }
    decode(what, body)
}

/// As [`decode_envelope`], but no bytes may follow the envelope.
///
/// # Errors
/// As [`decode_envelope`], and for bytes after the structure.
pub fn decode_envelope_all<T: DeserializeOwned>(
    kind: Envelope,
    what: &'static str,
    bytes: &[u8],
) -> Result<T, CodecError> {
    if let Some([l0, l1, l2, l3]) = bytes.get(8..12) {
        let left = (bytes.len() as u64)
            .saturating_sub(ENVELOPE_BYTES as u64 + u64::from(u32::from_le_bytes([*l0, *l1, *l2, *l3])));
        if left > 0 {
            return Err(CodecError::Malformed { what, reason: format!("found {left} bytes after its end") });
        }
    }
    decode_envelope(kind, what, bytes)
}

/// The checksum (CRC-32C) of bytes that have no envelope.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

fn first_bytes(kind: Envelope) -> [u8; 8] {
    let [m0, m1, m2, m3] = MAGIC;
    let [k0, k1, k2, k3] = (kind as u32).to_le_bytes();
    [m0, m1, m2, m3, k0, k1, k2, k3]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_comes_back_and_padding_is_ignored() {
        let mut bytes = encode_envelope(Envelope::Catalog, &(7_u32, "seven")).unwrap();
        bytes.resize(4096, 0);
        assert_eq!(
            decode_envelope::<(u32, String)>(Envelope::Catalog, "test", &bytes).unwrap(),
            (7, "seven".to_owned())
        );
    }

    #[test]
    fn every_flipped_byte_of_an_envelope_is_noticed() {
        let bytes = encode_envelope(Envelope::Catalog, &(7_u32, "seven")).unwrap();
        for at in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[at] ^= 0x40;
            assert!(
                decode_envelope::<(u32, String)>(Envelope::Catalog, "test", &broken).is_err(),
                "byte {at}"
            );
        }
    }

    #[test]
    fn bytes_left_over_are_an_error() {
        let mut bytes = encode(&1_u32).unwrap();
        bytes.push(0);
        assert!(matches!(decode::<u32>("number", &bytes), Err(CodecError::Malformed { .. })));
    }
}
