//! Tests which parts of a query run inside a scan and which stay above it. Goal: each SQL condition
//! in a table becomes the expected program. Method: DataFusion plans a query over a table without
//! segments; the program that it pushed into the scan is written out as SQL.

use super::ProgramBuilder;
use crate::{
    catalog::{StatementTables, Tables},
    session::{CATALOG, EngineOptions, SCHEMA, session_state},
    snapshot::TableSnapshot,
    sql_text::SqlText,
    table::Table,
};
use datafusion::{
    execution::SessionState,
    logical_expr::{Expr, LogicalPlan},
};
use rackscan_format::{
    ids::{ColumnId, NodeId, TableId},
    program::Output,
    schema::{ColumnDefinition, ColumnType, TableDefinition},
};
use std::sync::Arc;

fn definition() -> TableDefinition {
    let money = ColumnType::Decimal { precision: 15, scale: 2 };
    let columns = [
        ("key", ColumnType::Int64),
        ("number", ColumnType::Int32),
        ("price", money),
        ("discount", money),
        ("shipped", ColumnType::Date32),
        ("seen", ColumnType::TimestampMicros),
        ("weight", ColumnType::Float64),
        ("mode", ColumnType::Text),
        ("open", ColumnType::Boolean),
    ];
    let columns = columns.map(|(name, column_type)| ColumnDefinition {
        name: name.to_owned(),
        column_type,
        nullable: true,
    });
    TableDefinition {
        id: TableId(1),
        name: "t".to_owned(),
        columns: columns.into(),
        partition_key: ColumnId(0),
        sorted_by: None,
        page_size: 4096,
        segment_rows: 1024,
        nodes: vec![NodeId(0)],
        rows: 0,
        source: "a test".to_owned(),
        succeeds: None,
        derived: Vec::new(),
        protection: None,
    }
}

fn table() -> Arc<Table> {
    Arc::new(Table::new(TableSnapshot::new(Arc::new(definition()), [])))
}

fn state(table: &Arc<Table>) -> SessionState {
    let tables = Tables::default();
    tables.insert("t", Arc::clone(table));
    let mut state = session_state(&EngineOptions::default(), Arc::default()).unwrap();
    state.register_catalog_list(
        StatementTables::catalog(tables.view(), None, Arc::default(), (CATALOG, SCHEMA)).unwrap(),
    );
    state
}

/// The filters that reach the table's scan in the optimised plan of
/// `select key from t where {condition}`.
async fn pushed(table: &Arc<Table>, condition: &str) -> Vec<Expr> {
    let state = state(table);
    let plan = state.create_logical_plan(&format!("select key from t where {condition}")).await.unwrap();
    let plan = state.optimize(&plan).unwrap();
    let mut open = vec![&plan];
    while let Some(plan) = open.pop() {
        if let LogicalPlan::TableScan(scan) = plan {
            return scan.filters.clone();
        }
        open.extend(plan.inputs());
    }
    panic!("no scan in {plan}");
}

async fn pushed_text(condition: &str) -> String {
    let table = table();
    let definition = definition();
    let mut builder = ProgramBuilder::over_table(&definition);
    for filter in pushed(&table, condition).await {
        for conjunct in table.physical(&filter).unwrap() {
            builder.filter(&conjunct).unwrap();
        }
    }
    let program = builder.finish(Output::Rows(Vec::new()), None).unwrap();
    SqlText::new(&program, &definition).filter().join(" AND ")
}

