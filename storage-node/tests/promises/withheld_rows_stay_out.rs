//! Promise: a scan on a node leaves out the rows that the request withholds, whether their list is
//! in the request or in the requester's memory; an invalid list is refused before anything is
//! scanned. The positions of rows are reported as by a local scan.

use std::sync::Arc;

use arrow::{array::RecordBatch, compute::concat_batches};
use rackscan_format::{
    ids::SegmentId,
    limits::WITHHELD_HERE_BYTES_MAX,
    message::{Answer, Payload, Refusal, RefusalCode, Request, Target},
    program::{Aggregate, AggregateFunction, Node, Output, ScanProgram},
    withheld::WithheldRows,
};
use rackscan_scan::{output_schema, wire};

use crate::support::{client::Client, node::NodeFolder, table::Table};

/// Rows of a segment: more blocks than bitmaps of them fit a message.
const ROWS: u32 = 80_000;
/// Where lists are, behind the room for the result.
const RESULT_BYTES: u64 = 8 << 20;

/// Puts bytes where the node can read them.
fn offer(client: &Client, bytes: &[u8]) -> Target {
    let offset = usize::try_from(RESULT_BYTES).expect("it is small");
    client.region.copy_in(offset, bytes).expect("it fits");
    client.target(RESULT_BYTES, bytes.len() as u64)
}

fn process(
    client: &mut Client,
    program: &ScanProgram,
    segment: u32,
    withheld: Option<Payload>,
) -> Result<Answer, Refusal> {
    let target = client.target(0, RESULT_BYTES);
    client.ask(Request::Process {
        program: program.clone(),
        key_filters: Vec::new(),
        table: program.table,
        segment: SegmentId(segment),
        withheld,
        first_block: 0,
        target,
        report_reads: false,
    })
}

/// All rows of an answer.
fn rows(
    client: &Client,
    table: &Table,
    program: &ScanProgram,
    answer: Result<Answer, Refusal>,
) -> RecordBatch {
    let Ok(Answer::Processed { written_bytes, next_block: None, .. }) = answer else { panic!("{answer:?}") };
    let (schema, encoded) = (output_schema(&table.verified(program)), client.copy_out(0, written_bytes));
    let (mut batches, mut rest) = (Vec::new(), &encoded[..]);
    while !rest.is_empty() {
        let (batch, bytes) = wire::decode(rest, &schema).expect("a batch");
        batches.push(batch);
        rest = &rest[bytes..];
    }
    concat_batches(&schema, &batches).expect("one schema")
}

/// Rows with their numbers, the number of rows alone, and groups.
fn programs(table: &Table) -> [ScanProgram; 3] {
    let mut numbered = table.program(100);
    numbered.nodes.push(Node::RowNumber);
    numbered.output = Output::Rows(vec![0, 5]);
    let count = Aggregate { function: AggregateFunction::CountRows, argument: None };
    let sum = Aggregate { function: AggregateFunction::Sum, argument: Some(0) };
    let counted = Output::Groups { keys: vec![], aggregates: vec![count] };
    let grouped = Output::Groups { keys: vec![1], aggregates: vec![count, sum] };
    let all = ScanProgram { filter: vec![], ..table.program(0) };
    [numbered, ScanProgram { output: counted, ..all.clone() }, ScanProgram { output: grouped, ..all }]
}

#[test]
fn withheld_rows_stay_out_of_a_nodes_scan_whether_they_come_with_the_request_or_beside_it() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let table = Table::new(1, "t", 2, ROWS);
    table.load(&mut node.shm());
    let short = Arc::new(WithheldRows::of((0..ROWS).step_by(199)).expect("rows of a segment"));
    let long = Arc::new(WithheldRows::of((0..ROWS).filter(|row| row % 3 == 0)).expect("rows of a segment"));
    assert!(
        short.as_bytes().len() <= WITHHELD_HERE_BYTES_MAX && long.as_bytes().len() > WITHHELD_HERE_BYTES_MAX
    );
    for (wire, mut client) in node.both() {
        let beside = |client: &Client, rows: &WithheldRows| Payload::Beside(offer(client, rows.as_bytes()));
        for (segment, program) in
            (0..2).flat_map(|segment| programs(&table).map(|program| (segment, program)))
        {
            let here = Payload::Here(short.as_bytes().to_vec());
            let all = table.scan_locally(segment as usize, &program);
            for (gone, payload) in
                [(&short, here), (&short, beside(&client, &short)), (&long, beside(&client, &long))]
            {
                let pulled = if matches!(payload, Payload::Here(_)) { 0 } else { gone.as_bytes().len() };
                // The last list that was offered is the one that lies there.
                let payload = if pulled == 0 { payload } else { beside(&client, gone) };
                let before = client.status().counters.wire_read_bytes;
                let answer = process(&mut client, &program, segment, Some(payload));
                let found = rows(&client, &table, &program, answer);
                let (verified, gone) = (table.verified(&program), Arc::clone(gone));
                let expected = table.run_locally_without(segment as usize, verified, gone);
                assert_eq!(found, expected, "{wire}, segment {segment}");
                assert_ne!(found, all, "{wire}: a promise that is kept by withholding nothing");
                let read = client.status().counters.wire_read_bytes - before;
                assert_eq!(read, pulled as u64, "{wire}");
            }
            let answer = process(&mut client, &program, segment, None);
            assert_eq!(rows(&client, &table, &program, answer), all, "{wire}: nothing is remembered");
        }
    }
    node.stop();
}

#[test]
fn garbage_foreign_memory_and_rows_that_a_segment_does_not_have_are_refused_and_the_node_goes_on() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let table = Table::new(1, "t", 1, 3000);
    table.load(&mut node.shm());
    let program = table.program(1000);
    let right = WithheldRows::of([5, 2999]).expect("rows of a segment");
    let beyond = WithheldRows::of([5, 3000]).expect("rows of some segment");
    let mut changed = right.as_bytes().to_vec();
    changed[9] ^= 1;
    let endless = vec![0; WithheldRows::bytes_max(3000) + 1];
    for (wire, mut client) in node.both() {
        let code = |answer: Result<Answer, Refusal>| answer.expect_err("it cannot be served").code;
        for wrong in [&[1, 2, 3][..], &right.as_bytes()[..11], &changed, beyond.as_bytes(), &endless] {
            let beside = Payload::Beside(offer(&client, wrong));
            for payload in [Payload::Here(wrong.to_vec()), beside] {
                let refused = code(process(&mut client, &program, 0, Some(payload)));
                assert_eq!(refused, RefusalCode::Malformed, "{wire}: {wrong:?}");
            }
        }
        let source = offer(&client, right.as_bytes());
        let foreign = Payload::Beside(Target { offset_bytes: 1 << 50, ..source });
        assert_eq!(code(process(&mut client, &program, 0, Some(foreign))), RefusalCode::Memory, "{wire}");
        let answer = process(&mut client, &program, 0, Some(Payload::Beside(source)));
        assert_eq!(rows(&client, &table, &program, answer).num_rows(), 2998, "{wire}");
    }
    node.stop();
}
