//! Computes the derived entries that a transaction writes together with the rows that it changes.
//!
//! Invariants
//! - All entries of the new version of a row are written. Entries of the old version that differ
//!   are deleted, but only to save space: an entry that is older than its row never counts.
//! - A stored row's amount is part of the sum over its segment. So each change of the row also
//!   writes an entry of role [`Role::Stored`] with the negative of that amount. Each change writes
//!   this entry again, so the newest change alone gives the exact sum.
//! - The amount of that entry never changes, because segments do not. It is known from the segment,
//!   or from any earlier change of the row.

use super::{Amount, Derived, DerivedFault, DerivedId, Entry, Role};
use crate::{identity::RowIdentity, row::Datum};
use rackscan_format::{
    derived::{DerivedKind, Factor, SumDefinition, Within},
    ids::ColumnId,
    schema::TableDefinition,
};
use rackscan_ramp::item::{Key, Oversize, Value};
use std::collections::{BTreeMap, HashMap};

/// The old version of a row, as seen by the transaction that changes it.
#[derive(Clone, Copy, Debug)]
pub enum Before<'a> {
    /// The values in its segment: it is a stored row without visible changes.
    Stored(&'a [Datum]),
    /// The values in the delta store, of an inserted row, or of a stored one with visible changes;
    /// `None` if the row did not exist, or was deleted.
    Beside(Option<&'a [Datum]>),
}

/// A row that a transaction changes.
#[derive(Clone, Copy, Debug)]
pub struct RowChange<'a> {
    /// Which.
    pub row: RowIdentity,
    /// Its old version.
    pub before: Before<'a>,
    /// Its new values; `None` if it is deleted.
    pub after: Option<&'a [Datum]>,
}

/// What changed rows have taken away from a sum because their segments contain it: the entries of
/// role [`Role::Stored`] that count in one view; `None` for a row whose segment contributes
/// nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct TakenAway {
    pub(super) by: DerivedId,
    pub(super) entries: HashMap<RowIdentity, Option<(Key, Value)>>,
}

impl Derived {
    /// The items that the transaction which makes these changes to a table must write: keys
    /// ascending, each once. `changes` has each row once. Empty if this is derived from another
    /// table.
    ///
    /// A sum needs `taken` for all stored rows among them with visible changes
    /// ([`Before::Beside`]). Both must be of the same view ([`super::DerivedView::taken_away`]),
    /// which may be an old one.
    ///
    /// # Errors
    /// [`DerivedFault`]: then the rows must not be written either.
    pub fn maintain(
        &self,
        table: &TableDefinition,
        changes: &[RowChange<'_>],
        taken: Option<&TakenAway>,
    ) -> Result<Vec<(Key, Value)>, DerivedFault> {
        if !self.concerns(table.id) {
            return Ok(Vec::new());
        }
        let taken = taken.filter(|taken| taken.by == self.id());
        let mut items = BTreeMap::new();
        for change in changes {
            let rows = Rows { derived: self, table, row: change.row };
            if let Before::Beside(Some(before)) = change.before
                && let Some((key, _)) = rows.entry(before, false)?
            {
                items.insert(key, Value::DELETED);
            }
            items.extend(rows.taken_away(change.before, taken)?);
            if let Some(after) = change.after {
                items.extend(rows.entry(after, false)?);
            }
        }
        Ok(items.into_iter().collect())
    }
}

/// The entries of one row.
#[derive(Clone, Copy)]
struct Rows<'a> {
    derived: &'a Derived,
    table: &'a TableDefinition,
    row: RowIdentity,
}

