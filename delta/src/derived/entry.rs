//! Encodes the keys and values of derived entries.
//!
//! | bytes of a key | |
//! |---|---|
//! | 0 | 0 |
//! | 1 | the kind: `i` index, `f` foreign key, `a` sum (an aggregate) |
//! | 2..6 | the id of the table whose row the entry is about |
//! | 6..8 | the position of the derivation in that table's definition |
//! | 8.. | the value by which the entry is found (`sortable`) |
//! | then 1 | the role: see below |
//! | then 9 or 17 | the row's identity, as in its own key |
//!
//! | kind | role 0 | role 1 |
//! |---|---|---|
//! | `i` | the row has this value | |
//! | `f` | parent | child |
//! | `a` | the negative of the amount that the row has in its segment | its present amount |
//!
//! The value of an entry of a sum is an [`Amount`]: the sum 16, rows 8, little-endian. Other
//! entries have an empty value.
//!
//! Invariants
//! - Entries of one derivation are ordered by value, then by role, then by identity.
//! - All entries of one derivation and value share a prefix that no other key has. So one range of
//!   keys contains exactly these entries.
//! - The entries of a table are exactly the keys under three prefixes ([`prefixes`]). A transaction
//!   that empties the prefix of the table's rows must empty these prefixes, too.

use super::{DerivedFault, sortable};
use crate::{identity::RowIdentity, row::Datum};
use rackscan_format::ids::TableId;
use rackscan_ramp::item::{Key, Oversize, Value};
use std::{fmt, ops::Bound};

/// Bytes of the prefix of all entries of one letter of a table.
pub(super) const PREFIX_BYTES: usize = 6;

/// The second byte of the keys of entries.
const LETTERS: [u8; 3] = [b'i', b'f', b'a'];

/// Bytes of an amount.
const AMOUNT_BYTES: usize = 24;

/// Identifies a derivation in the whole cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DerivedId {
    /// The table from whose rows it is derived.
    pub table: TableId,
    /// Its index in that table's definition.
    pub number: u16,
}

impl fmt::Display for DerivedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.table, self.number)
    }
}

/// What an entry says about its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The row has this value in an indexed column.
    Indexed,
    /// The row has this key.
    Parent,
    /// The row refers to the row with this key in another table.
    Child,
    /// The row's segment contributes this amount, which does not count any more: the amount is
    /// negative.
    Stored,
    /// The row contributes this amount.
    Present,
}

impl Role {
    const ALL: [Self; 5] = [Self::Indexed, Self::Parent, Self::Child, Self::Stored, Self::Present];

    fn letter(self) -> u8 {
        match self {
            Self::Indexed => b'i',
            Self::Parent | Self::Child => b'f',
            Self::Stored | Self::Present => b'a',
        }
    }

    fn byte(self) -> u8 {
        match self {
            Self::Indexed | Self::Parent | Self::Stored => 0,
            Self::Child | Self::Present => 1,
        }
    }

    /// The prefix of the keys of all entries of a derivation with this role.
    pub(super) fn prefix(self, by: DerivedId) -> Vec<u8> {
        [&prefix_of(self.letter(), by.table)[..], &by.number.to_be_bytes()].concat()
    }
}

fn prefix_of(letter: u8, table: TableId) -> [u8; PREFIX_BYTES] {
    let [a, b, c, d] = table.0.to_be_bytes();
    [0, letter, a, b, c, d]
}

/// The prefixes of all entries about a table's rows: of indexes, foreign keys and sums. A
/// transaction that closes or empties the prefix of its rows must do so with these, too.
#[must_use]
pub fn prefixes(table: TableId) -> [Vec<u8>; 3] {
    LETTERS.map(|letter| prefix_of(letter, table).to_vec())
}

/// The table of one of its prefixes: the inverse of [`prefixes`].
pub(crate) fn table_of(prefix: &[u8]) -> Option<TableId> {
    let [0, letter, id @ ..] = <&[u8; PREFIX_BYTES]>::try_from(prefix).ok()? else { return None };
    LETTERS.contains(letter).then(|| TableId(u32::from_be_bytes(*id)))
}

/// An entry: a value, and a row that is found by it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The derivation.
    pub by: DerivedId,
    /// What it says about the row.
    pub role: Role,
    /// The value.
    pub value: Datum,
    /// The row.
    pub row: RowIdentity,
}

