//! Which items does a transaction write with the rows that it changes?
//!
//! Invariants
//! - Entries of what a row becomes are all written, those of what it was are deleted where they are others. Deleting them makes room and nothing else: an
//!   entry that is not as new as its row counts nowhere anyway.
//! - With each change of a stored row its sums take away what its segment has, again: who sees the newest change needs no other to be exact.

use super::{Amount, Derived, DerivedFault, DerivedId, Entry, Factor, Role, Sum, Within};
use crate::{identity::RowIdentity, row::Datum};
use rackscan_format::{
    ids::ColumnId,
    schema::{ColumnType, TableDefinition},
};
use rackscan_ramp::item::{Key, Oversize, Value};
use std::collections::BTreeMap;

/// A row that a transaction changes.
#[derive(Clone, Copy, Debug)]
pub struct RowChange<'a> {
    /// Which.
    pub row: RowIdentity,
    /// What its segment has of it; none if it was inserted.
    pub stored: Option<&'a [Datum]>,
    /// What it was beside segments; none if it was not there, or was deleted.
    pub before: Option<&'a [Datum]>,
    /// What it becomes; none if it is deleted.
    pub after: Option<&'a [Datum]>,
}

impl Derived {
    /// What is to be written by the transaction that makes these changes to rows of a table, each row once: keys ascending, each once. Nothing if the table has no
    /// part in it.
    ///
    /// # Errors
    /// [`DerivedFault`]: then the rows must not be written either.
    pub fn maintain(
        &self,
        table: &TableDefinition,
        changes: &[RowChange<'_>],
    ) -> Result<Vec<(Key, Value)>, DerivedFault> {
        if !self.concerns(table.id) {
            return Ok(Vec::new());
        }
        self.check(table)?;
        let mut items = BTreeMap::new();
        for change in changes {
            let rows = Rows { derived: self, table, row: change.row };
            if let Some(before) = change.before {
                for (key, _) in rows.entries(before, false)? {
                    items.insert(key, Value::DELETED);
                }
            }
            if let Self::Sum(sum) = self
                && matches!(change.row, RowIdentity::Stored { .. })
            {
                let not_stored = || DerivedFault::NotStored { name: sum.name.clone(), row: change.row };
                items.extend(rows.entries(change.stored.ok_or_else(not_stored)?, true)?);
            }
            if let Some(after) = change.after {
                items.extend(rows.entries(after, false)?);
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
    /// Entries of the row with these values; `is_stored` takes away what its segment has.
    fn entries(self, values: &[Datum], is_stored: bool) -> Result<Vec<(Key, Value)>, DerivedFault> {
        if values.len() != self.table.columns.len() {
            let (name, expected) = (self.derived.name().to_owned(), self.table.columns.len());
            return Err(DerivedFault::Length { name, row: self.row, found: values.len(), expected });
        }
        let empty = || Value::new(&[]).map_err(|why| self.oversize(why));
        let mut entries = Vec::new();
        match self.derived {
            Derived::Index(index) => {
                entries.push((self.key(index.id, Role::Indexed, values, index.column)?, empty()?));
            }
            Derived::Pair(pair) => {
                let roles =
                    [(Role::Parent, pair.parent, pair.parent_key), (Role::Child, pair.child, pair.child_key)];
                for (role, table, column) in roles {
                    // A missing key is nobody's.
                    let is_missing = values.get(column.index()).is_none_or(|key| *key == Datum::Null);
                    if table == self.table.id && !is_missing {
                        entries.push((self.key(pair.id, role, values, column)?, empty()?));
                    }
                }
            }
            Derived::Sum(sum) => {
                if let Some(amount) = self.amount(sum, values, is_stored)? {
                    let role = if is_stored { Role::Stored } else { Role::Present };
                    let value = amount.value().map_err(|why| self.oversize(why))?;
                    entries.push((self.key(sum.id, role, values, sum.group)?, value));
                }
            }
        }
        Ok(entries)
    }

    fn key(
        &self,
        by: DerivedId,
        role: Role,
        values: &[Datum],
        column: ColumnId,
    ) -> Result<Key, DerivedFault> {
        let value = values.get(column.index()).cloned().unwrap_or(Datum::Null);
        Entry { by, role, value, row: self.row }.key().map_err(|why| self.oversize(why))
    }

    /// What the row counts for; `None` if it does not count.
    fn amount(&self, sum: &Sum, values: &[Datum], is_stored: bool) -> Result<Option<Amount>, DerivedFault> {
        if sum.within.is_some_and(|within| !is_within(within, values)) {
            return Ok(None);
        }
        let overflow =
            || DerivedFault::Overflow { name: sum.name.clone(), what: format!("the amount of {}", self.row) };
        let mut product: i128 = 1;
        for factor in &sum.factors {
            let Some(Datum::Integer(value)) = values.get(factor.column().index()) else { return Ok(None) };
            let value = self.factor(*factor, *value);
            product = product.checked_mul(value).ok_or_else(overflow)?;
        }
        let amount = Amount { sum: product, rows: 1 };
        if is_stored { amount.negated().map(Some).ok_or_else(overflow) } else { Ok(Some(amount)) }
    }

    /// Unscaled, of as many digits behind the point as the column has. Both operands have 64 bits, so this fits.
    fn factor(&self, factor: Factor, value: i64) -> i128 {
        let column = self.table.columns.get(factor.column().index());
        let scale = match column.map(|column| column.column_type) {
            Some(ColumnType::Decimal { scale, .. }) => scale,
            _ => 0,
        };
        let one = 10_i128.pow(scale.into());
        match factor {
            Factor::Column(_) => value.into(),
            Factor::OneMinus(_) => one - i128::from(value),
            Factor::OnePlus(_) => one + i128::from(value),
        }
    }

    fn oversize(&self, why: Oversize) -> DerivedFault {
        DerivedFault::Oversize { name: self.derived.name().to_owned(), row: self.row.to_string(), why }
    }
}

fn is_within(within: Within, values: &[Datum]) -> bool {
    match values.get(within.column.index()) {
        Some(Datum::Integer(value)) => (within.from..within.until).contains(value),
        _ => false,
    }
}
