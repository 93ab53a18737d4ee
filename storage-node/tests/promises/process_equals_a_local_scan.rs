//! Promise: a scan on a node yields the same rows as the same scan run by the requester, on every
//! wire and for every size of the target, which is the requester's memory for the result.

use arrow::{array::RecordBatch, compute::concat_batches};
use rackscan_format::{
    ids::SegmentId,
    message::{Answer, RefusalCode, Request},
    program::{Aggregate, AggregateFunction, Output, ScanProgram},
};
use rackscan_scan::{output_schema, wire};

use crate::support::{client::Client, node::NodeFolder, table::Table};

/// Asks until the segment is done, with targets of `bytes`; returns the rows and the number of
/// answers.
fn process(
    client: &mut Client,
    table: &Table,
    segment: u32,
    program: &ScanProgram,
    bytes: u64,
) -> (RecordBatch, usize) {
    let schema = output_schema(&table.verified(program));
    let (mut batches, mut answers, mut first_block) = (Vec::new(), 0, 0);
    loop {
        let (program, target) = (program.clone(), client.target(0, bytes));
        let request = Request::Process {
            withheld: None,
            key_filters: Vec::new(),
            table: program.table,
            program,
            segment: SegmentId(segment),
            first_block,
            target,
            report_reads: false,
        };
        let answer = client.ask(request);
        let Ok(Answer::Processed { written_bytes, batches: count, rows, next_block, .. }) = answer else {
            panic!("{answer:?}")
        };
        answers += 1;
        let encoded = client.copy_out(0, written_bytes);
        let (mut at, mut found_rows) = (0, 0);
        for _ in 0..count {
            let (batch, length) = wire::decode(&encoded[at..], &schema).expect("a batch");
            at += length;
            found_rows += batch.num_rows();
            batches.push(batch);
        }
        assert_eq!((at as u64, found_rows as u64), (written_bytes, rows));
        match next_block {
            Some(next) if next > first_block => first_block = next,
            Some(next) => panic!("no progress: block {first_block}, then {next}"),
            None => return (concat_batches(&schema, &batches).expect("one schema"), answers),
        }
    }
}

#[test]
fn rows_are_the_same_on_every_wire() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let table = Table::new(1, "t", 2, 20_000);
    table.load(&mut node.shm());
    for (wire, mut client) in node.both() {
        for limit in [0, 3, 500, 1000] {
            let program = table.program(limit);
            for segment in 0..2 {
                let (found, answers) = process(&mut client, &table, segment, &program, 8 << 20);
                assert_eq!(found, table.scan_locally(segment as usize, &program), "{wire}, value < {limit}");
                assert_eq!(answers, 1, "{wire}");
            }
        }
    }
    node.stop();
}

#[test]
fn a_small_target_takes_more_answers_and_yields_the_same_rows() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let table = Table::new(1, "t", 1, 20_000);
    table.load(&mut node.shm());
    let program = table.program(1000);
    let expected = table.scan_locally(0, &program);
    for (wire, mut client) in node.both() {
        for bytes in [128 << 10, 200 << 10, 600 << 10] {
            let (found, answers) = process(&mut client, &table, 0, &program, bytes);
            assert_eq!(found, expected, "{wire}, {bytes} bytes");
            assert!(answers > 1, "{wire}, {bytes} bytes: {answers} answers");
        }
    }
    node.stop();
}

#[test]
fn a_target_below_one_block_is_refused_with_what_would_do() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let table = Table::new(1, "t", 1, 3000);
    table.load(&mut node.shm());
    for (wire, mut client) in node.both() {
        let request = |client: &Client, bytes| Request::Process {
            withheld: None,
            key_filters: Vec::new(),
            program: table.program(1000),
            table: table.id(),
            segment: SegmentId(0),
            first_block: 0,
            target: client.target(0, bytes),
            report_reads: false,
        };
        let too_small = request(&client, 4096);
        let refusal = client.refused(too_small);
        assert_eq!(refusal.code, RefusalCode::TargetTooSmall, "{wire}: {refusal:?}");
        let enough = request(&client, refusal.needed_bytes);
        let answer = client.ask(enough);
        assert!(matches!(answer, Ok(Answer::Processed { rows, .. }) if rows >= 1024), "{wire}: {answer:?}");
    }
    node.stop();
}

#[test]
fn groups_equal_those_of_a_local_scan() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let table = Table::new(1, "t", 1, 20_000);
    table.load(&mut node.shm());
    let count = Aggregate { function: AggregateFunction::CountRows, argument: None };
    let sum = Aggregate { function: AggregateFunction::Sum, argument: Some(0) };
    let output = Output::Groups { keys: vec![1], aggregates: vec![count, sum] };
    let program = ScanProgram { output, ..table.program(10) };
    let expected = table.scan_locally(0, &program);
    for (wire, mut client) in node.both() {
        let (found, _) = process(&mut client, &table, 0, &program, 1 << 20);
        assert_eq!(found, expected, "{wire}");
        assert!(found.num_rows() > 1);
    }
    node.stop();
}
