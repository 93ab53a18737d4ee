//! Tests that the partial groups of a scan add up to those of a row-by-row aggregation in 128 bits.
//!
//! Method: random tables and groupings from printed seeds. Groups that appear in several batches
//! are merged before the comparison, as the engine does.

#[expect(dead_code, reason = "a part of what the tests of this crate share")]
mod support;

use proptest::{prelude::*, test_runner::Config};
use rackscan_format::program::{Aggregate, AggregateFunction, Arithmetic, Node, Output, VerifiedProgram};
use rackscan_scan::ScanLimits;
use support::{
    Datum, Table,
    draw::{Draw, Program, table},
    interpret::{self, name_of},
    merge::merged,
    rows_of, same,
};

fn found(table: &Table, program: &std::sync::Arc<VerifiedProgram>, limits: ScanLimits) -> Vec<Vec<Datum>> {
    let (batches, _) = table.scan(program, limits).expect("the scan succeeds");
    for batch in &batches {
        let Output::Groups { keys, .. } = &program.program().output else { panic!("groups") };
        let mut names: Vec<String> =
            rows_of([&batch.batch]).iter().map(|row| name_of(&row[..keys.len()])).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all, "groups are unique within a batch");
    }
    merged(program, &batches)
}

proptest! {
    #![proptest_config(Config { cases: 150, failure_persistence: None, ..Config::default() })]

    #[test]
    fn random_groupings_yield_the_groups_of_their_interpretation(seed: u64) {
        let mut draw = Draw(seed);
        let table = table(&mut draw);
        for _ in 0..6 {
            let mut nodes = Program::new();
            let filter = (0..draw.below(2)).map(|_| nodes.predicate(&mut draw, &table, 1)).collect();
            let output = nodes.groups(&mut draw, &table);
            let program = table.program(nodes.nodes, filter, output);
            let mut expected = interpret::rows(&table, &program);
            let Output::Groups { keys, .. } = &program.program().output else { panic!("groups") };
            if !keys.is_empty() {
                expected.sort_by_key(|row| name_of(&row[..keys.len()]));
            }
            for limits in [ScanLimits::default(), ScanLimits { memory_bytes: 2000, batch_rows: 1 }] {
                let found = found(&table, &program, limits);
                prop_assert!(
                    same(&found, &expected),
                    "seed {}: {:?}\nfound {:?}\nexpected {:?}",
                    seed, program.program(), &found[..found.len().min(5)], &expected[..expected.len().min(5)]
                );
            }
        }
    }
}

#[test]
fn without_keys_there_is_one_group_even_of_no_rows() {
    let table = table(&mut Draw(5));
    let nodes = vec![Node::Literal(rackscan_format::program::Literal::Boolean(false)), Node::Column(0)];
    let aggregates = vec![
        Aggregate { function: AggregateFunction::CountRows, argument: None },
        Aggregate { function: AggregateFunction::Sum, argument: Some(1) },
    ];
    let program = table.program(nodes, vec![0], Output::Groups { keys: vec![], aggregates });
    assert_eq!(found(&table, &program, ScanLimits::default()), [[Datum::Number(0), Datum::Null]]);
}

#[test]
fn a_sum_beyond_64_bits_of_values_within_them_is_exact() {
    let column_type = rackscan_format::schema::ColumnType::Decimal { precision: 18, scale: 0 };
    // A block's sum fits 64 bits, that of two does not.
    let values = (0..20_480).map(|row| Datum::Number(8_000_000_000_000_000 + row % 7)).collect();
    let table = Table::new(vec![support::Column { column_type, values }], 4096);
    let aggregates = vec![Aggregate { function: AggregateFunction::Sum, argument: Some(0) }];
    let program = table.program(vec![Node::Column(0)], vec![], Output::Groups { keys: vec![], aggregates });
    let expected: i128 = (0..20_480).map(|row| 8_000_000_000_000_000 + row % 7).sum();
    assert_eq!(found(&table, &program, ScanLimits::default()), [[Datum::Number(expected)]]);
}