impl Entry {
    /// Its key.
    ///
    /// # Errors
    /// [`Oversize`]: a text that is too long for a key.
    pub fn key(&self) -> Result<Key, Oversize> {
        let mut bytes = self.role.prefix(self.by);
        sortable::append(&self.value, &mut bytes);
        bytes.push(self.role.byte());
        self.row.append_to(&mut bytes);
        Key::new(&bytes)
    }

    /// The entry of a key; `None` for a key of another kind.
    ///
    /// # Errors
    /// [`DerivedFault::NotAnEntry`].
    pub fn of(key: &Key) -> Result<Option<Self>, DerivedFault> {
        let Some((letter, rest)) = key.bytes().strip_prefix(b"\0").and_then(<[u8]>::split_first) else {
            return Ok(None);
        };
        if !Role::ALL.iter().any(|role| role.letter() == *letter) {
            return Ok(None);
        }
        parse(*letter, rest).map(Some).ok_or_else(|| DerivedFault::NotAnEntry { key: key.clone() })
    }
}

fn parse(letter: u8, bytes: &[u8]) -> Option<Entry> {
    let (table, rest) = bytes.split_first_chunk()?;
    let (number, mut rest) = rest.split_first_chunk()?;
    let by = DerivedId { table: TableId(u32::from_be_bytes(*table)), number: u16::from_be_bytes(*number) };
    let value = sortable::take(&mut rest)?;
    let (byte, rest) = rest.split_first()?;
    let role = Role::ALL.into_iter().find(|role| (role.letter(), role.byte()) == (letter, *byte))?;
    let row = RowIdentity::from_bytes(rest)?;
    Some(Entry { by, role, value, row })
}

/// The range of keys (from, inclusive, and until, exclusive) of the entries whose values are in a
/// range. `prefix` is that of all entries.
#[must_use]
pub(super) fn span(prefix: &[u8], from: Bound<&Datum>, to: Bound<&Datum>) -> (Vec<u8>, Vec<u8>) {
    let key = |value: Option<&Datum>, is_behind: bool| {
        let mut key = prefix.to_vec();
        if let Some(value) = value {
            sortable::append(value, &mut key);
        }
        if is_behind {
            key.push(sortable::ABOVE_ALL);
        }
        key
    };
    let from = match from {
        Bound::Included(value) => key(Some(value), false),
        Bound::Excluded(value) => key(Some(value), true),
        Bound::Unbounded => key(None, false),
    };
    let to = match to {
        Bound::Included(value) => key(Some(value), true),
        Bound::Excluded(value) => key(Some(value), false),
        Bound::Unbounded => key(None, true),
    };
    (from, to)
}

/// What rows contribute to a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// The unscaled sum.
    pub sum: i128,
    /// The number of rows. A group without rows does not exist.
    pub rows: i64,
}

impl Amount {
    /// The sum of both; `None` if it is too large.
    #[must_use]
    pub fn plus(self, other: Self) -> Option<Self> {
        Some(Self { sum: self.sum.checked_add(other.sum)?, rows: self.rows.checked_add(other.rows)? })
    }

    /// The amount that cancels this one; `None` if it is too large.
    #[must_use]
    pub fn negated(self) -> Option<Self> {
        Some(Self { sum: self.sum.checked_neg()?, rows: self.rows.checked_neg()? })
    }

    /// Encodes it as the value of an item.
    ///
    /// # Errors
    /// Never, because values may be longer.
    pub(super) fn value(self) -> Result<Value, Oversize> {
        let mut bytes = [0; AMOUNT_BYTES];
        bytes[..16].copy_from_slice(&self.sum.to_le_bytes());
        bytes[16..].copy_from_slice(&self.rows.to_le_bytes());
        Value::new(&bytes)
    }

    /// Decodes the amount in an item's value.
    ///
    /// # Errors
    /// [`DerivedFault::Amount`].
    pub(super) fn of(key: &Key, bytes: &[u8]) -> Result<Self, DerivedFault> {
        let amount = bytes.split_first_chunk().and_then(|(sum, rest)| {
            let (sum, rows) = (i128::from_le_bytes(*sum), i64::from_le_bytes(rest.try_into().ok()?));
            Some(Self { sum, rows })
        });
        amount.ok_or_else(|| DerivedFault::Amount {
            key: key.clone(),
            found: bytes.len(),
            expected: AMOUNT_BYTES,
        })
    }
}