impl Rows<'_> {
    /// What a sum takes away for a stored row; `None` if nothing.
    fn taken_away(
        self,
        before: Before<'_>,
        taken: Option<&TakenAway>,
    ) -> Result<Option<(Key, Value)>, DerivedFault> {
        let is_stored = matches!(self.row, RowIdentity::Stored { .. });
        if !is_stored || !matches!(self.derived.kind(), DerivedKind::Sum(_)) {
            return Ok(None);
        }
        if let Before::Stored(values) = before {
            return self.entry(values, true);
        }
        let taken = taken.and_then(|taken| taken.entries.get(&self.row)).cloned();
        taken.ok_or_else(|| DerivedFault::NotStored { name: self.derived.name().to_owned(), row: self.row })
    }

    /// The entry of the row with these values; `None` if it has none. With `is_stored`, the entry
    /// that takes away what its segment contains.
    fn entry(self, values: &[Datum], is_stored: bool) -> Result<Option<(Key, Value)>, DerivedFault> {
        if values.len() != self.table.columns.len() {
            let (name, expected) = (self.derived.name().to_owned(), self.table.columns.len());
            return Err(DerivedFault::Length { name, row: self.row, found: values.len(), expected });
        }
        let (role, column, value) = match self.derived.kind() {
            DerivedKind::Index { column } => (Role::Indexed, *column, Value::new(&[])),
            DerivedKind::Parent { key, .. } | DerivedKind::Child { key, .. } => {
                // A missing key refers to nothing.
                if values.get(key.index()).is_none_or(|key| *key == Datum::Null) {
                    return Ok(None);
                }
                let is_parent = matches!(self.derived.kind(), DerivedKind::Parent { .. });
                (if is_parent { Role::Parent } else { Role::Child }, *key, Value::new(&[]))
            }
            DerivedKind::Sum(sum) => {
                let Some(amount) = self.amount(sum, values, is_stored)? else { return Ok(None) };
                (if is_stored { Role::Stored } else { Role::Present }, sum.group, amount.value())
            }
        };
        let value = value.map_err(|why| self.oversize(why))?;
        Ok(Some((self.key(role, values, column)?, value)))
    }

    fn key(self, role: Role, values: &[Datum], column: ColumnId) -> Result<Key, DerivedFault> {
        let value = values.get(column.index()).cloned().unwrap_or(Datum::Null);
        let by = self.derived.id();
        Entry { by, role, value, row: self.row }.key().map_err(|why| self.oversize(why))
    }

    /// The amount that the row contributes; `None` if it does not count.
    fn amount(
        self,
        sum: &SumDefinition,
        values: &[Datum],
        is_stored: bool,
    ) -> Result<Option<Amount>, DerivedFault> {
        if sum.within.is_some_and(|within| !is_within(within, values)) {
            return Ok(None);
        }
        let overflow = || {
            let (name, what) = (self.derived.name().to_owned(), format!("the amount of {}", self.row));
            DerivedFault::Overflow { name, what }
        };
        let mut product: i128 = 1;
        for factor in &sum.factors {
            let Some(Datum::Integer(value)) = values.get(factor.column().index()) else { return Ok(None) };
            let value = self.factor(*factor, *value);
            product = product.checked_mul(value).ok_or_else(overflow)?;
        }
        let amount = Amount { sum: product, rows: 1 };
        if is_stored { amount.negated().map(Some).ok_or_else(overflow) } else { Ok(Some(amount)) }
    }

    /// The unscaled factor, with as many fractional digits as the column has. Both operands have 64
    /// bits, so it fits.
    fn factor(self, factor: Factor, value: i64) -> i128 {
        let one = 10_i128.pow(factor.scale(self.table).into());
        match factor {
            Factor::Column(_) => value.into(),
            Factor::OneMinus(_) => one - i128::from(value),
            Factor::OnePlus(_) => one + i128::from(value),
        }
    }

    fn oversize(self, why: Oversize) -> DerivedFault {
        DerivedFault::Oversize { name: self.derived.name().to_owned(), row: self.row.to_string(), why }
    }
}

fn is_within(within: Within, values: &[Datum]) -> bool {
    match values.get(within.column.index()) {
        Some(Datum::Integer(value)) => (within.from..within.until).contains(value),
        _ => false,
    }
}