#[test]
fn a_sum_beyond_128_bits_is_an_error_and_one_beyond_64_bits_of_integers_is_exact() {
    let values = (0..4096).map(|_| Datum::Number(i64::MAX.into())).collect();
    let column = support::Column { column_type: rackscan_format::schema::ColumnType::Int64, values };
    let table = Table::new(vec![column], 4096);
    let aggregates = || vec![Aggregate { function: AggregateFunction::Sum, argument: Some(0) }];
    let groups = Output::Groups { keys: vec![], aggregates: aggregates() };
    let program = table.program(vec![Node::Column(0)], vec![], groups);
    let expected = Datum::Number(4096 * i128::from(i64::MAX));
    assert_eq!(found(&table, &program, ScanLimits::default()), [[expected]]);

    let column_type = rackscan_format::schema::ColumnType::Decimal { precision: 18, scale: 0 };
    let large = 999_999_999_999_999_999;
    let column = |value: &dyn Fn(i128) -> i128| support::Column {
        column_type,
        values: (0..4096).map(|row| Datum::Number(value(row))).collect(),
    };
    // 4,096 products of 10^36 are 24 times what fits.
    let table = Table::new(vec![column(&|row| large - row % 3), column(&|_| large)], 4096);
    let aggregates = vec![Aggregate { function: AggregateFunction::Sum, argument: Some(2) }];
    let product = Node::Arithmetic { op: Arithmetic::Multiply, left: 0, right: 1 };
    let nodes = vec![Node::Column(0), Node::Column(1), product];
    let program = table.program(nodes, vec![], Output::Groups { keys: vec![], aggregates });
    let failure = table.scan(&program, ScanLimits::default()).unwrap_err();
    assert!(failure.is_overflow(), "{failure}");
}

#[test]
fn a_small_memory_bound_puts_groups_out_early() {
    let values = (0..20_000).map(Datum::Number).collect();
    let column = support::Column { column_type: rackscan_format::schema::ColumnType::Int64, values };
    let table = Table::new(vec![column], 4096);
    let aggregates = vec![Aggregate { function: AggregateFunction::CountRows, argument: None }];
    let program = table.program(vec![Node::Column(0)], vec![], Output::Groups { keys: vec![0], aggregates });
    let limits = ScanLimits { memory_bytes: 100_000, batch_rows: 1024 };
    let (batches, _) = table.scan(&program, limits).unwrap();
    assert!(batches.len() > 4, "{} batches", batches.len());
    assert!(batches.iter().all(|batch| batch.batch.num_rows() < 4096));
    let mut next = 0;
    for batch in &batches {
        assert_eq!(batch.first_block, next, "batches cover the blocks one after the other");
        next = batch.end_block;
    }
    assert_eq!(next, 20);
}

/// Rows of three columns: a nullable text key of few values, a nullable decimal key, and a nullable
/// value.
fn with_nulls(rows: i128, scale: i128) -> Table {
    use rackscan_format::schema::ColumnType;
    let column = |column_type, values| support::Column { column_type, values };
    let null_if = |null: bool, datum| if null { Datum::Null } else { datum };
    let texts = (0..rows).map(|row| null_if(row % 11 == 3, Datum::Text(format!("t{}", row % 3)))).collect();
    let keys = (0..rows).map(|row| null_if(row % 7 == 2, Datum::Number(row % 5 * 100))).collect();
    let values =
        (0..rows).map(|row| null_if(row % 13 == 5 || row % 3 == 1, Datum::Number((row % 97 - 48) * scale)));
    let decimal = ColumnType::Decimal { precision: 18, scale: 2 };
    let columns =
        vec![column(ColumnType::Text, texts), column(decimal, keys), column(decimal, values.collect())];
    Table::new(columns, 131_072)
}

fn each_aggregate_by(keys: Vec<u16>) -> Output {
    use AggregateFunction::{Count, CountRows, Max, Min, Sum};
    let of = |function, argument| Aggregate { function, argument: Some(argument) };
    let aggregates = vec![
        Aggregate { function: CountRows, argument: None },
        of(Count, 0),
        of(Count, 3),
        of(Sum, 2),
        of(Sum, 3),
        of(Min, 3),
        of(Max, 2),
    ];
    Output::Groups { keys, aggregates }
}

#[test]
fn null_keys_are_groups_and_null_values_count_for_nothing_where_keys_are_addressed_directly() {
    // Values of 9, 40 and 57 bits: sums in each width, products of the last beyond 64 bits.
    for scale in [1, 1 << 33, 1 << 50] {
        let table = with_nulls(5000, scale);
        for keys in [vec![], vec![0], vec![1], vec![0, 1]] {
            let product = Node::Arithmetic { op: Arithmetic::Multiply, left: 2, right: 1 };
            let nodes = vec![Node::Column(0), Node::Column(1), Node::Column(2), product];
            let key_count = keys.len();
            let program = table.program(nodes, vec![], each_aggregate_by(keys));
            let mut expected = interpret::rows(&table, &program);
            if key_count > 0 {
                expected.sort_by_key(|row| name_of(&row[..key_count]));
            }
            assert!(
                same(&found(&table, &program, ScanLimits::default()), &expected),
                "{scale}, {key_count} keys"
            );
        }
    }
}