#[tokio::test]
async fn conditions_that_run_inside_the_scan() {
    for (condition, expected) in [
        ("key < 5", "key < 5"),
        ("number = 7", "number = 7"),
        ("number > key", "CAST(number AS int64) > key"),
        ("price * (1 - discount) > 100", "(price * (1 - discount)) > 100.0000"),
        ("discount between 0.06 - 0.01 and 0.06 + 0.01", "discount >= 0.05 AND discount <= 0.07"),
        ("shipped < date '1994-01-01' + interval '1' year", "shipped < DATE '1995-01-01'"),
        ("seen >= timestamp '2020-02-03 04:05:06'", "seen >= TIMESTAMP '2020-02-03 04:05:06'"),
        ("weight > 1.5", "weight > 1.5"),
        ("weight between 0.1 and 2.5", "weight >= 0.1 AND weight <= 2.5"),
        ("weight in (0.1, 0.2, 0.3, 0.4)", "weight IN (0.1, 0.2, 0.3, 0.4)"),
        ("price = weight", "weight = CAST(price AS float64)"),
        ("weight + 1.5 < 2", "(weight + 1.5) < 2"),
        ("mode in ('AIR', 'RAIL', 'SHIP', 'MAIL')", "mode IN ('AIR', 'RAIL', 'SHIP', 'MAIL')"),
        ("mode not in ('AIR', 'RAIL', 'SHIP', 'MAIL')", "mode NOT IN ('AIR', 'RAIL', 'SHIP', 'MAIL')"),
        ("mode like '%special%requests%'", "mode LIKE '%special%requests%'"),
        ("mode not like 'O''B_'", "mode NOT LIKE 'O''B_'"),
        ("mode ilike 'air%'", "mode ILIKE 'air%'"),
        ("mode is null", "mode IS NULL"),
        ("mode is not null and open", "mode IS NOT NULL AND open"),
        ("not open", "NOT open"),
        ("key = 1 or (key = 2 and number < 3)", "(key = 1) OR ((key = 2) AND (number < 3))"),
        ("case when open then key else 0 end > 3", "CASE WHEN open THEN key ELSE 0 END > 3"),
        ("case number when 1 then key end > 3", "CASE WHEN CAST(number AS int64) = 1 THEN key END > 3"),
        ("extract(month from shipped) = 2", "EXTRACT(MONTH FROM shipped) = 2"),
        ("substring(mode from 1 for 2) = 'AI'", "SUBSTRING(mode FROM 1 FOR 2) = 'AI'"),
        ("cast(price as double) > weight", "CAST(price AS float64) > weight"),
        ("-key < 4", "-key < 4"),
    ] {
        assert_eq!(pushed_text(condition).await, expected, "{condition}");
    }
}

#[tokio::test]
async fn conditions_that_stay_above_the_scan() {
    for condition in [
        "key / 2 = 3",
        "price / 2 > 1",
        "mode ~ 'A.*'",
        "upper(mode) = 'AIR'",
        "substring(mode from 0 for 2) = 'A'",
        "mode like mode",
        "extract(hour from seen) = 3",
        "try_cast(price as int) is null",
        "cast(key as varchar) like '3%'",
        "random() < 0.5",
        "case weight when cast(0.5 as double) then key else number end = 1",
        "key in (select number from t as other)",
    ] {
        assert_eq!(pushed_text(condition).await, "", "{condition}");
    }
}

#[tokio::test]
async fn only_the_conjuncts_that_a_scan_computes_are_pushed() {
    assert_eq!(pushed_text("key < 5 and upper(mode) = 'AIR' and open").await, "open AND key < 5");
}

#[test]
fn a_refused_expression_leaves_the_program_as_it_was() {
    let definition = definition();
    let mut builder = ProgramBuilder::over_table(&definition);
    let table = table();
    let refused = datafusion::prelude::col("key") % datafusion::prelude::lit(2_i64);
    let refused = refused.eq(datafusion::prelude::lit(1_i64));
    let refused = table.physical(&refused).unwrap();
    assert!(builder.filter(&refused[0]).is_err());
    let program = builder.finish(Output::Rows(Vec::new()), None).unwrap();
    assert!(program.inputs.is_empty() && program.nodes.is_empty() && program.filter.is_empty());
}

#[test]
fn what_neither_filter_nor_output_needs_is_not_read() {
    let definition = definition();
    let mut builder = ProgramBuilder::over_table(&definition);
    let unused = builder.column(ColumnId(7)).unwrap();
    let used = builder.column(ColumnId(2)).unwrap();
    assert_ne!(unused, used);
    let program = builder.finish(Output::Rows(vec![used]), None).unwrap();
    assert_eq!(program.inputs.iter().map(|input| input.column).collect::<Vec<_>>(), [ColumnId(2)]);
    assert_eq!(program.output, Output::Rows(vec![0]));
}
