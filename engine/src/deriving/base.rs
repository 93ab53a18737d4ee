//! Stores the sums over a table's segments in an internal table, called the base of a view.
//!
//! A base has a row for each group ([`super::amounts`]). It belongs to one table id, never changes,
//! and is published before the table version that refers to it. So an engine that knows a table
//! version finds the bases of its views.
//!
//! | base's name | `rackscan base` VIEW ID BEFORE; ID is the id of the table version that the base belongs to, BEFORE that of the version before, both in hexadecimal |
//! |---|---|
//! | base's columns | group, high, low, rows |
//! | base's source | the statement that created the view |
//!
//! Invariants
//! - Only views read bases.
//! - A base is dropped only if neither the table version that it belongs to nor the version before
//!   exists. While the version before exists, the new version may still be published. A version
//!   that was replaced recently counts as existing, because queries and transactions that began
//!   with it still read it.

use super::amounts::{GROUP, HIGH, LOW, ROWS, divided};
use crate::{changes::encoded, error::EngineError, limits::VIEW_GROUPS_MAX, pushdown::arrow_type};
use az::SaturatingAs;
use datafusion::arrow::{
    array::{ArrayRef, AsArray, RecordBatch},
    datatypes::{DataType, Decimal128Type},
};
use rackscan_delta::{
    derived::{DerivedId, Entry, Role},
    identity::RowIdentity,
    replica::{RowVersion, TableRows},
    row::Datum,
};
use rackscan_format::{
    derived::SumDefinition,
    ids::{ColumnId, TableId},
    limits::{DECIMAL_DIGITS_MAX, NAME_BYTES_MAX},
    schema::{ColumnDefinition, ColumnType, TableDefinition},
};
use rackscan_ramp::{item::Value, timestamp::Timestamp};
use std::{collections::BTreeSet, fmt, sync::Arc};

const PREFIX: &str = "rackscan base ";
/// Bytes of a base's name, without the view's name.
const BESIDE_BYTES: usize = PREFIX.len() + 2 * 9;
/// The longest name of a view.
pub(crate) const VIEW_NAME_BYTES_MAX: usize = NAME_BYTES_MAX - BESIDE_BYTES;

/// The parsed name of a base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BaseName {
    view: String,
    of: TableId,
    before: TableId,
}

impl BaseName {
    /// The name for the base of a table version.
    pub(crate) fn new(view: &str, of: &TableDefinition) -> Self {
        Self { view: view.to_owned(), of: of.id, before: of.succeeds.unwrap_or(of.id) }
    }

    /// `None` if it is not the name of a base.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.rsplitn(3, ' ');
        let mut id = || {
            let digits = parts.next().filter(|digits| digits.len() == 8)?;
            u32::from_str_radix(digits, 16).ok().map(TableId)
        };
        let (before, of) = (id()?, id()?);
        Some(Self { view: parts.next()?.to_owned(), of, before })
    }

    /// Whether the base is no longer needed, given the ids of all tables that exist or were just
    /// replaced.
    pub(crate) fn is_abandoned(&self, tables: &BTreeSet<TableId>) -> bool {
        !tables.contains(&self.of) && !tables.contains(&self.before)
    }
}

impl fmt::Display for BaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { view, of, before } = self;
        write!(f, "{PREFIX}{view} {:08x} {:08x}", of.0, before.0)
    }
}

/// The base of a view of a table version that is about to be published.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewBase<'b> {
    pub(crate) table: &'b TableDefinition,
    pub(crate) view: &'b str,
    pub(crate) sum: &'b SumDefinition,
    pub(crate) id: TableId,
    /// The statement by which the view was created.
    pub(crate) source: &'b str,
}

