//! Tests that key filters keep every row that a join may need, that they save pages, and that a
//! scan stops using a filter that does not pay off.

#[expect(dead_code, reason = "a part of what the tests of this crate share")]
mod support;

use rackscan_format::{
    key_filter::KeyFilter,
    program::{Node, Output, VerifiedProgram},
    schema::ColumnType,
    simd::Level,
};
use rackscan_scan::{Estimator, ScanLimits, SegmentScan};
use std::sync::Arc;
use support::{Column, Datum, Table, rows_of};

const ROWS: i128 = 40 * 1024;

/// A column in order, one out of order with nulls, and one to look at.
fn three() -> Table {
    let number = |value: i128| if value % 11 == 0 { Datum::Null } else { Datum::Number(value) };
    let column = |column_type, values| Column { column_type, values };
    Table::new(
        vec![
            column(ColumnType::Int64, (0..ROWS).map(Datum::Number).collect()),
            column(ColumnType::Int32, (0..ROWS).map(|row| number(row * 7919 % 10_007)).collect()),
            column(ColumnType::Int64, (0..ROWS).map(|row| Datum::Number(row * 3)).collect()),
        ],
        4096,
    )
}

/// Rows of the third column whose value in column `searched` may be among `keys`.
fn search(table: &Table, searched: u16, keys: &[i64]) -> (Arc<VerifiedProgram>, Arc<KeyFilter>) {
    let filter = Arc::new(KeyFilter::of(keys));
    let nodes = vec![Node::Column(searched), Node::InKeys { item: 0, keys: 0 }, Node::Column(2)];
    let program = table.program_with_keys(nodes, vec![1], Output::Rows(vec![2]), &[Arc::clone(&filter)]);
    (program, filter)
}

fn expected(table: &Table, searched: usize, filter: &KeyFilter) -> Vec<Vec<Datum>> {
    let rows = table.columns[searched].values.iter().zip(&table.columns[2].values);
    let wanted = rows.filter(|(value, _)| match value {
        Datum::Number(key) => filter.contains(i64::try_from(*key).expect("it is small")),
        _ => false,
    });
    wanted.map(|(_, value)| vec![value.clone()]).collect()
}

#[test]
fn a_search_keeps_exactly_the_rows_whose_key_the_filter_contains_on_every_level() {
    let table = three();
    let keys: Vec<i64> = (0..3000).map(|key| key * 3 + 1).collect();
    for searched in [0, 1] {
        let (program, filter) = search(&table, searched, &keys);
        for level in Level::available() {
            let scan = SegmentScan::new(
                Arc::clone(&program),
                Arc::clone(&table.directory),
                0,
                ScanLimits::default(),
            );
            let (batches, stats) =
                table.drive(scan.expect("it begins").at_level(level), |_| false).expect("it runs");
            let found = rows_of(batches.iter().map(|batch| &batch.batch));
            let same = found == expected(&table, searched.into(), &filter);
            assert!(same, "{level}, column {searched}");
            assert_eq!(stats.keys_kept, stats.rows_selected);
        }
    }
}

#[test]
fn pages_beyond_the_keys_bounds_are_not_read() {
    let table = three();
    let (program, _) = search(&table, 0, &[5000, 5003, 7000]);
    let (batches, stats) = table.scan(&program, ScanLimits::default()).expect("it runs");
    let rows: usize = batches.iter().map(|batch| batch.batch.num_rows()).sum();
    assert!((3..100).contains(&rows), "{rows}");
    assert!(stats.blocks_pruned >= 10, "{stats:?}");
    let none = search(&table, 0, &[]).0;
    let (batches, stats) = table.scan(&none, ScanLimits::default()).expect("it runs");
    assert_eq!((batches.len(), stats.pages_read), (0, 0));
}

#[test]
fn a_filter_that_keeps_nearly_everything_is_given_up() {
    let table = three();
    let all: Vec<i64> = (0..i64::try_from(ROWS).expect("it is small")).collect();
    let (program, _) = search(&table, 0, &all);
    // Pages for a few blocks at a time, so that later windows know what earlier ones saw.
    let limits = ScanLimits { memory_bytes: 40 << 10, ..ScanLimits::default() };
    let (batches, stats) = table.scan(&program, limits).expect("it runs");
    let rows: usize = batches.iter().map(|batch| batch.batch.num_rows()).sum();
    assert_eq!(rows as i128, ROWS);
    assert!(stats.keys_tested < 12 * 1024, "{stats:?}");
    let pages = table.directory.chunks[0].pages.len() as u64;
    assert!(stats.pages_skipped_by_zone > pages / 2, "its pages are not read any more: {stats:?}");
}

#[test]
fn without_its_filter_a_search_keeps_everything() {
    let table = three();
    let (program, _) = search(&table, 1, &[1, 2, 3]);
    let unbound = Arc::new(program.program().clone().verify(&table.definition).expect("it verifies"));
    let (batches, _) = table.scan(&unbound, ScanLimits::default()).expect("it runs");
    let rows: usize = batches.iter().map(|batch| batch.batch.num_rows()).sum();
    assert_eq!(rows as i128, ROWS);
}

#[test]
fn few_keys_of_many_are_estimated_as_few_rows() {
    let table = three();
    let (program, filter) = search(&table, 1, &[100, 2000, 9000]);
    let guess = Estimator::new(&program).estimate(&table.directory).rows_selected;
    let found = expected(&table, 1, &filter).len();
    assert!(guess < 200.0 && found < 200, "{guess} of {found}");
}
