//! `rackscan tables` and `rackscan drop`: list and drop tables.

use crate::{
    args::{DropTable, Format, Tables},
    failure::Failure,
    output::{Cell, TextTable, print_text},
    session::Session,
};
use rackscan_format::derived::{DerivedDefinition, DerivedKind};

/// Lists all tables, or one table's columns.
pub(crate) fn run(session: &Session, tables: &Tables) -> Result<(), Failure> {
    match &tables.table {
        Some(name) => columns(session, name, tables.format),
        None => list(session, tables.format),
    }
}

pub(crate) fn list(session: &Session, format: Format) -> Result<(), Failure> {
    let mut table =
        TextTable::new(&["table", "rows", "columns", "segments", "nodes", "stored", "changed", "source"]);
    for info in session.engine().tables() {
        let source = info.broken.map_or(info.source, |broken| format!("cannot be queried: {broken}"));
        table.push(vec![
            Cell::from(info.name),
            Cell::from(info.rows),
            Cell::from(info.columns),
            Cell::from(info.segments),
            Cell::from(info.nodes),
            Cell::Bytes(info.stored_bytes),
            Cell::from(info.changed_rows),
            Cell::from(source),
        ]);
    }
    print_text(&table.render(format))
}

/// Prints one table's columns, also for `\d TABLE`.
pub(crate) fn columns(session: &Session, name: &str, format: Format) -> Result<(), Failure> {
    let description = session.engine().describe(name)?;
    let mut table = TextTable::new(&["column", "type", "nulls", "min", "max", "stored", "derived"]);
    for (at, column) in description.columns.into_iter().enumerate() {
        let derived = description.definition.derived.iter().filter(|derived| found_by(&derived.kind) == at);
        let derived: Vec<String> = derived.map(derivation).collect();
        table.push(vec![
            Cell::from(column.definition.name),
            Cell::from(column.definition.column_type.to_string()),
            Cell::from(column.nulls),
            Cell::from(column.min.unwrap_or_default()),
            Cell::from(column.max.unwrap_or_default()),
            Cell::Bytes(column.stored_bytes),
            Cell::from(derived.join(", ")),
        ]);
    }
    print_text(&table.render(format))
}

/// Index of the column by which a derived object finds rows.
fn found_by(kind: &DerivedKind) -> usize {
    match kind {
        DerivedKind::Index { column: key }
        | DerivedKind::Parent { key, .. }
        | DerivedKind::Child { key, .. } => key.index(),
        DerivedKind::Sum(sum) => sum.group.index(),
    }
}

fn derivation(derived: &DerivedDefinition) -> String {
    let name = &derived.name;
    match &derived.kind {
        DerivedKind::Index { .. } => format!("index {name}"),
        DerivedKind::Parent { child, .. } => format!("key of {child} by {name}"),
        DerivedKind::Child { parent, .. } => format!("key into {parent} by {name}"),
        DerivedKind::Sum(_) => format!("groups of view {name}"),
    }
}

/// Drops one table.
pub(crate) fn drop(session: &Session, table: &DropTable) -> Result<(), Failure> {
    session.block_on(session.engine().cluster().drop_table(&table.table))?;
    note!("dropped {}", table.table);
    session.sweep();
    Ok(())
}
