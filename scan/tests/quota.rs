//! Tests that a program that exceeds its quota stops cleanly, reports the reason, and yields no
//! wrong row.
//!
//! Method: the clock is a counter that advances by a microsecond each time it is read, so that a
//! quota ends at every point at which a scan can stop.

#[expect(dead_code, reason = "a part of what the tests of this crate share")]
mod support;

use rackscan_format::{
    program::{Aggregate, AggregateFunction, Comparison, Literal, Node, Output, VerifiedProgram},
    schema::ColumnType,
};
use rackscan_scan::{
    Bounced, CpuQuota, Quota, QuotaKind, ScanBatch, ScanError, ScanLimits, SegmentScan, Step,
};
use std::{cell::Cell, collections::BTreeMap, sync::Arc, time::Duration};
use support::{Column, Datum, Table, interpret, rows_of, same};

thread_local! {
    static LOOKS: Cell<u64> = const { Cell::new(0) };
}

/// A microsecond later at every look.
fn ticking() -> Duration {
    LOOKS.set(LOOKS.get() + 1);
    Duration::from_micros(LOOKS.get())
}

/// Keys are so far apart: 1 makes them addressed directly, a larger number hashed.
fn table(spread: i128) -> Table {
    let rows = 40 * 1024_i128;
    let column = |values| Column { column_type: ColumnType::Int64, values };
    let keys = (0..rows).map(|row| Datum::Number(row * 7919 % 3001 * spread)).collect();
    let values = (0..rows).map(|row| Datum::Number(row * row % 1_000_003)).collect();
    Table::new(vec![column(keys), column(values)], 4096)
}

fn rows_program(table: &Table) -> Arc<VerifiedProgram> {
    let nodes = vec![
        Node::Column(0),
        Node::Column(1),
        Node::Literal(Literal::Int64(500_000)),
        Node::Compare { op: Comparison::Less, left: 1, right: 2 },
    ];
    table.program(nodes, vec![3], Output::Rows(vec![0, 1]))
}

fn groups_program(table: &Table) -> Arc<VerifiedProgram> {
    let sum = Aggregate { function: AggregateFunction::Sum, argument: Some(1) };
    let output = Output::Groups { keys: vec![0], aggregates: vec![sum] };
    table.program(vec![Node::Column(0), Node::Column(1)], vec![], output)
}

const LIMITS: ScanLimits = ScanLimits { memory_bytes: 60_000, batch_rows: 1024 };

/// The batches until the end, or until the scan was bounced.
fn scan(
    table: &Table,
    program: &Arc<VerifiedProgram>,
    first: u32,
    quota: Quota,
) -> (Vec<ScanBatch>, Option<Bounced>) {
    let scan = SegmentScan::new(Arc::clone(program), Arc::clone(&table.directory), first, LIMITS)
        .expect("program and segment belong together");
    let mut scan = scan.with_quota(quota);
    let mut batches = Vec::new();
    loop {
        match scan.step() {
            Ok(Step::Read(pages)) => {
                for page in pages {
                    let bytes = table.pages[&(page.column, page.page)].clone();
                    scan.supply(page.column, page.page, bytes).expect("the page was asked for");
                }
            }
            Ok(Step::Batch(batch)) => batches.push(batch),
            Ok(Step::Done) => return (batches, None),
            Err(ScanError::Bounced { bounced, .. }) => return (batches, Some(bounced)),
            Err(error) => panic!("{error}"),
        }
    }
}

fn cpu(micros: u64) -> Quota {
    let most = Duration::from_micros(micros);
    Quota { cpu: Some(CpuQuota { most, clock: ticking }), ..Quota::default() }
}

