//! Tests that a page other than the requested one ends the scan with an error that names the page.

#[expect(dead_code, reason = "a part of what the tests of this crate share")]
mod support;

use rackscan_format::{
    ids::{ColumnId, PageNumber, TableId},
    program::{Node, Output, ScanProgram},
    schema::ColumnType,
};
use rackscan_scan::{ScanBatch, ScanError, ScanLimits, SegmentScan, Step};
use std::sync::Arc;
use support::{
    Column, Datum, Table,
    draw::{Draw, Program, table},
    rows_of, same,
};

fn two_columns() -> Table {
    let column = |factor: i128| Column {
        column_type: ColumnType::Int64,
        values: (0..5000).map(|row| Datum::Number(row * factor % 4093)).collect(),
    };
    Table::new(vec![column(17), column(31)], 4096)
}

fn scan_of(table: &Table) -> SegmentScan<Vec<u8>> {
    let program = table.program(vec![Node::Column(0), Node::Column(1)], vec![], Output::Rows(vec![0, 1]));
    SegmentScan::new(program, Arc::clone(&table.directory), 0, ScanLimits::default())
        .expect("program and segment belong together")
}

#[test]
fn every_flipped_byte_of_a_page_is_noticed_and_names_the_page() {
    let table = two_columns();
    let wanted = (ColumnId(1), PageNumber(0));
    let sound = &table.pages[&wanted];
    for at in (0..sound.len()).step_by(37) {
        let mut scan = scan_of(&table);
        assert!(matches!(scan.step().unwrap(), Step::Read(_)));
        let mut broken = sound.clone();
        broken[at] ^= 0x10;
        let error = scan.supply(wanted.0, wanted.1, broken).unwrap_err();
        let ScanError::Page { column, page, extent, .. } = &error else { panic!("{error}") };
        assert_eq!((*column, *page), wanted, "byte {at}");
        assert_eq!(*extent, table.directory.page(wanted.0, wanted.1).unwrap().extent);
        assert!(error.to_string().contains("page 0 of column 1 of segment 3 of table 7"), "{error}");
    }
}

#[test]
fn of_bytes_said_to_be_unchanged_all_but_the_checksum_is_looked_at() {
    let table = two_columns();
    let wanted = (ColumnId(1), PageNumber(0));
    let page = &table.pages[&wanted];
    let supply = |bytes: Vec<u8>| {
        let mut scan = scan_of(&table);
        assert!(matches!(scan.step().unwrap(), Step::Read(_)));
        scan.supply_unchanged(wanted.0, wanted.1, bytes)
    };
    assert!(supply(page.clone()).is_ok());
    assert!(supply(table.pages[&(ColumnId(0), PageNumber(0))].clone()).is_err(), "another page");
    assert!(supply(page[..page.len() - 512].to_vec()).is_err(), "a part of the page");
}

#[test]
fn a_wrong_page_may_be_supplied_again_from_another_copy() {
    let table = two_columns();
    let mut scan = scan_of(&table);
    let Step::Read(pages) = scan.step().unwrap() else { panic!("expected a read") };
    let first = pages[0];
    assert!(scan.supply(first.column, first.page, vec![0; first.extent.length_bytes as usize]).is_err());
    let Step::Read(still) = scan.step().unwrap() else { panic!("expected a read") };
    assert_eq!(still, pages, "nothing was taken");
    for wanted in still {
        scan.supply(wanted.column, wanted.page, table.pages[&(wanted.column, wanted.page)].clone()).unwrap();
    }
    assert!(matches!(scan.step().unwrap(), Step::Batch(_)));
}

#[test]
fn another_page_of_the_same_table_is_misdirected() {
    let table = two_columns();
    for other in [(ColumnId(0), PageNumber(0)), (ColumnId(1), PageNumber(1))] {
        let mut scan = scan_of(&table);
        scan.step().unwrap();
        let error = scan.supply(ColumnId(1), PageNumber(0), table.pages[&other].clone()).unwrap_err();
        assert!(matches!(error, ScanError::Page { .. }), "{error}");
    }
}

