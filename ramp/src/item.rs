//! Defines keys, values and versions, and the metadata by which a version names the other keys of
//! its transaction.
//!
//! Invariants
//! - The length of every key and value is within its limit.
//! - A write set holds the fingerprints of *all* keys of its transaction, ascending. Fingerprints
//!   suffice, because a reader only compares them, and they keep metadata small: eight bytes for a
//!   key of any length.
//! - Two keys with one fingerprint cause no wrong read: the reader asks for a version that does not
//!   exist, and uses the version that it found before.

pub use crate::fingerprint::Fingerprint;
use crate::{
    bloom::Bloom,
    bytes::Cursor,
    limits::{FINGERPRINT_BYTES, KEY_BYTES_MAX, METADATA_BYTES_MAX, VALUE_BYTES_MAX, WRITE_KEYS_MAX},
    list,
    timestamp::Timestamp,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, hash, sync::Arc};

/// A key or value that is too long, or an empty key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error(
    "a {what} of {found} bytes, expected {least} to {most} bytes: divide the {what}, or store a reference to the data in its place"
)]
pub struct Oversize {
    /// What it is.
    pub what: Bounded,
    /// Its length in bytes.
    pub found: u64,
    /// The minimum.
    pub least: u64,
    /// The maximum.
    pub most: u64,
}

/// Things whose length is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bounded {
    /// A key.
    Key,
    /// A value.
    Value,
}

impl fmt::Display for Bounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key => "key",
            Self::Value => "value",
        })
    }
}

/// The first byte of system keys, such as those of table rows. Users' keys may not begin with it,
/// and code that accepts keys from users must refuse them. Feeds contain the transactions that
/// write a system key.
pub const SYSTEM_PREFIX: &[u8] = b"\0";

/// The first bytes of grouped keys: system keys that are placed by their group, such as the rows
/// that one transaction has inserted. All keys of a group are at one participant, so that a
/// transaction that writes only this group has one participant. The prefix is followed by
/// [`OWNER_BYTES`] of the owner, the group, and [`MEMBER_BYTES`] that number the key within the
/// group.
pub const GROUPED_PREFIX: &[u8] = b"\0r";
/// Bytes of a grouped key that name its owner, such as a table. They do not influence the
/// placement.
pub const OWNER_BYTES: usize = 4;
/// Bytes of a grouped key that tell the keys of its group apart.
pub const MEMBER_BYTES: usize = 4;

/// A key: bytes whose meaning is up to the user. Clones share the bytes.
#[derive(Clone)]
pub struct Key {
    bytes: Arc<[u8]>,
    fingerprint: Fingerprint,
}

impl Key {
    /// The key of these bytes.
    ///
    /// # Errors
    /// [`Oversize`], also for no bytes at all.
    pub fn new(bytes: &[u8]) -> Result<Self, Oversize> {
        if bytes.is_empty() || bytes.len() > KEY_BYTES_MAX {
            let (found, most) = (bytes.len() as u64, KEY_BYTES_MAX as u64);
            return Err(Oversize { what: Bounded::Key, found, least: 1, most });
        }
        Ok(Self { fingerprint: Fingerprint::of(bytes), bytes: bytes.into() })
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The fingerprint that stands for it in write sets.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The fingerprint that decides which participant keeps the key: that of its group
    /// ([`GROUPED_PREFIX`]), or its own if it has no group.
    #[must_use]
    pub fn placement(&self) -> Fingerprint {
        let rest = self.bytes.strip_prefix(GROUPED_PREFIX);
        let group = rest.and_then(|rest| rest.get(OWNER_BYTES..rest.len().checked_sub(MEMBER_BYTES)?));
        group.filter(|group| !group.is_empty()).map_or(self.fingerprint, Fingerprint::of)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint && self.bytes == other.bytes
    }
}

impl Eq for Key {}

impl hash::Hash for Key {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        state.write_u64(self.fingerprint.0);
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.bytes.cmp(&other.bytes)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.bytes.escape_ascii())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.bytes)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = <&[u8]>::deserialize(deserializer)?;
        Self::new(bytes).map_err(serde::de::Error::custom)
    }
}

/// The value of a key: bytes, or a mark that the key is deleted. Clones share the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Value {
    bytes: Option<Arc<[u8]>>,
}

impl Value {
    /// The mark that the key is deleted.
    pub const DELETED: Self = Self { bytes: None };

    /// The value of these bytes.
    ///
    /// # Errors
    /// [`Oversize`].
    pub fn new(bytes: &[u8]) -> Result<Self, Oversize> {
        if bytes.len() > VALUE_BYTES_MAX {
            let (found, most) = (bytes.len() as u64, VALUE_BYTES_MAX as u64);
            return Err(Oversize { what: Bounded::Value, found, least: 0, most });
        }
        Ok(Self { bytes: Some(bytes.into()) })
    }