#[test]
fn rows_before_a_bounce_and_those_of_a_scan_from_there_on_are_all_rows_once() {
    let table = table(1);
    let program = rows_program(&table);
    let expected = interpret::rows(&table, &program);
    let mut bounced_at = Vec::new();
    for micros in (0..400).step_by(9) {
        let (mut batches, bounced) = scan(&table, &program, 0, cpu(micros));
        if let Some(Bounced { quota, used, allowed, next_block }) = bounced {
            assert_eq!((quota, allowed), (QuotaKind::Cpu, micros));
            assert!(used > micros, "{used} of {micros} us");
            bounced_at.push(next_block);
            batches.extend(scan(&table, &program, next_block, Quota::default()).0);
        }
        let found = rows_of(batches.iter().map(|batch| &batch.batch));
        assert!(same(&found, &expected), "bounced after {micros} us");
    }
    bounced_at.dedup();
    assert!(bounced_at.len() > 10, "bounced at many places: {bounced_at:?}");
    assert_eq!(bounced_at[0], 0);
}

fn sums(batches: &[ScanBatch]) -> BTreeMap<i128, i128> {
    let mut sums: BTreeMap<i128, i128> = BTreeMap::new();
    for row in rows_of(batches.iter().map(|batch| &batch.batch)) {
        let [Datum::Number(key), Datum::Number(sum)] = row[..] else { panic!("{row:?}") };
        *sums.entry(key).or_default() += sum;
    }
    sums
}

#[test]
fn groups_before_a_bounce_and_those_of_a_scan_from_there_on_add_up() {
    for spread in [1, 1 << 40] {
        let table = table(spread);
        let program = groups_program(&table);
        let expected = sums(&scan(&table, &program, 0, Quota::default()).0);
        assert_eq!(expected.len(), 3001);
        let mut middle = 0;
        for micros in (0..300).step_by(9) {
            let (mut batches, bounced) = scan(&table, &program, 0, cpu(micros));
            if let Some(Bounced { next_block, .. }) = bounced {
                middle += usize::from(next_block > 0);
                batches.extend(scan(&table, &program, next_block, Quota::default()).0);
            }
            assert_eq!(sums(&batches), expected, "bounced after {micros} us");
        }
        assert!(middle > 10, "{middle} scans were bounced after their first batch");
    }
}

#[test]
fn groups_that_find_no_room_are_put_out_and_a_memory_quota_of_twice_the_bound_never_bounces_them() {
    for spread in [1, 1 << 40] {
        let table = table(spread);
        let program = groups_program(&table);
        let quota = Quota { memory_bytes: Some(2 * LIMITS.memory_bytes), ..Quota::default() };
        let (batches, bounced) = scan(&table, &program, 0, quota);
        assert_eq!(bounced, None);
        assert!(batches.len() > 4, "{} batches", batches.len());
        assert_eq!(sums(&batches), sums(&scan(&table, &program, 0, Quota::default()).0));
    }
}

#[test]
#[should_panic(expected = "a scan is changed after its first step")]
fn a_scan_that_has_begun_takes_no_other_quota() {
    let table = table(1);
    let program = rows_program(&table);
    let scan = SegmentScan::new(Arc::clone(&program), Arc::clone(&table.directory), 0, LIMITS).unwrap();
    let mut scan: SegmentScan<Vec<u8>> = scan.with_quota(Quota::default());
    assert!(matches!(scan.step(), Ok(Step::Read(_))));
    let _ = scan.with_quota(Quota::default());
}

#[test]
fn a_scan_that_would_hold_too_many_bytes_is_bounced_before_it_reads_them() {
    let table = table(1);
    let program = rows_program(&table);
    let quota = |memory_bytes| Quota { memory_bytes: Some(memory_bytes), ..Quota::default() };
    let scan_of = SegmentScan::new(Arc::clone(&program), Arc::clone(&table.directory), 0, LIMITS).unwrap();
    let mut refused: SegmentScan<Vec<u8>> = scan_of.with_quota(quota(5000));
    let error = refused.step().unwrap_err();
    let ScanError::Bounced { bounced, .. } = &error else { panic!("{error}") };
    assert_eq!((bounced.quota, bounced.allowed, bounced.next_block), (QuotaKind::Memory, 5000, 0));
    assert!(error.to_string().contains("was stopped: memory quota: "), "{error}");
    assert_eq!(refused.stats().pages_read, 0);

    let (batches, bounced) = scan(&table, &program, 0, quota(10_000_000));
    assert_eq!(bounced, None);
    assert!(same(&rows_of(batches.iter().map(|batch| &batch.batch)), &interpret::rows(&table, &program)));
}
