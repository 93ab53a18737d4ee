//! Answers queries from the entries that are derived from the visible rows: rows by a value,
//! parents and children of a foreign key, sums.
//!
//! Invariants
//! - Answers are about exactly the visible rows: an entry counts only if it has its row's
//!   timestamp. An older entry was left by a transaction that another one overlapped.
//! - A contradiction between rows and entries is an error and never an answer. It cannot occur if
//!   rows and entries are read atomically.
//! - Entries whose prefix was emptied, because their rows have moved elsewhere, never come back,
//!   even if records about them arrive later.

use super::{
    Amount, Derived, DerivedFault, DerivedId, Entry, Role, TakenAway,
    entry::{PREFIX_BYTES, prefixes, table_of},
};
use crate::{
    identity::RowIdentity,
    replica::{RowVersion, TableRows},
    row::Datum,
};
use rackscan_format::{derived::DerivedKind, ids::TableId};
use rackscan_ramp::{
    item::{Key, Value},
    timestamp::Timestamp,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Bound,
};

/// The newest visible versions of derived items.
#[derive(Clone, Debug, Default)]
pub(crate) struct DerivedItems {
    items: BTreeMap<Key, RowVersion>,
    /// For each sum, the keys of the entries that take away what segments contain, by stored row. A
    /// stored row has one such key in a sum, because its segment never changes.
    stored: BTreeMap<DerivedId, HashMap<RowIdentity, Key>>,
    /// Prefixes of entries that were emptied.
    emptied: BTreeSet<[u8; PREFIX_BYTES]>,
}

impl DerivedItems {
    /// Takes an item, unless it is not an entry, was emptied, or is older than the known version.
    pub(crate) fn apply(&mut self, timestamp: Timestamp, key: &Key, value: Value) {
        let prefix = key.bytes().first_chunk();
        if prefix.is_some_and(|prefix| table_of(prefix).is_some() && !self.emptied.contains(prefix))
            && self.items.get(key).is_none_or(|known| known.timestamp < timestamp)
        {
            if let Ok(Some(Entry { by, role: Role::Stored, row, .. })) = Entry::of(key) {
                self.stored.entry(by).or_default().insert(row, key.clone());
            }
            self.items.insert(key.clone(), RowVersion { timestamp, value });
        }
    }

    /// Forgets the entries under a prefix for good. Does nothing if it is not a prefix of a table's
    /// entries.
    pub(crate) fn empty(&mut self, prefix: &[u8]) {
        if let (Some(_), Ok(prefix)) = (table_of(prefix), prefix.try_into())
            && self.emptied.insert(prefix)
        {
            self.forget_under(&prefix);
        }
    }

    /// Forgets what was derived from a dropped table.
    pub(crate) fn forget(&mut self, table: TableId) {
        for prefix in prefixes(table) {
            self.forget_under(&prefix);
        }
    }

    /// Whether there are any entries of a table, even deleted ones.
    pub(crate) fn has(&self, table: TableId) -> bool {
        prefixes(table).iter().any(|prefix| self.under(prefix).next().is_some())
    }

    fn forget_under(&mut self, prefix: &[u8]) {
        let gone: Vec<Key> = self.under(prefix).cloned().collect();
        for key in gone {
            self.items.remove(&key);
        }
        let items = &self.items;
        self.stored.retain(|by, rows| {
            if Some(by.table) == table_of(prefix) {
                rows.retain(|_, key| items.contains_key(key));
            }
            !rows.is_empty()
        });
    }

    fn under<'p>(&'p self, prefix: &'p [u8]) -> impl Iterator<Item = &'p Key> {
        // These prefixes are never too long for a key.
        let from = Key::new(prefix).ok();
        let keys = from.into_iter().flat_map(|from| self.items.range(from..)).map(|(key, _)| key);
        keys.take_while(move |key| key.bytes().starts_with(prefix))
    }
}

/// The rows of two tables with one foreign key value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Family {
    /// The rows with this key: one, unless keys are not unique.
    pub parents: Vec<RowIdentity>,
    /// The rows that refer to it.
    pub children: Vec<RowIdentity>,
}

/// The entries derived from the visible rows.
#[derive(Clone, Copy, Debug)]
pub struct DerivedView<'r> {
    derived: &'r DerivedItems,
    tables: &'r BTreeMap<TableId, TableRows>,
}

impl<'r> DerivedView<'r> {
    pub(crate) fn new(derived: &'r DerivedItems, tables: &'r BTreeMap<TableId, TableRows>) -> Self {
        Self { derived, tables }
    }

    /// The rows whose indexed value is in a range, with that value, in the order of values. Missing
    /// values are below all others, so the range for `< 5` begins after `Null`.
    ///
    /// # Errors
    /// [`DerivedFault`].
    pub fn rows_in(
        &self,
        index: &Derived,
        from: Bound<&Datum>,
        to: Bound<&Datum>,
    ) -> Result<Vec<(Datum, RowIdentity)>, DerivedFault> {
        if !matches!(index.kind(), DerivedKind::Index { .. }) {
            return Err(index.is_not("an index".to_owned()));
        }
        let entries = self.entries(index, from, to)?;
        Ok(entries.into_iter().map(|(entry, ..)| (entry.value, entry.row)).collect())
    }

