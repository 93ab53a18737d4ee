//! Identifies each row of a table by a key, under which participants store the row after it has
//! changed.
//!
//! | bytes of a key | |
//! |---|---|
//! | 0..2 | 0, `r`: users' keys may not begin with a zero byte |
//! | 2..6 | the table's id |
//! | 6 | 0: a row of a segment; 1: a row that was inserted |
//! | 7.. | segment 4, row 4; or the timestamp of the transaction that inserted it (time 8, client 4) and its number among that transaction's rows 4 |
//!
//! A row key is assigned to a participant by its group ([`GROUPED_PREFIX`]): the rows of one
//! segment are at one participant, and so are all rows that one transaction has inserted, into
//! whatever tables. So a transaction that inserts an order with its lines has one participant, and
//! one that deletes them has two.
//!
//! Invariants
//! - Numbers are big-endian. Keys are ordered by table, then rows of segments by segment and row,
//!   then inserted rows by timestamp.
//! - An identity is permanent: a row keeps it when it is updated, and no other row of the same
//!   table ever gets it.

use rackscan_format::ids::{SegmentId, TableId};
use rackscan_ramp::{
    item::{GROUPED_PREFIX, Key},
    timestamp::{ClientId, Timestamp},
};
use std::fmt;

pub use rackscan_format::row_key::{ROW_PREFIX, table_prefix};

/// The first byte of all keys that are not for users: rows, and what is derived from them. A feed
/// with this prefix contains both.
pub const SYSTEM_PREFIX: &[u8] = b"\0";

// Row keys are grouped keys.
const _: () = assert!(matches!((ROW_PREFIX, GROUPED_PREFIX), ([0, b'r'], [0, b'r'])));

/// A row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowIdentity {
    /// A row that was loaded.
    Stored {
        /// Its segment.
        segment: SegmentId,
        /// Its number there.
        row: u32,
    },
    /// A row that was inserted.
    Inserted {
        /// The transaction.
        by: Timestamp,
        /// Its number among the rows that this transaction inserted into the table.
        number: u32,
    },
}

impl fmt::Display for RowIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stored { segment, row } => write!(f, "row {row} of segment {segment}"),
            Self::Inserted { by, number } => write!(f, "row {number} inserted by {by}"),
        }
    }
}

/// A key begins like those of rows, but is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the key {key} begins like the key of a row, but does not identify one: perhaps a newer version wrote it"
)]
pub struct NotARow {
    /// The key.
    pub key: Key,
}

/// The table of a prefix of row keys: the inverse of [`table_prefix`].
#[must_use]
pub fn table_of(prefix: &[u8]) -> Option<TableId> {
    let id = prefix.strip_prefix(ROW_PREFIX)?;
    Some(TableId(u32::from_be_bytes(id.try_into().ok()?)))
}

impl RowIdentity {
    /// The guard row of a table, which never exists. A transaction that inserts rows computed from
    /// the same table writes it as well, so that of two such concurrent transactions the second one
    /// conflicts.
    pub const GUARD: Self = Self::Inserted { by: Timestamp::FIRST, number: u32::MAX };

    /// The key of the row in its table. Never `None`, because keys may be longer.
    #[must_use]
    pub fn key(self, table: TableId) -> Option<Key> {
        let mut bytes = table_prefix(table).to_vec();
        self.append_to(&mut bytes);
        Key::new(&bytes).ok()
    }

    /// Appends what follows the table in keys: kind, segment or transaction, number.
    pub(crate) fn append_to(self, bytes: &mut Vec<u8>) {
        match self {
            Self::Stored { segment, row } => {
                bytes.push(0);
                bytes.extend_from_slice(&segment.0.to_be_bytes());
                bytes.extend_from_slice(&row.to_be_bytes());
            }
            Self::Inserted { by, number } => {
                bytes.push(1);
                bytes.extend_from_slice(&by.time.to_be_bytes());
                bytes.extend_from_slice(&by.client.0.to_be_bytes());
                bytes.extend_from_slice(&number.to_be_bytes());
            }
        }
    }

