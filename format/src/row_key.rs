//! What do the keys begin with under which homes keep the changed rows of a table?
//!
//! Whoever closes a table needs it, and knows nothing else of rows (`delta/identity` has the rest
//! of such a key).

use crate::ids::TableId;

/// What the keys of all rows of tables begin with.
pub const ROW_PREFIX: &[u8] = b"\0r";

/// Bytes of [`table_prefix`].
pub const TABLE_PREFIX_BYTES: usize = 6;

/// What the keys of a table's rows begin with: the prefix of all rows, and the table's id,
/// big-endian.
#[must_use]
pub fn table_prefix(table: TableId) -> [u8; TABLE_PREFIX_BYTES] {
    let mut prefix = [0; TABLE_PREFIX_BYTES];
    prefix[..2].copy_from_slice(ROW_PREFIX);
    prefix[2..].copy_from_slice(&table.0.to_be_bytes());
    prefix
}
