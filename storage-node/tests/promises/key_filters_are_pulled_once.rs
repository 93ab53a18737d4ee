//! Promise: a scan on a node with a key filter (a set of join keys) yields the rows that a local
//! scan with the same filter yields; the node pulls the filter's bytes once for each program, and
//! accepts no other bytes for it.

use std::sync::Arc;

use arrow::{array::RecordBatch, compute::concat_batches};
use rackscan_format::{
    ids::SegmentId,
    key_filter::KeyFilter,
    message::{Answer, Refusal, RefusalCode, Request, Target},
    program::{Node, ScanProgram},
};
use rackscan_scan::{output_schema, wire};

use crate::support::{client::Client, node::NodeFolder, table::Table};

/// Where the filter's bytes are, behind the room for the result.
const RESULT_BYTES: u64 = 4 << 20;

/// All rows whose key may be in the filter.
fn searching(table: &Table, filter: &KeyFilter) -> ScanProgram {
    let mut program = table.program(i64::MAX);
    program.nodes.push(Node::InKeys { item: 0, keys: 0 });
    program.filter.push(5);
    program.key_filters.push(filter.name());
    program
}

fn offer(client: &Client, bytes: &[u8]) -> Target {
    let offset = usize::try_from(RESULT_BYTES).expect("it is small");
    client.region.copy_in(offset, bytes).expect("it fits");
    client.target(RESULT_BYTES, bytes.len() as u64)
}

fn process(
    client: &mut Client,
    program: &ScanProgram,
    segment: u32,
    key_filters: Vec<Target>,
) -> Result<Answer, Refusal> {
    let target = client.target(0, RESULT_BYTES);
    let (program, segment) = (program.clone(), SegmentId(segment));
    client.ask(Request::Process {
        withheld: None,
        table: program.table,
        program,
        key_filters,
        segment,
        first_block: 0,
        target,
        report_reads: false,
    })
}

fn rows(
    client: &Client,
    table: &Table,
    program: &ScanProgram,
    answer: Result<Answer, Refusal>,
) -> RecordBatch {
    let Ok(Answer::Processed { written_bytes, cost, next_block: None, .. }) = answer else {
        panic!("{answer:?}")
    };
    assert!(cost.keys_tested >= cost.keys_kept && cost.keys_kept == cost.rows_selected, "{cost:?}");
    let (schema, encoded) = (output_schema(&table.verified(program)), client.copy_out(0, written_bytes));
    let (mut batches, mut rest) = (Vec::new(), &encoded[..]);
    while !rest.is_empty() {
        let (batch, bytes) = wire::decode(rest, &schema).expect("a batch");
        batches.push(batch);
        rest = &rest[bytes..];
    }
    concat_batches(&schema, &batches).expect("one schema")
}

#[test]
fn a_node_searches_in_the_keys_it_is_offered_and_pulls_them_once() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let table = Table::new(1, "t", 2, 5000);
    table.load(&mut node.shm());
    for ((wire, mut client), step) in node.both().into_iter().zip([7, 9]) {
        let keys: Vec<i64> = (0..1300).map(|key| key * step).collect();
        let filter = Arc::new(KeyFilter::of(&keys));
        let program = searching(&table, &filter);
        let source = offer(&client, &filter.to_bytes());
        let local = table.verified(&program).as_ref().clone().with_key_filters(vec![Arc::clone(&filter)]);
        let local = Arc::new(local.expect("it is the program's own"));
        let before = client.status().counters.wire_read_bytes;
        for segment in [0, 1, 0] {
            let answer = process(&mut client, &program, segment, vec![source]);
            let found = rows(&client, &table, &program, answer);
            let expected = table.run_locally(segment as usize, Arc::clone(&local));
            assert!(expected.num_rows() > 0 && expected.num_rows() < 5000, "{}", expected.num_rows());
            assert_eq!(found, expected, "{wire}");
        }
        let pulled = client.status().counters.wire_read_bytes - before;
        assert_eq!(pulled, u64::from(filter.name().length_bytes), "{wire}");
    }
    node.stop();
}

#[test]
fn other_bytes_other_numbers_and_foreign_memory_are_refused_and_the_node_goes_on() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let table = Table::new(1, "t", 1, 3000);
    table.load(&mut node.shm());
    for ((wire, mut client), key) in node.both().into_iter().zip([900, 901]) {
        // Another program on each wire, which the node does not know.
        let filter = KeyFilter::of(&[1, 2, 3, key]);
        let program = searching(&table, &filter);
        let mut changed = filter.to_bytes();
        changed[5] ^= 0x10;
        let wrong = offer(&client, &changed);
        let code = |answer: Result<Answer, Refusal>| answer.expect_err("it cannot be served").code;
        assert_eq!(code(process(&mut client, &program, 0, vec![wrong])), RefusalCode::Malformed, "{wire}");
        assert_eq!(code(process(&mut client, &program, 0, vec![])), RefusalCode::Malformed, "{wire}");
        let short = Target { length_bytes: 8, ..wrong };
        assert_eq!(code(process(&mut client, &program, 0, vec![short])), RefusalCode::Malformed, "{wire}");
        let foreign = Target { offset_bytes: 1 << 50, ..wrong };
        assert_eq!(code(process(&mut client, &program, 0, vec![foreign])), RefusalCode::Memory, "{wire}");
        let right = offer(&client, &filter.to_bytes());
        let answer = process(&mut client, &program, 0, vec![right]);
        assert!(matches!(answer, Ok(Answer::Processed { .. })), "{wire}: {answer:?}");
    }
    node.stop();
}