    /// The rows with a value as their key, on both sides of one foreign key.
    ///
    /// # Errors
    /// [`DerivedFault`].
    pub fn family(&self, parent: &Derived, child: &Derived, key: &Datum) -> Result<Family, DerivedFault> {
        if !matches!(parent.kind(), DerivedKind::Parent { .. }) {
            return Err(parent.is_not("a foreign key's parents".to_owned()));
        }
        if !matches!(child.kind(), DerivedKind::Child { .. }) || child.name() != parent.name() {
            return Err(child.is_not(format!("the children of foreign key {:?}", parent.name())));
        }
        let rows = |side| {
            let entries = self.entries(side, Bound::Included(key), Bound::Included(key))?;
            Ok(entries.into_iter().map(|(entry, ..)| entry.row).collect())
        };
        Ok(Family { parents: rows(parent)?, children: rows(child)? })
    }

    /// What the delta store adds to each group in a range, in the order of groups. Together with
    /// the sums over the segments it is the sum of the visible rows. Groups to which it adds
    /// nothing are left out.
    ///
    /// # Errors
    /// [`DerivedFault`].
    pub fn sums_in(
        &self,
        sum: &Derived,
        from: Bound<&Datum>,
        to: Bound<&Datum>,
    ) -> Result<Vec<(Datum, Amount)>, DerivedFault> {
        sum.sum()?;
        let mut groups: Vec<(Datum, Amount)> = Vec::new();
        for (entry, key, version) in self.entries(sum, from, to)? {
            let amount = Amount::of(key, version.value.bytes().unwrap_or_default())?;
            let overflow = || DerivedFault::Overflow {
                name: sum.name().to_owned(),
                what: "the sum of a group".to_owned(),
            };
            match groups.last_mut() {
                Some((group, total)) if is_same(group, &entry.value) => {
                    *total = total.plus(amount).ok_or_else(overflow)?;
                }
                _ => groups.push((entry.value, amount)),
            }
        }
        groups.retain(|(_, total)| *total != Amount::default());
        Ok(groups)
    }

    /// What these rows, as far as they are stored rows with visible changes, have taken away from a
    /// sum. A transaction that changes them again writes this again, without reading their
    /// segments.
    ///
    /// # Errors
    /// [`DerivedFault`].
    pub fn taken_away(
        &self,
        sum: &Derived,
        rows: impl IntoIterator<Item = RowIdentity>,
    ) -> Result<TakenAway, DerivedFault> {
        sum.sum()?;
        let mut entries = HashMap::new();
        let stored = self.derived.stored.get(&sum.id());
        for row in rows {
            let key = stored.and_then(|stored| stored.get(&row));
            let mut entry = None;
            if let Some((key, version)) = key.and_then(|key| self.derived.items.get_key_value(key))
                && self.counts(key, version, sum.id().table, row)?
            {
                Amount::of(key, version.value.bytes().unwrap_or_default())?;
                entry = Some((key.clone(), version.value.clone()));
            }
            entries.insert(row, entry);
        }
        Ok(TakenAway { by: sum.id(), entries })
    }

    /// The entries that count, with values in a range.
    fn entries(
        &self,
        derived: &Derived,
        from: Bound<&Datum>,
        to: Bound<&Datum>,
    ) -> Result<Vec<(Entry, &'r Key, &'r RowVersion)>, DerivedFault> {
        let bound = |bytes: &[u8]| {
            Key::new(bytes).map_err(|why| DerivedFault::Oversize {
                name: derived.name().to_owned(),
                row: "what is looked for".to_owned(),
                why,
            })
        };
        let (from, to) = derived.span(from, to);
        // The map does not accept a range in this order.
        if from >= to {
            return Ok(Vec::new());
        }
        let mut entries = Vec::new();
        for (key, version) in self.derived.items.range(bound(&from)?..bound(&to)?) {
            let Some(entry) = Entry::of(key)? else { continue };
            if self.counts(key, version, derived.id().table, entry.row)? {
                entries.push((entry, key, version));
            }
        }
        Ok(entries)
    }

    /// Whether an entry counts: it is not deleted, and not left by a transaction that another one
    /// overlapped.
    fn counts(
        &self,
        key: &Key,
        version: &RowVersion,
        table: TableId,
        row: RowIdentity,
    ) -> Result<bool, DerivedFault> {
        if version.value.bytes().is_none() {
            return Ok(false);
        }
        let known = self.tables.get(&table).and_then(|rows| rows.row(row));
        let found = known.map_or(Timestamp::FIRST, |row| row.timestamp);
        if version.timestamp > found {
            return Err(DerivedFault::Torn { key: key.clone(), entry: version.timestamp, row, found });
        }
        Ok(version.timestamp == found)
    }
}

/// Whether two values have the same encoding in keys.
fn is_same(a: &Datum, b: &Datum) -> bool {
    match (a, b) {
        (Datum::Float(a), Datum::Float(b)) => a.total_cmp(b).is_eq(),
        _ => a == b,
    }
}
