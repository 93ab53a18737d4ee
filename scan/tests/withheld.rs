//! Tests that withheld rows stay out of the result of a scan, and that all other rows are in it.
//!
//! Method: random tables, programs and sets of withheld rows from printed seeds. A scan with
//! withheld rows must yield what a scan of a segment yields that was written without these rows.
//! The row numbers in the result must be those of a row-by-row interpretation.

mod support;

use proptest::{prelude::*, test_runner::Config};
use rackscan_format::{
    ids::SegmentId,
    key_filter::KeyFilter,
    limits::BLOCK_ROWS,
    program::{
        Aggregate, AggregateFunction, Arithmetic, Comparison, Literal, Node, NodeIndex, Output,
        VerifiedProgram,
    },
    row_place::RowPlace,
    schema::ColumnType,
    withheld::WithheldRows,
};
use rackscan_scan::{ScanBatch, ScanLimits, ScanStats, SegmentScan};
use std::{collections::BTreeSet, sync::Arc};
use support::{
    Column, Datum, Table,
    draw::{DECIMAL, Draw, Program, table},
    interpret,
    merge::merged,
    rows_of, same,
};

const PAGE_SIZES: [u32; 3] = [4096, 8192, 131_072];
const SMALL: ScanLimits = ScanLimits { memory_bytes: 3000, batch_rows: 1 };

/// None, few, most or all rows, evenly or in whole blocks.
fn withheld(draw: &mut Draw, rows: usize) -> Arc<WithheldRows> {
    let share = draw.pick(&[0, 1, 5, 50, 95, 100]);
    let blocks: Vec<bool> = (0..rows.div_ceil(BLOCK_ROWS)).map(|_| draw.chance(30)).collect();
    let is_withheld = |row: &usize, draw: &mut Draw| blocks[row / BLOCK_ROWS] || draw.chance(share);
    let by_block = draw.chance(40);
    let chosen = (0..rows).filter(|row| match by_block {
        true => blocks[row / BLOCK_ROWS],
        false => is_withheld(row, draw),
    });
    let chosen: Vec<u32> = chosen.map(|row| u32::try_from(row).expect("few rows")).collect();
    Arc::new(WithheldRows::of(chosen).expect("they are rows of a segment"))
}

fn scan(
    table: &Table,
    program: &Arc<VerifiedProgram>,
    withheld: &Arc<WithheldRows>,
    first_block: u32,
    limits: ScanLimits,
) -> (Vec<ScanBatch>, ScanStats) {
    let directory = Arc::clone(&table.directory);
    let scan = SegmentScan::new(Arc::clone(program), directory, first_block, limits).expect("they fit");
    table.drive(scan.withholding(Arc::clone(withheld)), |_| false).expect("the scan succeeds")
}

/// What batches hold: rows in order, or merged groups.
fn content(program: &VerifiedProgram, batches: &[ScanBatch]) -> Vec<Vec<Datum>> {
    match program.program().output {
        Output::Rows(_) => rows_of(batches.iter().map(|batch| &batch.batch)),
        Output::Groups { .. } => merged(program, batches),
    }
}