#[test]
fn keys_of_a_wide_range_are_groups_whatever_rows_are_selected_and_wherever_the_table_is_put_out() {
    use rackscan_format::{
        program::{Arithmetic, Comparison, Literal},
        schema::ColumnType,
    };
    let rows = 9000_i128;
    let null_if = |null: bool, datum| if null { Datum::Null } else { datum };
    let column = |column_type, values| support::Column { column_type, values };
    let keys = |spread: i128| {
        let key = |row: i128| Datum::Number((row / 3 * 7919 % 2999 - 1000) * spread);
        (0..rows).map(|row| null_if(row % 17 == 4, key(row))).collect()
    };
    let values: Vec<Datum> =
        (0..rows).map(|row| null_if(row % 5 == 1, Datum::Number(row % 97 - 48))).collect();
    let picked: Vec<Datum> = (0..rows).map(|row| Datum::Number(row * 31 % 100)).collect();
    let decimal = ColumnType::Decimal { precision: 18, scale: 2 };
    for (key_type, spread) in [(ColumnType::Int64, 1 << 40), (ColumnType::Int32, 7), (ColumnType::Date32, 11)]
    {
        let columns = vec![
            column(key_type, keys(spread)),
            column(ColumnType::Int64, picked.clone()),
            column(decimal, values.clone()),
        ];
        let table = Table::new(columns, 8192);
        // Of a hundred: none left out, most in, few in.
        for most in [100, 60, 5] {
            let nodes = vec![
                Node::Column(0),
                Node::Column(1),
                Node::Column(2),
                Node::Arithmetic { op: Arithmetic::Multiply, left: 2, right: 2 },
                Node::Literal(Literal::Int64(most)),
                Node::Compare { op: Comparison::Less, left: 1, right: 4 },
            ];
            let program = table.program(nodes, vec![5], each_aggregate_by(vec![0]));
            let mut expected = interpret::rows(&table, &program);
            expected.sort_by_key(|row| name_of(&row[..1]));
            for limits in [ScanLimits::default(), ScanLimits { memory_bytes: 60_000, batch_rows: 1024 }] {
                let found = found(&table, &program, limits);
                assert!(same(&found, &expected), "{key_type:?}, {most} of a hundred rows");
            }
        }
    }
}

#[test]
fn the_first_and_the_last_text_of_a_group_are_found_whatever_dictionary_its_pages_have() {
    use AggregateFunction::{Count, Max, Min};
    use rackscan_format::{
        program::{Comparison, Literal},
        schema::ColumnType,
    };
    let rows = 12_000_i128;
    let null_if = |null: bool, datum| if null { Datum::Null } else { datum };
    let column = |column_type, values| support::Column { column_type, values };
    // Other texts from page to page, so that the same code is another text; and texts that no
    // dictionary holds.
    let word =
        |row: i128| format!("{}{}", ["pear", "fig", "", "apple", "zest"][(row % 5) as usize], row / 3000);
    let texts = (0..rows).map(|row| null_if(row % 7 == 3 || row % 3 == 1, Datum::Text(word(row)))).collect();
    let nulls = (0..rows).map(|row| null_if(row % 3 == 1, Datum::Text("same".into()))).collect();
    let distinct = (0..rows).map(|row| Datum::Text(format!("{:x}-{row}", row * 7919 % 65_537))).collect();
    let few = (0..rows).map(|row| Datum::Number(row % 3)).collect();
    let many = (0..rows).map(|row| Datum::Number(row / 4 * 1_000_003)).collect();
    let columns = vec![
        column(ColumnType::Int64, few),
        column(ColumnType::Int64, many),
        column(ColumnType::Text, texts),
        column(ColumnType::Text, nulls),
        column(ColumnType::Text, distinct),
    ];
    let table = Table::new(columns, 4096);
    for arguments in [vec![2], vec![3], vec![2, 3], vec![4], vec![2, 4]] {
        for keys in [vec![], vec![0], vec![1], vec![3]] {
            // All rows, most of them, few of them.
            for most in [12_000_000, 1_500_000_000, 40_000_000] {
                let nodes = (0..5).map(Node::Column).chain([
                    Node::Literal(Literal::Int64(most)),
                    Node::Compare { op: Comparison::LessOrEqual, left: 1, right: 5 },
                ]);
                let of = |function, argument: u16| Aggregate { function, argument: Some(argument) };
                let aggregates =
                    arguments.iter().flat_map(|text| [Min, Max, Count].map(|function| of(function, *text)));
                let output = Output::Groups { keys: keys.clone(), aggregates: aggregates.collect() };
                let filter = if most == 12_000_000 { vec![] } else { vec![6] };
                let program = table.program(nodes.collect(), filter, output);
                let mut expected = interpret::rows(&table, &program);
                if !keys.is_empty() {
                    expected.sort_by_key(|row| name_of(&row[..1]));
                }
                for limits in [ScanLimits::default(), ScanLimits { memory_bytes: 60_000, batch_rows: 1024 }] {
                    let found = found(&table, &program, limits);
                    assert!(same(&found, &expected), "{arguments:?} by {keys:?}, {most}");
                }
            }
        }
    }
}
