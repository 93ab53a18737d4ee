//! Tests that pruning by zone maps saves pages and never loses a row.

#[expect(dead_code, reason = "a part of what the tests of this crate share")]
mod support;

use rackscan_format::{
    program::{Arithmetic, Comparison, Literal, Node, Output},
    schema::ColumnType,
    zone::Zone,
};
use rackscan_scan::{Estimator, ScanLimits};
use std::sync::Arc;
use support::{
    Column, Datum, Table,
    draw::{Draw, Program, table},
    interpret, rows_of, same,
};

/// A sorted column and one that follows it, of 100 blocks.
fn sorted() -> Table {
    let rows = 100 * 1024_i128;
    let sorted = (0..rows).map(Datum::Number).collect();
    // Odd numbers only from block 50 on, between bounds that do not say so.
    let other = (0..rows)
        .map(|row| row * 7919 % 10_007)
        .enumerate()
        .map(|(row, number)| Datum::Number(if row < 50 * 1024 { number / 2 * 2 } else { number }));
    let other = other.collect();
    let column = |values| Column { column_type: ColumnType::Int64, values };
    Table::new(vec![column(sorted), column(other)], 4096)
}

fn between(low: i64, high: i64) -> Vec<Node> {
    vec![
        Node::Column(0),
        Node::Column(1),
        Node::Literal(Literal::Int64(low)),
        Node::Literal(Literal::Int64(high)),
        Node::Compare { op: Comparison::GreaterOrEqual, left: 0, right: 2 },
        Node::Compare { op: Comparison::Greater, left: 3, right: 0 },
    ]
}

#[test]
fn a_range_of_a_sorted_column_reads_only_its_pages() {
    let table = sorted();
    let program = table.program(between(50_000, 50_100), vec![4, 5], Output::Rows(vec![1]));
    let (batches, stats) = table.scan(&program, ScanLimits::default()).unwrap();
    let found = rows_of(batches.iter().map(|batch| &batch.batch));
    assert!(same(&found, &interpret::rows(&table, &program)));
    assert_eq!(found.len(), 100);
    assert!(stats.pages_read <= 3, "{stats:?}");
    let pages: usize = table.directory.chunks.iter().map(|chunk| chunk.pages.len()).sum();
    let counted = stats.pages_read + stats.pages_skipped_by_zone + stats.pages_skipped_by_selection;
    assert_eq!(counted, pages as u64, "every page is either read or skipped, once: {stats:?}");
    assert!(stats.blocks_pruned >= 70, "{stats:?}");
}

#[test]
fn payload_pages_without_a_selected_row_are_not_read() {
    let table = sorted();
    let nodes = vec![
        Node::Column(1),
        Node::Column(0),
        Node::Literal(Literal::Int64(4001)),
        Node::Compare { op: Comparison::Equal, left: 0, right: 2 },
    ];
    let program = table.program(nodes, vec![3], Output::Rows(vec![1]));
    let (batches, stats) = table.scan(&program, ScanLimits::default()).unwrap();
    assert!(same(&rows_of(batches.iter().map(|batch| &batch.batch)), &interpret::rows(&table, &program)));
    assert!(stats.pages_skipped_by_selection > 0, "{stats:?}");
}

#[test]
fn a_range_that_covers_whole_pages_reads_no_filter_page_there() {
    let table = sorted();
    let program = table.program(between(-5, 1 << 40), vec![4, 5], Output::Rows(vec![1]));
    let (_, stats) = table.scan(&program, ScanLimits::default()).unwrap();
    assert_eq!(stats.pages_read, table.directory.chunks[1].pages.len() as u64);
}

#[test]
fn rows_do_not_depend_on_zone_maps() {
    for seed in 0..60 {
        let mut draw = Draw(seed);
        let mut table = table(&mut draw);
        let mut nodes = Program::new();
        let filter = (0..1 + draw.below(3)).map(|_| nodes.predicate(&mut draw, &table, 2)).collect();
        let output = nodes.value(&mut draw, &table, 1);
        let program = table.program(nodes.nodes, filter, Output::Rows(vec![output]));
        let (with, stats_with) = table.scan(&program, ScanLimits::default()).unwrap();
        let mut directory = (*table.directory).clone();
        for entry in directory.chunks.iter_mut().flat_map(|chunk| &mut chunk.pages) {
            // Unknown bounds, and nulls perhaps: a zone map that proves nothing.
            entry.zone = Zone { min: None, max: None, nulls: u32::from(entry.rows > 1) };
        }
        table.directory = Arc::new(directory);
        let (without, stats_without) = table.scan(&program, ScanLimits::default()).unwrap();
        let rows = |batches: &[rackscan_scan::ScanBatch]| rows_of(batches.iter().map(|batch| &batch.batch));
        assert!(same(&rows(&with), &rows(&without)), "seed {seed}: {:?}", program.program());
        assert!(stats_with.pages_read <= stats_without.pages_read, "seed {seed}");
    }
}

