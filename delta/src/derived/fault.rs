//! Errors of computing and reading derived entries.

use crate::identity::RowIdentity;
use rackscan_ramp::{
    item::{Key, Oversize},
    timestamp::Timestamp,
};

/// Why entries cannot be derived, or a question cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DerivedFault {
    /// The question can only be answered by another kind of derivation.
    #[error("{name:?} is {found}, expected {expected}")]
    Kind {
        /// The derivation's name.
        name: String,
        /// What it is.
        found: String,
        /// What it had to be.
        expected: String,
    },
    /// A value is too long for a key.
    #[error("{name:?}: {row} has a value that is too long for an entry: {why}")]
    Oversize {
        /// The derivation's name.
        name: String,
        /// The row.
        row: String,
        /// The length and the limit.
        why: Oversize,
    },
    /// A row has fewer or more values than its table has columns.
    #[error("{name:?}: {row} has {found} values, expected {expected}")]
    Length {
        /// The derivation's name.
        name: String,
        /// The row.
        row: RowIdentity,
        /// Its values.
        found: usize,
        /// Columns of its table.
        expected: usize,
    },
    /// A change of a stored row comes neither with its values in the segment nor with what earlier
    /// changes have taken away.
    #[error(
        "{name:?}: the change of {row} contains neither the row's values in its segment nor the amount that earlier changes subtract from the sum: read one of them first"
    )]
    NotStored {
        /// The derivation's name.
        name: String,
        /// The row.
        row: RowIdentity,
    },
    /// A sum or a product is too large.
    #[error("{name:?}: {what} does not fit into 128 bits: divide the sum into groups or ranges")]
    Overflow {
        /// The derivation's name.
        name: String,
        /// What was computed.
        what: String,
    },
    /// A key begins like those of entries, but is none.
    #[error(
        "the key {key} begins like the key of a derived entry, but does not identify one: perhaps a newer version wrote it"
    )]
    NotAnEntry {
        /// The key.
        key: Key,
    },
    /// The value of an entry is not an amount.
    #[error("the value of the derived entry {key} has {found} bytes, expected {expected}")]
    Amount {
        /// The key.
        key: Key,
        /// Bytes found.
        found: usize,
        /// Bytes of an amount.
        expected: usize,
    },
    /// An entry is newer than its row: the two were not read atomically.
    #[error(
        "the derived entry {key}, written by transaction {entry}, is newer than its {row}, written by transaction {found}: the two were not read atomically; please report this"
    )]
    Torn {
        /// The entry's key.
        key: Key,
        /// The transaction that wrote it.
        entry: Timestamp,
        /// The row.
        row: RowIdentity,
        /// The transaction that wrote the row as it was found; the first timestamp if it was not
        /// found.
        found: Timestamp,
    },
}
