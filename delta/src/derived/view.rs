//! What is derived from the rows that are visible?
//!
//! Invariants
//! - Answers are about exactly the rows that are visible: an entry counts if it has its row's stamp, and an older one is left over from a transaction that another one overlapped.
//! - What cannot be, if rows and entries were read atomically, is a fault and never an answer.

use super::{Amount, DEFINITION_PREFIX, Derived, DerivedFault, Entry, Index, Pair, Role, Sum, entry::span};
use crate::{
    identity::RowIdentity,
    replica::{RowVersion, TableRows},
    row::Datum,
};
use rackscan_format::ids::TableId;
use rackscan_ramp::{
    item::{Key, Value},
    stamp::Stamp,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

/// What the keys of derived items begin with: entries of indexes, pairs and sums, and definitions.
const PREFIXES: [&[u8]; 4] = [b"\0i", b"\0f", b"\0a", DEFINITION_PREFIX];

/// The newest visible versions of derived items.
#[derive(Clone, Debug, Default)]
pub(crate) struct DerivedItems {
    items: BTreeMap<Key, RowVersion>,
}

impl DerivedItems {
    /// Takes note of an item, unless it is another's or older than what is known.
    pub(crate) fn apply(&mut self, stamp: Stamp, key: &Key, value: Value) {
        let is_derived = PREFIXES.iter().any(|prefix| key.bytes().starts_with(prefix));
        if is_derived && self.items.get(key).is_none_or(|known| known.stamp < stamp) {
            self.items.insert(key.clone(), RowVersion { stamp, value });
        }
    }

    /// Forgets what was derived from a table that is gone.
    pub(crate) fn forget(&mut self, table: TableId) {
        let definitions =
            self.items.iter().filter_map(|(key, version)| Derived::of(key, &version.value).ok()?);
        let gone: BTreeSet<[u8; 4]> = definitions
            .filter(|derived| derived.concerns(table))
            .map(|derived| derived.id().0.to_be_bytes())
            .collect();
        let id = |key: &Key| key.bytes().get(2..6).and_then(|id| <[u8; 4]>::try_from(id).ok());
        self.items.retain(|key, _| id(key).is_none_or(|id| !gone.contains(&id)));
    }
}

/// Rows of a pair that have one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Family {
    /// Those that the key is of: one, unless nothing sees to it that keys are unique.
    pub parents: Vec<RowIdentity>,
    /// Those that belong to it.
    pub children: Vec<RowIdentity>,
}

/// What is derived from visible rows.
#[derive(Clone, Copy, Debug)]
pub struct DerivedView<'r> {
    items: &'r BTreeMap<Key, RowVersion>,
    tables: &'r BTreeMap<TableId, TableRows>,
}

impl<'r> DerivedView<'r> {
    pub(crate) fn new(derived: &'r DerivedItems, tables: &'r BTreeMap<TableId, TableRows>) -> Self {
        Self { items: &derived.items, tables }
    }

    /// What is to be maintained, by id.
    ///
    /// # Errors
    /// [`DerivedFault::Layout`] and [`DerivedFault::Unreadable`]: whoever does not understand a definition must not write to its table.
    pub fn definitions(&self) -> Result<Vec<Derived>, DerivedFault> {
        let definitions = self.items.iter().map(|(key, version)| Derived::of(key, &version.value));
        definitions.filter_map(Result::transpose).collect()
    }

    /// The rows of which the indexed value is in a range, with it, in the order of values. Missing values are below all others: whoever means `< 5`
    /// begins behind `Null`.
    ///
    /// # Errors
    /// [`DerivedFault`].
    pub fn rows_in(
        &self,
        index: &Index,
        from: Bound<&Datum>,
        to: Bound<&Datum>,
    ) -> Result<Vec<(Datum, RowIdentity)>, DerivedFault> {
        let (from, to) = span(&Role::Indexed.prefix(index.id), from, to);
        let entries = self.entries(&index.name, &from, &to, |_| index.table)?;
        Ok(entries.into_iter().map(|(entry, ..)| (entry.value, entry.row)).collect())
    }

    /// The rows that have a key of a pair.
    ///
    /// # Errors
    /// [`DerivedFault`].
    pub fn family(&self, pair: &Pair, key: &Datum) -> Result<Family, DerivedFault> {
        let (from, to) = span(&Role::Parent.prefix(pair.id), Bound::Included(key), Bound::Included(key));
        let table_of = |role| if role == Role::Parent { pair.parent } else { pair.child };
        let mut family = Family::default();
        for (entry, ..) in self.entries(&pair.name, &from, &to, table_of)? {
            if entry.role == Role::Parent {
                family.parents.push(entry.row);
            } else {
                family.children.push(entry.row);
            }
        }
        Ok(family)
    }

    /// What changes add to each group in a range, in the order of groups: together with what the segments have it is the sum of the rows that are visible. Groups
    /// to which they add nothing are left out.
    ///
    /// # Errors
    /// [`DerivedFault`].
    pub fn sums_in(
        &self,
        sum: &Sum,
        from: Bound<&Datum>,
        to: Bound<&Datum>,
    ) -> Result<Vec<(Datum, Amount)>, DerivedFault> {
        let (from, to) = span(&Role::Present.prefix(sum.id), from, to);
        let mut groups: Vec<(Datum, Amount)> = Vec::new();
        for (entry, key, version) in self.entries(&sum.name, &from, &to, |_| sum.table)? {
            let amount = Amount::of(key, version.value.bytes().unwrap_or_default())?;
            let overflow =
                || DerivedFault::Overflow { name: sum.name.clone(), what: "the sum of a group".to_owned() };
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

    /// Entries that count, of keys from one up to another.
    fn entries(
        &self,
        name: &str,
        from: &[u8],
        to: &[u8],
        table_of: impl Fn(Role) -> TableId,
    ) -> Result<Vec<(Entry, &'r Key, &'r RowVersion)>, DerivedFault> {
        let bound = |bytes: &[u8]| {
            Key::new(bytes).map_err(|why| DerivedFault::Oversize {
                name: name.to_owned(),
                row: "what is looked for".to_owned(),
                why,
            })
        };
        // An order that the map would not take.
        if from >= to {
            return Ok(Vec::new());
        }
        let mut entries = Vec::new();
        for (key, version) in self.items.range(bound(from)?..bound(to)?) {
            if version.value.bytes().is_none() {
                continue;
            }
            let Some(entry) = Entry::of(key)? else { continue };
            let row = self.tables.get(&table_of(entry.role)).and_then(|rows| rows.row(entry.row));
            let found = row.map_or(Stamp::FIRST, |row| row.stamp);
            if version.stamp > found {
                let (entry, row) = (version.stamp, entry.row);
                return Err(DerivedFault::Torn { key: key.clone(), entry, row, found });
            }
            if version.stamp == found {
                entries.push((entry, key, version));
            }
        }
        Ok(entries)
    }
}

/// Whether two values are found by the same keys.
fn is_same(a: &Datum, b: &Datum) -> bool {
    match (a, b) {
        (Datum::Float(a), Datum::Float(b)) => a.total_cmp(b).is_eq(),
        _ => a == b,
    }
}