    /// Table and row of a key; `None` for a key of another kind.
    ///
    /// # Errors
    /// [`NotARow`].
    pub fn of(key: &Key) -> Result<Option<(TableId, Self)>, NotARow> {
        let Some(rest) = key.bytes().strip_prefix(ROW_PREFIX) else { return Ok(None) };
        parse(rest).map(Some).ok_or_else(|| NotARow { key: key.clone() })
    }

    /// The identity for which [`Self::append_to`] appends exactly these bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match kind {
            0 => {
                let (segment, rest) = rest.split_first_chunk()?;
                let row = u32::from_be_bytes(rest.try_into().ok()?);
                Some(Self::Stored { segment: SegmentId(u32::from_be_bytes(*segment)), row })
            }
            1 => {
                let (time, rest) = rest.split_first_chunk()?;
                let (client, rest) = rest.split_first_chunk()?;
                let client = ClientId(u32::from_be_bytes(*client));
                let by = Timestamp { time: u64::from_be_bytes(*time), client };
                Some(Self::Inserted { by, number: u32::from_be_bytes(rest.try_into().ok()?) })
            }
            _ => None,
        }
    }
}

fn parse(bytes: &[u8]) -> Option<(TableId, RowIdentity)> {
    let (table, rest) = bytes.split_first_chunk()?;
    Some((TableId(u32::from_be_bytes(*table)), RowIdentity::from_bytes(rest)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn identity() -> impl Strategy<Value = RowIdentity> {
        let stored = (any::<u32>(), any::<u32>())
            .prop_map(|(segment, row)| RowIdentity::Stored { segment: SegmentId(segment), row });
        let inserted = (any::<u64>(), any::<u32>(), any::<u32>()).prop_map(|(time, client, number)| {
            RowIdentity::Inserted { by: Timestamp { time, client: ClientId(client) }, number }
        });
        prop_oneof![stored, inserted]
    }

    #[test]
    fn rows_that_one_transaction_inserts_live_together_and_so_do_those_of_a_segment() {
        let inserted = |client, number| RowIdentity::Inserted {
            by: Timestamp { time: 7, client: ClientId(client) },
            number,
        };
        let stored = |segment, row| RowIdentity::Stored { segment: SegmentId(segment), row };
        let place = |table, row: RowIdentity| row.key(TableId(table)).unwrap().placement();
        assert_eq!(place(1, inserted(3, 0)), place(2, inserted(3, 900)));
        assert_ne!(place(1, inserted(3, 0)), place(1, inserted(4, 0)));
        assert_eq!(place(1, stored(5, 0)), place(1, stored(5, u32::MAX)));
        assert_ne!(place(1, stored(5, 0)), place(1, stored(6, 0)));
    }

    proptest! {
        #[test]
        fn an_identity_survives_its_key_and_keys_are_in_the_order_of_tables_and_rows(
            a in (any::<u32>(), identity()), b in (any::<u32>(), identity()),
        ) {
            let key = |(table, row): (u32, RowIdentity)| row.key(TableId(table)).unwrap();
            prop_assert_eq!(RowIdentity::of(&key(a)), Ok(Some((TableId(a.0), a.1))));
            prop_assert_eq!(key(a).cmp(&key(b)), a.cmp(&b));
            prop_assert!(key(a).bytes().starts_with(&table_prefix(TableId(a.0))));
            prop_assert_eq!(table_of(&table_prefix(TableId(a.0))), Some(TableId(a.0)));
        }

        #[test]
        fn a_key_of_any_bytes_is_a_row_or_says_that_it_is_none(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let key = Key::new(&[ROW_PREFIX, &bytes].concat()).unwrap();
            match RowIdentity::of(&key) {
                Ok(Some((table, row))) => prop_assert_eq!(row.key(table).unwrap(), key),
                Ok(None) => prop_assert!(false, "it begins as rows do"),
                Err(error) => prop_assert_eq!(error.key, key),
            }
        }
    }

    #[test]
    fn keys_of_users_are_no_rows() {
        assert_eq!(RowIdentity::of(&Key::new(b"r").unwrap()), Ok(None));
        assert_eq!(RowIdentity::of(&Key::new(b"\0x").unwrap()), Ok(None));
    }
}
