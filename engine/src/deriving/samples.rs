//! Provides tables and views for the tests of this folder.

use super::{aggregate::Aggregate, statement::DerivationStatement};
use crate::error::EngineError;
use datafusion::sql::sqlparser::{dialect::GenericDialect, parser::Parser};
use rackscan_format::{
    ids::{ColumnId, NodeId, TableId},
    schema::{ColumnDefinition, ColumnType, TableDefinition},
};

pub(super) fn table(name: &str, columns: &[(&str, ColumnType, bool)]) -> TableDefinition {
    let column = |(name, column_type, nullable): &(&str, ColumnType, bool)| ColumnDefinition {
        name: (*name).to_owned(),
        column_type: *column_type,
        nullable: *nullable,
    };
    TableDefinition {
        id: TableId(7),
        name: name.to_owned(),
        columns: columns.iter().map(column).collect(),
        partition_key: ColumnId(0),
        sorted_by: None,
        page_size: 4096,
        segment_rows: 1024,
        nodes: vec![NodeId(1)],
        rows: 0,
        source: "a test".to_owned(),
        succeeds: None,
        derived: Vec::new(),
        protection: None,
    }
}

pub(super) const MONEY: ColumnType = ColumnType::Decimal { precision: 15, scale: 2 };

pub(super) fn lines() -> TableDefinition {
    table(
        "lines",
        &[
            ("supplier", ColumnType::Int64, false),
            ("price", MONEY, false),
            ("discount", MONEY, false),
            ("day", ColumnType::Date32, false),
            ("quantity", ColumnType::Int32, false),
            ("perhaps", MONEY, true),
            ("Tax", MONEY, false),
            ("seen", ColumnType::TimestampMicros, false),
        ],
    )
}

/// The aggregate of a view with this query.
pub(super) fn aggregate(query: &str) -> Result<Aggregate, EngineError> {
    named("", query)
}

pub(super) fn named(names: &str, query: &str) -> Result<Aggregate, EngineError> {
    let text = format!("CREATE MATERIALIZED VIEW v {names} AS {query}");
    let statements = Parser::parse_sql(&GenericDialect {}, &text).unwrap();
    let [statement] = statements.as_slice() else { panic!("{text}") };
    match DerivationStatement::of(statement)? {
        Some(DerivationStatement::CreateView { aggregate, .. }) => Ok(*aggregate),
        other => panic!("{other:?}"),
    }
}

/// The error by which this query is refused.
pub(super) fn error(query: &str) -> String {
    aggregate(query).map(|_| query.to_owned()).unwrap_err().to_string()
}