    /// Its bytes; `None` if the key is deleted.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        self.bytes.as_deref()
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.as_ref().map_or(0, |bytes| bytes.len())
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.bytes {
            Some(bytes) => write!(f, "Value({} bytes)", bytes.len()),
            None => f.write_str("Value(deleted)"),
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.bytes.as_deref().map(Bytes).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Option::<&[u8]>::deserialize(deserializer)? {
            Some(bytes) => Self::new(bytes).map_err(serde::de::Error::custom),
            None => Ok(Self::DELETED),
        }
    }
}

/// Serializes as one byte string, not byte by byte.
struct Bytes<'a>(&'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

/// What a version says about the other keys of its transaction. The algorithm chooses the kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Metadata {
    /// Nothing beyond the timestamp: RAMP-Small needs no more, and neither locking nor writes
    /// without concurrency control use it.
    Timestamp,
    /// The fingerprints of all keys, ascending: RAMP-Fast.
    WriteSet(#[serde(deserialize_with = "list::at_most::<_, _, WRITE_KEYS_MAX>")] Vec<Fingerprint>),
    /// A Bloom filter of them: RAMP-Hybrid.
    Filter(Bloom),
}

/// Bytes that are not valid metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a version has metadata of kind {kind} with {bytes} bytes, expected kind 0 without bytes, kind 1 with ascending fingerprints of 8 bytes each, or kind 2 with a Bloom filter"
)]
pub struct MetadataFault {
    /// The kind found.
    pub kind: u8,
    /// The length found.
    pub bytes: usize,
}

impl Metadata {
    /// Whether the transaction may have written to `key`. Only a filter has false positives.
    #[must_use]
    pub fn may_have(&self, key: &Key) -> bool {
        match self {
            Self::Timestamp => false,
            Self::WriteSet(set) => set.binary_search(&key.fingerprint()).is_ok(),
            Self::Filter(filter) => filter.may_have(key.fingerprint()),
        }
    }

    /// The bytes that it adds to a version in slots, logs and messages.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Timestamp => 0,
            Self::WriteSet(set) => set.len() * FINGERPRINT_BYTES,
            Self::Filter(filter) => filter.bytes().len(),
        }
    }

    /// Whether it adds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of its kind, as written in slots and logs.
    #[must_use]
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Self::Timestamp => 0,
            Self::WriteSet(_) => 1,
            Self::Filter(_) => 2,
        }
    }

    pub(crate) fn append_to(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Timestamp => {}
            Self::WriteSet(set) => set.iter().for_each(|key| bytes.extend_from_slice(&key.0.to_le_bytes())),
            Self::Filter(filter) => bytes.extend_from_slice(filter.bytes()),
        }
    }

    pub(crate) fn from_bytes(kind: u8, bytes: &[u8]) -> Result<Self, MetadataFault> {
        let fault = MetadataFault { kind, bytes: bytes.len() };
        if bytes.len() > METADATA_BYTES_MAX {
            return Err(fault);
        }
        match kind {
            0 if bytes.is_empty() => Ok(Self::Timestamp),
            1 if bytes.len().is_multiple_of(FINGERPRINT_BYTES) => {
                let mut cursor = Cursor::over(bytes);
                let set: Vec<Fingerprint> = std::iter::from_fn(|| cursor.u64()).map(Fingerprint).collect();
                if set.is_sorted() { Ok(Self::WriteSet(set)) } else { Err(fault) }
            }
            2 => Bloom::from_bytes(bytes).map(Self::Filter).ok_or(fault),
            _ => Err(fault),
        }
    }
}

/// One version of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// The transaction that wrote it.
    pub timestamp: Timestamp,
    /// The other keys that this transaction wrote.
    pub metadata: Metadata,
    /// The value that it wrote to this key.
    pub value: Value,
}

impl Version {
    /// Drops everything but the timestamp and the mark of deletion.
    pub fn empty(&mut self) {
        self.metadata = Metadata::Timestamp;
        if self.value.bytes().is_some() {
            self.value = Value { bytes: Some(Arc::default()) };
        }
    }

    /// The version of a key that nobody has written to.
    #[must_use]
    pub fn first() -> Self {
        Self { timestamp: Timestamp::FIRST, metadata: Metadata::Timestamp, value: Value::DELETED }
    }

    /// The approximate number of bytes of a copy.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.metadata_bytes() + self.value.len()
    }

    /// Bytes that a copy takes in a slot, a log or a message beside its value: timestamp and
    /// metadata.
    #[must_use]
    pub fn metadata_bytes(&self) -> usize {
        Timestamp::ENCODED_BYTES + self.metadata.len()
    }
}

