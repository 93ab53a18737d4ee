//! The changed rows of one table, each in its newest visible version.
//!
//! Invariant: an older version of a row never replaces a newer one.

use crate::identity::RowIdentity;
use rackscan_ramp::{item::Value, timestamp::Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// The newest visible version of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowVersion {
    /// The transaction that wrote it.
    pub timestamp: Timestamp,
    /// Its bytes ([`crate::row`]), or the mark that it is deleted.
    pub value: Value,
}

/// The delta store of one table.
#[derive(Clone, Debug, Default)]
pub struct TableRows {
    rows: BTreeMap<RowIdentity, RowVersion>,
    /// The rows that have changed since this was last taken.
    changed: BTreeSet<RowIdentity>,
}

impl TableRows {
    /// All rows: stored ones that were updated or deleted, and inserted ones, deleted or not.
    pub fn rows(&self) -> impl Iterator<Item = (RowIdentity, &RowVersion)> {
        self.rows.iter().map(|(row, version)| (*row, version))
    }

    /// The rows that are not the same in `earlier`, ascending.
    pub fn since<'t>(&'t self, earlier: &'t Self) -> impl Iterator<Item = RowIdentity> + 't {
        let is_new = |(row, version): &(&RowIdentity, &RowVersion)| {
            earlier.rows.get(row).is_none_or(|known| known.timestamp != version.timestamp)
        };
        self.rows.iter().filter(is_new).map(|(row, _)| *row)
    }

    /// The number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Inserts a version of a row, unless a newer one is known.
    pub fn insert(&mut self, row: RowIdentity, version: RowVersion) {
        if self.rows.get(&row).is_none_or(|known| known.timestamp < version.timestamp) {
            self.rows.insert(row, version);
            self.changed.insert(row);
        }
    }

    /// A row.
    #[must_use]
    pub fn row(&self, row: RowIdentity) -> Option<&RowVersion> {
        self.rows.get(&row)
    }

    /// The rows that have changed since this was last called.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<RowIdentity> {
        std::mem::take(&mut self.changed)
    }
}
