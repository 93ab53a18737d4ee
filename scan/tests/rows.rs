//! Tests that a scan yields the same rows as a row-by-row interpretation of the program.
//!
//! Method: random tables and programs from printed seeds; the same scan with different limits, page
//! sizes and splits.

#[expect(dead_code, reason = "a part of what the tests of this crate share")]
mod support;

use proptest::{prelude::*, test_runner::Config};
use rackscan_format::{
    program::{Arithmetic, Comparison, Literal, Node, Output},
    schema::ColumnType,
};
use rackscan_scan::{ScanError, ScanLimits};
use support::{
    Column, Datum, Table,
    draw::{Draw, Program, table},
    interpret, rows_of, same,
};

const SMALL: ScanLimits = ScanLimits { memory_bytes: 40_000, batch_rows: 1 };

fn check(seed: u64) -> Result<(), TestCaseError> {
    let mut draw = Draw(seed);
    let table = table(&mut draw);
    for _ in 0..6 {
        let mut program = Program::new();
        let filter = (0..draw.below(4)).map(|_| program.predicate(&mut draw, &table, 2)).collect();
        let outputs = (0..draw.below(5)).map(|_| program.value(&mut draw, &table, 2)).collect();
        let limit = draw.chance(15).then(|| u32::try_from(draw.below(3000)).expect("small"));
        let program = table.limited(program.nodes, filter, Output::Rows(outputs), limit);
        let expected = interpret::rows(&table, &program);
        for limits in [ScanLimits::default(), SMALL] {
            let (batches, stats) = table.scan(&program, limits).expect("the scan succeeds");
            let found = rows_of(batches.iter().map(|batch| &batch.batch));
            prop_assert!(
                same(&found, &expected),
                "seed {seed}: {} rows, expected {}, {limits:?}, {:?}",
                found.len(),
                expected.len(),
                program.program()
            );
            prop_assert_eq!(stats.rows_selected, expected.len() as u64);
            let most = limits.batch_rows.max(1024);
            prop_assert!(batches.iter().all(|batch| batch.batch.num_rows() <= most));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(Config { cases: 150, failure_persistence: None, ..Config::default() })]

    #[test]
    fn random_programs_yield_the_rows_of_their_interpretation(seed: u64) {
        check(seed)?;
    }

    #[test]
    fn a_scan_that_stops_after_any_batch_goes_on_where_the_batch_ended(seed: u64) {
        let mut draw = Draw(seed);
        let table = table(&mut draw);
        let mut program = Program::new();
        let filter = vec![program.predicate(&mut draw, &table, 1)];
        let outputs = vec![program.value(&mut draw, &table, 1)];
        let program = table.program(program.nodes, filter, Output::Rows(outputs));
        let expected = interpret::rows(&table, &program);
        let limits = ScanLimits { batch_rows: 1 + draw.below(2500), memory_bytes: 1 + draw.below(100_000) };
        let (mut found, mut next_block) = (Vec::new(), 0);
        loop {
            let (batches, _) = table.scan_until(&program, limits, next_block, |_| true).expect("the scan succeeds");
            let Some(batch) = batches.first() else { break };
            prop_assert!(batch.first_block >= next_block && batch.end_block > batch.first_block);
            found.extend(rows_of([&batch.batch]));
            next_block = batch.end_block;
        }
        prop_assert!(same(&found, &expected), "seed {}", seed);
    }
}

fn integers(values: impl IntoIterator<Item = Option<i64>>) -> Column {
    let values =
        values.into_iter().map(|value| value.map_or(Datum::Null, |value| Datum::Number(value.into())));
    Column { column_type: ColumnType::Int64, values: values.collect() }
}

#[test]
fn unknown_is_not_true_and_not_unknown_is_not_true_either() {
    let table = Table::new(vec![integers([Some(1), None, Some(3)])], 4096);
    let constant = Node::Literal(Literal::Int64(2));
    let compare = Node::Compare { op: Comparison::Less, left: 0, right: 1 };
    let nodes = vec![Node::Column(0), constant, compare, Node::Not(2), Node::Or(vec![2, 3])];
    for (filter, expected) in [(2, vec![1]), (3, vec![3]), (4, vec![1, 3])] {
        let program = table.program(nodes.clone(), vec![filter], Output::Rows(vec![0]));
        let (batches, _) = table.scan(&program, ScanLimits::default()).unwrap();
        let expected: Vec<Vec<Datum>> =
            expected.into_iter().map(|value| vec![Datum::Number(value)]).collect();
        assert_eq!(rows_of(batches.iter().map(|batch| &batch.batch)), expected);
    }
}

#[test]
fn a_text_expression_that_is_true_of_null_keeps_null_rows_in_every_encoding() {
    for distinct in [3, 5000] {
        let text = |row: usize| Datum::Text(format!("{:x}", (row % distinct) * 0x9e37_79b9 + 0x1000_0000));
        let values = (0..5000).map(|row| if row % 5 == 0 { Datum::Null } else { text(row) });
        let column = Column { column_type: ColumnType::Text, values: values.collect() };
        let table = Table::new(vec![column], 8192);
        let nodes = vec![
            Node::Column(0),
            Node::Substring { item: 0, start: 1, length: Some(1) },
            Node::IsNull(1),
            Node::Not(2),
        ];
        for (filter, expected) in [(2, 1000), (3, 4000)] {
            let program = table.program(nodes.clone(), vec![filter], Output::Rows(vec![0]));
            let (_, stats) = table.scan(&program, ScanLimits::default()).unwrap();
            assert_eq!(stats.rows_selected, expected, "{distinct} distinct texts");
        }
    }
}

#[test]
fn nulls_that_begin_in_a_later_page_stay_in_their_rows() {
    let rows = 6000;
    let mut draw = Draw(4);
    let mut wide = || i128::from(draw.next() >> 2);
    let number = |row: usize, value: i128| {
        if row > 4500 && row.is_multiple_of(3) { Datum::Null } else { Datum::Number(value) }
    };
    let numbers = (0..rows).map(|row| number(row, wide())).collect();
    let texts = (0..rows).map(|row| match number(row, 1) {
        Datum::Null => Datum::Null,
        _ => Datum::Text(format!("{row} {}", "x".repeat(row % 40))),
    });
    let texts = texts.collect();
    let table = Table::new(
        vec![
            Column { column_type: ColumnType::Int64, values: numbers },
            Column { column_type: ColumnType::Text, values: texts },
        ],
        4096,
    );
    let program = table.program(vec![Node::Column(0), Node::Column(1)], vec![], Output::Rows(vec![0, 1]));
    let (batches, _) = table.scan(&program, ScanLimits::default()).unwrap();
    assert_eq!(batches.len(), 1, "all pages are in one batch");
    assert!(same(&rows_of([&batches[0].batch]), &interpret::rows(&table, &program)));
}

#[test]
fn no_output_columns_still_count_rows() {
    let table = Table::new(vec![integers((0..5000).map(Some))], 4096);
    let program = table.program(vec![], vec![], Output::Rows(vec![]));
    let (batches, stats) = table.scan(&program, ScanLimits::default()).unwrap();
    assert_eq!(batches.iter().map(|batch| batch.batch.num_rows()).sum::<usize>(), 5000);
    assert_eq!(stats.pages_read, 0, "nobody asked for a value");
}

#[test]
fn a_cast_behind_a_filter_only_fails_for_rows_that_pass_it() {
    let values = (0..3000).map(|row| Some(if row == 1500 { i64::MAX } else { row }));
    let table = Table::new(vec![integers(values)], 4096);
    let to = rackscan_format::program::ValueType::Int32;
    let nodes = vec![
        Node::Column(0),
        Node::Literal(Literal::Int64(100_000)),
        Node::Compare { op: Comparison::Less, left: 0, right: 1 },
        Node::Cast { item: 0, to },
        Node::Case { branches: vec![(2, 3)], otherwise: None },
    ];
    let guarded = table.program(nodes.clone(), vec![2], Output::Rows(vec![3]));
    let (batches, _) = table.scan(&guarded, ScanLimits::default()).unwrap();
    assert_eq!(batches.iter().map(|batch| batch.batch.num_rows()).sum::<usize>(), 2999);
    let branch = table.program(nodes.clone(), vec![], Output::Rows(vec![4]));
    assert!(
        table.scan(&branch, ScanLimits::default()).is_ok(),
        "the branch is not taken where it would fail"
    );
    let unguarded = table.program(nodes, vec![], Output::Rows(vec![3]));
    let failure = table.scan(&unguarded, ScanLimits::default()).unwrap_err();
    assert!(matches!(failure, ScanError::Computation { .. }), "{failure}");
}

#[test]
fn an_integer_beyond_its_type_is_an_error_in_rows_that_need_it_only() {
    let large = |row: i64| if row == 1500 { i64::MAX } else { row };
    let table = Table::new(vec![integers((0..3000).map(|row| Some(large(row))))], 4096);
    let nodes = |computed: Vec<Node>| {
        let mut nodes = vec![
            Node::Column(0),
            Node::Literal(Literal::Int64(4000)),
            Node::Compare { op: Comparison::Less, left: 0, right: 1 },
        ];
        nodes.extend(computed);
        let value = u16::try_from(nodes.len() - 1).unwrap();
        nodes.push(Node::Case { branches: vec![(2, value)], otherwise: None });
        (nodes, value)
    };
    let minus_4000 = || Node::Literal(Literal::Int64(-4000));
    for computed in [
        vec![Node::Arithmetic { op: Arithmetic::Add, left: 0, right: 1 }],
        vec![Node::Arithmetic { op: Arithmetic::Multiply, left: 0, right: 1 }],
        vec![minus_4000(), Node::Arithmetic { op: Arithmetic::Subtract, left: 0, right: 3 }],
    ] {
        let (nodes, value) = nodes(computed);
        let unguarded = table.program(nodes.clone(), vec![], Output::Rows(vec![value]));
        let failure = table.scan(&unguarded, ScanLimits::default()).unwrap_err();
        assert!(failure.is_overflow(), "{failure}");
        for (filter, output) in [(vec![2], value), (vec![], value + 1)] {
            let guarded = table.program(nodes.clone(), filter, Output::Rows(vec![output]));
            table.scan(&guarded, ScanLimits::default()).unwrap();
        }
    }
    let table = Table::new(vec![integers([Some(1), Some(i64::MIN), None].into_iter())], 4096);
    let program = table.program(vec![Node::Column(0), Node::Negate(0)], vec![], Output::Rows(vec![1]));
    assert!(table.scan(&program, ScanLimits::default()).unwrap_err().is_overflow());
}

#[test]
fn programs_whose_shared_nodes_would_unfold_without_end_are_still_answered() {
    let table = Table::new(vec![integers((0..2000).map(Some))], 4096);
    let mut nodes = vec![
        Node::Column(0),
        Node::Literal(Literal::Int64(7)),
        Node::Compare { op: Comparison::Equal, left: 0, right: 1 },
    ];
    for index in 2..100 {
        nodes.push(Node::And(vec![index, index]));
    }
    let program = table.program(nodes, vec![100], Output::Rows(vec![0]));
    let (batches, _) = table.scan(&program, ScanLimits::default()).unwrap();
    assert_eq!(rows_of(batches.iter().map(|batch| &batch.batch)), [[Datum::Number(7)]]);
}
