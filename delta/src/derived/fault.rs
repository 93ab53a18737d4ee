//! What can be wrong with what is derived?

use crate::identity::RowIdentity;
use rackscan_ramp::{
    item::{Key, Oversize},
    timestamp::Timestamp,
};

/// Why nothing is derived, or nothing is answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DerivedFault {
    /// A derivation that was asked what only another one can answer.
    #[error("{name:?} is {found}, expected {expected}")]
    Kind {
        /// The derivation's name.
        name: String,
        /// What it is.
        found: String,
        /// What it would have to be.
        expected: String,
    },
    /// A value that no key has room for.
    #[error("{name:?}: {row} has a value that is too long to be found by, {why}")]
    Oversize {
        /// The derivation's name.
        name: String,
        /// The row.
        row: String,
        /// By how much.
        why: Oversize,
    },
    /// A row with fewer or more values than its table has columns.
    #[error("{name:?}: {row} with {found} values, expected {expected}")]
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
    /// A change of a stored row, neither with what its segment has of it nor with what earlier
    /// changes have taken away.
    #[error(
        "{name:?}: {row} is changed, and neither what its segment has of it is given nor what was taken away before: a sum over segments has it"
    )]
    NotStored {
        /// The derivation's name.
        name: String,
        /// The row.
        row: RowIdentity,
    },
    /// A sum or a product that is too large.
    #[error("{name:?}: {what} does not fit 128 bits: divide the sum by a group or a range")]
    Overflow {
        /// The derivation's name.
        name: String,
        /// Of what.
        what: String,
    },
    /// A key that begins like those of entries and is none.
    #[error(
        "the key {key} begins as those of derived items do, and names no entry: written by a newer version?"
    )]
    NotAnEntry {
        /// The key.
        key: Key,
    },
    /// An amount whose bytes are none.
    #[error("the entry {key} has {found} bytes, expected {expected}")]
    Amount {
        /// The key.
        key: Key,
        /// Bytes found.
        found: usize,
        /// Bytes of an amount.
        expected: usize,
    },
    /// An entry of a transaction of which the row is not there: what was read does not belong
    /// together.
    #[error(
        "the entry {key} of {entry} is newer than its {row}, which is of {found}: it was not read atomically"
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
