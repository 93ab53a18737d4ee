//! Tests that the estimates of a scan follow from zone maps as documented. Goal: bounds on the
//! number of groups, the only estimate that changes a plan. Method: a table of two columns with
//! known bounds and stored bytes.

use super::*;
use rackscan_format::segment::SegmentDirectory;
use rackscan_format::{
    ids::{DeviceId, SegmentId, TableId},
    program::{Aggregate, AggregateFunction, DatePart, Input, PROGRAM_VERSION},
    schema::{ColumnDefinition, TableDefinition},
    segment::{ChunkDirectory, Extent, PageEntry},
    zone::Zone,
};
use rackscan_scan::Estimator;
use std::sync::Arc;

const ROWS: u32 = 131_072;

/// A column with bounds, stored in so many 4 KiB sectors.
fn chunk(min: ZoneValue, max: ZoneValue, sectors: u32) -> ChunkDirectory {
    let extent = Extent { device: DeviceId(0), offset_bytes: 0, length_bytes: sectors * 4096 };
    let zone = Zone { min: Some(min), max: Some(max), nulls: 0 };
    ChunkDirectory { pages: vec![PageEntry { extent, first_row: 0, rows: ROWS, zone }] }
}

fn table() -> TableSnapshot {
    let columns = [("day", ColumnType::Date32), ("flag", ColumnType::Text), ("comment", ColumnType::Text)];
    let columns = columns.map(|(name, column_type)| ColumnDefinition {
        name: name.to_owned(),
        column_type,
        nullable: false,
    });
    let definition = TableDefinition {
        id: TableId(1),
        name: "t".to_owned(),
        columns: columns.into(),
        partition_key: ColumnId(0),
        sorted_by: None,
        page_size: 128 << 10,
        segment_rows: ROWS,
        nodes: vec![NodeId(0)],
        rows: ROWS.into(),
        source: "a test".to_owned(),
        succeeds: None,
        derived: Vec::new(),
        protection: None,
    };
    let text = |text: &str| ZoneValue::Text(text.as_bytes().to_vec());
    let directory = SegmentDirectory {
        table: TableId(1),
        segment: SegmentId(0),
        rows: ROWS,
        chunks: vec![
            chunk(ZoneValue::Integer(0), ZoneValue::Integer(3649), 48),
            chunk(text("A"), text("R"), 9),
            chunk(text("a"), text("z"), 600),
        ],
    };
    TableSnapshot::new(Arc::new(definition), [(NodeId(0), Arc::new(directory))])
}

/// A program that groups by `keys` over one input.
fn grouped(column: u16, column_type: ColumnType, mut nodes: Vec<Node>) -> ScanProgram {
    nodes.insert(0, Node::Column(0));
    let key = NodeIndex::try_from(nodes.len() - 1).unwrap();
    let aggregates = vec![Aggregate { function: AggregateFunction::CountRows, argument: None }];
    ScanProgram {
        version: PROGRAM_VERSION,
        table: TableId(1),
        inputs: vec![Input { column: ColumnId(column), column_type }],
        nodes,
        filter: Vec::new(),
        output: Output::Groups { keys: vec![key], aggregates },
        limit_rows: None,
        key_filters: Vec::new(),
    }
}

fn groups(column: u16, column_type: ColumnType, nodes: Vec<Node>) -> f64 {
    groups_max(&grouped(column, column_type, nodes), &table()).unwrap()
}

#[test]
fn integer_groups_are_bounded_by_their_range() {
    assert!((groups(0, ColumnType::Date32, Vec::new()) - 3650.0).abs() < 0.5);
}

#[test]
fn years_are_fewer_than_days() {
    let year = Node::DatePart { part: DatePart::Year, item: 0 };
    assert!(groups(0, ColumnType::Date32, vec![year]) <= 32.0);
}

#[test]
fn days_of_a_month_and_null_are_as_many_groups_as_are_expected_at_most() {
    let day = Node::DatePart { part: DatePart::Day, item: 0 };
    assert!(groups(0, ColumnType::Date32, vec![day]) >= 32.0);
}

#[test]
fn text_of_few_bits_a_row_has_few_groups_and_free_text_has_as_many_as_rows() {
    let flags = groups(1, ColumnType::Text, Vec::new());
    assert!((4.0..8.0).contains(&flags), "{flags}");
    assert!(groups(2, ColumnType::Text, Vec::new()) >= f64::from(ROWS));
}

#[test]
fn rows_have_no_bound_on_groups() {
    let mut program = grouped(0, ColumnType::Date32, Vec::new());
    program.output = Output::Rows(vec![0]);
    assert_eq!(groups_max(&program, &table()), None);
}

#[test]
fn a_scan_without_filter_reads_every_page_and_passes_every_row() {
    let table = table();
    let mut program = grouped(0, ColumnType::Date32, Vec::new());
    program.output = Output::Rows(vec![0]);
    let program = program.verify(&table.definition).unwrap();
    let (node, directory) = table.segments.values().next().unwrap();
    let program = Arc::new(program);
    let estimate = Estimator::new(&program).estimate(directory);
    let profile = profile(&program, *node, &estimate, &table);
    assert_eq!((profile.filter.pages, profile.payload.pages), (0, 1));
    assert_eq!(profile.payload.bytes, 48 * 4096);
    assert_eq!(profile.rows, u64::from(ROWS));
    assert!((profile.output_rows - f64::from(ROWS)).abs() < 0.5);
}
