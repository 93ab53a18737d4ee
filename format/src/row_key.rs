//! Defines the prefixes of the keys under which participants store the changed rows of a table.
//!
//! Code that closes a table needs only the prefix of these keys, so the prefix is defined here.
//! `delta/identity` defines the remainder of the key.

use crate::ids::TableId;

/// The prefix of the keys of all rows of all tables.
pub const ROW_PREFIX: &[u8] = b"\0r";

/// The number of bytes of [`table_prefix`].
pub const TABLE_PREFIX_BYTES: usize = 6;

/// The prefix of the keys of a table's rows: [`ROW_PREFIX`], then the table's id, big-endian.
#[must_use]
pub fn table_prefix(table: TableId) -> [u8; TABLE_PREFIX_BYTES] {
    let mut prefix = [0; TABLE_PREFIX_BYTES];
    prefix[..2].copy_from_slice(ROW_PREFIX);
    prefix[2..].copy_from_slice(&table.0.to_be_bytes());
    prefix
}