/// One key that a transaction writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The key.
    pub key: Key,
    /// What is written; [`Value::DELETED`] deletes.
    pub value: Value,
    /// A condition: the newest version of the key, prepared or committed, must have this timestamp,
    /// or the transaction is refused. It is the timestamp of the version that was read;
    /// [`Timestamp::FIRST`] if the key must not exist. `None` writes unconditionally.
    pub expected: Option<Timestamp>,
}

impl From<(Key, Value)> for Write {
    fn from((key, value): (Key, Value)) -> Self {
        Self { key, value, expected: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_that_differ_a_little_have_other_fingerprints() {
        let mut seen = HashSet::new();
        for number in 0..100_000_u64 {
            assert!(seen.insert(Fingerprint::of(format!("user{number}").as_bytes())), "{number}");
        }
        assert_ne!(Fingerprint::of(b"a"), Fingerprint::of(b"a\0"), "a zero is a byte, too");
    }

    #[test]
    fn members_of_a_group_live_where_their_group_does_and_all_other_keys_by_themselves() {
        let key = |bytes: &[u8]| Key::new(bytes).unwrap();
        let of = |owner: u8, group: &[u8], member: u8| {
            key(&[b"\0r", &[owner; OWNER_BYTES][..], group, &[member; MEMBER_BYTES]].concat())
        };
        let participant = of(1, b"group", 1).placement();
        for (owner, member) in [(1, 2), (2, 1), (255, 255)] {
            assert_eq!(of(owner, b"group", member).placement(), participant);
            assert_ne!(of(owner, b"groups", member).placement(), participant);
        }
        for alone in [&b"\0r"[..], b"\0r1234", b"\0r12345678", b"\0i1234group1234", b"r1234group1234", b"\0"]
        {
            assert_eq!(key(alone).placement(), key(alone).fingerprint(), "{alone:?}");
        }
        let places: HashSet<u64> =
            (0..100_u32).map(|group| of(1, &group.to_be_bytes(), 1).placement().0 % 4).collect();
        assert_eq!(places.len(), 4, "groups are spread");
    }

    #[test]
    fn what_is_too_long_is_refused_with_numbers() {
        let key = Key::new(&[1; KEY_BYTES_MAX + 1]).unwrap_err();
        assert_eq!(key, Oversize { what: Bounded::Key, found: 1025, least: 1, most: 1024 });
        assert!(Key::new(&[]).is_err());
        let value = Value::new(&vec![0; VALUE_BYTES_MAX + 1]).unwrap_err();
        assert_eq!((value.found, value.most), (1_048_577, 1_048_576));
        assert!(value.to_string().contains("a value of 1048577 bytes, expected 0 to 1048576"), "{value}");
    }

    #[test]
    fn metadata_of_eight_keys_is_a_tenth_of_a_kilobyte_at_most() {
        let keys: Vec<Key> = (0..8).map(|at| Key::new(format!("user{at}").as_bytes()).unwrap()).collect();
        let mut set: Vec<Fingerprint> = keys.iter().map(Key::fingerprint).collect();
        set.sort_unstable();
        let filter = Metadata::Filter(Bloom::of(&set));
        let of = |metadata| Version { metadata, ..Version::first() }.metadata_bytes();
        let found = [of(Metadata::WriteSet(set)), of(filter), of(Metadata::Timestamp)];
        assert_eq!(
            found,
            [76, 28, 12],
            "bytes by RAMP-Fast, RAMP-Hybrid and RAMP-Small; a tenth of 1 KB is 102"
        );
    }

    #[test]
    fn metadata_survives_its_bytes_and_nothing_else_does() {
        let set: Vec<Fingerprint> = (1..5).map(Fingerprint).collect();
        let filter = Metadata::Filter(Bloom::of(&set));
        for metadata in [Metadata::Timestamp, Metadata::WriteSet(set), filter] {
            let mut bytes = Vec::new();
            metadata.append_to(&mut bytes);
            assert_eq!(bytes.len(), metadata.len());
            assert_eq!(Metadata::from_bytes(metadata.kind(), &bytes), Ok(metadata));
        }
        let descending: Vec<u8> = [2_u64, 1].iter().flat_map(|word| word.to_le_bytes()).collect();
        let bad: [(u8, &[u8]); 5] = [(0, &[1]), (1, &[1; 7]), (1, &descending), (2, &[]), (3, &[])];
        for (kind, bytes) in bad {
            assert_eq!(Metadata::from_bytes(kind, bytes), Err(MetadataFault { kind, bytes: bytes.len() }));
        }
    }
}
