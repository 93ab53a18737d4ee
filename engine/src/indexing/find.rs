//! Finds the indexes of a table among the internal tables of the catalog.

use super::layout::{Coverage, table_of};
use crate::table::{Table, TableIndex};
use rackscan_format::{
    derived::DerivedKind,
    schema::{ColumnType, TableDefinition},
};
use std::sync::Arc;

/// The indexes of a table, found among the internal tables by their names: those that were made for
/// this version of the table or for the one before.
pub(crate) fn indexes_of<'t>(
    table: &TableDefinition,
    hidden: impl Fn(&str) -> Option<&'t Arc<Table>>,
) -> Vec<TableIndex> {
    let indexes = table.derived.iter().filter_map(|derived| {
        let DerivedKind::Index { column } = derived.kind else { return None };
        let lies_in = hidden(&table_of(&derived.name))?;
        let coverage: Coverage = lies_in.definition().source.parse().ok()?;
        let is_its = coverage.of == table.id || table.succeeds == Some(coverage.of);
        let [value, place] = lies_in.definition().columns.as_slice() else { return None };
        let column = table.columns.get(column.index())?;
        let fits = value.column_type == column.column_type && place.column_type == ColumnType::Int64;
        let (name, column, table) = (derived.name.clone(), column.name.clone(), Arc::clone(lies_in));
        (is_its && fits).then_some(TableIndex { name, column, coverage, table })
    });
    indexes.collect()
}