/// The same program over the same rows, once withheld and once never written, with every page size,
/// from any block on.
fn compare(
    draw: &mut Draw,
    table: &Table,
    program: &Arc<VerifiedProgram>,
    seed: u64,
) -> Result<(), TestCaseError> {
    let withheld = withheld(draw, table.rows());
    let first_block = draw.below(table.directory.blocks() + 1);
    let gone: BTreeSet<u32> = withheld.rows().collect();
    let is_kept =
        |row: usize| row >= first_block * BLOCK_ROWS && !gone.contains(&u32::try_from(row).expect("few"));
    let first_block = u32::try_from(first_block).expect("few");
    for page_size in PAGE_SIZES {
        let reduced = table.keeping(is_kept, page_size);
        let whole = table.keeping(|_| true, page_size);
        for limits in [ScanLimits::default(), SMALL] {
            let (expected, expected_stats) = reduced.scan(program, limits).expect("the scan succeeds");
            let (found, stats) = scan(&whole, program, &withheld, first_block, limits);
            let (expected, found) = (content(program, &expected), content(program, &found));
            prop_assert!(
                same(&found, &expected),
                "seed {seed}: {} rows of {withheld:?}, expected {}, from block {first_block}, {page_size}, {limits:?}, {:?}",
                found.len(),
                expected.len(),
                program.program()
            );
            prop_assert_eq!(stats.rows_selected, expected_stats.rows_selected);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(Config { cases: 40, failure_persistence: None, ..Config::default() })]

    #[test]
    fn rows_are_those_of_a_segment_written_without_the_withheld_ones(seed: u64) {
        let mut draw = Draw(seed);
        let table = table(&mut draw);
        for _ in 0..3 {
            let mut program = Program::new();
            let filter = (0..draw.below(4)).map(|_| program.predicate(&mut draw, &table, 2)).collect();
            let outputs = (0..draw.below(5)).map(|_| program.value(&mut draw, &table, 2)).collect();
            let limit = draw.chance(30).then(|| u32::try_from(draw.below(3000)).expect("small"));
            let program = table.limited(program.nodes, filter, Output::Rows(outputs), limit);
            compare(&mut draw, &table, &program, seed)?;
        }
    }

    #[test]
    fn groups_are_those_of_a_segment_written_without_the_withheld_rows(seed: u64) {
        let mut draw = Draw(seed);
        let table = table(&mut draw);
        for _ in 0..3 {
            let mut nodes = Program::new();
            let filter = (0..draw.below(2)).map(|_| nodes.predicate(&mut draw, &table, 1)).collect();
            let output = nodes.groups(&mut draw, &table);
            let program = table.program(nodes.nodes, filter, output);
            compare(&mut draw, &table, &program, seed)?;
        }
    }

    #[test]
    fn row_numbers_name_exactly_the_rows_that_match_and_are_there(seed: u64) {
        let mut draw = Draw(seed);
        let table = table(&mut draw);
        let withheld = withheld(&mut draw, table.rows());
        let mut program = Program::new();
        let filter = (0..draw.below(3)).map(|_| program.predicate(&mut draw, &table, 2)).collect();
        let value = program.value(&mut draw, &table, 1);
        let number = program.push(Node::RowNumber, rackscan_format::program::ValueType::Int64);
        let program = table.program(program.nodes, filter, Output::Rows(vec![number, value, number]));
        let gone: Vec<Datum> = withheld
            .rows()
            .map(|row| Datum::Number(RowPlace { segment: SegmentId(3), row }.number().into()))
            .collect();
        let mut expected = interpret::rows(&table, &program);
        expected.retain(|row| !gone.contains(&row[0]));
        for limits in [ScanLimits::default(), SMALL] {
            let (found, _) = scan(&table, &program, &withheld, 0, limits);
            let found = content(&program, &found);
            prop_assert!(same(&found, &expected), "seed {seed}: {} rows, expected {}", found.len(), expected.len());
        }
    }

    #[test]
    fn a_scan_that_stops_after_any_batch_goes_on_there_without_the_withheld_rows(seed: u64) {
        let mut draw = Draw(seed);
        let table = table(&mut draw);
        let withheld = withheld(&mut draw, table.rows());
        let mut nodes = Program::new();
        let output = if draw.chance(50) {
            nodes.groups(&mut draw, &table)
        } else {
            Output::Rows(vec![nodes.value(&mut draw, &table, 1)])
        };
        let program = table.program(nodes.nodes, Vec::new(), output);
        let (all, _) = scan(&table, &program, &withheld, 0, ScanLimits::default());
        let limits = ScanLimits { batch_rows: 1 + draw.below(2500), memory_bytes: 1 + draw.below(100_000) };
        let (mut found, mut next_block) = (Vec::new(), 0);
        loop {
            let directory = Arc::clone(&table.directory);
            let scan = SegmentScan::new(Arc::clone(&program), directory, next_block, limits).expect("they fit");
            let (batches, _) = table.drive(scan.withholding(Arc::clone(&withheld)), |_| true).expect("it succeeds");
            let Some(batch) = batches.into_iter().next() else { break };
            next_block = batch.end_block;
            found.push(batch);
            if next_block as usize >= table.directory.blocks() {
                break;
            }
        }
        let (found, all) = (content(&program, &found), content(&program, &all));
        prop_assert!(same(&found, &all), "seed {seed}: {} rows, expected {}", found.len(), all.len());
    }
}

fn numbers(column_type: ColumnType, rows: i128, value: impl Fn(i128) -> i128) -> Column {
    Column { column_type, values: (0..rows).map(|row| Datum::Number(value(row))).collect() }
}

fn set(rows: impl IntoIterator<Item = u32>) -> Arc<WithheldRows> {
    Arc::new(WithheldRows::of(rows).expect("rows of a segment"))
}

#[test]
fn rows_are_counted_without_a_page_being_read() {
    let table = Table::new(vec![numbers(ColumnType::Int64, 5000, |row| row)], 4096);
    let gone = set((0..5000).filter(|row| row % 7 == 0 || (1024..2048).contains(row)));
    let left = 5000 - i128::from(gone.count());
    let rows = table.program(vec![], vec![], Output::Rows(vec![]));
    let count = Aggregate { function: AggregateFunction::CountRows, argument: None };
    let output = Output::Groups { keys: vec![], aggregates: vec![count] };
    // The filter is true of all rows, and zone maps say so.
    let compare = Node::Compare { op: Comparison::GreaterOrEqual, left: 0, right: 1 };
    let nodes = vec![Node::Column(0), Node::Literal(Literal::Int64(0)), compare];
    for filter in [vec![], vec![2]] {
        let counted = table.program(nodes.clone(), filter, output.clone());
        let (batches, stats) = scan(&table, &counted, &gone, 0, ScanLimits::default());
        assert_eq!((content(&counted, &batches), stats.pages_read), (vec![vec![Datum::Number(left)]], 0));
        assert_eq!(i128::from(stats.rows_scanned), left);
    }
    let (batches, stats) = scan(&table, &rows, &gone, 0, ScanLimits::default());
    assert_eq!((content(&rows, &batches).len() as i128, stats.pages_read), (left, 0));
}

#[test]
fn pages_of_which_no_row_is_left_are_not_read() {
    let table = Table::new(vec![numbers(ColumnType::Int64, 8192, |row| row * 0x9e37_79b9 % 1_000_003)], 4096);
    let pages = table.directory.chunks[0].pages.len();
    assert!(pages > 2, "{pages} pages");
    let second = table.directory.chunks[0].pages[1].clone();
    let gone = set(second.first_row..second.first_row + second.rows);
    let compare = Node::Compare { op: Comparison::Less, left: 0, right: 1 };
    let nodes = vec![Node::Column(0), Node::Literal(Literal::Int64(500_000)), compare];
    let program = table.program(nodes, vec![2], Output::Rows(vec![0]));
    let (_, stats) = scan(&table, &program, &gone, 0, ScanLimits::default());
    assert_eq!((stats.pages_read, stats.pages_skipped_by_zone), (pages as u64 - 1, 1));
}

/// Two small keys, a sparse one, and numbers: all groupings below add blocks as they lie there.
fn lines() -> Table {
    let text = |row: i128| Datum::Text(["A", "N", "R"][usize::try_from(row % 3).expect("small")].to_owned());
    let flags = Column { column_type: ColumnType::Text, values: (0..9000).map(text).collect() };
    let columns = vec![
        flags,
        numbers(ColumnType::Int32, 9000, |row| row / 11 % 4),
        numbers(ColumnType::Int64, 9000, |row| row * 7919 % 100_000),
        numbers(DECIMAL, 9000, |row| row * 31 % 5000),
    ];
    Table::new(columns, 8192)
}

#[test]
fn groups_that_are_added_where_they_lie_leave_withheld_rows_out() {
    let table = lines();
    let product = Node::Arithmetic { op: Arithmetic::Multiply, left: 3, right: 3 };
    let nodes = vec![Node::Column(0), Node::Column(1), Node::Column(2), Node::Column(3), product];
    let of = |function, argument: NodeIndex| Aggregate { function, argument: Some(argument) };
    let aggregates = [
        Aggregate { function: AggregateFunction::CountRows, argument: None },
        of(AggregateFunction::Sum, 3),
        of(AggregateFunction::Sum, 4),
        of(AggregateFunction::Min, 2),
        of(AggregateFunction::Max, 3),
        of(AggregateFunction::Max, 0),
    ];
    // Of a few rows in a block one path adds, of most another; the largest and the smallest values
    // are among those that go.
    let sets = [
        set((0..9000).filter(|row| row % 10 > 0)),
        set((0..9000).filter(|row| row % 10 == 0)),
        set([0, 8999]),
    ];
    for keys in [vec![], vec![0], vec![0, 1], vec![2]] {
        let folded =
            aggregates.iter().filter(|one| keys != [2] || one.argument != Some(0)).copied().collect();
        let output = Output::Groups { keys, aggregates: folded };
        let program = table.program(nodes.clone(), vec![], output);
        for gone in &sets {
            let absent: BTreeSet<usize> = gone.rows().map(|row| row as usize).collect();
            let reduced = table.keeping(|row| !absent.contains(&row), 8192);
            let (found, _) = scan(&table, &program, gone, 0, ScanLimits::default());
            let (found, expected) = (content(&program, &found), interpret::rows(&reduced, &program));
            assert!(same(&found, &expected), "{found:?}\n{expected:?}");
        }
    }
}

#[test]
fn a_row_that_no_computation_survives_does_no_harm_once_it_is_withheld() {
    let values = numbers(ColumnType::Int64, 3000, |row| if row == 1500 { i64::MAX.into() } else { row });
    let table = Table::new(vec![values], 4096);
    let to = rackscan_format::program::ValueType::Int32;
    let program =
        table.program(vec![Node::Column(0), Node::Cast { item: 0, to }], vec![], Output::Rows(vec![1]));
    assert!(table.scan(&program, ScanLimits::default()).is_err());
    let (batches, _) = scan(&table, &program, &set([1500]), 0, ScanLimits::default());
    assert_eq!(content(&program, &batches).len(), 2999);
}

#[test]
fn key_filters_and_limits_do_not_count_withheld_rows() {
    let table = Table::new(vec![numbers(ColumnType::Int64, 5000, |row| row)], 4096);
    let filter = Arc::new(KeyFilter::of(&(0..5000).step_by(2).collect::<Vec<_>>()));
    let nodes = vec![Node::Column(0), Node::InKeys { item: 0, keys: 0 }];
    let program = table.program_with_keys(nodes, vec![1], Output::Rows(vec![0]), &[filter]);
    let gone = set((0..4000).chain([4998]));
    let (batches, stats) = scan(&table, &program, &gone, 0, ScanLimits::default());
    assert_eq!((content(&program, &batches).len(), stats.keys_tested), (499, 999));
    let limited = table.limited(vec![Node::Column(0)], vec![], Output::Rows(vec![0]), Some(3));
    let (batches, _) = scan(&table, &limited, &gone, 0, ScanLimits::default());
    let expected = [4000, 4001, 4002].map(|value| vec![Datum::Number(value)]);
    assert_eq!(content(&limited, &batches), expected);
}

#[test]
fn rows_that_the_segment_never_had_are_passed_over() {
    let table = Table::new(vec![numbers(ColumnType::Int64, 1500, |row| row)], 4096);
    let program = table.program(vec![Node::Column(0)], vec![], Output::Rows(vec![0]));
    let (batches, _) = scan(&table, &program, &set([7, 1500, 2000, 1_000_000]), 0, ScanLimits::default());
    assert_eq!(content(&program, &batches).len(), 1499);
}