#[test]
fn pages_nobody_asked_for_are_refused() {
    let table = two_columns();
    let page = || table.pages[&(ColumnId(0), PageNumber(0))].clone();
    let mut scan = scan_of(&table);
    let early = scan.supply(ColumnId(0), PageNumber(0), page()).unwrap_err();
    assert!(matches!(early, ScanError::NotWanted { .. }), "{early}");
    scan.step().unwrap();
    scan.supply(ColumnId(0), PageNumber(0), page()).unwrap();
    for (column, number) in [(0, 0), (0, 999), (2, 0)] {
        let error = scan.supply(ColumnId(column), PageNumber(number), page()).unwrap_err();
        assert!(matches!(error, ScanError::NotWanted { .. }), "{error}");
    }
}

#[test]
fn a_program_of_a_later_table_scans_a_segment_that_it_keeps_and_one_of_other_columns_ends_in_an_error() {
    let table = two_columns();
    let program = table.program(vec![Node::Column(0), Node::Column(1)], vec![], Output::Rows(vec![0, 1]));
    let later = |column_type| {
        let mut definition = table.definition.clone();
        definition.id = TableId(8);
        definition.columns[1].column_type = column_type;
        let mut program = ScanProgram { table: TableId(8), ..program.program().clone() };
        program.inputs[1].column_type = column_type;
        let program = Arc::new(program.verify(&definition).unwrap());
        table.scan(&program, ScanLimits::default()).map(|(batches, _)| batches)
    };
    let rows = |batches: Vec<ScanBatch>| rows_of(batches.iter().map(|batch| &batch.batch));
    let own = rows(table.scan(&program, ScanLimits::default()).unwrap().0);
    assert!(own.len() == 5000 && same(&rows(later(ColumnType::Int64).unwrap()), &own));
    for other in [ColumnType::Text, ColumnType::Float64] {
        assert!(later(other).is_err(), "{other}");
    }
}

#[test]
fn a_block_behind_the_end_is_refused() {
    let table = two_columns();
    let program = table.program(vec![], vec![], Output::Rows(vec![]));
    let behind = SegmentScan::<Vec<u8>>::new(program, Arc::clone(&table.directory), 6, ScanLimits::default());
    assert!(matches!(behind.err(), Some(ScanError::Mismatch { .. })));
}

/// Bytes that were changed by somebody who also made the checksum right.
fn forged(page: &[u8], at: usize, byte: u8) -> Vec<u8> {
    const CHECKSUM_AT: usize = 124;
    let mut page = page.to_vec();
    page[at] = byte;
    page[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
    let checksum = crc32c::crc32c(&page);
    page[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
    page
}

#[test]
fn forged_pages_give_an_error_or_wrong_rows_but_never_a_panic() {
    let mut draw = Draw(11);
    for _ in 0..60 {
        let table = table(&mut draw);
        let mut nodes = Program::new();
        let filter = vec![nodes.predicate(&mut draw, &table, 2)];
        let output = if draw.chance(50) {
            nodes.groups(&mut draw, &table)
        } else {
            Output::Rows((0..3).map(|_| nodes.value(&mut draw, &table, 1)).collect())
        };
        let program = table.program(nodes.nodes, filter, output);
        for _ in 0..20 {
            let mut scan = SegmentScan::new(
                Arc::clone(&program),
                Arc::clone(&table.directory),
                0,
                ScanLimits::default(),
            )
            .unwrap();
            let mut steps = 0;
            while let Ok(step) = scan.step() {
                steps += 1;
                assert!(steps < 1000, "a forged page must not keep a scan going");
                let Step::Read(pages) = step else {
                    if matches!(step, Step::Done) { break } else { continue }
                };
                let mut refused = false;
                for wanted in pages {
                    let page = &table.pages[&(wanted.column, wanted.page)];
                    // Headers, descriptors and dictionaries come first: most bytes changed are
                    // there.
                    let at = if draw.chance(80) {
                        draw.below(page.len().min(600))
                    } else {
                        draw.below(page.len())
                    };
                    let byte = draw.pick(&[0, 1, 0x7f, 0x80, 0xff, 64, 65]);
                    refused |= scan.supply(wanted.column, wanted.page, forged(page, at, byte)).is_err();
                }
                if refused {
                    break;
                }
            }
        }
    }
}