impl NewBase<'_> {
    /// The base's table definition and rows.
    ///
    /// # Errors
    /// Too many groups, or a sum that is too large.
    pub(crate) fn lay_out(
        &self,
        totals: &[RecordBatch],
    ) -> Result<(TableDefinition, TableRows), EngineError> {
        let definition = self.definition();
        let groups: usize = totals.iter().map(RecordBatch::num_rows).sum();
        if groups > VIEW_GROUPS_MAX {
            let view = self.view;
            return Err(EngineError::Execution(format!(
                "view {view:?} has more than {VIEW_GROUPS_MAX} groups: group by a column with fewer values, or drop an existing view by DROP MATERIALIZED VIEW"
            )));
        }
        let batches = totals.iter().map(|batch| self.stored(batch)).collect::<Result<Vec<_>, _>>()?;
        let types: Vec<DataType> =
            definition.columns.iter().map(|column| arrow_type(column.column_type.into())).collect();
        let mut rows = TableRows::default();
        for batch in &batches {
            for value in encoded(&definition, &types, batch)? {
                let value = Value::new(&value).map_err(|error| EngineError::Execution(error.to_string()))?;
                let number = u32::try_from(rows.len()).expect("a view has fewer than 2^32 groups");
                let row = RowIdentity::Inserted { by: Timestamp::FIRST, number };
                rows.insert(row, RowVersion { timestamp: Timestamp::FIRST, value });
            }
        }
        Ok((definition, rows))
    }

    /// A batch of groups, sums and row counts in the columns of the base.
    fn stored(&self, batch: &RecordBatch) -> Result<RecordBatch, EngineError> {
        let failed = |why: String| EngineError::Execution(format!("view {:?}: {why}", self.view));
        let [group, sums, rows] = batch.columns() else {
            return Err(failed(format!(
                "its query returned {} columns, expected three: group, sum and rows",
                batch.num_columns()
            )));
        };
        self.can_be_found(group).map_err(failed)?;
        let sums = sums.as_primitive_opt::<Decimal128Type>().ok_or_else(|| failed("no sums".to_owned()))?;
        let (high, low) = divided(sums).map_err(|sum| {
            failed(format!(
                "the sum of a group is too large: {sum}, counted in units of its last digit, expected at most \
                 36 digits"
            ))
        })?;
        let columns: [(&str, ArrayRef); 4] = [
            (GROUP, Arc::clone(group)),
            (HIGH, Arc::new(high)),
            (LOW, Arc::new(low)),
            (ROWS, Arc::clone(rows)),
        ];
        RecordBatch::try_from_iter(columns).map_err(|error| failed(error.to_string()))
    }

    /// Whether each group fits into the key of a derived entry: keys have room for short texts
    /// only.
    fn can_be_found(&self, groups: &ArrayRef) -> Result<(), String> {
        let Some(texts) = groups.as_string_view_opt() else { return Ok(()) };
        let by = DerivedId { table: self.table.id, number: u16::MAX };
        let row = RowIdentity::Inserted { by: Timestamp::FIRST, number: u32::MAX };
        for text in texts.iter().flatten() {
            let entry = Entry { by, role: Role::Present, value: Datum::Text(text.to_owned()), row };
            entry.key().map_err(|why| {
                format!("a group, which is a text of {} bytes, is too long: {why}", text.len())
            })?;
        }
        Ok(())
    }

    fn definition(&self) -> TableDefinition {
        let table = self.table;
        let group = table.columns.get(self.sum.group.index());
        let scale = self.sum.scale(table).saturating_as::<u8>();
        let column = |name: &str, column_type, nullable| ColumnDefinition {
            name: name.to_owned(),
            column_type,
            nullable,
        };
        let decimal = ColumnType::Decimal { precision: DECIMAL_DIGITS_MAX, scale };
        TableDefinition {
            id: self.id,
            name: BaseName::new(self.view, table).to_string(),
            columns: vec![
                column(
                    GROUP,
                    group.map_or(ColumnType::Int64, |group| group.column_type),
                    group.is_none_or(|group| group.nullable),
                ),
                column(HIGH, ColumnType::Int64, false),
                column(LOW, decimal, false),
                column(ROWS, ColumnType::Int64, false),
            ],
            partition_key: ColumnId(0),
            sorted_by: None,
            rows: 0,
            source: self.source.to_owned(),
            succeeds: None,
            derived: Vec::new(),
            ..table.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bases_name_says_whose_it_is_whatever_the_views_name_is() {
        for view in ["revenue", "two words", "", "rackscan base x 00000001 00000002"] {
            let name = BaseName { view: view.to_owned(), of: TableId(u32::MAX), before: TableId(7) };
            assert_eq!(BaseName::parse(&name.to_string()), Some(name));
        }
        for other in ["revenue", "rackscan base", "rackscan base a 1 2", "rackscan base 00000001 00000002"] {
            assert_eq!(BaseName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_base_stays_while_its_table_or_the_one_before_is_there() {
        let name = BaseName { view: "v".to_owned(), of: TableId(2), before: TableId(1) };
        let among = |ids: &[u32]| name.is_abandoned(&ids.iter().map(|id| TableId(*id)).collect());
        assert!(!among(&[1, 9]) && !among(&[2]) && among(&[3]) && among(&[]));
    }
}