#[test]
fn an_estimate_bounds_what_the_scan_then_does() {
    for seed in 0..60 {
        let mut draw = Draw(seed);
        let table = table(&mut draw);
        let mut nodes = Program::new();
        let filter = (0..draw.below(3)).map(|_| nodes.predicate(&mut draw, &table, 2)).collect();
        let output = nodes.value(&mut draw, &table, 1);
        let program = table.program(nodes.nodes, filter, Output::Rows(vec![output]));
        let guess = Estimator::new(&program).estimate(&table.directory);
        let (_, stats) = table.scan(&program, ScanLimits::default()).unwrap();
        assert!(
            stats.pages_read <= guess.pages_filter + guess.pages_payload,
            "seed {seed}: {guess:?} {stats:?}"
        );
        assert!(stats.pages_read >= guess.pages_filter, "seed {seed}: {guess:?} {stats:?}");
        assert!(stats.bytes_read <= guess.bytes_filter + guess.bytes_payload, "seed {seed}");
        assert!(stats.rows_selected <= guess.rows_max && guess.rows_max <= guess.rows_total, "seed {seed}");
        assert_eq!(stats.rows_scanned, guess.rows_max, "seed {seed}");
        assert!((0.0..=1e9).contains(&guess.rows_selected), "seed {seed}");
    }
}

#[test]
fn a_tenth_of_a_sorted_range_is_estimated_as_about_a_tenth() {
    let table = sorted();
    let program = table.program(between(0, 10_240), vec![4, 5], Output::Rows(vec![1]));
    let guess = Estimator::new(&program).estimate(&table.directory);
    assert!((9_000.0..12_000.0).contains(&guess.rows_selected), "{guess:?}");
}

#[test]
fn blocks_that_bounds_decide_are_not_unpacked() {
    let table = sorted();
    // The page has many blocks; all but the two at the ends of the range are decided by their
    // bounds.
    let program = table.program(between(10_000, 60_000), vec![4, 5], Output::Rows(vec![]));
    let (batches, stats) = table.scan(&program, ScanLimits::default()).unwrap();
    let rows: usize = batches.iter().map(|batch| batch.batch.num_rows()).sum();
    assert_eq!(rows, 50_000);
    assert!(stats.blocks_unpacked <= 2, "{stats:?}");
    // A range that holds all rows needs no page, and so does one that holds none.
    for (low, high) in [(-5, 200_000), (500_000, 600_000)] {
        let program = table.program(between(low, high), vec![4, 5], Output::Rows(vec![]));
        let (_, stats) = table.scan(&program, ScanLimits::default()).unwrap();
        assert_eq!((stats.pages_read, stats.blocks_unpacked), (0, 0), "{stats:?}");
    }
}

#[test]
fn zone_maps_decide_about_expressions_too() {
    let table = sorted();
    let sum = |constant: i64| {
        vec![
            Node::Column(0),
            Node::Literal(Literal::Int64(1000)),
            Node::Arithmetic { op: Arithmetic::Add, left: 0, right: 1 },
            Node::Literal(Literal::Int64(constant)),
            Node::Compare { op: Comparison::Less, left: 2, right: 3 },
        ]
    };
    let program = table.program(sum(6000), vec![4], Output::Rows(vec![0]));
    let (batches, stats) = table.scan(&program, ScanLimits::default()).unwrap();
    assert!(same(&rows_of(batches.iter().map(|batch| &batch.batch)), &interpret::rows(&table, &program)));
    assert!(stats.blocks_pruned >= 70 && stats.pages_read <= 3, "{stats:?}");
    let program = table.program(sum(i64::MAX), vec![4], Output::Rows(vec![]));
    let (_, stats) = table.scan(&program, ScanLimits::default()).unwrap();
    assert_eq!((stats.pages_read, stats.rows_selected), (0, 100 * 1024), "{stats:?}");
}

#[test]
fn a_block_whose_codes_are_all_in_or_all_out_is_not_unpacked() {
    // Blocks of a sorted text column; the pattern holds of every other entry of a page, so codes
    // are looked up.
    let words: Vec<String> =
        (0..64).map(|word| format!("w{word:02}{}", if word % 8 < 4 { "yes" } else { "no" })).collect();
    let rows = 64 * 1024;
    let values = (0..rows).map(|row| Datum::Text(words[row / 1024].clone())).collect();
    let table = Table::new(vec![Column { column_type: ColumnType::Text, values }], 131_072);
    let like = Node::Like { item: 0, pattern: "%yes%".into(), negated: false, case_insensitive: false };
    let program = table.program(vec![Node::Column(0), like], vec![1], Output::Rows(vec![]));
    let (_, stats) = table.scan(&program, ScanLimits::default()).unwrap();
    assert_eq!((stats.rows_selected, stats.blocks_unpacked), (32 * 1024, 0), "{stats:?}");
}
