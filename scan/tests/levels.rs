//! Tests that all levels of vector instructions of this machine give the same bits.
//!
//! Method: random tables, filters, outputs and groupings from printed seeds, scanned at every
//! level; the batches are compared as arrays, bit by bit, with those of the plain level.

#[expect(dead_code, reason = "a part of what the tests of this crate share")]
mod support;

use proptest::{prelude::*, test_runner::Config};
use rackscan_format::{
    program::{Output, VerifiedProgram},
    simd::Level,
};
use rackscan_scan::{ScanBatch, ScanError, ScanLimits, SegmentScan};
use std::sync::Arc;
use support::{
    Table,
    draw::{Draw, Program, table},
};

fn scan(table: &Table, program: &Arc<VerifiedProgram>, level: Level) -> Result<Vec<ScanBatch>, ScanError> {
    let (program, directory) = (Arc::clone(program), Arc::clone(&table.directory));
    let scan = SegmentScan::new(program, directory, 0, ScanLimits::default())?.at_level(level);
    table.drive(scan, |_| false).map(|(batches, _)| batches)
}

fn check(table: &Table, program: &Arc<VerifiedProgram>) {
    let plain = scan(table, program, Level::Plain);
    for level in Level::available() {
        let found = scan(table, program, level);
        match (&plain, &found) {
            (Ok(plain), Ok(found)) => {
                let same = plain.iter().zip(found).all(|(one, two)| one.batch == two.batch);
                assert!(same && plain.len() == found.len(), "{level}: {:?}", program.program());
            }
            (Err(plain), Err(found)) => assert_eq!(plain.to_string(), found.to_string()),
            _ => panic!("{level}: {plain:?} and {found:?}"),
        }
    }
}

proptest! {
    #![proptest_config(Config { cases: 60, failure_persistence: None, ..Config::default() })]

    #[test]
    fn rows_and_groups_are_the_same_bits_at_every_level(seed: u64) {
        let mut draw = Draw(seed);
        let table = table(&mut draw);
        for _ in 0..4 {
            let mut program = Program::new();
            let filter = (0..draw.below(3)).map(|_| program.predicate(&mut draw, &table, 2)).collect();
            let outputs = (0..3).map(|_| program.value(&mut draw, &table, 2)).collect();
            check(&table, &table.program(program.nodes, filter, Output::Rows(outputs)));

            let mut program = Program::new();
            let filter = (0..draw.below(3)).map(|_| program.predicate(&mut draw, &table, 1)).collect();
            let output = program.groups(&mut draw, &table);
            check(&table, &table.program(program.nodes, filter, output));
        }
    }
}
